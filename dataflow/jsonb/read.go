package jsonb

import (
	"bytes"
	"iter"
	"strconv"
)

// Kind is what a value is.
type Kind uint8

// The kinds of values.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// String returns the kind as jsonb_typeof names it.
func (k Kind) String() string {
	return [...]string{"invalid", "null", "boolean", "number", "string", "array", "object"}[k]
}

// KindOf returns what v is.
func KindOf(v []byte) Kind {
	if len(v) == 0 {
		return Invalid
	}
	switch c := v[0]; c {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return Number
		}
	}
	return Invalid
}

// end returns where the value that begins at b[i] ends, len(b) for a broken one.
func end(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return endString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = endString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' {
		i++
	}
	return i
}

func endString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(b)
}

// Elements returns the elements of an array in order; none for other values.
func Elements(v []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if KindOf(v) != Array {
			return
		}
		for i := 1; i < len(v) && v[i] != ']'; {
			to := end(v, i)
			if to == i || !yield(v[i:to:to]) {
				return
			}
			i = to + len(", ")
			if to < len(v) && v[to] == ']' {
				return
			}
		}
	}
}

// Members returns the keys, as they stand in the text with quotes and escapes, and the values of an object in order;
// none for other values.
func Members(v []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if KindOf(v) != Object {
			return
		}
		for i := 1; i < len(v) && v[i] == '"'; {
			k := endString(v, i)
			from := min(k+len(": "), len(v))
			to := end(v, from)
			if !yield(v[i:k:k], v[from:to:to]) {
				return
			}
			i = to + len(", ")
			if to < len(v) && v[to] == '}' {
				return
			}
		}
	}
}

// Len returns how many elements or members v has; 0 for scalars.
func Len(v []byte) int {
	n := 0
	for range Elements(v) {
		n++
	}
	for range Members(v) {
		n++
	}
	return n
}

// unquote returns the text of a string in normal form, sharing its memory where it has no escapes.
func unquote(s []byte) []byte {
	if len(s) < 2 || s[0] != '"' {
		return nil
	}
	s = s[1 : len(s)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	return appendUnescaped(make([]byte, 0, len(s)), s)
}

func appendUnescaped(dst, s []byte) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '\\' || i+1 >= len(s) {
			dst = append(dst, c)
			continue
		}
		i++
		switch s[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u': // only control characters are written so
			if i+4 < len(s) {
				if u, err := strconv.ParseUint(string(s[i+1:i+5]), 16, 7); err == nil {
					dst = append(dst, byte(u))
				}
			}
			i += 4
		default:
			dst = append(dst, s[i])
		}
	}
	return dst
}

// Text returns the text that a string holds, or any other value as text: what ->> gives. ok is false for null.
func Text(v []byte) (text []byte, ok bool) {
	switch KindOf(v) {
	case Null, Invalid:
		return nil, false
	case String:
		return unquote(v), true
	}
	return v, true
}

// Field returns the member of an object.
func Field(v, key []byte) (value []byte, ok bool) {
	for k, x := range Members(v) {
		// Members are in order of length: those before a longer key need no look at their bytes.
		if len(k)-2 < len(key) {
			continue
		}
		switch c := compareKeys(unquote(k), key); {
		case c == 0:
			return x, true
		case c > 0:
			return nil, false
		}
	}
	return nil, false
}

// At returns element i of an array; -1 is the last one.
func At(v []byte, i int64) (value []byte, ok bool) {
	if i < 0 {
		if i += int64(Len(v)); i < 0 {
			return nil, false
		}
	}
	for x := range Elements(v) {
		if i == 0 {
			return x, true
		}
		i--
	}
	return nil, false
}

// Step returns what one step of a path leads to: a member of an object, an element of an array by its number.
func Step(v, step []byte) (value []byte, ok bool) {
	switch KindOf(v) {
	case Object:
		return Field(v, step)
	case Array:
		i, err := strconv.ParseInt(string(bytes.TrimLeft(step, " \t\n\v\f\r")), 10, 32)
		if err != nil {
			return nil, false
		}
		return At(v, i)
	}
	return nil, false
}

// Has reports whether an object has a key, an array has a string for an element, or a string equals it.
func Has(v, key []byte) bool {
	switch KindOf(v) {
	case Object:
		_, ok := Field(v, key)
		return ok
	case Array:
		for x := range Elements(v) {
			if KindOf(x) == String && bytes.Equal(unquote(x), key) {
				return true
			}
		}
	case String:
		return bytes.Equal(unquote(v), key)
	}
	return false
}
