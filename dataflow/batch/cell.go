package batch

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/weirdb/weir/dataflow"
)

// A cell is one value on its own, as an accumulator keeps an INTERVAL or an array:
//
//	BOOLEAN, BIGINT, TIMESTAMPTZ, DATE  a zigzag varint
//	DOUBLE PRECISION                    8 bytes little-endian
//	NUMERIC                             AppendDecimal
//	TEXT, JSONB, BYTEA                  the length as a uvarint, then the bytes
//	INTERVAL                            months, days and microseconds as zigzag varints
//	arrays                              the number of elements as a uvarint; per element 0 for NULL, or 1 and its cell

var errCell = errors.New("malformed value")

// AppendCell appends row i of v, which is not NULL.
func AppendCell(dst []byte, v *Vector, i int) []byte {
	switch v.Type.Form() {
	case dataflow.FormFloat:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v.Floats[i]))
	case dataflow.FormDecimal:
		return AppendDecimal(dst, &v.Decs[i])
	case dataflow.FormBytes:
		dst = binary.AppendUvarint(dst, uint64(v.Offs[i+1]-v.Offs[i]))
		return append(dst, v.Text(i)...)
	case dataflow.FormInterval:
		iv := v.Ivls[i]
		dst = binary.AppendVarint(dst, int64(iv.Months))
		dst = binary.AppendVarint(dst, int64(iv.Days))
		return binary.AppendVarint(dst, iv.Micros)
	case dataflow.FormList:
		from, to := int(v.Lists[i]), int(v.Lists[i+1])
		dst = binary.AppendUvarint(dst, uint64(to-from))
		for j := from; j < to; j++ {
			if v.Elems.IsNull(j) {
				dst = append(dst, 0)
				continue
			}
			dst = AppendCell(append(dst, 1), v.Elems, j)
		}
		return dst
	}
	return binary.AppendVarint(dst, v.Ints[i])
}

// ReadCell decodes what AppendCell appended, from untrusted bytes, appends it to v, and returns the bytes after it. After
// an error v may have more elements, but no more rows.
func ReadCell(b []byte, v *Vector) (rest []byte, err error) {
	switch v.Type.Form() {
	case dataflow.FormFloat:
		if len(b) < 8 {
			return nil, errCell
		}
		v.AppendFloat(math.Float64frombits(binary.LittleEndian.Uint64(b)))
		return b[8:], nil
	case dataflow.FormDecimal:
		var d decimal
		if b, err = ReadDecimal(b, &d); err == nil {
			v.AppendDec(&d)
		}
		return b, err
	case dataflow.FormBytes:
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return nil, errCell
		}
		text := b[k : k+int(n)]
		if v.Type != dataflow.TypeBytea && !ValidText(text) {
			return nil, errText
		}
		v.AppendText(text)
		return b[k+int(n):], nil
	case dataflow.FormInterval:
		var parts [3]int64
		for i := range parts {
			x, k := binary.Varint(b)
			if k <= 0 {
				return nil, errCell
			}
			parts[i], b = x, b[k:]
		}
		iv := dataflow.Interval{Months: int32(parts[0]), Days: int32(parts[1]), Micros: parts[2]}
		if int64(iv.Months) != parts[0] || int64(iv.Days) != parts[1] || !iv.Valid() {
			return nil, errCell
		}
		v.AppendInterval(iv)
		return b, nil
	case dataflow.FormList:
		return readList(b, v)
	}
	x, k := binary.Varint(b)
	if k <= 0 {
		return nil, errCell
	}
	v.AppendInt(x)
	return b[k:], nil
}

func readList(b []byte, v *Vector) ([]byte, error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) { // an element takes a byte at least
		return nil, errCell
	}
	b = b[k:]
	for range n {
		if len(b) == 0 || b[0] > 1 {
			return nil, errCell
		}
		null := b[0] == 0
		b = b[1:]
		if null {
			v.Elems.AppendNull()
			continue
		}
		var err error
		if b, err = ReadCell(b, v.Elems); err != nil {
			return nil, err
		}
	}
	v.CloseList()
	return b, nil
}
