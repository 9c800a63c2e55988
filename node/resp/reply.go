package resp

import (
	"errors"
	"strings"

	"github.com/tidwall/redcon"

	"github.com/weirdb/weir/dataflow"
)

// reply is what a connection has to send, in the version of the protocol that its client has chosen.
type reply struct {
	b  []byte
	v3 bool // RESP3: NULL and maps have forms of their own
	// refused is set by an error.
	refused bool
}

func (r *reply) null() {
	if r.v3 {
		r.b = append(r.b, "_\r\n"...)
		return
	}
	r.b = redcon.AppendNull(r.b)
}

func (r *reply) bulk(v []byte)       { r.b = redcon.AppendBulk(r.b, v) }
func (r *reply) bulkString(v string) { r.b = redcon.AppendBulkString(r.b, v) }
func (r *reply) simple(v string)     { r.b = redcon.AppendString(r.b, v) }
func (r *reply) ok()                 { r.b = redcon.AppendOK(r.b) }
func (r *reply) int(v int64)         { r.b = redcon.AppendInt(r.b, v) }

// array begins an array of n elements, which follow.
func (r *reply) array(n int) { r.b = redcon.AppendArray(r.b, n) }

// pairs begins a map of n pairs, which follow: in RESP2 an array of twice as many.
func (r *reply) pairs(n int) {
	at := len(r.b)
	if !r.v3 {
		n *= 2
	}
	r.b = redcon.AppendArray(r.b, n)
	if r.v3 {
		r.b[at] = '%'
	}
}

// refuse writes an error in the words of Redis: code is its first word.
func (r *reply) refuse(code, text string) {
	r.refused = true
	r.b = redcon.AppendError(r.b, code+" "+printable(text))
}

// errorPrefix begins the code of Weir's own errors: the reason of docs/errors.md follows.
const errorPrefix = "WEIR_"

// fail writes an error of Weir's.
func (r *reply) fail(err error) {
	var p protocolError
	if errors.As(err, &p) {
		r.refuse("ERR", err.Error())
		return
	}
	text := err.Error()
	var e *dataflow.Error
	if errors.As(err, &e) {
		text = e.Error()
	}
	r.refuse(errorPrefix+string(dataflow.ReasonOf(err)), text)
}

// printable takes what a terminal or a log should not see from a text that may hold what a client sent.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
}
