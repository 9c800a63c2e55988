package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
)

// randomTable returns a table with a key of three columns and n rows, few distinct values each.
func randomTable(r *rand.Rand, n int) *table {
	tb := &table{Table: plan.Table{Pipeline: "p", Name: "t", KeyCols: []int{2, 0, 1}, Schema: dataflow.Schema{
		{Name: "k2", Type: dataflow.TypeBigInt}, {Name: "k3", Type: dataflow.TypeBool}, {Name: "k1", Type: dataflow.TypeText}, {Name: "v", Type: dataflow.TypeBigInt},
	}}}
	tb.rows = batch.NewBatch(tb.Schema)
	texts := []string{"", "a", "ab", "abc", "abd", "a%", "b", "é", "z"}
	for range n {
		row := dataflow.Row{dataflow.BigInt(r.Int64N(9) - 4), dataflow.Bool(r.IntN(2) == 0), dataflow.Text(texts[r.IntN(len(texts))]), dataflow.BigInt(r.Int64N(20))}
		for i := range row {
			if r.IntN(8) == 0 {
				row[i] = dataflow.NullValue(row[i].Type)
			}
		}
		tb.rows.AppendRow(row)
	}
	return tb
}

// randomCondition returns a condition over randomTable's columns.
func randomCondition(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(2) == 0 {
		op := []string{"AND", "AND", "OR"}[r.IntN(3)]
		return "(" + randomCondition(r, depth-1) + " " + op + " " + randomCondition(r, depth-1) + ")"
	}
	number := func() string {
		return []string{"-4", "-1", "0", "1", "3", "4", "2.0", "1.5", "NULL", "2 + 1", "-(1)", "'3'"}[r.IntN(12)]
	}
	text := func() string {
		return []string{"''", "'a'", "'ab'", "'abc'", "'b'", "'é'", "NULL", "'a' || 'b'", "lower('Z')"}[r.IntN(9)]
	}
	compare := []string{"=", "=", "<", "<=", ">", ">=", "<>"}[r.IntN(7)]
	switch r.IntN(14) {
	case 0, 1:
		return "k1 " + compare + " " + text()
	case 2:
		return text() + " " + compare + " k1"
	case 3, 4:
		return "k2 " + compare + " " + number()
	case 5:
		return number() + " " + compare + " k2"
	case 6:
		return "k1 LIKE " + []string{"'a%'", "'ab_'", "'a\\%'", "'%a'", "''", "'é%'", "NULL"}[r.IntN(7)]
	case 7:
		return "k1 IN (" + text() + ", " + text() + ")"
	case 8:
		return "k2 IN (" + number() + ", " + number() + ", " + number() + ")"
	case 9:
		return "k2 BETWEEN " + number() + " AND " + number()
	case 10:
		return []string{"k3", "NOT k3", "k3 IS TRUE", "k3 IS NOT TRUE", "k3 IS NULL", "k3 = false", "k3 IS UNKNOWN"}[r.IntN(7)]
	case 11:
		return "k" + fmt.Sprint(1+r.IntN(2)) + " IS " + []string{"NULL", "NOT NULL"}[r.IntN(2)]
	case 12:
		return "k1 IS NOT DISTINCT FROM " + text()
	}
	return "v > 10"
}

// TestAccessNeverLosesRows compares queries over the rows that their access names with the same queries over all rows.
func TestAccessNeverLosesRows(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	narrowed := 0
	for range 3000 {
		tb := randomTable(r, 60)
		ts := tables{"p.t": tb}
		text := "SELECT * FROM p.t WHERE " + randomCondition(r, 3)
		q, err := bind(ts, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all, _, err := run(q, ts, 7, true)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		some, read, err := run(q, ts, 100, false)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if a, b := printRows(all), printRows(some); a != b {
			t.Fatalf("%s\nover all rows:\n%s\nover the rows of the access (%s):\n%s", text, a, q.Scans[0].Access.Text, b)
		}
		if read < tb.rows.N {
			narrowed++
		}
		checkAccess(t, q.Scans[0].Access)
	}
	if narrowed < 500 {
		t.Fatalf("only %d of 3000 queries read less than the whole table", narrowed)
	}
}

// checkAccess checks that keys ascend and ranges are disjoint.
func checkAccess(t *testing.T, a plan.Access) {
	t.Helper()
	for i := 1; i < len(a.Keys); i++ {
		if string(a.Keys[i-1]) >= string(a.Keys[i]) {
			t.Fatalf("keys do not ascend: %x", a.Keys)
		}
	}
	for i, r := range a.Ranges {
		if r.Hi != nil && string(r.Lo) >= string(r.Hi) || i > 0 && (a.Ranges[i-1].Hi == nil || string(a.Ranges[i-1].Hi) > string(r.Lo)) {
			t.Fatalf("ranges are empty or overlap: %x", a.Ranges)
		}
	}
}

// TestLimitWithOrderIsAPrefixOfTheOrder compares top k with sorting everything, whatever the order of the rows.
func TestLimitWithOrderIsAPrefixOfTheOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		tb := randomTable(r, 1+r.IntN(20_000))
		ts := tables{"p.t": tb}
		order := []string{"v", "v DESC", "v DESC NULLS LAST, k1", "k1 NULLS FIRST, k2 DESC", "v + k2"}[r.IntN(5)]
		offset, limit := r.IntN(50), r.IntN(300)
		full, _, err := runText(ts, "SELECT * FROM p.t ORDER BY "+order)
		if err != nil {
			t.Fatal(err)
		}
		top, _, err := runText(ts, fmt.Sprintf("SELECT * FROM p.t ORDER BY %s LIMIT %d OFFSET %d", order, limit, offset))
		if err != nil {
			t.Fatal(err)
		}
		from := min(offset, full.N)
		want := full.Slice(from, min(from+limit, full.N))
		if a, b := printRows(want), printRows(top); a != b {
			t.Fatalf("ORDER BY %s: want\n%s\ngot\n%s", order, a, b)
		}
		shuffled := &table{Table: tb.Table, rows: shuffle(r, tb.rows)}
		again, _, err := runText(tables{"p.t": shuffled}, "SELECT * FROM p.t ORDER BY "+order)
		if err != nil {
			t.Fatal(err)
		}
		if printRows(full) != printRows(again) {
			t.Fatalf("ORDER BY %s depends on the order of the rows", order)
		}
	}
}

