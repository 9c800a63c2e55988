package expr

import "github.com/weirdb/weir/dataflow"

// JSONOptions says how values print as JSON.
type JSONOptions struct {
	// NumbersAsStrings prints BIGINT and NUMERIC in quotes, for readers whose numbers are doubles.
	NumbersAsStrings bool
}

// AppendJSON appends v as a JSON value: BIGINT and NUMERIC with all digits, TIMESTAMPTZ as RFC 3339 with Z, a DOUBLE
// that JSON has no number for ("NaN", "Infinity", "-Infinity") and a NUMERIC NaN as strings, TEXT[] as an array.
func AppendJSON(dst []byte, v dataflow.Value, opts JSONOptions) []byte { return dst }

// ParseJSON reads one JSON token (a string with its quotes, a number, true, false or null; an array for TEXT[]) as a
// value of type t. BIGINT, NUMERIC and DOUBLE PRECISION also take a string of their text form, TIMESTAMPTZ takes a
// string. The error is a *dataflow.Error with reason ROW_INVALID that says what was expected.
func ParseJSON(t dataflow.Type, raw []byte) (dataflow.Value, error) {
	return dataflow.Value{}, dataflow.Errorf(dataflow.ReasonInternal, "values are not parsed")
}
