package expr

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

// formatFunctions build text out of other values: format, the quote functions and overlay.
func formatFunctions() []function {
	text1 := []dataflow.Type{tText}
	return []function{
		{name: "overlay", args: []dataflow.Type{tText, tText, tInt}, result: tText, eval: evalOverlay,
			doc: "overlay(s PLACING new FROM a [FOR n]): with n characters from number a (as many as the new text has) replaced.", example: "overlay('Txxxxas' PLACING 'hom' FROM 2 FOR 4)"},
		{name: "overlay", args: []dataflow.Type{tText, tText, tInt, tInt}, result: tText, eval: evalOverlay},
		{name: "format", args: text1, result: tText, eval: evalFormat,
			doc: "Text with %s replaced by the next argument, %I by it as a name, %L as a literal, %% by a percent sign; %2$s names an argument, %10s and %-10s give a width.", example: "format('%s of %s', 1, 'two')"},
		{name: "format", args: []dataflow.Type{tText, typeEach}, variadic: true, result: tText, nullable: true, eval: evalFormat},
		{name: "quote_literal", args: text1, result: tText, eval: text1fn(appendQuotedLiteral),
			doc: "As a literal of SQL.", example: "quote_literal('O''Reilly')"},
		{name: "quote_nullable", args: text1, result: tText, nullable: true, eval: evalQuoteNullable,
			doc: "The same, and NULL for NULL.", example: "quote_nullable(NULL)"},
		{name: "quote_ident", args: text1, result: tText, eval: text1fn(appendQuotedIdent),
			doc: "As a name of SQL, in double quotes where it needs them.", example: "quote_ident('Foo bar')", differs: "PostgreSQL also quotes its key words"},
	}
}

// urlFunctions take URLs apart; PostgreSQL has none.
func urlFunctions() []function {
	text1 := []dataflow.Type{tText}
	part := func(get func(u *url.URL) (string, bool)) func(f *frame) {
		return func(f *frame) {
			a := f.args[0]
			f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
				if u, err := url.Parse(string(a.text(i))); err == nil {
					if s, ok := get(u); ok && batchText(s) {
						return append(dst, s...), nil
					}
				}
				f.null(i)
				return dst, nil
			})
		}
	}
	has := func(s string) (string, bool) { return s, s != "" }
	const ours = "PostgreSQL has no such function"
	return []function{
		{name: "url_scheme", args: text1, result: tText, eval: part(func(u *url.URL) (string, bool) { return has(u.Scheme) }),
			doc: "The scheme of a URL; NULL without one, or for what is no URL, as for the others.", example: "url_scheme('https://a.example/x')", differs: ours},
		{name: "url_host", args: text1, result: tText, eval: part(func(u *url.URL) (string, bool) { return has(strings.ToLower(u.Hostname())) }),
			doc: "The host in lower case, without the port.", example: "url_host('https://A.example:8080/x')", differs: ours},
		{name: "url_port", args: text1, result: tText, eval: part(func(u *url.URL) (string, bool) { return has(u.Port()) }),
			doc: "The port as it is written.", example: "url_port('https://a.example:8080/x')", differs: ours},
		{name: "url_path", args: text1, result: tText, eval: part(func(u *url.URL) (string, bool) { return u.Path, true }),
			doc: "The path, with %xx decoded.", example: "url_path('https://a.example/x%20y?q=1')", differs: ours},
		{name: "url_query", args: text1, result: tText, eval: part(func(u *url.URL) (string, bool) { return has(u.RawQuery) }),
			doc: "What stands behind the question mark.", example: "url_query('https://a.example/x?q=1&r=2')", differs: ours},
		{name: "url_fragment", args: text1, result: tText, eval: part(func(u *url.URL) (string, bool) { return has(u.Fragment) }),
			doc: "What stands behind the number sign.", example: "url_fragment('https://a.example/x#top')", differs: ours},
		{name: "url_param", args: []dataflow.Type{tText, tText}, result: tText, eval: evalURLParam,
			doc: "The first parameter of that name in the query, decoded; NULL if there is none.", example: "url_param('https://a.example/x?q=a%20b', 'q')", differs: ours},
	}
}

// batchText reports whether s can be a TEXT.
func batchText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func evalURLParam(f *frame) {
	a, name := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		if u, err := url.Parse(string(a.text(i))); err == nil {
			if v, ok := u.Query()[string(name.text(i))]; ok && batchText(v[0]) {
				return append(dst, v[0]...), nil
			}
		}
		f.null(i)
		return dst, nil
	})
}