func shuffle(r *rand.Rand, b *batch.Batch) *batch.Batch {
	sel := make([]int32, b.N)
	for i := range sel {
		sel[i] = int32(i)
	}
	r.Shuffle(len(sel), func(i, j int) { sel[i], sel[j] = sel[j], sel[i] })
	return b.Select(sel)
}

func runText(ts tables, text string) (*batch.Batch, int, error) {
	q, err := bind(ts, text)
	if err != nil {
		return nil, 0, err
	}
	return run(q, ts, 1+len(text)*7, true)
}

// TestMemoryIsBounded gives each kind of query that holds rows less memory than it needs.
func TestMemoryIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tb := randomTable(r, 5000)
	for i := range tb.rows.N { // distinct values, so that groups are many
		tb.rows.Cols[3].Ints[i] = int64(i)
	}
	ts := tables{"p.t": tb}
	for _, text := range []string{
		"SELECT * FROM p.t",
		"SELECT * FROM p.t ORDER BY v",
		"SELECT DISTINCT v FROM p.t",
		"SELECT v, count(*) FROM p.t GROUP BY v",
		"SELECT count(*) FROM (SELECT v FROM p.t GROUP BY v) AS g",
		"SELECT count(*) FROM p.t a JOIN p.t b ON a.v = b.v",
		"SELECT count(*) FROM p.t a, p.t b",
		"SELECT count(*) FROM p.t WHERE v IN (SELECT v FROM p.t)",
		"SELECT count(*) FROM p.t a WHERE EXISTS (SELECT 1 FROM p.t b WHERE b.v = a.v)",
		"SELECT v FROM p.t UNION SELECT v + 1 FROM p.t",
		"SELECT count(*) FROM (SELECT v FROM p.t EXCEPT SELECT v FROM p.t) AS e",
		"SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY v) AS r FROM p.t) AS w",
	} {
		q, err := bind(ts, text)
		if err != nil {
			t.Fatal(err)
		}
		m := &memory{ts: ts, size: tb.rows.N}
		if _, err := q.Run(m, plan.ExecOptions{MaxBytes: 10_000}); dataflow.ReasonOf(err) != dataflow.ReasonScanLimit {
			t.Errorf("%s: got %v", text, err)
		}
	}
	for _, text := range []string{"SELECT * FROM p.t ORDER BY v DESC LIMIT 10", "SELECT * FROM p.t LIMIT 20", "SELECT sum(v) FROM p.t"} {
		q, err := bind(ts, text)
		if err != nil {
			t.Fatal(err)
		}
		m := &memory{ts: ts, size: 100}
		if _, err := q.Run(m, plan.ExecOptions{MaxBytes: 10_000}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestNestedExpressionsStaySmall gives the binder expressions that it repeats, nested: each level must not double the one
// below without a bound.
func TestNestedExpressionsStaySmall(t *testing.T) {
	ts := tables{"p.t": randomTable(rand.New(rand.NewPCG(1, 2)), 1)}
	between, cases := "k3", "k2"
	for range 80 {
		between = "(" + between + " BETWEEN SYMMETRIC false AND true)"
		cases = "CASE " + cases + " WHEN 1 THEN 1 WHEN 2 THEN 2 WHEN 3 THEN 3 END"
	}
	for _, text := range []string{"SELECT " + between + " FROM p.t", "SELECT " + cases + " FROM p.t"} {
		_, err := bind(ts, text)
		if dataflow.ReasonOf(err) != dataflow.ReasonSQLUnsupported || !strings.Contains(err.Error(), "too large") {
			t.Errorf("got %.300v", err)
		}
	}
	steps := []string{"CREATE VIEW v0 AS SELECT amount AS a, count(*) AS n FROM orders GROUP BY amount"}
	for i := range 100 {
		steps = append(steps, fmt.Sprintf("CREATE VIEW v%d AS SELECT a, n + n AS n FROM v%d", i+1, i))
	}
	steps = append(steps, "CREATE MATERIALIZED VIEW m AS SELECT a, n FROM v100")
	p, err := build(strings.Join(steps, ";"))
	if err != nil {
		t.Fatal(err)
	}
	if text := plan.Explain(p); len(text) > 50_000 {
		t.Fatalf("the plan of 100 doublings has %d bytes", len(text))
	}
	slices.Reverse(steps)
	if _, err := build(strings.Join(steps, ";")); err == nil {
		t.Fatal("views were used before they were defined")
	}
}
