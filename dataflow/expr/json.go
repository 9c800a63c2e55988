package expr

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// AppendCellJSON appends row i of v as a JSON value: BIGINT and NUMERIC with all digits, in quotes with
// numbersAsStrings (for readers whose numbers are doubles); TIMESTAMPTZ as RFC 3339; what DOUBLE PRECISION and NUMERIC
// have beside numbers as the strings "NaN", "Infinity" and "-Infinity"; BYTEA as base64; DATE, INTERVAL as
// text; JSONB as it is; arrays as arrays. The bytes are
// stable: equal values give equal bytes.
func AppendCellJSON(dst []byte, v *batch.Vector, i int, numbersAsStrings bool) []byte {
	if v.IsNull(i) {
		return append(dst, "null"...)
	}
	switch v.Type {
	case dataflow.TypeBool:
		return strconv.AppendBool(dst, v.Ints[i] != 0)
	case dataflow.TypeBigInt:
		if numbersAsStrings {
			dst = append(dst, '"')
			dst = strconv.AppendInt(dst, v.Ints[i], 10)
			return append(dst, '"')
		}
		return strconv.AppendInt(dst, v.Ints[i], 10)
	case dataflow.TypeDouble:
		return AppendDoubleJSON(dst, v.Floats[i])
	case dataflow.TypeText:
		return AppendTextJSON(dst, v.Text(i))
	case dataflow.TypeTimestamp:
		return AppendTimestampJSON(dst, v.Ints[i])
	case dataflow.TypeNumeric:
		return appendNumericJSON(dst, &v.Decs[i], numbersAsStrings)
	case dataflow.TypeJSONB:
		return append(dst, v.Text(i)...)
	case dataflow.TypeBytea:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v.Text(i))
		return append(dst, '"')
	case dataflow.TypeInterval, dataflow.TypeDate:
		dst = append(dst, '"')
		dst = appendVector(dst, v, i)
		return append(dst, '"')
	}
	if v.Type.Form() == dataflow.FormList {
		dst = append(dst, '[')
		for j := v.Lists[i]; j < v.Lists[i+1]; j++ {
			if j > v.Lists[i] {
				dst = append(dst, ',')
			}
			dst = AppendCellJSON(dst, v.Elems, int(j), numbersAsStrings)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...) // no column holds another type
}

// AppendDoubleJSON appends a double as JavaScript prints it: with an exponent only where plain digits would be long.
// What JSON numbers cannot hold is a string.
func AppendDoubleJSON(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	format := byte('f')
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

// AppendTimestampJSON appends microseconds since 1970 UTC as a string such as "2026-11-29T10:00:00.5Z" (RFC 3339). Years
// before 1 and after 9999 get a sign and six digits, as ISO 8601 has them: 0 is 1 BC. parseTimestamp reads them.
func AppendTimestampJSON(dst []byte, micros int64) []byte {
	c := civilOf(micros)
	dst = append(dst, '"')
	switch {
	case c.year < 0:
		dst = append(dst, '-')
		dst = appendPadded(dst, -c.year, 6)
	case c.year == 0 || c.year > 9999:
		dst = append(dst, '+')
		dst = appendPadded(dst, c.year, 6)
	default:
		dst = appendPadded(dst, c.year, 4)
	}
	dst = append(dst, '-')
	dst = appendPadded(dst, c.month, 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, c.day, 2)
	dst = append(dst, 'T')
	dst = appendClock(dst, c)
	return append(dst, 'Z', '"')
}

// AppendTextJSON appends s as a JSON string. Bytes that are not UTF-8, which TEXT cannot hold, become U+FFFD.
func AppendTextJSON[S string | []byte](dst []byte, s S) []byte {
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
