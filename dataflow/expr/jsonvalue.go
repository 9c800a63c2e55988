package expr

import (
	"errors"
	"math"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/jsonb"
)

// parseJSONB reads JSON text and returns its normal form.
func parseJSONB(s string) (string, *dataflow.Error) {
	v, err := appendJSONB(nil, []byte(s))
	return string(v), err
}

// appendJSONB appends the normal form of a JSON text.
func appendJSONB(dst, text []byte) ([]byte, *dataflow.Error) {
	out, err := jsonb.Append(dst, text, dataflow.MaxRowBytes)
	switch {
	case errors.Is(err, jsonb.ErrTooLarge):
		return dst, dataflow.Errorf(dataflow.ReasonTooLarge, "a JSONB value may have %d bytes", dataflow.MaxRowBytes)
	case err != nil:
		return dst, failf("invalid input syntax for type json").WithHint("%v", err)
	}
	return out, nil
}

// appendToJSON appends row i of v, of any type, as JSONB: what to_jsonb makes of it. NULL becomes null.
func appendToJSON(dst []byte, v *batch.Vector, i int) []byte {
	if v.Type == dataflow.TypeUnknown || v.IsNull(i) {
		return append(dst, "null"...)
	}
	switch v.Type {
	case tBool, tInt:
		return appendVector(dst, v, i)
	case tJSON:
		return append(dst, v.Text(i)...)
	case tNum:
		if d := &v.Decs[i]; d.Form == 0 {
			return formatNumeric(dst, d)
		}
	case tFlt:
		if f := v.Floats[i]; !math.IsNaN(f) && !math.IsInf(f, 0) {
			// Doubles have no digits that NUMERIC could not hold.
			dst, _ = jsonb.Append(dst, appendDouble(nil, f), dataflow.MaxRowBytes)
			return dst
		}
	case tText:
		return jsonb.AppendString(dst, v.Text(i))
	case tTime:
		text := appendTimestamp(nil, v.Ints[i])
		for k := range text {
			if text[k] == ' ' {
				text[k] = 'T' // 2026-11-29T10:00:00+00:00, as JSON has times
				break
			}
		}
		return jsonb.AppendString(dst, isoZone(text))
	}
	if v.Type.Form() == dataflow.FormList {
		dst = append(dst, '[')
		for j := int(v.Lists[i]); j < int(v.Lists[i+1]); j++ {
			if j > int(v.Lists[i]) {
				dst = append(dst, ", "...)
			}
			if elemNull(v.Elems, j) {
				dst = append(dst, "null"...)
				continue
			}
			dst = appendToJSON(dst, v.Elems, j)
		}
		return append(dst, ']')
	}
	return jsonb.AppendString(dst, appendVector(nil, v, i))
}

// isoZone writes the zone +00 as +00:00.
func isoZone(text []byte) []byte {
	for k := len(text) - 3; k > 0; k-- {
		if text[k] == '+' {
			return append(append(append([]byte(nil), text[:k+3]...), ":00"...), text[k+3:]...)
		}
	}
	return text
}
