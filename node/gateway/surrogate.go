package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxPlace is how many bytes of a place in a body an error names: a body can nest thousands of levels deep.
const maxPlace = 120

// refuseSurrogates refuses a JSON text with half of a surrogate pair, which stands for no character: encoding/json
// would put U+FFFD in its place, and another key would be looked up than the one that was sent. What does not parse is
// left to those who read it.
func refuseSurrogates(body []byte) error {
	at, found := loneSurrogate(body)
	if !found || !json.Valid(body) {
		return nil
	}
	place := placeOf(body, at)
	if place != "" {
		place += ": "
	}
	return errors.New(place + "half of a surrogate pair stands for no character; send the text as UTF-8, or both halves")
}

// loneSurrogate returns where in a JSON text the first string with half of a surrogate pair begins. It reads each byte
// once, however deep the text nests: a request must not cost more than its length.
func loneSurrogate(body []byte) (at int, found bool) {
	for i := 0; ; {
		quote := bytes.IndexByte(body[i:], '"')
		if quote < 0 {
			return 0, false
		}
		i += quote
		end := stringEnd(body, i)
		if halfPair(body[i:end]) {
			return i, true
		}
		i = end
	}
}

// stringEnd returns where the JSON string that begins at i ends, behind its closing quote.
func stringEnd(body []byte, i int) int {
	for i++; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(body)
}

// placeOf names the place of the string that begins at byte at of valid JSON, such as keys[3][0]; that of a member's name
// is its object's.
func placeOf(body []byte, at int) string {
	type level struct {
		name  string // of the member, in an object
		index int    // of the element, in an array; -1 in an object
	}
	var levels []level
	named := false // the innermost object's member has its name
	for i := 0; i < at; {
		top := len(levels) - 1
		switch body[i] {
		case '{':
			levels, named = append(levels, level{index: -1}), false
		case '[':
			levels = append(levels, level{})
		case '}', ']':
			levels = levels[:top]
		case ',':
			if levels[top].index >= 0 {
				levels[top].index++
			} else {
				levels[top].name, named = "", false
			}
		case '"':
			end := stringEnd(body, i)
			if levels[top].index < 0 && !named {
				named = json.Unmarshal(body[i:end], &levels[top].name) == nil
			}
			i = end
			continue
		}
		i++
	}
	var place []byte
	for _, l := range levels {
		switch {
		case l.index >= 0:
			place = strconv.AppendInt(append(place, '['), int64(l.index), 10)
			place = append(place, ']')
		case l.name != "" && len(place) > 0:
			place = append(append(place, '.'), l.name...)
		default:
			place = append(place, l.name...)
		}
		if n := maxPlace; len(place) > n {
			for !utf8.RuneStart(place[n]) {
				n--
			}
			return string(place[:n]) + "…"
		}
	}
	return string(place)
}

// halfPair reports whether a JSON string escapes half of a surrogate pair.
func halfPair(s []byte) bool {
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if s[i+1] != 'u' {
			i++
			continue
		}
		r := escaped(s[i:])
		if i += 5; !utf16.IsSurrogate(r) {
			continue
		}
		if utf16.DecodeRune(r, escaped(s[min(i+1, len(s)):])) == '\uFFFD' {
			return true
		}
		i += 6
	}
	return false
}

// escaped returns the code unit of \uXXXX at the beginning of s, 0 when there is none.
func escaped(s []byte) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
