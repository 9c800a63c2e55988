package expr

import (
	"strings"

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

// parseArray reads the text form of a one-dimensional TEXT[]: {a,"b c",NULL}.
func parseArray(s string) ([]*string, *dataflow.Error) {
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
