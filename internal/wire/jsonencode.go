package wire

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// AppendRowJSON appends row i of b as a JSON object, columns in the order of the schema. The bytes are stable: equal
// rows give equal bytes. What JSON numbers cannot hold (NaN, Infinity) is a string.
func AppendRowJSON(dst []byte, b *batch.Batch, i int, numbers weirv1.Numbers) []byte {
	dst = append(dst, '{')
	for ci, c := range b.Schema {
		if ci > 0 {
			dst = append(dst, ',')
		}
		dst = AppendStringJSON(dst, c.Name)
		dst = append(dst, ':')
		dst = appendCellJSON(dst, b.Cols[ci], i, numbers == weirv1.Numbers_NUMBERS_STRING)
	}
	return append(dst, '}')
}

// RowsJSON returns every row of b as a JSON object. The rows share one buffer.
func RowsJSON(b *batch.Batch, numbers weirv1.Numbers) [][]byte {
	if b == nil || b.N == 0 {
		return nil
	}
	out, ends := make([][]byte, b.N), make([]int, b.N)
	var buf []byte
	for i := range b.N {
		buf = AppendRowJSON(buf, b, i, numbers)
		ends[i] = len(buf)
	}
	at := 0
	for i, end := range ends {
		out[i] = buf[at:end:end]
		at = end
	}
	return out
}

func appendCellJSON(dst []byte, v *batch.Vector, i int, asString bool) []byte {
	if v.IsNull(i) {
		return append(dst, "null"...)
	}
	switch v.Type {
	case dataflow.TypeBool:
		return strconv.AppendBool(dst, v.Ints[i] != 0)
	case dataflow.TypeBigInt:
		if asString {
			dst = append(dst, '"')
			dst = strconv.AppendInt(dst, v.Ints[i], 10)
			return append(dst, '"')
		}
		return strconv.AppendInt(dst, v.Ints[i], 10)
	case dataflow.TypeDouble:
		return appendDoubleJSON(dst, v.Floats[i])
	case dataflow.TypeText:
		return appendStringJSON(dst, v.Text(i))
	case dataflow.TypeTimestamp:
		return AppendTimestampJSON(dst, v.Ints[i])
	case dataflow.TypeNumeric:
		return appendNumericJSON(dst, &v.Decs[i], asString)
	case dataflow.TypeTextArray:
		dst = append(dst, '[')
		for j := v.Lists[i]; j < v.Lists[i+1]; j++ {
			if j > v.Lists[i] {
				dst = append(dst, ',')
			}
			dst = appendCellJSON(dst, v.Elems, int(j), asString)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}

func appendDoubleJSON(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	format := byte('f') // as JavaScript prints it: exponents only where plain digits would be long
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64)
}

func appendNumericJSON(dst []byte, d *apd.Decimal, asString bool) []byte {
	switch d.Form {
	case apd.Finite:
		if asString {
			dst = append(dst, '"')
			dst = d.Append(dst, 'f')
			return append(dst, '"')
		}
		return d.Append(dst, 'f')
	case apd.Infinite:
		if d.Negative {
			return append(dst, `"-Infinity"`...)
		}
		return append(dst, `"Infinity"`...)
	}
	return append(dst, `"NaN"`...)
}

// AppendTimestampJSON appends microseconds since 1970 UTC as an RFC 3339 string.
func AppendTimestampJSON(dst []byte, micros int64) []byte {
	dst = append(dst, '"')
	dst = time.UnixMicro(micros).UTC().AppendFormat(dst, "2006-01-02T15:04:05.999999Z07:00")
	return append(dst, '"')
}

// AppendStringJSON appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendStringJSON(dst []byte, s string) []byte { return appendStringJSON(dst, s) }

func appendStringJSON[S string | []byte](dst []byte, s S) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
