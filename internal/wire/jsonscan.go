package wire

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow/jsonb"
)

// jsonKind is the kind of a JSON value.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonBool
	jsonNumber
	jsonString
	jsonObject
	jsonArray
)

func (k jsonKind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an object", "an array"}[k]
}

// maxJSONDepth bounds nesting: what a JSONB column takes. The scanner skips without recursion.
const maxJSONDepth = jsonb.MaxDepth

// jsonScanner reads JSON text strictly (RFC 8259) and without building trees. The first error sticks in err.
type jsonScanner struct {
	b   []byte
	i   int
	err error
	buf []byte // of unescaped strings; one string at a time
}

func (s *jsonScanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: %s", s.i, fmt.Sprintf(format, args...))
	}
}

// space skips white space and returns the next byte, 0 at the end.
func (s *jsonScanner) space() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// expect consumes c after white space.
func (s *jsonScanner) expect(c byte) bool {
	if got := s.space(); s.i < len(s.b) && got == c {
		s.i++
		return true
	}
	s.fail("expected %q, found %s", c, s.found())
	return false
}

func (s *jsonScanner) found() string {
	if s.i >= len(s.b) {
		return "the end"
	}
	if r, n := utf8.DecodeRune(s.b[s.i:]); r != utf8.RuneError || n > 1 {
		return fmt.Sprintf("%q", r)
	}
	return fmt.Sprintf("byte 0x%02x", s.b[s.i])
}

// value reads one value. For a number text is its digits, for a string its contents (valid until the next string is
// read), for a boolean "true" or "false". Objects and arrays are skipped.
func (s *jsonScanner) value() (kind jsonKind, text []byte) {
	switch c := s.space(); {
	case s.i >= len(s.b):
		s.fail("expected a value, found the end")
	case c == '"':
		return jsonString, s.string()
	case c == '{':
		s.skip()
		return jsonObject, nil
	case c == '[':
		s.skip()
		return jsonArray, nil
	case c == 't':
		return jsonBool, s.word("true")
	case c == 'f':
		return jsonBool, s.word("false")
	case c == 'n':
		s.word("null")
		return jsonNull, nil
	case c == '-' || c >= '0' && c <= '9':
		return jsonNumber, s.number()
	default:
		s.fail("expected a value, found %s", s.found())
	}
	return jsonNull, nil
}

func (s *jsonScanner) word(w string) []byte {
	if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
		s.i += len(w)
		return s.b[s.i-len(w) : s.i]
	}
	s.fail("expected %s", w)
	return nil
}

func (s *jsonScanner) digits() int {
	n := 0
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
		n++
	}
	return n
}

func (s *jsonScanner) number() []byte {
	start := s.i
	if s.b[s.i] == '-' {
		s.i++
	}
	zero := s.i < len(s.b) && s.b[s.i] == '0'
	if n := s.digits(); n == 0 || zero && n > 1 {
		s.i = start
		s.fail("not a JSON number")
		return nil
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if s.digits() == 0 {
			s.fail("expected a digit after the point")
			return nil
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			s.fail("expected a digit in the exponent")
			return nil
		}
	}
	return s.b[start:s.i]
}

// string reads a string. Bytes are passed on as they are, valid UTF-8 or not: the column decides.
func (s *jsonScanner) string() []byte {
	s.i++ // the opening quote
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1]
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			s.fail("control character 0x%02x in a string", c)
			return nil
		}
		s.i++
	}
	s.fail("a string has no end")
	return nil
}

func (s *jsonScanner) escaped(start int) []byte {
	s.buf = append(s.buf[:0], s.b[start:s.i]...)
	for s.i < len(s.b) {
		c := s.b[s.i]
		switch {
		case c == '"':
			s.i++
			return s.buf
		case c < 0x20:
			s.fail("control character 0x%02x in a string", c)
			return nil
		case c != '\\':
			s.buf = append(s.buf, c)
			s.i++
			continue
		}
		if s.i+1 >= len(s.b) {
			break
		}
		e := s.b[s.i+1]
		s.i += 2
		switch e {
		case '"', '\\', '/':
			s.buf = append(s.buf, e)
		case 'b':
			s.buf = append(s.buf, '\b')
		case 'f':
			s.buf = append(s.buf, '\f')
		case 'n':
			s.buf = append(s.buf, '\n')
		case 'r':
			s.buf = append(s.buf, '\r')
		case 't':
			s.buf = append(s.buf, '\t')
		case 'u':
			r, ok := s.unicode()
			if !ok {
				return nil
			}
			s.buf = utf8.AppendRune(s.buf, r)
		default:
			s.i -= 2
			s.fail("unknown escape in a string")
			return nil
		}
	}
	s.fail("a string has no end")
	return nil
}

// unicode reads the digits of \uXXXX, and the second half of a surrogate pair. A lone half is an error: it has no UTF-8.
func (s *jsonScanner) unicode() (rune, bool) {
	r, ok := s.hex4()
	if !ok {
		return 0, false
	}
	if !utf16.IsSurrogate(r) {
		return r, true
	}
	if s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
		s.i += 2
		r2, ok := s.hex4()
		if !ok {
			return 0, false
		}
		if d := utf16.DecodeRune(r, r2); d != utf8.RuneError {
			return d, true
		}
	}
	s.fail("half of a surrogate pair in a string")
	return 0, false
}

func (s *jsonScanner) hex4() (rune, bool) {
	var r rune
	for range 4 {
		if s.i >= len(s.b) {
			s.fail("a string has no end")
			return 0, false
		}
		c := s.b[s.i]
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			s.fail("expected four hexadecimal digits after \\u")
			return 0, false
		}
		s.i++
	}
	return r, true
}

// skip passes over an object or array. It checks nesting and strings, not the grammar in between: what it skips is
// refused by the column anyway.
func (s *jsonScanner) skip() {
	depth := 0
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '{', '[':
			if depth++; depth > maxJSONDepth {
				s.fail("nested deeper than %d", maxJSONDepth)
				return
			}
		case '}', ']':
			if depth--; depth == 0 {
				s.i++
				return
			}
		case '"':
			if s.string(); s.err != nil {
				return
			}
			continue
		}
		s.i++
	}
	s.fail("an object or array has no end")
}
