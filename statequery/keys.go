package statequery

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
)

// coerce gives a value of a request the type of the key column it stands for.
func coerce(col dataflow.Column, v dataflow.Value) (dataflow.Value, error) {
	switch {
	case v.Null:
		return dataflow.NullValue(col.Type), nil
	case v.Type == col.Type:
		return v, nil
	case v.Type == dataflow.TypeUnknown:
		out, err := expr.ParseValue(col.Type, v.Str)
		if err != nil {
			return v, dataflow.Errorf(dataflow.ReasonKeyInvalid, "key column %s: %w", col.Name, err)
		}
		return out, nil
	}
	// Another type: by its text, so that 7 fits a TEXT key and "7" a BIGINT one.
	out, err := expr.ParseValue(col.Type, expr.FormatValue(v))
	if err != nil {
		return v, dataflow.Errorf(dataflow.ReasonKeyInvalid, "key column %s is %s: %w", col.Name, col.Type, err)
	}
	return out, nil
}

// encodeKey checks a whole key against the table's key columns and encodes it.
func encodeKey(st *plan.Stage, row dataflow.Row) ([]byte, error) {
	if len(row) != len(st.Key) {
		return nil, dataflow.Errorf(dataflow.ReasonKeyInvalid, "the key of %s has %s; %d given", st.Name, keyShape(st), len(row)).
			WithHint("give one value per key column, in order")
	}
	return encodeParts(st, row)
}

func encodeParts(st *plan.Stage, row dataflow.Row) ([]byte, error) {
	var out []byte
	for i, v := range row {
		v, err := coerce(st.Key[i], v)
		if err != nil {
			return nil, err
		}
		out = key.AppendValue(out, v)
	}
	if len(out) > dataflow.MaxKeyBytes {
		return nil, dataflow.Errorf(dataflow.ReasonTooLarge, "the key has %d bytes encoded; the limit is %d", len(out), dataflow.MaxKeyBytes)
	}
	return out, nil
}

func keyShape(st *plan.Stage) string {
	if len(st.Key) == 0 {
		return "no columns: the table has one row"
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
	lo, hi = base, key.PrefixEnd(base)
	if len(base) == 0 {
		hi = nil
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
		p := key.AppendTextPrefix(append([]byte(nil), base...), r.Prefix)
		lo, hi = p, key.PrefixEnd(p)
	}
	bound := func(v *dataflow.Value, what string) ([]byte, error) {
		c, err := coerce(next, *v)
		if err != nil {
			return nil, err
		}
		if c.Null {
			return nil, dataflow.Errorf(dataflow.ReasonKeyInvalid, "%s: NULL bounds nothing", what)
		}
		return key.AppendValue(append([]byte(nil), base...), c), nil
	}
	if r.From != nil {
		b, err := bound(r.From, "from")
		if err != nil {
			return nil, nil, err
		}
		if string(b) > string(lo) {
			lo = b
		}
	}
	if r.To != nil {
		b, err := bound(r.To, "to")
		if err != nil {
			return nil, nil, err
		}
		if hi == nil || string(b) < string(hi) {
			hi = b
		}
	}
	if hi != nil && string(lo) > string(hi) {
		if r.From != nil && r.To != nil {
			return nil, nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "from %s lies after to %s", expr.FormatValue(*r.From), expr.FormatValue(*r.To))
		}
		lo = hi // nothing satisfies both the prefix and the bounds
	}
	return lo, hi, nil
}
