package sql

import (
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

// lexer cuts the text into tokens by PostgreSQL's lexical rules.
type lexer struct {
	src *Source
	pos int
	end int // where the last token ended: the place of the end of the text
}

// next returns the next token; at the end of the text a kindEnd one, for ever.
func (l *lexer) next() (token, *dataflow.Error) {
	if err := l.skipSpace(); err != nil {
		return token{}, err
	}
	start := l.pos
	text := l.src.text
	if start >= len(text) {
		return token{kind: kindEnd, at: Span{l.end, l.end}}, nil
	}
	t, err := l.token(text[start])
	if err != nil {
		return token{}, err
	}
	t.at = Span{start, l.pos}
	l.end = l.pos
	return t, nil
}

func (l *lexer) token(c byte) (token, *dataflow.Error) {
	text, start := l.src.text, l.pos
	rest := text[start:]
	switch {
	case (c == 'e' || c == 'E') && strings.HasPrefix(rest[1:], "'"):
		l.pos++
		return l.quotedString(start, true)
	case isLetter(c):
		for l.pos < len(text) && (isLetter(text[l.pos]) || isDigit(text[l.pos]) || text[l.pos] == '$') {
			l.pos++
		}
		return l.word(text[start:l.pos])
	case isDigit(c), c == '.' && len(rest) > 1 && isDigit(rest[1]):
		return l.number()
	case c == '\'':
		return l.quotedString(start, false)
	case c == '"':
		return l.quotedName()
	case c == '$':
		return l.dollar()
	case strings.HasPrefix(rest, "::"), strings.HasPrefix(rest, ":="):
		l.pos += 2
		return token{kind: kindOp, text: rest[:2]}, nil
	case strings.IndexByte("()[],;.:", c) >= 0:
		l.pos++
		return token{kind: kindPunct, text: rest[:1]}, nil
	case strings.IndexByte(operatorChars, c) >= 0:
		return l.operator(), nil
	case c == '\\':
		return token{}, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, start + 1}, `a backslash means nothing outside E'…' strings; psql's commands are not SQL`)
	case c == '{' || c == '}':
		return token{}, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, start + 1}, "%q means nothing in SQL", c)
	}
	return token{}, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, start + 1}, "the character %q means nothing here", c)
}

func (l *lexer) word(spelling string) (token, *dataflow.Error) {
	if next := l.src.text[l.pos:]; strings.HasPrefix(next, "'") || strings.HasPrefix(next, "&'") || strings.HasPrefix(next, `&"`) {
		instead := map[string]string{"b": "bit strings are not supported: write the number", "x": "bit strings are not supported: write the number",
			"n": "write '…' without N: TEXT is Unicode already", "u": `write E'\u…' for a character by its number`}[strings.ToLower(spelling)]
		if instead != "" && (next[0] == '\'') == (len(spelling) == 1 && spelling != "u" && spelling != "U") {
			return token{}, l.src.Errorf(dataflow.ReasonSQLUnsupported, Span{l.pos - len(spelling), l.pos}, "%s", instead)
		}
	}
	return token{kind: kindWord, text: fold(spelling)}, nil
}

// fold lowers ASCII letters, as PostgreSQL folds names.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= utf8.RuneSelf }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// number reads 12, 1.5, .5, 1e3. Digits that run into letters are an error, as 1a would else read as 1 AS a.
func (l *lexer) number() (token, *dataflow.Error) {
	text, start := l.src.text, l.pos
	digits := func() {
		for l.pos < len(text) && isDigit(text[l.pos]) {
			l.pos++
		}
	}
	t := token{kind: kindInteger}
	digits()
	if l.pos < len(text) && text[l.pos] == '.' {
		t.kind = kindDecimal
		l.pos++
		digits()
	}
	if l.pos < len(text) && text[l.pos]|0x20 == 'e' {
		i := l.pos + 1
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if i < len(text) && isDigit(text[i]) {
			t.kind = kindDecimal
			l.pos = i
			digits()
		}
	}
	if l.pos < len(text) && isLetter(text[l.pos]) {
		from := l.pos
		for l.pos < len(text) && (isLetter(text[l.pos]) || isDigit(text[l.pos])) {
			l.pos++
		}
		return t, l.src.Errorf(dataflow.ReasonSQLSyntax, Span{from, l.pos}, "the number %s runs into %s: numbers are written in decimal digits; put a space between a number and a name", text[start:from], text[from:l.pos])
	}
	t.text = text[start:l.pos]
	return t, nil
}

const operatorChars = "+-*/<>=~!@#%^&|`?"

// operator reads the longest operator by PostgreSQL's rule: several characters end in + or - only if one of them is
// ~ ! @ # % ^ & | ` or ?, so that a=-1 reads as a = -1. A comment ends an operator.
func (l *lexer) operator() token {
	text, start := l.src.text, l.pos
	for l.pos < len(text) && strings.IndexByte(operatorChars, text[l.pos]) >= 0 {
		if next := text[l.pos:]; strings.HasPrefix(next, "--") || strings.HasPrefix(next, "/*") {
			break
		}
		l.pos++
	}
	op := text[start:l.pos]
	for len(op) > 1 && (op[len(op)-1] == '+' || op[len(op)-1] == '-') && !strings.ContainsAny(op, "~!@#%^&|`?") {
		op = op[:len(op)-1]
	}
	l.pos = start + len(op)
	if op == "!=" {
		op = "<>"
	}
	return token{kind: kindOp, text: op}
}

// skipSpace skips white space and comments; /* */ nests.
func (l *lexer) skipSpace() *dataflow.Error {
	text := l.src.text
	for l.pos < len(text) {
		rest := text[l.pos:]
		switch {
		case strings.IndexByte(" \t\r\n\f\v", rest[0]) >= 0:
			l.pos++
		case strings.HasPrefix(rest, "\ufeff"): // a byte order mark
			l.pos += len("\ufeff")
		case strings.HasPrefix(rest, "--"):
			if i := strings.IndexByte(rest, '\n'); i >= 0 {
				l.pos += i
			} else {
				l.pos = len(text)
			}
		case strings.HasPrefix(rest, "/*"):
			if err := l.skipComment(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

func (l *lexer) skipComment() *dataflow.Error {
	text, start, depth := l.src.text, l.pos, 0
	for l.pos < len(text) {
		switch rest := text[l.pos:]; {
		case strings.HasPrefix(rest, "/*"):
			depth++
			l.pos += 2
		case strings.HasPrefix(rest, "*/"):
			depth--
			l.pos += 2
			if depth == 0 {
				return nil
			}
		default:
			l.pos++
		}
	}
	return l.src.Errorf(dataflow.ReasonSQLSyntax, Span{start, start + 2}, "this comment is not closed: expected */ (comments nest)")
}
