package sql_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/sql"
)

// TestParse runs the text scenarios: expr, query and file parse their input and print the tree or the error.
func TestParse(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if info, err := os.Stat(path); err != nil || info.IsDir() || strings.Contains(path, "fuzz") {
			return
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			// Each case of a scenario is a paragraph: a -- line would end a multi-line case, so blank lines split.
			switch d.Cmd {
			case "expr":
				var out strings.Builder
				for line := range strings.SplitSeq(d.Input, "\n") {
					q, err := sql.ParseQuery("SELECT " + line)
					if err != nil {
						out.WriteString(printError(err))
						continue
					}
					out.WriteString(dumpExpr(q.Items[0].Expr) + "\n")
				}
				return out.String()
			case "query":
				q, err := sql.ParseQuery(d.Input)
				if err != nil {
					return printError(err)
				}
				var out strings.Builder
				dumpSelect(&out, q, "")
				return out.String()
			case "file":
				f, err := sql.Parse(d.Input)
				if err != nil {
					return printError(err)
				}
				return dumpFile(f)
			case "refused": // one query per line: only the first line of the error
				var out strings.Builder
				for line := range strings.SplitSeq(d.Input, "\n") {
					parse := func(s string) error { _, err := sql.ParseQuery(s); return err }
					if d.HasArg("file") {
						parse = func(s string) error { _, err := sql.Parse(s); return err }
					}
					err := parse(line)
					if err == nil {
						out.WriteString("accepted: " + line + "\n")
						continue
					}
					first, _, _ := strings.Cut(printError(err), "\n")
					out.WriteString(first + "\n")
				}
				return out.String()
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func printError(err error) string {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		return "NOT A TYPED ERROR: " + err.Error()
	}
	return string(e.Reason) + ": " + e.Error() + "\n"
}
