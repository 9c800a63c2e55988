package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
)

// refuseSurrogates refuses a JSON text with half of a surrogate pair, which stands for no character: encoding/json
// would put U+FFFD in its place, and another key would be looked up than the one that was sent.
func refuseSurrogates(body []byte) error {
	if !bytes.Contains(bytes.ToLower(body), []byte(`\ud`)) {
		return nil
	}
	if at, found := loneSurrogate("", body); found {
		return errors.New(at + ": half of a surrogate pair stands for no character; send the text as UTF-8, or both halves")
	}
	return nil
}

// loneSurrogate returns where in a JSON value the first string with half of a surrogate pair stands, such as keys[3][0].
// What does not parse is left to those who read it.
func loneSurrogate(at string, raw json.RawMessage) (string, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		return at, halfPair(raw)
	case '[':
		var elems []json.RawMessage
		if json.Unmarshal(raw, &elems) != nil {
			return "", false
		}
		for i, e := range elems {
			if where, found := loneSurrogate(fmt.Sprintf("%s[%d]", at, i), e); found {
				return where, true
			}
		}
	case '{':
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return "", false
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			where := name
			if at != "" {
				where = at + "." + name
			}
			if where, found := loneSurrogate(where, members[name]); found {
				return where, true
			}
		}
	}
	return "", false
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