func evalOverlay(f *frame) {
	a, with, from := f.args[0], f.args[1], f.args[2]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		s, at := a.text(i), from.int(i)
		n := int64(utf8.RuneCount(with.text(i)))
		if len(f.args) == 4 {
			n = f.args[3].int(i)
		}
		if at <= 0 {
			return dst, failf("negative substring length not allowed")
		}
		rest, over := addInt64(at-1, n)
		if over {
			rest = int64(len(s))
		}
		dst = append(dst, s[:charOffset(s, at-1)]...)
		dst = append(dst, with.text(i)...)
		return append(dst, s[charOffset(s, max(rest, 0)):]...), nil
	})
}

func appendQuotedLiteral(dst, s []byte) []byte {
	if bytes.IndexByte(s, '\\') >= 0 {
		dst = append(dst, 'E')
	}
	dst = append(dst, '\'')
	for _, c := range s {
		if c == '\'' || c == '\\' {
			dst = append(dst, c)
		}
		dst = append(dst, c)
	}
	return append(dst, '\'')
}

func appendQuotedIdent(dst, s []byte) []byte {
	plain := len(s) > 0 && (s[0] == '_' || s[0] >= 'a' && s[0] <= 'z')
	for _, c := range s {
		plain = plain && (c == '_' || c >= 'a' && c <= 'z' || isDigit(c))
	}
	if plain {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	for _, c := range s {
		if c == '"' {
			dst = append(dst, c)
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

func evalQuoteNullable(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		if a.null(i) {
			return append(dst, "NULL"...), nil
		}
		return appendQuotedLiteral(dst, a.text(i)), nil
	})
}

func evalFormat(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		if a.null(i) {
			f.null(i)
			return dst, nil
		}
		return f.format(dst, a.text(i), i)
	})
}

// format appends the text of a format for row i.
func (f *frame) format(dst, s []byte, i int) ([]byte, *dataflow.Error) {
	next, start := 1, len(dst)
	var text []byte
	for k := 0; k < len(s); k++ {
		if s[k] != '%' {
			dst = append(dst, s[k])
			continue
		}
		k++
		if k < len(s) && s[k] == '%' {
			dst = append(dst, '%')
			continue
		}
		number := func() (n int, any bool) {
			for ; k < len(s) && isDigit(s[k]); k++ {
				if any = true; n < 1<<24 {
					n = n*10 + int(s[k]-'0')
				}
			}
			return n, any
		}
		n, any := number()
		width, left := 0, false
		if any && k < len(s) && s[k] == '$' {
			if n == 0 {
				return dst, failf("format specifies argument 0, but arguments are numbered from 1")
			}
			k++
			next, any = n, false
			n = 0
		}
		if !any {
			for ; k < len(s) && s[k] == '-'; k++ {
				left = true
			}
			n, _ = number() // no digits are a width of 0
		}
		width = n
		if k >= len(s) {
			return dst, failf("unterminated format() type specifier").WithHint(`For a single "%%" use "%%%%".`)
		}
		if next >= len(f.args) {
			return dst, failf("too few arguments for format()")
		}
		arg := &f.args[next]
		next++
		null := arg.v.Type == dataflow.TypeUnknown || arg.null(i)
		text = text[:0]
		switch c := s[k]; {
		case c == 's':
			if !null {
				text = arg.appendFormatted(text, i)
			}
		case c == 'L' && null:
			text = append(text, "NULL"...)
		case c == 'L':
			text = appendQuotedLiteral(text, arg.appendFormatted(nil, i))
		case c == 'I' && null:
			return dst, failf("null values cannot be formatted as an SQL identifier")
		case c == 'I':
			text = appendQuotedIdent(text, arg.appendFormatted(nil, i))
		default:
			r, _ := utf8.DecodeRune(s[k:])
			return dst, failf("unrecognized format() type specifier %q", strconv.QuoteRune(r)[1:len(strconv.QuoteRune(r))-1]).WithHint(`For a single "%%" use "%%%%".`)
		}
		pad := width - utf8.RuneCount(text)
		if pad > maxText {
			return dst, errTooLong()
		}
		if left {
			dst = append(dst, text...)
		}
		for ; pad > 0; pad-- {
			dst = append(dst, ' ')
		}
		if !left {
			dst = append(dst, text...)
		}
		if len(dst)-start > maxText {
			return dst, errTooLong()
		}
	}
	return dst, nil
}

// appendFormatted appends a value as format and concat print it: booleans are t and f.
func (o *operand) appendFormatted(dst []byte, i int) []byte {
	if o.v.Type == tBool {
		return append(dst, "ft"[o.int(i)])
	}
	return o.appendText(dst, i)
}
