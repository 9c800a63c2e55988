package expr_test

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/internal/testkit/postgres"
)

var record = flag.Bool("record", false, "record the answers of testdata from a private PostgreSQL 15 (initdb, postgres and psql in PATH)")

// TestPostgres evaluates every expression of testdata and compares with the recorded answer.
//
// A file holds blocks of expressions, one per line. Those of "postgres" blocks are recorded: go test -run TestPostgres
// -record asks PostgreSQL and rewrites the files; without the flag nothing but the files is needed. Where an answer is
// the start of an error message, Weir's has to start so. "weir" blocks hold what Weir answers otherwise, or alone.
func TestPostgres(t *testing.T) {
	var pg *postgres.Server
	if *record {
		pg = postgres.Start(t)
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata/postgres", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			lines := strings.Split(strings.TrimSpace(d.Input), "\n")
			answers := func(ask func(string) string) string {
				var b strings.Builder
				for _, line := range lines {
					fmt.Fprintf(&b, "%s  →  %s\n", line, ask(line))
				}
				return b.String()
			}
			switch {
			case d.Cmd == "postgres" && pg != nil:
				return answers(func(text string) string { return askPostgres(pg, text) })
			case d.Cmd == "postgres":
				return postgres.Recorded(t, d.Rewrite, d.Expected, answers(answerOf))
			case d.Cmd == "weir":
				return answers(answerOf)
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

// answerOf evaluates an expression and describes the result: its type and value, or the error.
func answerOf(text string) string {
	e, err := parse(text)
	if err != nil {
		return "error: " + message(err)
	}
	v, err := expr.EvalRow(e, nil, nil, 0)
	if err != nil {
		return "error: " + message(err)
	}
	return describe(v)
}

func message(err error) string {
	var e *dataflow.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

func describe(v dataflow.Value) string {
	name := strings.ToLower(v.Type.String())
	if v.Type == dataflow.TypeUnknown {
		name = "text"
	}
	if v.Null {
		return name + " NULL"
	}
	if v.Type == dataflow.TypeText {
		return name + " " + strconv.Quote(v.Str)
	}
	return name + " " + expr.FormatValue(v)
}

const pgSep = "\x1f" // between the columns of an answer

// pgQuery asks for the type and the value of an expression.
func pgQuery(text string) string {
	return fmt.Sprintf("select pg_typeof(x), x is null, x::text from (select (%s) as x) t", text)
}

// askPostgres asks the server.
func askPostgres(pg *postgres.Server, text string) string {
	out, _ := pg.Psql("-F", pgSep, "-c", pgQuery(text)).CombinedOutput() // what failed is in the output
	return pgAnswer(string(out))
}

// pgAnswer describes what psql prints as answerOf does. PostgreSQL's integer is Weir's BIGINT.
func pgAnswer(out string) string {
	if msg, failed := postgres.ErrorOf(out); failed {
		return "error: " + pgTypes(msg)
	}
	parts := strings.SplitN(strings.TrimSuffix(out, "\n"), pgSep, 3)
	if len(parts) != 3 {
		return "no answer: " + out
	}
	name := parts[0]
	switch name {
	case "integer", "smallint":
		name = "bigint"
	case "integer[]":
		name = "bigint[]"
	case "timestamp with time zone":
		name = "timestamptz"
	case "timestamp with time zone[]":
		name = "timestamptz[]"
	}
	switch {
	case parts[1] == "t":
		return name + " NULL"
	case name == "text":
		return name + " " + strconv.Quote(parts[2])
	}
	return name + " " + parts[2]
}

// pgTypes writes the types in messages about signatures as Weir does.
func pgTypes(msg string) string {
	for _, about := range []string{"does not exist", "cannot cast", "cannot be matched", "is not unique", "type integer"} {
		if strings.Contains(msg, about) {
			return strings.NewReplacer("integer", "bigint", "timestamp with time zone", "timestamptz").Replace(msg)
		}
	}
	return msg
}
