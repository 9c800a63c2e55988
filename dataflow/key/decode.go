package key

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

var (
	errShort = errors.New("it ends too early")
	errLong  = errors.New("bytes are left over")
	errTag   = errors.New("a part has another type")
	errForm  = errors.New("a part is not canonical")
	errUTF8  = errors.New("TEXT is not valid UTF-8")
)

// Decode decodes a key of the given types from untrusted bytes. It takes nothing but what AppendRow gives: encoding the
// result again gives b. The error is KEY_INVALID.
func Decode(types []dataflow.Type, b []byte) (dataflow.Row, error) {
	row := make(dataflow.Row, 0, len(types))
	rest := b
	for i, t := range types {
		v, r, err := decodePart(t, rest)
		if err != nil {
			return nil, invalid(i, err)
		}
		row = append(row, v)
		rest = r
	}
	if len(rest) != 0 {
		return nil, invalid(len(types), errLong)
	}
	return row, nil
}

// DecodeInto decodes a key and appends one row to each of cols, which have the parts' types. After an error some of cols
// have a row more than the others. The error is KEY_INVALID.
func DecodeInto(b []byte, cols []*batch.Vector) error {
	rest := b
	for i, v := range cols {
		r, err := decodeVector(v, rest)
		if err != nil {
			return invalid(i, err)
		}
		rest = r
	}
	if len(rest) != 0 {
		return invalid(len(cols), errLong)
	}
	return nil
}

func invalid(part int, err error) error {
	return dataflow.Errorf(dataflow.ReasonKeyInvalid, "encoded key, part %d: %w", part+1, err)
}

func decodePart(t dataflow.Type, b []byte) (v dataflow.Value, rest []byte, err error) {
	null, b, err := decodeTag(t, b)
	if err != nil || null {
		return dataflow.NullValue(t), b, err
	}
	v.Type = t
	switch t {
	case dataflow.TypeText, dataflow.TypeBytea:
		var text []byte
		text, rest, err = decodeText(t, b)
		v.Str = string(text)
	case dataflow.TypeInterval:
		v.Ivl, rest, err = decodeInterval(b)
	case dataflow.TypeNumeric:
		v.Dec = new(apd.Decimal)
		rest, err = decodeDecimal(b, v.Dec)
	case dataflow.TypeDouble:
		v.Flt, rest, err = decodeFloat(b)
	default:
		v.Int, rest, err = decodeInt(t, b)
	}
	return v, rest, err
}

func decodeVector(v *batch.Vector, b []byte) (rest []byte, err error) {
	null, b, err := decodeTag(v.Type, b)
	if err != nil {
		return nil, err
	}
	if null {
		v.AppendNull()
		return b, nil
	}
	switch v.Type {
	case dataflow.TypeText, dataflow.TypeBytea:
		var text []byte
		if text, rest, err = decodeText(v.Type, b); err == nil {
			v.AppendText(text)
		}
	case dataflow.TypeInterval:
		var iv dataflow.Interval
		if iv, rest, err = decodeInterval(b); err == nil {
			v.AppendInterval(iv)
		}
	case dataflow.TypeNumeric:
		var d apd.Decimal
		if rest, err = decodeDecimal(b, &d); err == nil {
			v.AppendDec(&d)
		}
	case dataflow.TypeDouble:
		var f float64
		if f, rest, err = decodeFloat(b); err == nil {
			v.AppendFloat(f)
		}
	default:
		var n int64
		if n, rest, err = decodeInt(v.Type, b); err == nil {
			v.AppendInt(n)
		}
	}
	return rest, err
}

func decodeTag(t dataflow.Type, b []byte) (null bool, rest []byte, err error) {
	switch {
	case len(b) == 0:
		return false, nil, errShort
	case b[0] == tagNull:
		return true, b[1:], nil
	case b[0] != tagBase+byte(t):
		return false, nil, errTag
	}
	return false, b[1:], nil
}

// decodeInt decodes a BOOLEAN, BIGINT, TIMESTAMPTZ or DATE.
func decodeInt(t dataflow.Type, b []byte) (int64, []byte, error) {
	switch t {
	case dataflow.TypeBool:
		if len(b) == 0 {
			return 0, nil, errShort
		}
		if b[0] > 1 {
			return 0, nil, errForm
		}
		return int64(b[0]), b[1:], nil
	case dataflow.TypeBigInt, dataflow.TypeTimestamp, dataflow.TypeDate:
		if len(b) < 8 {
			return 0, nil, errShort
		}
		return int64(binary.BigEndian.Uint64(b) ^ 1<<63), b[8:], nil
	}
	return 0, nil, errTag
}

func decodeFloat(b []byte) (float64, []byte, error) {
	if len(b) < 8 {
		return 0, nil, errShort
	}
	u := binary.BigEndian.Uint64(b)
	if u>>63 != 0 {
		u &^= 1 << 63
	} else {
		u = ^u
	}
	f := math.Float64frombits(u)
	if f != f && u != canonicalNaN || f == 0 && u != 0 {
		return 0, nil, errForm
	}
	return f, b[8:], nil
}

// decodeInterval decodes an INTERVAL: the one of that length with as many whole days as there are, in months of 30.
func decodeInterval(b []byte) (dataflow.Interval, []byte, error) {
	if len(b) < 16 {
		return dataflow.Interval{}, nil, errShort
	}
	iv, ok := dataflow.IntervalOfSpan(int64(binary.BigEndian.Uint64(b)^1<<63), binary.BigEndian.Uint64(b[8:]))
	if !ok {
		return iv, nil, errForm
	}
	return iv, b[16:], nil
}

// decodeText returns the text or bytes, sharing memory with b unless it holds a zero byte.
func decodeText(t dataflow.Type, b []byte) (text, rest []byte, err error) {
	from := 0
	for {
		i := bytes.IndexByte(b[from:], textEnd)
		if i < 0 {
			return nil, nil, errShort
		}
		i += from
		if i+1 == len(b) || b[i+1] != textNul {
			if text == nil {
				text = b[:i]
			} else {
				text = append(text, b[from:i]...)
			}
			if t == dataflow.TypeText && !utf8.Valid(text) {
				return nil, nil, errUTF8
			}
			return text, b[i+1:], nil
		}
		text = append(text, b[from:i+1]...)
		from = i + 2
	}
}
