package jsonb

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth bounds how deeply arrays and objects nest. PostgreSQL's bound is its stack, some thousands.
const MaxDepth = 512

// Limits of numbers, those of NUMERIC.
const (
	maxDigits = 131072 // before the point
	maxScale  = 16383  // after the point
)

// ErrTooLarge says that the normal form would be over the limit.
var ErrTooLarge = errors.New("the value is too large")

// Append appends the normal form of a JSON text, at most limit bytes of it. The error says what is wrong and where;
// ErrTooLarge for the limit. dst is returned unchanged then.
func Append(dst, text []byte, limit int) ([]byte, error) {
	if !utf8.Valid(text) {
		return dst, errors.New("it is not valid UTF-8")
	}
	n := normalizer{in: text, out: dst, start: len(dst), limit: limit}
	n.members = n.first[:0]
	n.space()
	err := n.value(0)
	if err == nil {
		if n.space(); n.i < len(n.in) {
			err = n.unexpected("the end")
		}
	}
	if err != nil {
		return dst, err
	}
	return n.out, nil
}

// normalizer reads in from i on and writes to out.
type normalizer struct {
	in      []byte
	i       int
	out     []byte
	start   int // of this value in out
	limit   int
	members []member   // of the objects that are open, those of the innermost last
	first   [16]member // room for members of small values
	scratch []byte
}

// member is one member of an object, "key": value, at out[from:to]; the key ends at key.
type member struct{ from, key, to int }

func (n *normalizer) space() {
	for n.i < len(n.in) {
		switch n.in[n.i] {
		case ' ', '\t', '\n', '\r':
			n.i++
		default:
			return
		}
	}
}

func (n *normalizer) unexpected(want string) error {
	if n.i >= len(n.in) {
		return fmt.Errorf("it ends where %s was expected", want)
	}
	_, size := utf8.DecodeRune(n.in[n.i:])
	return fmt.Errorf("at byte %d: expected %s, found %q", n.i+1, want, n.in[n.i:n.i+size])
}

// value reads one value, the next byte being its first.
func (n *normalizer) value(depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("it nests more than %d deep", MaxDepth)
	}
	if n.i >= len(n.in) {
		return n.unexpected("a value")
	}
	switch c := n.in[n.i]; c {
	case '{':
		return n.object(depth)
	case '[':
		return n.array(depth)
	case '"':
		return n.string()
	case 't':
		return n.word("true")
	case 'f':
		return n.word("false")
	case 'n':
		return n.word("null")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return n.number()
		}
	}
	return n.unexpected("a value")
}

func (n *normalizer) word(w string) error {
	if !bytes.HasPrefix(n.in[n.i:], []byte(w)) {
		return n.unexpected("a value")
	}
	n.i += len(w)
	n.out = append(n.out, w...)
	return n.fits()
}

func (n *normalizer) fits() error {
	if len(n.out)-n.start > n.limit {
		return ErrTooLarge
	}
	return nil
}

func (n *normalizer) array(depth int) error {
	n.i++
	n.out = append(n.out, '[')
	for first := true; ; first = false {
		n.space()
		if first && n.i < len(n.in) && n.in[n.i] == ']' {
			break
		}
		if !first {
			n.out = append(n.out, ", "...)
		}
		if err := n.value(depth + 1); err != nil {
			return err
		}
		n.space()
		if n.i < len(n.in) && n.in[n.i] == ']' {
			break
		}
		if n.i >= len(n.in) || n.in[n.i] != ',' {
			return n.unexpected(", or ]")
		}
		n.i++
	}
	n.i++
	n.out = append(n.out, ']')
	return n.fits()
}

