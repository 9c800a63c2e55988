package expr

import (
	"errors"

	"github.com/weirdb/weir/dataflow"
)

// The errors that rows fail with. Their texts are PostgreSQL's.

var (
	errBigIntRange = dataflow.Errorf(dataflow.ReasonExpressionFailed, "bigint out of range")
	errOverflow    = dataflow.Errorf(dataflow.ReasonExpressionFailed, "value out of range: overflow")
	errUnderflow   = dataflow.Errorf(dataflow.ReasonExpressionFailed, "value out of range: underflow")
	errTimeRange   = dataflow.Errorf(dataflow.ReasonExpressionFailed, "timestamp out of range")
	errIvlRange    = dataflow.Errorf(dataflow.ReasonExpressionFailed, "interval out of range")
)

// failf returns the error of a row whose value an expression cannot take.
func failf(format string, args ...any) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonExpressionFailed, format, args...)
}

// maxQuoted bounds how much of a value an error message repeats.
const maxQuoted = 200

// abridge shortens s for an error message.
func abridge(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	n := maxQuoted
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}

func badSyntax(typ, s string) *dataflow.Error {
	return failf(`invalid input syntax for type %s: "%s"`, typ, abridge(s))
}

func outOfRange(typ, s string) *dataflow.Error {
	return failf(`value "%s" is out of range for type %s`, abridge(s), typ)
}

// argumentError is an error about one argument of a call.
type argumentError struct {
	arg int
	err error
}

func (e *argumentError) Error() string { return e.err.Error() }

func (e *argumentError) Unwrap() error { return e.err }

// ArgumentOf returns which argument of NewCall, or which result of NewCase, an error is about: a text that is not of the type
// which the other arguments have. The result of ELSE counts as the last one.
func ArgumentOf(err error) (arg int, ok bool) {
	var e *argumentError
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.arg, true
}
