package expr

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

// JSONOptions says how values print as JSON.
type JSONOptions struct {
	// NumbersAsStrings prints BIGINT and NUMERIC in quotes, for readers whose numbers are doubles.
	NumbersAsStrings bool
}

// AppendJSON appends v as a JSON value: BIGINT and NUMERIC with all digits, TIMESTAMPTZ as RFC 3339 with Z (years
// before 1 or after 9999 with a sign, as ISO 8601 has them), what DOUBLE PRECISION and NUMERIC have beside numbers as
// the strings "NaN", "Infinity" and "-Infinity", TEXT[] as an array, INTERVAL as its text.
func AppendJSON(dst []byte, v dataflow.Value, opts JSONOptions) []byte {
	if v.Null {
		return append(dst, "null"...)
	}
	quoted := func(text []byte) []byte {
		dst = append(dst, '"')
		dst = append(dst, text...)
		return append(dst, '"')
	}
	switch v.Type {
	case dataflow.TypeBool:
		return strconv.AppendBool(dst, v.Int != 0)
	case dataflow.TypeBigInt:
		if opts.NumbersAsStrings {
			return quoted(strconv.AppendInt(nil, v.Int, 10))
		}
		return strconv.AppendInt(dst, v.Int, 10)
	case dataflow.TypeNumeric:
		if opts.NumbersAsStrings || v.Dec.Form != apd.Finite {
			return quoted(formatNumeric(nil, v.Dec))
		}
		return formatNumeric(dst, v.Dec)
	case dataflow.TypeDouble:
		if math.IsNaN(v.Flt) || math.IsInf(v.Flt, 0) {
			return quoted(appendDouble(nil, v.Flt))
		}
		return appendDouble(dst, v.Flt)
	case dataflow.TypeTimestamp:
		return quoted(AppendRFC3339(nil, v.Int))
	case dataflow.TypeText:
		return appendJSONString(dst, v.Str)
	case dataflow.TypeTextArray:
		dst = append(dst, '[')
		for i, e := range v.Arr {
			if i > 0 {
				dst = append(dst, ',')
			}
			if e == nil {
				dst = append(dst, "null"...)
			} else {
				dst = appendJSONString(dst, *e)
			}
		}
		return append(dst, ']')
	}
	return appendJSONString(dst, FormatValue(v))
}

// AppendRFC3339 appends a TIMESTAMPTZ as 2026-11-29T10:00:00.5Z.
func AppendRFC3339(dst []byte, micros int64) []byte {
	c := civilOf(micros)
	switch {
	case c.year < 0:
		dst = append(dst, '-')
		dst = appendPadded(dst, -c.year, 6)
	case c.year > 9999:
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
	return append(dst, 'Z')
}

const hexDigits = "0123456789abcdef"

// appendJSONString appends s in quotes, escaping only what JSON must have escaped. Invalid UTF-8, which TEXT cannot
// hold, becomes U+FFFD.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, "\ufffd"...)
				from = i + 1
			}
			i += size
			continue
		}
		i++
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i-1]...)
		from = i
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
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// ParseJSON reads one JSON value (a string with its quotes, a number, true, false or null; an array for TEXT[]) as a
// value of type t. Numbers may also be strings of their text form; TIMESTAMPTZ is a string. Digits are never lost on
// the way: BIGINT and NUMERIC do not pass through a double. The error is a *dataflow.Error of reason ROW_INVALID that
// says what was expected and what came.
func ParseJSON(t dataflow.Type, raw []byte) (dataflow.Value, error) {
	v, err := parseJSON(t, bytes.Trim(raw, " \t\r\n"))
	if err != nil {
		e := *err
		e.Reason = dataflow.ReasonRowInvalid
		return dataflow.NullValue(t), &e
	}
	return v, nil
}

func parseJSON(t dataflow.Type, raw []byte) (dataflow.Value, *dataflow.Error) {
	null := dataflow.NullValue(t)
	if string(raw) == "null" {
		return null, nil
	}
	kind := jsonKind(raw)
	wrong := func() *dataflow.Error {
		return failf("expected %s, got %s", jsonExpects(t), kind)
	}
	switch kind {
	case "a string":
		s, err := unquoteJSON(raw)
		if err != nil {
			return null, err
		}
		if t == dataflow.TypeBool || t == dataflow.TypeTextArray {
			return null, wrong()
		}
		return parseValue(t, s)
	case "a number":
		if !json.Valid(raw) {
			return null, failf("malformed number %s", abridge(string(raw)))
		}
		switch t {
		case dataflow.TypeBigInt:
			return parseJSONInt(raw)
		case dataflow.TypeNumeric, dataflow.TypeDouble:
			return parseValue(t, string(raw))
		}
	case "true", "false":
		if t == dataflow.TypeBool {
			return dataflow.Bool(kind == "true"), nil
		}
	case "an array":
		if t == dataflow.TypeTextArray {
			return parseJSONArray(raw)
		}
	case "":
		return null, failf("malformed JSON value %s", abridge(string(raw)))
	}
	return null, wrong()
}