func (n *normalizer) object(depth int) error {
	n.i++
	n.out = append(n.out, '{')
	mine := len(n.members)
	sorted := true
	for first := true; ; first = false {
		n.space()
		if first && n.i < len(n.in) && n.in[n.i] == '}' {
			break
		}
		if n.i >= len(n.in) || n.in[n.i] != '"' {
			return n.unexpected("a key in quotes")
		}
		if !first {
			n.out = append(n.out, ", "...)
		}
		m := member{from: len(n.out)}
		if err := n.string(); err != nil {
			return err
		}
		m.key = len(n.out)
		n.space()
		if n.i >= len(n.in) || n.in[n.i] != ':' {
			return n.unexpected(": behind the key")
		}
		n.i++
		n.out = append(n.out, ": "...)
		n.space()
		if err := n.value(depth + 1); err != nil {
			return err
		}
		m.to = len(n.out)
		if sorted && len(n.members) > mine {
			sorted = n.compare(n.members[len(n.members)-1], m) < 0
		}
		n.members = append(n.members, m)
		n.space()
		if n.i < len(n.in) && n.in[n.i] == '}' {
			break
		}
		if n.i >= len(n.in) || n.in[n.i] != ',' {
			return n.unexpected(", or }")
		}
		n.i++
	}
	n.i++
	if !sorted {
		n.sort(n.members[mine:])
	}
	n.members = n.members[:mine]
	n.out = append(n.out, '}')
	return n.fits()
}

func (n *normalizer) compare(a, b member) int {
	return compareKeys(unquote(n.out[a.from:a.key]), unquote(n.out[b.from:b.key]))
}

// compareKeys is the order of an object's members.
func compareKeys(a, b []byte) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return bytes.Compare(a, b)
}

// sort puts members, which end out, in order, the last of equal ones only.
func (n *normalizer) sort(members []member) {
	from := members[0].from
	slices.SortStableFunc(members, n.compare)
	n.scratch = n.scratch[:0]
	for i, m := range members {
		if i+1 < len(members) && n.compare(m, members[i+1]) == 0 {
			continue
		}
		if len(n.scratch) > 0 {
			n.scratch = append(n.scratch, ", "...)
		}
		n.scratch = append(n.scratch, n.out[m.from:m.to]...)
	}
	n.out = append(n.out[:from], n.scratch...)
}

// string reads a string.
func (n *normalizer) string() error {
	from := n.i
	n.i++
	for n.i < len(n.in) {
		switch c := n.in[n.i]; {
		case c == '"':
			n.i++
			n.out = append(n.out, n.in[from:n.i]...)
			return n.fits()
		case c == '\\':
			n.out = append(n.out, n.in[from:n.i]...)
			if err := n.escape(); err != nil {
				return err
			}
			from = n.i
		case c < 0x20:
			return fmt.Errorf("at byte %d: the character 0x%02x must be escaped in a string", n.i+1, c)
		default:
			n.i++
		}
	}
	return errors.New("a string is not closed")
}

// escape reads one escape and writes its character.
func (n *normalizer) escape() error {
	at := n.i
	bad := func() error { return fmt.Errorf("at byte %d: there is no such escape", at+1) }
	if n.i += 2; n.i > len(n.in) {
		return errors.New("a string is not closed")
	}
	switch c := n.in[n.i-1]; c {
	case '"', '\\', '/':
		n.out = appendEscaped(n.out, []byte{c})
	case 'b':
		n.out = append(n.out, `\b`...)
	case 'f':
		n.out = append(n.out, `\f`...)
	case 'n':
		n.out = append(n.out, `\n`...)
	case 'r':
		n.out = append(n.out, `\r`...)
	case 't':
		n.out = append(n.out, `\t`...)
	case 'u':
		r, ok := n.hex()
		if !ok {
			return bad()
		}
		if utf16.IsSurrogate(r) {
			low := rune(0)
			if n.i+1 < len(n.in) && n.in[n.i] == '\\' && n.in[n.i+1] == 'u' {
				n.i += 2
				if low, ok = n.hex(); !ok {
					return bad()
				}
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return fmt.Errorf("at byte %d: half of a surrogate pair", at+1)
			}
		}
		if r == 0 {
			return fmt.Errorf(`at byte %d: \u0000 cannot be stored`, at+1)
		}
		n.out = appendEscaped(n.out, utf8.AppendRune(nil, r))
	default:
		return bad()
	}
	return nil
}

