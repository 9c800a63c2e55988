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
	out, size := make([]dataflow.Value, len(texts)), 0
	for i, t := range texts {
		if t == nil {
			out[i] = dataflow.NullValue(elem)
			continue
		}
		if out[i], err = parseValue(elem, *t); err != nil {
			return nil, err
		}
		if elem != dataflow.TypeNumeric {
			continue
		}
		// Few characters may stand for a long number.
		if size += out[i].Dec.Coeff.BitLen() / 8; size > maxText {
			return nil, dataflow.Errorf(dataflow.ReasonTooLarge, "an array may have %d bytes", maxText)
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

// arrayFunctions are those of arrays.
func arrayFunctions() []function {
	return []function{
		{name: "string_to_array", args: []dataflow.Type{tText, tText}, result: tArray, nullable: true, eval: evalStringToArray,
			doc: "The parts between delimiters; the characters if the delimiter is NULL. Parts equal to the third argument become NULL.", example: "string_to_array('a,b', ',')"},
		{name: "string_to_array", args: []dataflow.Type{tText, tText, tText}, result: tArray, nullable: true, eval: evalStringToArray},
		{name: "array_to_string", args: []dataflow.Type{typeList, tText}, result: tText, nullable: true, eval: evalArrayToString,
			doc: "The elements with a delimiter between them; NULL elements are left out, or become the third argument.", example: "array_to_string('{a,b}', '-')"},
		{name: "array_to_string", args: []dataflow.Type{typeList, tText, tText}, result: tText, nullable: true, eval: evalArrayToString},
		{name: "array", args: []dataflow.Type{typeAny}, variadic: true, result: typeList, nullable: true, eval: evalArray,
			doc: "An array of the values.", example: "array_length(string_to_array('a,b', ','), 1)"},
		{name: "[]", args: []dataflow.Type{typeList, tInt}, result: typeItem, eval: evalSubscript,
			doc: "An element by its number from 1; NULL if there is none."},
		{name: "[:]", args: []dataflow.Type{typeList, tInt, tInt}, result: typeList, eval: evalSlice,
			doc: "The elements from one number to another; either may be left out.", example: "('{a,b,c}'::text[])[2:3]"},
		{name: "trim_array", args: []dataflow.Type{typeList, tInt}, result: typeList, eval: evalTrimArray,
			doc: "Without the last n elements.", example: "trim_array('{a,b,c}'::text[], 2)"},
		{name: "array_positions", args: []dataflow.Type{typeList, typeItem}, result: dataflow.TypeBigIntArray, nullable: true, eval: evalArrayPositions,
			doc: "All numbers at which an element stands.", example: "array_positions('{a,b,a}', 'a')"},
		{name: "array_replace", args: []dataflow.Type{typeList, typeItem, typeItem}, result: typeList, nullable: true, eval: evalArrayReplace,
			doc: "With the elements that equal the second argument replaced by the third.", example: "array_replace('{a,b,a}', 'a', 'x')"},
		{name: "array_ndims", args: []dataflow.Type{typeList}, result: tInt, eval: evalArrayDims,
			doc: "The number of dimensions: 1; NULL for an empty array.", example: "array_ndims('{a,b}'::text[])"},
		{name: "&&", args: []dataflow.Type{typeList, typeList}, result: tBool, eval: evalArrayOverlap,
			doc: "Whether two arrays have an element in common.", example: "'{1,2}'::bigint[] && '{2,3}'"},
		{name: "array_length", args: []dataflow.Type{typeList, tInt}, result: tInt, eval: evalArrayBound(func(n int64) int64 { return n }),
			doc: "The length in a dimension, of which there is only the first; NULL for an empty array.", example: "array_length('{a,b}'::text[], 1)"},
		{name: "array_lower", args: []dataflow.Type{typeList, tInt}, result: tInt, eval: evalArrayBound(func(int64) int64 { return 1 }),
			doc: "The first number: 1; NULL for an empty array.", example: "array_lower('{a,b}'::text[], 1)"},
		{name: "array_upper", args: []dataflow.Type{typeList, tInt}, result: tInt, eval: evalArrayBound(func(n int64) int64 { return n }),
			doc: "The last number; NULL for an empty array.", example: "array_upper('{a,b}'::text[], 1)"},
		{name: "generate_subscripts", args: []dataflow.Type{typeList, tInt}, result: dataflow.TypeBigIntArray, eval: evalSubscripts,
			doc: "In FROM: a row for each number of an element, from 1.", differs: "it stands in FROM only."},
		{name: "cardinality", args: []dataflow.Type{typeList}, result: tInt, eval: func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error {
				from, to := a.list(i)
				f.out.Ints[i] = int64(to - from)
				return nil
			})
		}, doc: "The number of elements.", example: "cardinality('{a,b}'::text[])"},
		{name: "array_position", args: []dataflow.Type{typeList, typeItem}, result: tInt, nullable: true, eval: evalArrayPosition,
			doc: "Where an element first stands, from 1; NULL if it does not.", example: "array_position('{a,b}', 'b')"},
		{name: "||", args: []dataflow.Type{typeList, typeList}, result: typeList, nullable: true, eval: evalArrayJoin(true, true),
			doc: "Arrays joined, or an element put at the end or the start; a NULL array is like an empty one.", example: "'{a,b}'::text[] || '{c}'::text[]"},
		{name: "||", args: []dataflow.Type{typeList, typeItem}, result: typeList, nullable: true, eval: evalArrayJoin(true, false)},
		{name: "||", args: []dataflow.Type{typeItem, typeList}, result: typeList, nullable: true, eval: evalArrayJoin(false, true)},
		{name: "array_cat", args: []dataflow.Type{typeList, typeList}, result: typeList, nullable: true, eval: evalArrayJoin(true, true),
			doc: "The same as ||.", example: "array_cat('{1}'::bigint[], '{2,3}')"},
		{name: "array_append", args: []dataflow.Type{typeList, typeItem}, result: typeList, nullable: true, eval: evalArrayJoin(true, false),
			doc: "With an element at the end.", example: "array_append('{1,2}'::bigint[], 3)"},
		{name: "array_prepend", args: []dataflow.Type{typeItem, typeList}, result: typeList, nullable: true, eval: evalArrayJoin(false, true),
			doc: "With an element at the start.", example: "array_prepend(1, '{2,3}'::bigint[])"},
		{name: "array_remove", args: []dataflow.Type{typeList, typeItem}, result: typeList, nullable: true, eval: evalArrayRemove,
			doc: "Without the elements that equal a value.", example: "array_remove('{1,2,1}'::bigint[], 1)"},
		{name: "@>", args: []dataflow.Type{typeList, typeList}, result: tBool, eval: evalArrayContains(0, 1),
			doc: "Arrays: whether the first has every element of the second.", example: "'{1,2,3}'::bigint[] @> '{3,1}'"},
		{name: "<@", args: []dataflow.Type{typeList, typeList}, result: tBool, eval: evalArrayContains(1, 0),
			doc: "Whether the second has every element of the first.", example: "'{1}'::bigint[] <@ '{3,1}'"},
		quantified("=", order{equal: true}, "Whether the value equals an element; NULL if none and one is NULL. Also <>, <, <=, >, >= with ANY or ALL."),
		quantified("<>", order{less: true, greater: true}, ""), quantified("<", order{less: true}, ""), quantified("<=", order{less: true, equal: true}, ""),
		quantified(">", order{greater: true}, ""), quantified(">=", order{greater: true, equal: true}, ""),
		allOf("=", order{equal: true}), allOf("<>", order{less: true, greater: true}), allOf("<", order{less: true}),
		allOf("<=", order{less: true, equal: true}), allOf(">", order{greater: true}), allOf(">=", order{greater: true, equal: true}),
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
		var buf []byte
		for k := from; k < to; k++ {
			text := []byte(nil)
			switch {
			case !elemNull(a.v.Elems, k):
				buf = appendVector(buf[:0], a.v.Elems, k)
				text = buf
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