// jsonKind names what a JSON value is by its first byte; "" if it is none.
func jsonKind(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	switch c := raw[0]; {
	case c == '"':
		return "a string"
	case c == '-' || isDigit(c):
		return "a number"
	case c == '[':
		return "an array"
	case c == '{':
		return "an object"
	case string(raw) == "true" || string(raw) == "false":
		return string(raw)
	}
	return ""
}

// jsonExpects says what a column of type t takes.
func jsonExpects(t dataflow.Type) string {
	switch t {
	case dataflow.TypeBool:
		return "true or false (BOOLEAN)"
	case dataflow.TypeBigInt:
		return "an integer, as a number or a string of digits (BIGINT)"
	case dataflow.TypeDouble:
		return "a number (DOUBLE PRECISION)"
	case dataflow.TypeNumeric:
		return "a number, or a string of one (NUMERIC)"
	case dataflow.TypeText:
		return "a string (TEXT)"
	case dataflow.TypeTimestamp:
		return "a string such as \"2026-11-29T10:00:00Z\" (TIMESTAMPTZ)"
	case dataflow.TypeTextArray:
		return "an array of strings (TEXT[])"
	}
	return t.String()
}

// parseJSONInt takes integers, also spelled 5.0 or 1e3, that fit exactly.
func parseJSONInt(raw []byte) (dataflow.Value, *dataflow.Error) {
	if !bytes.ContainsAny(raw, ".eE") {
		n, err := parseBigInt(raw)
		return dataflow.BigInt(n), err
	}
	d, err := parseNumeric(string(raw))
	switch {
	case err != nil || d.NumDigits()+int64(d.Exponent) > 19:
		return dataflow.Value{}, outOfRange("bigint", string(raw))
	case !isIntegral(d):
		return dataflow.Value{}, failf("expected %s, got the fraction %s", jsonExpects(dataflow.TypeBigInt), abridge(string(raw)))
	}
	n, err := numericToInt(d)
	if err != nil {
		return dataflow.Value{}, outOfRange("bigint", string(raw))
	}
	return dataflow.BigInt(n), nil
}

// unquoteJSON reads a JSON string. Unlike encoding/json it refuses invalid UTF-8 and lone surrogates instead of
// replacing them: what was sent is what is stored.
func unquoteJSON(raw []byte) (string, *dataflow.Error) {
	if !utf8.Valid(raw) {
		return "", failf("the string is not valid UTF-8")
	}
	if len(raw) < 2 || raw[len(raw)-1] != '"' {
		return "", failf("malformed JSON string")
	}
	if plain := raw[1 : len(raw)-1]; !bytes.ContainsAny(plain, "\\\"\x00") {
		for _, c := range plain {
			if c < ' ' {
				return "", failf("malformed JSON string: control character 0x%02x is not escaped", c)
			}
		}
		return string(plain), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", failf("malformed JSON string")
	}
	if hasLoneSurrogate(raw) {
		return "", failf(`the string is not valid UTF-8: it escapes half of a surrogate pair`)
	}
	if i := bytes.IndexByte([]byte(s), 0); i >= 0 {
		return "", failf(`the string holds the character \u0000, which TEXT cannot hold`)
	}
	return s, nil
}

// hasLoneSurrogate reports whether a well-formed JSON string escapes a surrogate without its other half.
func hasLoneSurrogate(raw []byte) bool {
	unit := func(i int) (uint64, bool) {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0, false
		}
		u, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		return u, err == nil
	}
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		u, ok := unit(i)
		if !ok {
			i++ // the escaped character
			continue
		}
		switch {
		case u >= 0xd800 && u < 0xdc00:
			if low, ok := unit(i + 6); !ok || low < 0xdc00 || low >= 0xe000 {
				return true
			}
			i += 11
		case u >= 0xdc00 && u < 0xe000:
			return true
		default:
			i += 5
		}
	}
	return false
}

func parseJSONArray(raw []byte) (dataflow.Value, *dataflow.Error) {
	null := dataflow.NullValue(dataflow.TypeTextArray)
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return null, failf("malformed JSON array")
	}
	v := dataflow.Value{Type: dataflow.TypeTextArray, Arr: make([]*string, 0, len(parts))}
	for _, p := range parts {
		e, err := parseJSON(dataflow.TypeText, p)
		if err != nil {
			return null, err
		}
		if e.Null {
			v.Arr = append(v.Arr, nil)
			continue
		}
		v.Arr = append(v.Arr, &e.Str)
	}
	return v, nil
}