// hex reads four hexadecimal digits.
func (n *normalizer) hex() (rune, bool) {
	if n.i+4 > len(n.in) {
		return 0, false
	}
	u, err := strconv.ParseUint(string(n.in[n.i:n.i+4]), 16, 32)
	n.i += 4
	return rune(u), err == nil
}

// number reads a number.
func (n *normalizer) number() error {
	at := n.i
	bad := func() error {
		n.i = at
		return n.unexpected("a number")
	}
	negative := n.in[n.i] == '-'
	if negative {
		n.i++
	}
	whole := n.digits()
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return bad()
	}
	var frac []byte
	if n.i < len(n.in) && n.in[n.i] == '.' {
		n.i++
		if frac = n.digits(); len(frac) == 0 {
			return bad()
		}
	}
	exp := 0
	if n.i < len(n.in) && n.in[n.i]|0x20 == 'e' {
		from := n.i + 1
		n.i++
		if n.i < len(n.in) && (n.in[n.i] == '+' || n.in[n.i] == '-') {
			n.i++
		}
		if len(n.digits()) == 0 {
			return bad()
		}
		var err error
		if exp, err = strconv.Atoi(string(n.in[from:n.i])); err != nil || exp > 1<<20 || exp < -1<<20 {
			return fmt.Errorf("at byte %d: the number is out of range", at+1)
		}
	}
	if n.i < len(n.in) && (isWord(n.in[n.i]) || n.in[n.i] == '.') {
		return bad()
	}
	if !n.decimal(negative, whole, frac, exp) {
		return fmt.Errorf("at byte %d: the number is out of range", at+1)
	}
	return n.fits()
}

func isWord(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }

func (n *normalizer) digits() []byte {
	from := n.i
	for n.i < len(n.in) && n.in[n.i] >= '0' && n.in[n.i] <= '9' {
		n.i++
	}
	return n.in[from:n.i]
}

// decimal writes whole.frac × 10^exp as NUMERIC prints it. It reports false for what NUMERIC does not hold.
func (n *normalizer) decimal(negative bool, whole, frac []byte, exp int) bool {
	zero := len(bytes.TrimLeft(whole, "0")) == 0 && len(bytes.TrimLeft(frac, "0")) == 0
	if scale := len(frac) - exp; scale > maxScale || len(frac) > maxScale {
		return false
	}
	if negative && !zero {
		n.out = append(n.out, '-')
	}
	if exp == 0 {
		if len(whole) > maxDigits {
			return false
		}
		n.out = append(n.out, whole...)
		if len(frac) > 0 {
			n.out = append(append(n.out, '.'), frac...)
		}
		return true
	}
	digits := string(whole) + string(frac)
	point := len(whole) + exp
	scale := max(len(frac)-exp, 0)
	lead := len(digits) - len(strings.TrimLeft(digits, "0"))
	switch {
	case zero:
		digits, point = "0", 1
	case point-lead > maxDigits:
		return false
	}
	switch {
	case point > len(digits):
		digits += strings.Repeat("0", point-len(digits))
	case point < 1:
		digits = strings.Repeat("0", 1-point) + digits
		point = 1
	}
	int := strings.TrimLeft(digits[:point], "0")
	if int == "" {
		int = "0"
	}
	n.out = append(n.out, int...)
	if scale > 0 {
		part := digits[point:]
		n.out = append(append(n.out, '.'), part...)
		for k := len(part); k < scale; k++ {
			n.out = append(n.out, '0')
		}
	}
	return true
}

// AppendString appends s as a JSON string in normal form.
func AppendString(dst, s []byte) []byte {
	return append(appendEscaped(append(dst, '"'), s), '"')
}

func appendEscaped(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return dst
}
