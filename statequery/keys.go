package statequery

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
)

// coerce gives a value of a request the type of the key column it stands for. A value of TypeUnknown is a literal: text as in a
// URL or on a command line; a TEXT is a string, as in a body of JSON. They differ for BYTEA only.
func coerce(col dataflow.Column, v dataflow.Value) (dataflow.Value, error) {
	literal := v.Type == dataflow.TypeUnknown
	switch {
	case v.Null:
		return dataflow.NullValue(col.Type), nil
	case v.Type == col.Type && v.Type != dataflow.TypeText: // which a request may have filled with anything
		return v, nil
	case col.Type == dataflow.TypeBytea:
		return keyBytes(col, v)
	}
	// Another type: by its text, so that 7 fits a TEXT key and "7" a BIGINT one.
	text := v.Str
	if !literal {
		text = expr.FormatValue(v)
	}
	out, err := expr.ParseValue(col.Type, text)
	switch {
	case err == nil:
		return out, nil
	case literal || v.Type == col.Type:
		return v, dataflow.Errorf(dataflow.ReasonKeyInvalid, "key column %s: %w", col.Name, err)
	}
	return v, dataflow.Errorf(dataflow.ReasonKeyInvalid, "key column %s is %s: %w", col.Name, col.Type, err)
}

// keyBytes is coerce for a key column of BYTEA. A literal is \x and hexadecimal digits; a string may be base64 too, as answers
// have it. Why not the escape format, which SQL takes: any text is one, so that a key in the wrong form would be another key,
// and a read would find nothing and not say why.
func keyBytes(col dataflow.Column, v dataflow.Value) (dataflow.Value, error) {
	const hexHint = `write the key in hexadecimal: \x00ff`
	if (v.Type == dataflow.TypeUnknown || v.Type == dataflow.TypeText) && strings.HasPrefix(v.Str, `\x`) {
		out, err := expr.ParseValue(dataflow.TypeBytea, v.Str)
		if err != nil {
			return v, dataflow.Errorf(dataflow.ReasonKeyInvalid, "key column %s: %w", col.Name, err).WithHint(hexHint)
		}
		return out, nil
	}
	switch v.Type {
	case dataflow.TypeUnknown:
		return v, dataflow.Errorf(dataflow.ReasonKeyInvalid, "key column %s is BYTEA: the text is not \\x and hexadecimal digits", col.Name).WithHint(hexHint)
	case dataflow.TypeText:
		b, err := base64.StdEncoding.Strict().DecodeString(v.Str)
		if err == nil && !strings.ContainsAny(v.Str, "\r\n") { // which the decoder skips
			return dataflow.Value{Type: dataflow.TypeBytea, Str: string(b)}, nil
		}
	}
	return v, dataflow.Errorf(dataflow.ReasonKeyInvalid, "key column %s is BYTEA: the value is neither base64 nor \\x and hexadecimal digits", col.Name).
		WithHint(`write the key as the string "AP8=" (base64) or "\\x00ff" (hexadecimal)`)
}

// encodeKey checks a whole key against the table's key columns and encodes it.
func encodeKey(st *plan.Stage, row dataflow.Row) ([]byte, error) {
	return appendKey(make([]byte, 0, 64), st, row) // most keys fit
}

// appendKey is encodeKey into memory of the caller.
func appendKey(dst []byte, st *plan.Stage, row dataflow.Row) ([]byte, error) {
	if len(row) != len(st.Key) {
		return dst, errKeyShape(st, len(row))
	}
	return appendParts(dst, st, row)
}

func errKeyShape(st *plan.Stage, given int) error {
	return dataflow.Errorf(dataflow.ReasonKeyInvalid, "the key of %s has %s; %d given", st.Name, keyShape(st), given).
		WithHint("give one value per key column, in order").WithMeta("key_columns", strconv.Itoa(len(st.Key)))
}

