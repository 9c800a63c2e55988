package agg_test

import (
	"flag"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/apd/v3"
	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/testkit/postgres"
)

var record = flag.Bool("record", false, "take the answers from PostgreSQL, by psql with the PG* variables, instead of Weir; use with -rewrite")

var sqlTypes = map[string]dataflow.Type{"bigint": dataflow.TypeBigInt, "double": dataflow.TypeDouble, "numeric": dataflow.TypeNumeric, "text": dataflow.TypeText}

// TestResultsArePostgreSQLs folds the values of each block and compares with the answers that PostgreSQL gave:
// go test -run PostgreSQL -record -rewrite.
func TestResultsArePostgreSQLs(t *testing.T) {
	datadriven.RunTest(t, "testdata/postgres.txt", func(t *testing.T, d *datadriven.TestData) string {
		typ, ok := sqlTypes[d.Cmd]
		if !ok {
			t.Fatalf("unknown type %s", d.Cmd)
		}
		var fns []string
		for _, a := range d.CmdArgs {
			fns = append(fns, a.Key)
		}
		var values []string
		if d.Input != "" {
			values = strings.Split(d.Input, "\n")
		}
		if *record {
			return askPostgres(t, typ, fns, values)
		}
		return postgres.Recorded(t, d.Rewrite, d.Expected, foldAll(t, typ, fns, values))
	})
}

func foldAll(t *testing.T, typ dataflow.Type, fns, values []string) string {
	var specs []agg.Spec
	for _, fn := range fns {
		f, out, err := agg.Resolve(fn, false, typ)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, agg.Spec{Fn: f, ArgType: typ, Out: out})
	}
	b := batch.NewBatch(dataflow.Schema{{Name: "v", Type: typ}})
	for _, s := range values {
		b.AppendRow(dataflow.Row{parseValue(t, typ, s)})
	}
	l := agg.NewLayout(specs)
	acc := l.New(nil)
	for i := range b.N {
		var err error
		if acc, err = l.Update(acc, b, i, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Check(acc); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for i, s := range specs {
		v := batch.NewVector(s.Out, 1)
		if err := l.AppendResult(i, acc, v); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %s\n", fns[i], printValue(v.Value(0)))
	}
	return out.String()
}

func parseValue(t *testing.T, typ dataflow.Type, s string) dataflow.Value {
	if s == "NULL" {
		return dataflow.NullValue(typ)
	}
	var err error
	v := dataflow.Value{Type: typ}
	switch typ {
	case dataflow.TypeBigInt:
		v.Int, err = strconv.ParseInt(s, 10, 64)
	case dataflow.TypeDouble:
		v.Flt, err = strconv.ParseFloat(s, 64)
	case dataflow.TypeNumeric:
		v.Dec, _, err = apd.NewFromString(s)
	default:
		v.Str = s
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func printValue(v dataflow.Value) string {
	switch {
	case v.Null:
		return "NULL"
	case v.Type == dataflow.TypeDouble:
		return strconv.FormatFloat(v.Flt, 'g', -1, 64)
	case v.Type == dataflow.TypeNumeric:
		return v.Dec.Text('f')
	case v.Type == dataflow.TypeText:
		return strconv.Quote(v.Str)
	}
	return strconv.FormatInt(v.Int, 10)
}

func askPostgres(t *testing.T, typ dataflow.Type, fns, values []string) string {
	name := map[dataflow.Type]string{dataflow.TypeBigInt: "int8", dataflow.TypeDouble: "float8", dataflow.TypeNumeric: "numeric", dataflow.TypeText: `text COLLATE "C"`}[typ]
	var rows, cols []string
	for _, v := range values {
		if v == "NULL" {
			rows = append(rows, "(NULL)")
		} else {
			rows = append(rows, "('"+strings.ReplaceAll(v, "'", "''")+"')")
		}
	}
	from := "(SELECT NULL AS v WHERE false) AS t"
	if len(rows) > 0 {
		from = "(VALUES " + strings.Join(rows, ", ") + ") AS t(v)"
	}
	for _, fn := range fns {
		cols = append(cols, fmt.Sprintf("coalesce(%s(v::%s)::text, '\x01')", fn, name))
	}
	sql := "SELECT " + strings.Join(cols, ", ") + " FROM " + from
	out, err := exec.Command("psql", "-XAtq", "-F", "\x02", "-c", sql).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", sql, err, out)
	}
	var b strings.Builder
	for i, s := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\x02") {
		_, result, err := agg.Resolve(fns[i], false, typ)
		if err != nil {
			t.Fatal(err)
		}
		if s == "\x01" {
			s = "NULL"
		} else {
			s = printValue(parseValue(t, result, s))
		}
		fmt.Fprintf(&b, "%s %s\n", fns[i], s)
	}
	return b.String()
}
