package expr_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow/expr"
)

const (
	docsFile  = "../../docs/sql.md"
	docsBegin = "<!-- functions:begin -->\n"
	docsEnd   = "<!-- functions:end -->\n"
)

// TestDocs keeps the function table of docs/sql.md equal to the code's: go test -run TestDocs -rewrite writes it.
func TestDocs(t *testing.T) {
	want := functionTable(t)
	data, err := os.ReadFile(docsFile)
	rewrite := flag.Lookup("rewrite").Value.String() == "true"
	if os.IsNotExist(err) && rewrite {
		data, err = []byte("# SQL\n\n## Functions and operators\n\n"+docsBegin+docsEnd), nil
		if err := os.MkdirAll(filepath.Dir(docsFile), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	begin, end := bytes.Index(data, []byte(docsBegin)), bytes.Index(data, []byte(docsEnd))
	if begin < 0 || end < begin {
		t.Fatalf("%s has no %s and %s", docsFile, strings.TrimSpace(docsBegin), strings.TrimSpace(docsEnd))
	}
	begin += len(docsBegin)
	if string(data[begin:end]) == want {
		return
	}
	if !rewrite {
		t.Fatalf("the function table of %s is stale: go test ./dataflow/expr -run TestDocs -rewrite", docsFile)
	}
	out := append(append(append([]byte{}, data[:begin]...), want...), data[end:]...)
	if err := os.WriteFile(docsFile, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

// functionTable returns the documentation of all functions as Markdown.
func functionTable(t *testing.T) string {
	cell := strings.NewReplacer("|", "\\|", "\n", " ")
	code := func(s string) string { return "`" + cell.Replace(s) + "`" }
	var b strings.Builder
	topic := ""
	for _, f := range expr.Functions() {
		if f.Topic != topic {
			topic = f.Topic
			fmt.Fprintf(&b, "\n### %s\n\n| signature | what it gives | example |\n|---|---|---|\n", topic)
		}
		signatures := make([]string, len(f.Signatures))
		for i, s := range f.Signatures {
			signatures[i] = code(s)
		}
		doc := f.Doc
		if doc == "" {
			t.Errorf("%s has no documentation", f.Name)
		}
		if f.Differs != "" {
			doc += " *Differs from PostgreSQL: " + f.Differs + ".*"
		}
		example := ""
		if f.Example != "" {
			answer := answerOf(f.Example)
			if strings.HasPrefix(answer, "error") {
				t.Errorf("example %s: %s", f.Example, answer)
			}
			v := answer[strings.Index(answer, " ")+1:]
			if typ := "double precision "; strings.HasPrefix(answer, typ) {
				v = answer[len(typ):]
			}
			example = code(f.Example) + " → " + code(v)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.Join(signatures, "<br>"), cell.Replace(doc), example)
	}
	return b.String() + "\n"
}