func encodeParts(st *plan.Stage, row dataflow.Row) ([]byte, error) {
	return appendParts(make([]byte, 0, 64), st, row) // most keys fit
}

func appendParts(dst []byte, st *plan.Stage, row dataflow.Row) ([]byte, error) {
	from := len(dst)
	for i := range row {
		v, err := coerce(st.Key[i], row[i])
		if err != nil {
			return dst[:from], err
		}
		dst = key.AppendValue(dst, v)
	}
	if n := len(dst) - from; n > dataflow.MaxKeyBytes {
		return dst[:from], errLongKey(n)
	}
	return dst, nil
}

func errLongKey(n int) error {
	return dataflow.Errorf(dataflow.ReasonTooLarge, "the key has %d bytes encoded; the limit is %d", n, dataflow.MaxKeyBytes)
}

func keyShape(st *plan.Stage) string {
	switch len(st.Key) {
	case 0:
		return "no columns: the table has one row"
	case 1:
		return fmt.Sprintf("one column %s", st.Key)
	}
	return fmt.Sprintf("%d columns %s", len(st.Key), st.Key)
}

// keyRange returns the encoded keys [lo, hi) that a scan's range selects; a nil hi is no bound.
func keyRange(st *plan.Stage, r dataflow.ScanRange) (lo, hi []byte, err error) {
	if len(r.Equal) > len(st.Key) {
		return nil, nil, dataflow.Errorf(dataflow.ReasonKeyInvalid, "the key of %s has %s; %d given", st.Name, keyShape(st), len(r.Equal))
	}
	base, err := encodeParts(st, r.Equal)
	if err != nil {
		return nil, nil, err
	}
	lo = base
	if len(base) > 0 {
		hi = key.PrefixEnd(base)
	}
	if r.Prefix == "" && r.From == nil && r.To == nil {
		return lo, hi, nil
	}
	if len(r.Equal) == len(st.Key) {
		return nil, nil, dataflow.Errorf(dataflow.ReasonKeyInvalid, "the key of %s has %s and all of them are given: there is no next part for prefix, from and to", st.Name, keyShape(st))
	}
	next := st.Key[len(r.Equal)]
	if r.Prefix != "" {
		if next.Type != dataflow.TypeText {
			return nil, nil, dataflow.Errorf(dataflow.ReasonKeyInvalid, "prefix: key column %s is %s, not TEXT", next.Name, next.Type).WithHint("use from and to")
		}
		lo = key.AppendTextPrefix(bytes.Clone(base), r.Prefix)
		hi = key.PrefixEnd(lo)
	}
	from, err := bound("from", next, base, r.From)
	if err != nil {
		return nil, nil, err
	}
	to, err := bound("to", next, base, r.To)
	if err != nil {
		return nil, nil, err
	}
	if from != nil && to != nil && bytes.Compare(from, to) > 0 {
		return nil, nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "the range begins at %q, which lies after its end %q", rangeText(*r.From), rangeText(*r.To))
	}
	if from != nil && bytes.Compare(from, lo) > 0 {
		lo = from
	}
	if to != nil && (hi == nil || bytes.Compare(to, hi) < 0) {
		hi = to
	}
	if hi != nil && bytes.Compare(lo, hi) > 0 {
		lo = hi // nothing satisfies both the prefix and the bounds
	}
	return lo, hi, nil
}

// bound returns the key at which the next part after base has the value v; nil for no value.
func bound(what string, next dataflow.Column, base []byte, v *dataflow.Value) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	c, err := coerce(next, *v)
	if err != nil {
		return nil, err
	}
	if c.Null {
		return nil, dataflow.Errorf(dataflow.ReasonKeyInvalid, "%s: NULL bounds nothing", what)
	}
	return key.AppendValue(bytes.Clone(base), c), nil
}

// rangeText writes an end of a range as it was given.
func rangeText(v dataflow.Value) string {
	if v.Type == dataflow.TypeUnknown {
		return v.Str
	}
	return expr.FormatValue(v)
}
