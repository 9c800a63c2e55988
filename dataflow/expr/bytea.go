package expr

import (
	"encoding/hex"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// parseBytea reads the text form of a BYTEA: \x and hexadecimal digits, or PostgreSQL's older form with \\ and \ooo.
func parseBytea(s string) (string, *dataflow.Error) {
	if digits, ok := strings.CutPrefix(s, `\x`); ok {
		b, err := parseHex(digits)
		return string(b), err
	}
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\':
			out = append(out, s[i])
		case i+1 < len(s) && s[i+1] == '\\':
			out = append(out, '\\')
			i++
		case i+3 < len(s) && s[i+1] >= '0' && s[i+1] <= '3' && isOctal(s[i+2]) && isOctal(s[i+3]):
			out = append(out, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 3
		default:
			return "", failf("invalid input syntax for type bytea").WithHint(`write it in hexadecimal: '\x00ff'`)
		}
	}
	return string(out), nil
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

// parseHex reads pairs of hexadecimal digits, with white space between pairs.
func parseHex(s string) ([]byte, *dataflow.Error) {
	out := make([]byte, 0, len(s)/2)
	for i := 0; i < len(s); {
		if c := s[i]; c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			i++
			continue
		}
		hi, ok := hexDigit(s[i])
		if !ok {
			return nil, badHex(s[i:])
		}
		if i+1 >= len(s) {
			return nil, failf("invalid hexadecimal data: odd number of digits")
		}
		lo, ok := hexDigit(s[i+1])
		if !ok {
			return nil, badHex(s[i+1:])
		}
		out = append(out, hi<<4|lo)
		i += 2
	}
	return out, nil
}

func badHex(s string) *dataflow.Error {
	for _, r := range s {
		return failf(`invalid hexadecimal digit: "%c"`, r)
	}
	return failf("invalid hexadecimal data: odd number of digits")
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// appendBytea appends the text form, \x and hexadecimal digits.
func appendBytea[S string | []byte](dst []byte, b S) []byte {
	return hex.AppendEncode(append(dst, '\\', 'x'), []byte(b))
}
