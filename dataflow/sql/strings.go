package sql

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

// quotedString reads a string that starts at l.pos; start is where its token begins (at the E of E'…'). Strings with
// only white space that has a line break between them are one string, as in PostgreSQL.
func (l *lexer) quotedString(start int, escapes bool) (token, *dataflow.Error) {
	var b strings.Builder
	for {
		if err := l.stringPart(start, escapes, &b); err != nil {
			return token{}, err
		}
		rest := l.src.text[l.pos:]
		gap := rest[:len(rest)-len(strings.TrimLeft(rest, " \t\r\n\f\v"))]
		if !strings.Contains(gap, "\n") || !strings.HasPrefix(rest[len(gap):], "'") {
			break
		}
		l.pos += len(gap)
	}
	if !utf8.ValidString(b.String()) || strings.IndexByte(b.String(), 0) >= 0 {
		return token{}, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, l.pos}, "TEXT is UTF-8 without zero bytes; this string's escapes make something else")
	}
	return token{kind: kindString, text: b.String()}, nil
}

// stringPart reads from one quote to its closing one.
func (l *lexer) stringPart(start int, escapes bool, b *strings.Builder) *dataflow.Error {
	text := l.src.text
	l.pos++
	for l.pos < len(text) {
		c := text[l.pos]
		switch {
		case c == '\'' && strings.HasPrefix(text[l.pos+1:], "'"):
			b.WriteByte('\'')
			l.pos += 2
		case c == '\'':
			l.pos++
			return nil
		case c == '\\' && escapes:
			if err := l.escape(b); err != nil {
				return err
			}
		default:
			b.WriteByte(c)
			l.pos++
		}
	}
	return l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, start + 1}, "this string is not closed: expected ' (a quote inside a string is written twice)")
}

// escape reads one backslash escape of an E'…' string.
func (l *lexer) escape(b *strings.Builder) *dataflow.Error {
	text, start := l.src.text, l.pos
	bad := func(want string) *dataflow.Error {
		return l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, min(start+2, len(text))}, "invalid escape: expected %s", want)
	}
	if start+1 >= len(text) {
		return bad("a character after the backslash")
	}
	c := text[start+1]
	digits := func(from, least, most, base int) (uint64, bool) {
		i := from
		for i < len(text) && i < from+most && strings.IndexByte("0123456789abcdef"[:base], text[i]|0x20) >= 0 {
			i++
		}
		if i-from < least {
			return 0, false
		}
		v, err := strconv.ParseUint(text[from:i], base, 32)
		l.pos = i
		return v, err == nil
	}
	switch {
	case c == 'x':
		v, ok := digits(start+2, 1, 2, 16)
		if !ok {
			return bad(`\x and one or two hexadecimal digits`)
		}
		b.WriteByte(byte(v))
	case c == 'u' || c == 'U':
		n := 4
		if c == 'U' {
			n = 8
		}
		v, ok := digits(start+2, n, n, 16)
		if !ok || v > utf8.MaxRune || !utf8.ValidRune(rune(v)) {
			return bad(`\u and four, or \U and eight hexadecimal digits that name a character`)
		}
		b.WriteRune(rune(v))
	case c >= '0' && c <= '7':
		v, ok := digits(start+1, 1, 3, 8)
		if !ok || v > 255 {
			return bad(`\ and up to three octal digits, at most \377`)
		}
		b.WriteByte(byte(v))
	default:
		if i := strings.IndexByte("bfnrt", c); i >= 0 {
			b.WriteByte("\b\f\n\r\t"[i])
		} else {
			b.WriteByte(c)
		}
		l.pos += 2
	}
	return nil
}

// quotedName reads a "name".
func (l *lexer) quotedName() (token, *dataflow.Error) {
	text, start := l.src.text, l.pos
	var b strings.Builder
	for l.pos++; l.pos < len(text); l.pos++ {
		if text[l.pos] != '"' {
			b.WriteByte(text[l.pos])
			continue
		}
		if strings.HasPrefix(text[l.pos+1:], `"`) {
			b.WriteByte('"')
			l.pos++
			continue
		}
		l.pos++
		if b.Len() == 0 {
			return token{}, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, l.pos}, `"" is not a name; the empty string is written ''`)
		}
		return token{kind: kindQuoted, text: b.String()}, nil
	}
	return token{}, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, start + 1}, `this quoted name is not closed: expected "`)
}

// dollar reads $1 or a $$dollar-quoted$$ string.
func (l *lexer) dollar() (token, *dataflow.Error) {
	text, start := l.src.text, l.pos
	i := start + 1
	if i < len(text) && isDigit(text[i]) {
		for i < len(text) && isDigit(text[i]) {
			i++
		}
		l.pos = i
		return token{kind: kindParam, text: text[start:i]}, nil
	}
	for i < len(text) && (isLetter(text[i]) || i > start+1 && isDigit(text[i])) {
		i++
	}
	if i >= len(text) || text[i] != '$' {
		return token{}, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, start + 1}, "$ means nothing here: expected $$text$$ or $tag$text$tag$")
	}
	tag := text[start : i+1]
	body := text[i+1:]
	end := strings.Index(body, tag)
	if end < 0 {
		return token{}, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, i + 1}, "this string is not closed: expected %s", tag)
	}
	l.pos = i + 1 + end + len(tag)
	return token{kind: kindString, text: body[:end]}, nil
}
