package resp

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// FuzzKeyTextReadsBack writes keys of texts and NULL as SCAN does, and reads them as GET does (R4).
func FuzzKeyTextReadsBack(f *testing.F) {
	f.Add("NZ", "2026", false, uint8(2))
	f.Add(`a|b\c`, "", true, uint8(2))
	f.Add("", "", false, uint8(1))
	f.Add(`\N`, `N\`, false, uint8(2))
	f.Add(`|`, `\`, false, uint8(0))
	f.Fuzz(func(t *testing.T, a, b string, null bool, n uint8) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			return // TEXT holds none
		}
		row := dataflow.Row{dataflow.Text(a), dataflow.Text(b)}
		if null {
			row[1] = dataflow.NullValue(dataflow.TypeText)
		}
		row = row[:n%3]
		var schema dataflow.Schema
		var cols []int
		for i := range row {
			schema, cols = append(schema, dataflow.Column{Name: "k", Type: dataflow.TypeText}), append(cols, i)
		}
		rows := batch.NewBatch(schema)
		rows.AppendRow(row)
		text := appendKeyOf(nil, rows, cols, 0)
		got, err := appendParts(nil, text, len(cols))
		if err != nil || len(got) != len(row) {
			t.Fatalf("%q reads as %v, %v", text, got, err)
		}
		for i, v := range row {
			if got[i].Null != v.Null || got[i].Str != v.Str {
				t.Fatalf("part %d of %q reads as %+v, want %+v", i, text, got[i], v)
			}
		}
	})
}

// FuzzKeyPartsAreReadOneWay reads any text as a key: it is refused, or writing what was read gives the text again.
func FuzzKeyPartsAreReadOneWay(f *testing.F) {
	for _, s := range []string{"", "a", "a|b", `\N`, `\\|\|`, `\`, `a\N`, "||"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		row, err := appendParts(nil, text, 1)
		if err != nil {
			if dataflow.ReasonOf(err) != dataflow.ReasonKeyInvalid {
				t.Fatal(err)
			}
			return
		}
		var out []byte
		for i, v := range row {
			if i > 0 {
				out = append(out, separator)
			}
			if v.Null {
				out = append(out, escape, 'N')
				continue
			}
			for _, c := range []byte(v.Str) {
				if c == separator || c == escape {
					out = append(out, escape)
				}
				out = append(out, c)
			}
		}
		if !bytes.Equal(out, text) {
			t.Fatalf("%q reads as what is written %q", text, out)
		}
	})
}

// FuzzCommand gives the parser what a client might send: it must end within it, and find the same command when the bytes
// come one by one.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"PING\r\n", "*1\r\n$4\r\nPING\r\n", "*1\r\n$-2\r\n", "*1\r\n$9223372036854775807\r\n", "*-1\r\n", "*0\r\n", "*2\r\n$1\r\n",
		"$4 PING\r\n", "a \"b\" 'c'\n", "\n", "*1\r\n$0\r\n\r\n", "\"\\", "*+1\r\n",
		"*" + strings.Repeat("0", 33) + "\r", "*" + strings.Repeat("0", 31) + "1\r\n$1\r\na\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, args, err := command(b, nil)
		if n < 0 || n > len(b) || err != nil && n != 0 || len(args) > maxArgs && n > 0 {
			t.Fatalf("%d, %q, %v of %q", n, args, err, b)
		}
		if len(b) > 300 {
			return
		}
		for i := range b {
			m, part, perr := command(b[:i], nil)
			switch {
			case m == 0 && perr == nil: // more is to come
			case perr != nil && err != nil: // the sooner the better
				return
			case m != n || perr != nil || len(part) != len(args):
				t.Fatalf("the first %d bytes give %d, %q, %v, all give %d, %q, %v of %q", i, m, part, perr, n, args, err, b)
			default:
				return
			}
		}
	})
}

func TestGlobsMatchAsInRedis(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"a*c", "abc", true}, {"a*c", "abd", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"[a-c]x", "bx", true}, {"[^a-c]x", "bx", false}, {"[c-a]x", "bx", true}, {"[abc", "b", true}, {`\*`, "*", true}, {`\*`, "a", false},
		{`[\]]`, "]", true}, {"a**b", "ab", true}, {"*a*b*", "xxaxxbxx", true}, {`a\`, `a\`, true}, {"[", "a", false}, {"[^", "a", true},
	} {
		if got := globMatch(c.pattern, c.s); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.s, got)
		}
	}
}

// FuzzWhatMatchesBeginsWithTheGlobsPrefix is what scans rely on.
func FuzzWhatMatchesBeginsWithTheGlobsPrefix(f *testing.F) {
	f.Add("ab*", "abc")
	f.Add(`a\*`, "a*")
	f.Add("[", "")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern)*len(s) > 1<<16 {
			return
		}
		prefix, whole := globPrefix(pattern)
		switch match := globMatch(pattern, s); {
		case match && (len(s) < len(prefix) || s[:len(prefix)] != prefix):
			t.Fatalf("%q matches %q, which does not begin with %q", pattern, s, prefix)
		case whole && match != (s == prefix):
			t.Fatalf("%q is %q alone; it matches %q: %v", pattern, prefix, s, match)
		}
	})
}
