package sql_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/sql"
)

func seeds(f *testing.F) {
	for _, name := range []string{"expressions", "statements", "errors", "refused"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			f.Add(line)
			f.Add("SELECT " + line + " FROM p.t")
		}
		for block := range strings.SplitSeq(string(data), "\n\n") {
			f.Add(block)
		}
	}
}

// checkError requires what every error of the parser has: a reason, a place inside the text, a bounded size.
func checkError(t *testing.T, text string, err error) {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		t.Fatalf("not a typed error: %v", err)
	}
	switch e.Reason {
	case dataflow.ReasonTooLarge:
	case dataflow.ReasonSQLSyntax, dataflow.ReasonSQLUnsupported:
		if e.Metadata["line"] == "" || e.Metadata["column"] == "" {
			t.Fatalf("no place: %v", err)
		}
		if !strings.Contains(e.Message, "^") {
			t.Fatalf("no caret: %v", err)
		}
	default:
		t.Fatalf("reason %s: %v", e.Reason, err)
	}
	if len(e.Message) > 4000+2*len(text) {
		t.Fatalf("the message has %d bytes for a text of %d", len(e.Message), len(text))
	}
}

// FuzzParse requires a tree or a typed error for any text.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := sql.Parse(text)
		if err != nil {
			checkError(t, text, err)
			return
		}
		dumpFile(file)
	})
}

// FuzzParseQuery requires the same of queries.
func FuzzParseQuery(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := sql.ParseQuery(text)
		if err != nil {
			checkError(t, text, err)
			return
		}
		var b strings.Builder
		dumpSelect(&b, q, "")
	})
}
