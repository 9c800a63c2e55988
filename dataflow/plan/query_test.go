package plan_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// queryNow is the time of the queries in these tests.
const queryNow = 1_780_000_000_000_000

// table is a table with its rows.
type table struct {
	plan.Table
	rows *batch.Batch
}

// tables is a TableCatalog over tables in memory.
type tables map[string]*table

func (ts tables) Table(pipeline, name string) (plan.Table, error) {
	if t, ok := ts[pipeline+"."+name]; ok {
		return t.Table, nil
	}
	for full := range ts {
		if strings.HasPrefix(full, pipeline+".") {
			return plan.Table{}, dataflow.Errorf(dataflow.ReasonTableNotFound, "pipeline %s has no table %s", pipeline, name)
		}
	}
	return plan.Table{}, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "there is no pipeline %s", pipeline)
}

func (ts tables) TableNames() []string {
	var names []string
	for n := range ts {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// key returns the canonical key of row i.
func (t *table) key(i int) []byte {
	var k []byte
	for _, c := range t.KeyCols {
		k = key.AppendVector(k, t.rows.Cols[c], i)
	}
	return k
}

// parseTable reads a table: its name, columns as "name TYPE" (key columns with a *, in key order of their appearance), a
// row per line. NULL is a dash.
func parseTable(t *testing.T, d *datadriven.TestData) *table {
	t.Helper()
	pipeline, name, _ := strings.Cut(d.CmdArgs[0].Key, ".")
	tb := &table{Table: plan.Table{Pipeline: pipeline, Name: name}}
	lines := strings.Split(strings.TrimSpace(d.Input), "\n")
	for i, f := range strings.Split(lines[0], ",") {
		f = strings.TrimSpace(f)
		if strings.HasSuffix(f, "*") {
			f = strings.TrimSuffix(f, "*")
			tb.KeyCols = append(tb.KeyCols, i)
		}
		name, typ, _ := strings.Cut(f, " ")
		tb.Schema = append(tb.Schema, dataflow.Column{Name: name, Type: typeNamed(t, typ)})
	}
	tb.rows = batch.NewBatch(tb.Schema)
	for _, line := range lines[1:] {
		row := dataflow.Row{}
		for i, f := range strings.Split(line, ",") {
			f = strings.TrimSpace(f)
			if f == "-" {
				row = append(row, dataflow.NullValue(tb.Schema[i].Type))
				continue
			}
			v, err := expr.ParseValue(tb.Schema[i].Type, f)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, v)
		}
		tb.rows.AppendRow(row)
	}
	return tb
}

func typeNamed(t *testing.T, name string) dataflow.Type {
	for _, typ := range []dataflow.Type{dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeText, dataflow.TypeTimestamp, dataflow.TypeNumeric} {
		if strings.HasPrefix(typ.String(), name) {
			return typ
		}
	}
	t.Fatalf("no type %s", name)
	return 0
}

// admits reports whether the access reads a key.
func admits(a plan.Access, k []byte) bool {
	if a.Points {
		return slices.ContainsFunc(a.Keys, func(p []byte) bool { return bytes.Equal(p, k) })
	}
	return slices.ContainsFunc(a.Ranges, func(r plan.Range) bool {
		return bytes.Compare(k, r.Lo) >= 0 && (r.Hi == nil || bytes.Compare(k, r.Hi) < 0)
	})
}

// memory reads tables in memory, in batches of the given size.
type memory struct {
	ts   tables
	size int
	all  bool // rows outside of the access come too
	read int  // rows that were read

	checks int // how often a run may go on; 0: as often as it likes
}

type memoryRows struct {
	m      *memory
	tb     *table
	access plan.Access
	from   int
}

func (m *memory) Open(t plan.Table, a plan.Access) (plan.Rows, error) {
	return &memoryRows{m: m, tb: m.ts[t.Pipeline+"."+t.Name], access: a}, nil
}

func (m *memory) Check() error {
	if m.checks--; m.checks == 0 {
		return dataflow.Errorf(dataflow.ReasonScanLimit, "the query has run for long enough")
	}
	return nil
}

func (r *memoryRows) Next(most int) (*batch.Batch, error) {
	var sel []int32
	for ; r.from < r.tb.rows.N && len(sel) < min(r.m.size, most); r.from++ {
		if r.m.all || admits(r.access, r.tb.key(r.from)) {
			sel = append(sel, int32(r.from))
		}
	}
	if len(sel) == 0 {
		return nil, nil
	}
	r.m.read += len(sel)
	return r.tb.rows.Select(sel), nil
}

func (r *memoryRows) Close() error { return nil }

// run runs a query over all rows of its tables, or over those of its accesses, in batches of the given size. It returns how
// many rows it read.
func run(q *plan.Query, ts tables, size int, all bool) (*batch.Batch, int, error) {
	m := &memory{ts: ts, size: size, all: all, checks: 5000}
	b, err := q.Run(m, plan.ExecOptions{})
	return b, m.read, err
}

func printRows(b *batch.Batch) string {
	var out strings.Builder
	for i, c := range b.Schema {
		if i > 0 {
			out.WriteString(" | ")
		}
		out.WriteString(c.Name)
	}
	out.WriteByte('\n')
	for i := range b.N {
		for j, v := range b.Row(i) {
			if j > 0 {
				out.WriteString(" | ")
			}
			if v.Null {
				out.WriteString("NULL")
				continue
			}
			out.WriteString(expr.FormatValue(v))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// TestQueries runs the scenarios of testdata/queries. "query" prints how the table is accessed, how many of its rows that
// reads, and the result; the result over all rows, and in batches of another size, must be the same.
func TestQueries(t *testing.T) {
	datadriven.Walk(t, "testdata/queries", func(t *testing.T, path string) {
		ts := tables{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "table":
				tb := parseTable(t, d)
				ts[d.CmdArgs[0].Key] = tb
				return ""
			case "query", "explain":
				q, err := bind(ts, d.Input)
				if err != nil {
					return printError(err)
				}
				if d.Cmd == "explain" {
					return strings.Join(q.Explain(plan.DefaultExecBytes), "\n") + "\n"
				}
				return runQuery(t, ts, q)
			case "refused":
				var out strings.Builder
				for line := range strings.SplitSeq(d.Input, "\n") {
					if _, err := bind(ts, line); err != nil {
						first, _, _ := strings.Cut(printError(err), "\n")
						out.WriteString(first + "\n")
						continue
					}
					out.WriteString("accepted: " + line + "\n")
				}
				return out.String()
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func bind(ts tables, text string) (*plan.Query, error) {
	s, err := sql.ParseQuery(text)
	if err != nil {
		return nil, err
	}
	return plan.BindQuery(s, ts, queryNow)
}

func runQuery(t *testing.T, ts tables, q *plan.Query) string {
	t.Helper()
	var texts []string
	for _, sc := range q.Scans {
		texts = append(texts, sc.Access.Text)
	}
	access := strings.Join(texts, "; ")
	all, _, err := run(q, ts, 3, true)
	if err != nil {
		return access + "\n" + printError(err)
	}
	some, read, err := run(q, ts, 1000, false)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := printRows(all), printRows(some); a != b {
		t.Fatalf("over all rows:\n%s\nover the rows of the access (%s):\n%s", a, access, b)
	}
	return fmt.Sprintf("%s: %d rows\n%s", access, read, printRows(some))
}
