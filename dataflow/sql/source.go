package sql

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

// Span is a piece of the text: byte offsets, To exclusive.
type Span struct{ From, To int }

// Join returns the span from the start of s to the end of o.
func (s Span) Join(o Span) Span { return Span{s.From, max(s.To, o.To)} }

// Source is a SQL text that errors point into.
type Source struct{ text string }

// NewSource returns the source of text.
func NewSource(text string) *Source { return &Source{text: text} }

// Text returns the piece of the text at s.
func (s *Source) Text(at Span) string {
	at = s.clamp(at)
	return s.text[at.From:at.To]
}

func (s *Source) clamp(at Span) Span {
	from := min(max(at.From, 0), len(s.text))
	return Span{from, min(max(at.To, from), len(s.text))}
}

// Position returns the line and the column of a byte offset, both from 1. A column is a character.
func (s *Source) Position(offset int) (line, column int) {
	offset = s.clamp(Span{offset, offset}).From
	before := s.text[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[start:])
}

// Errorf returns an error that points at a piece of the text.
func (s *Source) Errorf(r dataflow.Reason, at Span, format string, args ...any) *dataflow.Error {
	return s.place(dataflow.Errorf(r, format, args...), at)
}

// At lets err, which came from below and knows no place, point at a piece of the text. An error that has a place keeps
// it; an error of another type becomes an internal one.
func (s *Source) At(err error, at Span) *dataflow.Error {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		e = dataflow.Errorf(dataflow.ReasonInternal, "%w", err)
	}
	if _, placed := e.Metadata["line"]; placed {
		return e
	}
	c := *e
	c.Metadata = make(map[string]string, len(e.Metadata)+2)
	for k, v := range e.Metadata {
		c.Metadata[k] = v
	}
	if c.Hint != "" {
		c.Message, c.Hint = c.Message+"; "+c.Hint, ""
	}
	return s.place(&c, at)
}

// maxMessage is how many characters of a message are shown: it may quote a piece of the text, or a value.
const maxMessage = 1000

// place adds line, column and the text under a caret to e.
func (s *Source) place(e *dataflow.Error, at Span) *dataflow.Error {
	line, column := s.Position(at.From)
	if r := []rune(e.Message); len(r) > maxMessage {
		e.Message = string(r[:maxMessage]) + "…"
	}
	e.Message = fmt.Sprintf("line %d, column %d: %s\n%s", line, column, e.Message, s.Excerpt(at))
	return e.WithMeta("line", strconv.Itoa(line)).WithMeta("column", strconv.Itoa(column))
}

// excerptWidth is how many characters of a long line an excerpt shows.
const excerptWidth = 120

// Excerpt returns the line that at starts in and, below it, carets under the part of it that at covers:
//
//	2 | SELECT wrod, count(*) AS n
//	  |        ^^^^
func (s *Source) Excerpt(at Span) string {
	at = s.clamp(at)
	start := strings.LastIndexByte(s.text[:at.From], '\n') + 1
	end := len(s.text)
	if i := strings.IndexByte(s.text[at.From:], '\n'); i >= 0 {
		end = at.From + i
	}
	at.To = min(at.To, end)
	head, mid, tail := s.text[start:at.From], s.text[at.From:at.To], s.text[at.To:end]
	head, mid, tail = shorten(head, mid, strings.TrimRight(tail, "\r"))

	number, _ := s.Position(at.From)
	label := fmt.Sprintf("%3d | ", number)
	var b strings.Builder
	b.WriteString(label)
	b.WriteString(printable(head + mid + tail))
	b.WriteByte('\n')
	b.WriteString(strings.Repeat(" ", len(label)-2))
	b.WriteString("| ")
	for _, r := range head {
		if r == '\t' {
			b.WriteByte('\t') // a tab is as wide below as above
			continue
		}
		b.WriteString(strings.Repeat(" ", width(r)))
	}
	carets := 0
	for _, r := range mid {
		carets += width(r)
	}
	b.WriteString(strings.Repeat("^", max(carets, 1)))
	return b.String()
}

// shorten cuts a long line so that the middle part, or its start, stays in view.
func shorten(head, mid, tail string) (string, string, string) {
	h, m, t := []rune(head), []rune(mid), []rune(tail)
	if len(h)+len(m)+len(t) <= excerptWidth {
		return head, mid, tail
	}
	const part = excerptWidth / 2
	if len(m) > part {
		mid, t = string(m[:part]), append(m[part:], t...)
	}
	if len(h) > part {
		head = "…" + string(h[len(h)-part:])
	}
	if len(t) > part {
		t = append(t[:part:part], '…')
	}
	return head, mid, string(t)
}

// printable replaces what would disturb a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) && width(r) > 0 {
			return utf8.RuneError
		}
		return r
	}, s)
}

// width returns how many cells of a terminal r takes: 0 for combining marks, 2 for East Asian wide characters and
// emoji.
func width(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0x303e, r >= 0x3041 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1f64f, r >= 0x1f900 && r <= 0x1f9ff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// Span returns the place at a line and column, both from 1: the inverse of Position. It ends where the word there ends.
func (s *Source) Span(line, column int) Span {
	from := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(s.text[from:], '\n')
		if i < 0 {
			break
		}
		from += i + 1
	}
	for ; column > 1 && from < len(s.text); column-- {
		_, size := utf8.DecodeRuneInString(s.text[from:])
		from += size
	}
	to := from
	for to < len(s.text) && (isLetter(s.text[to]) || isDigit(s.text[to])) {
		to++
	}
	return Span{from, to}
}
