package jsonb_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow/jsonb"
)

// FuzzAtPath: what a change at a path gives is in normal form, and an error leaves nothing behind.
func FuzzAtPath(f *testing.F) {
	f.Add(`{"a": [1, {"b": 2}]}`, "a", "1", "b", `"x"`, byte(0))
	f.Add(`[[1], 2]`, "0", "-5", "", `{}`, byte(2))
	f.Add(`{"b": 1, "aa": 2}`, "ab", "", "", `[]`, byte(3))
	f.Add(`[1, 2]`, "-1", "", "", `1`, byte(4))
	f.Fuzz(func(t *testing.T, text, a, b, c, with string, how byte) {
		v, err := jsonb.Append(nil, []byte(text), 1<<16)
		if err != nil || !utf8.ValidString(a+b+c) || strings.Contains(a+b+c, "\x00") { // no TEXT
			return
		}
		value, err := jsonb.Append(nil, []byte(with), 1<<10)
		if err != nil {
			return
		}
		path := [][]byte{[]byte(a), []byte(b), []byte(c)}
		for len(path) > 0 && len(path[len(path)-1]) == 0 {
			path = path[:len(path)-1]
		}
		out, err := jsonb.AtPath([]byte("before"), v, path, jsonb.Change(how%5), value)
		out, ok := bytes.CutPrefix(out, []byte("before"))
		if !ok || err != nil && len(out) > 0 {
			t.Fatalf("%q: %v", out, err)
		}
		if err != nil {
			return
		}
		normal, err := jsonb.Append(nil, out, 1<<20)
		if err != nil || !bytes.Equal(normal, out) {
			t.Fatalf("%s with %s at %q: %s, in normal form %s: %v", v, value, path, out, normal, err)
		}
		pretty, ok := jsonb.Pretty(nil, out, 1<<24)
		if again, err := jsonb.Append(nil, pretty, 1<<24); !ok || err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%s printed as %s: %v", out, pretty, err)
		}
	})
}
