package key

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

const (
	tagBase = 0x10 // + the type's number
	tagNull = 0xF0

	textEnd = 0x00
	textNul = 0xFF // after 0x00: the zero byte belongs to the text

	canonicalNaN = 0x7FF8000000000000
)

// AppendValue appends v as a key part. v has a type that a column can have; another is a defect of the caller and
// panics.
func AppendValue(dst []byte, v dataflow.Value) []byte {
	if v.Null {
		return append(dst, tagNull)
	}
	dst = append(dst, tagBase+byte(v.Type))
	switch v.Type {
	case dataflow.TypeBool:
		return append(dst, byte(v.Int))
	case dataflow.TypeBigInt, dataflow.TypeTimestamp:
		return appendInt(dst, v.Int)
	case dataflow.TypeDouble:
		return appendFloat(dst, v.Flt)
	case dataflow.TypeText, dataflow.TypeBytea:
		at := len(dst)
		return endText(append(dst, v.Str...), at)
	case dataflow.TypeDate:
		return appendInt(dst, v.Int)
	case dataflow.TypeInterval:
		return appendInterval(dst, v.Ivl)
	case dataflow.TypeNumeric:
		return appendDecimal(dst, v.Dec)
	}
	panic(noKey(v.Type))
}

// AppendRow appends the parts of a whole key.
func AppendRow(dst []byte, row []dataflow.Value) []byte {
	for _, v := range row {
		dst = AppendValue(dst, v)
	}
	return dst
}

// AppendVector appends row of v as a key part. It allocates nothing when dst has room, except for NUMERIC of more than
// 38 digits.
func AppendVector(dst []byte, v *batch.Vector, row int) []byte {
	if v.IsNull(row) || v.Type == dataflow.TypeUnknown {
		return append(dst, tagNull)
	}
	dst = append(dst, tagBase+byte(v.Type))
	switch v.Type {
	case dataflow.TypeBool:
		return append(dst, byte(v.Ints[row]))
	case dataflow.TypeBigInt, dataflow.TypeTimestamp:
		return appendInt(dst, v.Ints[row])
	case dataflow.TypeDouble:
		return appendFloat(dst, v.Floats[row])
	case dataflow.TypeText, dataflow.TypeBytea:
		at := len(dst)
		return endText(append(dst, v.Text(row)...), at)
	case dataflow.TypeDate:
		return appendInt(dst, v.Ints[row])
	case dataflow.TypeInterval:
		return appendInterval(dst, v.Ivls[row])
	case dataflow.TypeNumeric:
		return appendDecimal(dst, &v.Decs[row])
	}
	panic(noKey(v.Type))
}

// AppendTextPrefix appends what all keys share whose next part is a TEXT that begins with prefix. With PrefixEnd it
// gives the range of these keys.
func AppendTextPrefix(dst []byte, prefix string) []byte {
	dst = append(dst, tagBase+byte(dataflow.TypeText))
	at := len(dst)
	return escape(append(dst, prefix...), at)
}

// PrefixEnd returns the smallest byte string greater than all that begin with p, or nil if there is none.
func PrefixEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xFF {
			end := append([]byte(nil), p[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

func noKey(t dataflow.Type) string { return fmt.Sprintf("key: no key has a part of type %s", t) }

func appendInt(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(v)^1<<63)
}

func appendFloat(dst []byte, f float64) []byte {
	u := math.Float64bits(f)
	switch {
	case f != f:
		u = canonicalNaN
	case f == 0:
		u = 0
	}
	if u>>63 != 0 {
		u = ^u
	} else {
		u |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, u)
}

// appendInterval appends the length of an interval in microseconds, a month being 30 days and a day 24 hours, as a
// signed 128-bit number: intervals that PostgreSQL holds for equal are one key.
func appendInterval(dst []byte, iv dataflow.Interval) []byte {
	hi, lo := iv.Span()
	dst = binary.BigEndian.AppendUint64(dst, uint64(hi)^1<<63)
	return binary.BigEndian.AppendUint64(dst, lo)
}

// endText ends the text that begins at dst[at].
func endText(dst []byte, at int) []byte { return append(escape(dst, at), textEnd) }

func escape(dst []byte, at int) []byte {
	if !hasNul(dst[at:]) {
		return dst
	}
	text := append([]byte(nil), dst[at:]...)
	dst = dst[:at]
	for _, c := range text {
		if dst = append(dst, c); c == 0 {
			dst = append(dst, textNul)
		}
	}
	return dst
}

// hasNul reports whether b has a zero byte. Most texts of keys are short: looking at eight bytes at a time here costs a third of
// a call of bytes.IndexByte.
func hasNul(b []byte) bool {
	if len(b) > 32 {
		return bytes.IndexByte(b, 0) >= 0
	}
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	if len(b) < 8 {
		for _, c := range b {
			if c == 0 {
				return true
			}
		}
		return false
	}
	last := binary.LittleEndian.Uint64(b[len(b)-8:])
	found := (last - ones) & ^last & highs
	for ; len(b) > 8; b = b[8:] {
		v := binary.LittleEndian.Uint64(b)
		found |= (v - ones) & ^v & highs
	}
	return found != 0
}
