package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// existing are the streams of the group in these tests.
var existing = plan.Streams{
	{Name: "lines", Schema: dataflow.Schema{{Name: "line", Type: dataflow.TypeText}}},
	{Name: "orders", Schema: dataflow.Schema{
		{Name: "id", Type: dataflow.TypeBigInt, NotNull: true},
		{Name: "country", Type: dataflow.TypeText},
		{Name: "amount", Type: dataflow.TypeBigInt},
		{Name: "price", Type: dataflow.TypeDouble},
		{Name: "paid", Type: dataflow.TypeBool},
		{Name: "at", Type: dataflow.TypeTimestamp},
	}},
}

func build(text string) (*plan.Plan, error) { return buildWith(text, existing) }

func buildWith(text string, streams plan.Streams) (*plan.Plan, error) {
	f, err := sql.Parse(text)
	if err != nil {
		return nil, err
	}
	return plan.Build(f, streams)
}

// TestViews plans the deploy files of testdata/views and prints the plan or the error.
func TestViews(t *testing.T) {
	datadriven.Walk(t, "testdata/views", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "plan":
				p, err := build(d.Input)
				if err != nil {
					return printError(err)
				}
				checkPlan(t, p)
				return plan.Explain(p)
			case "explain":
				p, err := build(d.Input)
				if err != nil {
					return printError(err)
				}
				return strings.Join(plan.ExplainViews(p), "\n") + "\n"
			case "refused": // a file per line
				var out strings.Builder
				for line := range strings.SplitSeq(d.Input, "\n") {
					_, err := build(line)
					if err == nil {
						out.WriteString("accepted: " + line + "\n")
						continue
					}
					first, _, _ := strings.Cut(printError(err), "\n")
					out.WriteString(first + "\n")
				}
				return out.String()
			case "diff": // two files with a line "=====" between them
				a, b, _ := strings.Cut(d.Input, "=====\n")
				old, err := build(a)
				if err != nil {
					t.Fatal(err)
				}
				now, err := build(b)
				if err != nil {
					t.Fatal(err)
				}
				diff := plan.Diff(old, now)
				if (plan.Fingerprint(old) == plan.Fingerprint(now)) != (len(diff) == 0) {
					t.Fatalf("fingerprints and difference disagree: %q", diff)
				}
				if len(diff) == 0 {
					return "unchanged\n"
				}
				return strings.Join(diff, "\n") + "\n"
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

// checkPlan checks what every plan promises to those who run it.
func checkPlan(t *testing.T, p *plan.Plan) {
	t.Helper()
	for i, s := range p.Stages {
		if int(s.ID) != i {
			t.Fatalf("stage %d has id %d", i, s.ID)
		}
		if len(s.Output) != len(s.Schema) || len(s.OutputAt) != len(s.Schema) || len(s.KeyCols) != len(s.Key) {
			t.Fatalf("stage %d: %d outputs, %d places, %d columns, %d key columns of %d", i, len(s.Output), len(s.OutputAt), len(s.Schema), len(s.KeyCols), len(s.Key))
		}
		for j, x := range s.Output {
			if x.Type() != s.Schema[j].Type {
				t.Fatalf("stage %d column %d has type %s, its expression %s", i, j, s.Schema[j].Type, x.Type())
			}
		}
		for k, at := range s.KeyCols {
			if s.Schema[at] != s.Key[k] {
				t.Fatalf("stage %d key %d is %v in the key and %v in the table", i, k, s.Key[k], s.Schema[at])
			}
		}
		for _, in := range s.Inputs {
			checkInput(t, p, s, in)
		}
	}
}

// checkInput checks that an input ends in the key columns and the arguments of the aggregates.
func checkInput(t *testing.T, p *plan.Plan, s *plan.Stage, in *plan.Input) {
	t.Helper()
	if in.FromStage && in.From >= s.ID {
		t.Fatalf("stage %d reads stage %d", s.ID, in.From)
	}
	var schema dataflow.Schema
	for _, op := range in.Chain {
		project, ok := op.(*plan.Project)
		if !ok {
			continue
		}
		schema = project.Schema
		if len(project.Exprs) != len(schema) || len(project.At) != len(schema) {
			t.Fatalf("stage %d: a project of %d expressions, %d columns, %d places", s.ID, len(project.Exprs), len(schema), len(project.At))
		}
		for i, x := range project.Exprs {
			if x.Type() != schema[i].Type {
				t.Fatalf("stage %d: project column %d has type %s, its expression %s", s.ID, i, schema[i].Type, x.Type())
			}
		}
	}
	for i, k := range s.Key {
		if schema[i].Type != k.Type {
			t.Fatalf("stage %d: key column %d arrives as %s", s.ID, i, schema[i].Type)
		}
	}
	for i, a := range s.Aggs {
		if a.Arg >= len(schema) || a.Arg >= 0 && schema[a.Arg].Type != a.ArgType {
			t.Fatalf("stage %d: aggregate %d takes column %d as %s of %s", s.ID, i, a.Arg, a.ArgType, schema)
		}
	}
}

func printError(err error) string {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		return "NOT A TYPED ERROR: " + err.Error()
	}
	return string(e.Reason) + ": " + e.Error() + "\n"
}
