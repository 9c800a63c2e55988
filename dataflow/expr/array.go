package expr

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

// appendElemText appends an element as it stands in an array's text form, quoted where it has to be.
func appendElemText(dst, e []byte) []byte {
	needs := len(e) == 0 || len(e) == 4 && strings.EqualFold(string(e), "null")
	for _, c := range e {
		if c == '"' || c == '\\' || c == '{' || c == '}' || c == ',' || strings.IndexByte(pgSpace, c) >= 0 {
			needs = true
		}
	}
	if !needs {
		return append(dst, e...)
	}
	dst = append(dst, '"')
	for _, c := range e {
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// parseArray reads the text form of a one-dimensional array with elements of type elem: {a,"b c",NULL}.
func parseArray(elem dataflow.Type, s string) ([]dataflow.Value, *dataflow.Error) {
	texts, err := parseTexts(s)
	if err != nil {
		return nil, err
	}
	out := make([]dataflow.Value, len(texts))
	for i, t := range texts {
		if t == nil {
			out[i] = dataflow.NullValue(elem)
		} else if out[i], err = parseValue(elem, *t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// parseTexts reads the elements of the text form of an array; nil is NULL.
func parseTexts(s string) ([]*string, *dataflow.Error) {
	bad := func(why string) ([]*string, *dataflow.Error) {
		return nil, failf(`malformed array literal: "%s"`, abridge(s)).WithHint("%s", why)
	}
	if err := checkText(s); err != nil {
		return nil, err
	}
	t := strings.Trim(s, pgSpace)
	if len(t) < 2 || t[0] != '{' || t[len(t)-1] != '}' {
		return bad("an array is written {a,b}")
	}
	t = t[1 : len(t)-1]
	elems := []*string{}
	if strings.Trim(t, pgSpace) == "" {
		return elems, nil
	}
	for i := 0; ; {
		for i < len(t) && strings.IndexByte(pgSpace, t[i]) >= 0 {
			i++
		}
		var e strings.Builder
		quoted := i < len(t) && t[i] == '"'
		end := 0 // of an unquoted element without the blanks after it
		if quoted {
			for i++; i < len(t) && t[i] != '"'; i++ {
				if t[i] == '\\' && i+1 < len(t) {
					i++
				}
				e.WriteByte(t[i])
			}
			if i == len(t) {
				return bad("a quote is not closed")
			}
			for i++; i < len(t) && strings.IndexByte(pgSpace, t[i]) >= 0; i++ {
			}
			end = e.Len()
		} else {
			for ; i < len(t) && t[i] != ','; i++ {
				switch t[i] {
				case '{', '}':
					return bad("arrays have one dimension")
				case '"':
					return bad("an element is quoted as a whole or not at all")
				case '\\':
					if i++; i == len(t) {
						return bad("the text ends in a backslash")
					}
					e.WriteByte(t[i])
					end = e.Len()
					continue
				}
				e.WriteByte(t[i])
				if strings.IndexByte(pgSpace, t[i]) < 0 {
					end = e.Len()
				}
			}
		}
		text := e.String()[:end]
		switch {
		case !quoted && text == "":
			return bad("an empty element is written \"\"")
		case !quoted && strings.EqualFold(text, "null"):
			elems = append(elems, nil)
		default:
			elems = append(elems, &text)
		}
		if i == len(t) {
			return elems, nil
		}
		if t[i] != ',' {
			return bad("elements are separated by commas")
		}
		i++
	}
}

// arrayFunctions are those of TEXT[].
func arrayFunctions() []function {
	return []function{
		{name: "string_to_array", args: []dataflow.Type{tText, tText}, result: tArray, nullable: true, eval: evalStringToArray,
			doc: "The parts between delimiters; the characters if the delimiter is NULL. Parts equal to the third argument become NULL.", example: "string_to_array('a,b', ',')"},
		{name: "string_to_array", args: []dataflow.Type{tText, tText, tText}, result: tArray, nullable: true, eval: evalStringToArray},
		{name: "array_to_string", args: []dataflow.Type{tArray, tText}, result: tText, nullable: true, eval: evalArrayToString,
			doc: "The elements with a delimiter between them; NULL elements are left out, or become the third argument.", example: "array_to_string('{a,b}', '-')"},
		{name: "array_to_string", args: []dataflow.Type{tArray, tText, tText}, result: tText, nullable: true, eval: evalArrayToString},
		{name: "array_length", args: []dataflow.Type{tArray, tInt}, result: tInt, eval: func(f *frame) {
			a, dim := f.args[0], f.args[1]
			f.each(func(i int) *dataflow.Error {
				from, to := a.list(i)
				if dim.int(i) != 1 || from == to {
					f.null(i)
				} else {
					f.out.Ints[i] = int64(to - from)
				}
				return nil
			})
		}, doc: "The length in a dimension, of which there is only the first; NULL for an empty array.", example: "array_length('{a,b}'::text[], 1)"},
		{name: "cardinality", args: []dataflow.Type{tArray}, result: tInt, eval: func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error {
				from, to := a.list(i)
				f.out.Ints[i] = int64(to - from)
				return nil
			})
		}, doc: "The number of elements.", example: "cardinality('{a,b}'::text[])"},
		{name: "array_position", args: []dataflow.Type{tArray, tText}, result: tInt, nullable: true, eval: evalArrayPosition,
			doc: "Where an element first stands, from 1; NULL if it does not.", example: "array_position('{a,b}', 'b')"},
	}
}

func evalStringToArray(f *frame) {
	a, delim := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error {
		if a.null(i) {
			f.null(i)
			return nil
		}
		s := a.text(i)
		var parts [][]byte
		switch {
		case len(s) == 0:
		case delim.null(i):
			for rest := s; len(rest) > 0; {
				_, n := utf8.DecodeRune(rest)
				parts = append(parts, rest[:n])
				rest = rest[n:]
			}
		case len(delim.text(i)) == 0:
			parts = [][]byte{s}
		default:
			parts = bytes.Split(s, delim.text(i))
		}
		elems := make([]*string, len(parts))
		for k, p := range parts {
			if len(f.args) == 3 && !f.args[2].null(i) && bytes.Equal(p, f.args[2].text(i)) {
				continue
			}
			text := string(p)
			elems[k] = &text
		}
		return f.setList(i, elems)
	})
}

func evalArrayToString(f *frame) {
	a, delim := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		if a.null(i) || delim.null(i) {
			f.null(i)
			return dst, nil
		}
		start, any := len(dst), false
		from, to := a.list(i)
		for k := from; k < to; k++ {
			text := []byte(nil)
			switch {
			case !elemNull(a.v.Elems, k):
				text = a.v.Elems.Text(k)
			case len(f.args) == 3 && !f.args[2].null(i):
				text = f.args[2].text(i)
			default:
				continue
			}
			if any {
				dst = append(dst, delim.text(i)...)
			}
			any = true
			dst = append(dst, text...)
			if len(dst)-start > maxText {
				return dst, errTooLong()
			}
		}
		return dst, nil
	})
}

func evalArrayPosition(f *frame) {
	a, x := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error {
		if a.null(i) {
			f.null(i)
			return nil
		}
		from, to := a.list(i)
		for k := from; k < to; k++ {
			null := elemNull(a.v.Elems, k)
			if null && x.null(i) || !null && !x.null(i) && bytes.Equal(a.v.Elems.Text(k), x.text(i)) {
				f.out.Ints[i] = int64(k - from + 1)
				return nil
			}
		}
		f.null(i)
		return nil
	})
}
