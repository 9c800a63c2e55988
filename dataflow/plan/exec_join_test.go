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

// joinTable returns a table p.name with a unique key k, and x, y of few values, NULLs among them.
func joinTable(r *rand.Rand, name string, n int) *table {
	tb := &table{Table: plan.Table{Pipeline: "p", Name: name, KeyCols: []int{0}, Schema: dataflow.Schema{
		{Name: "k", Type: dataflow.TypeBigInt}, {Name: "x", Type: dataflow.TypeBigInt}, {Name: "y", Type: dataflow.TypeText},
	}}}
	tb.rows = batch.NewBatch(tb.Schema)
	for i := range n {
		row := dataflow.Row{dataflow.BigInt(int64(i)), dataflow.BigInt(r.Int64N(int64(n) + 1)), dataflow.Text([]string{"", "a", "b", "c"}[r.IntN(4)])}
		for c := 1; c < 3; c++ {
			if r.IntN(7) == 0 {
				row[c] = dataflow.NullValue(row[c].Type)
			}
		}
		tb.rows.AppendRow(row)
	}
	return tb
}

// joinCondition is a condition of SQL, and what it says of two rows; a comparison with NULL is not true.
type joinCondition struct {
	text string
	true func(a, b dataflow.Row) bool
}

func equal(a, b dataflow.Value) bool { return !a.Null && !b.Null && a.Int == b.Int && a.Str == b.Str }

var joinConditions = []joinCondition{
	{"a.k = b.k", func(a, b dataflow.Row) bool { return equal(a[0], b[0]) }},
	{"a.x = b.k", func(a, b dataflow.Row) bool { return equal(a[1], b[0]) }},
	{"b.x = a.k", func(a, b dataflow.Row) bool { return equal(b[1], a[0]) }},
	{"a.x = b.x", func(a, b dataflow.Row) bool { return equal(a[1], b[1]) }},
	{"a.y = b.y", func(a, b dataflow.Row) bool { return equal(a[2], b[2]) }},
	{"a.k < b.k", func(a, b dataflow.Row) bool { return a[0].Int < b[0].Int }},
	{"a.x > 2", func(a, _ dataflow.Row) bool { return !a[1].Null && a[1].Int > 2 }},
	{"b.y = 'a'", func(_, b dataflow.Row) bool { return !b[2].Null && b[2].Str == "a" }},
	{"b.k = 1", func(_, b dataflow.Row) bool { return b[0].Int == 1 }},
	{"a.k IN (0, 2)", func(a, _ dataflow.Row) bool { return a[0].Int == 0 || a[0].Int == 2 }},
	{"b.y IS NULL", func(_, b dataflow.Row) bool { return b[2].Null }},
}

// someConditions returns a few conditions that AND connects.
func someConditions(r *rand.Rand, most int) []joinCondition {
	var out []joinCondition
	for range r.IntN(most + 1) {
		out = append(out, joinConditions[r.IntN(len(joinConditions))])
	}
	return out
}

func conditionText(list []joinCondition) string {
	parts := []string{"true"}
	for _, c := range list {
		parts = append(parts, c.text)
	}
	return strings.Join(parts, " AND ")
}

func holds(list []joinCondition, a, b dataflow.Row) bool {
	for _, c := range list {
		if !c.true(a, b) {
			return false
		}
	}
	return true
}

// modelJoin joins by comparing each row with each.
func modelJoin(a, b *table, kind string, on, where []joinCondition) []string {
	nulls := dataflow.Row{dataflow.NullValue(dataflow.TypeBigInt), dataflow.NullValue(dataflow.TypeBigInt), dataflow.NullValue(dataflow.TypeText)}
	null := func(r dataflow.Row) bool { return r[0].Null }
	var out []string
	give := func(l, r dataflow.Row) {
		for _, c := range where {
			// The model's conditions take keys for not NULL, except IS NULL, which is what it says.
			left, right := strings.Contains(c.text, "a."), strings.Contains(c.text, "b.")
			if (left && null(l) || right && null(r)) && c.text != "b.y IS NULL" || !c.true(l, r) {
				return
			}
		}
		out = append(out, fmt.Sprint(l, r))
	}
	matched := make(map[int]bool)
	for i := range a.rows.N {
		found := false
		for j := range b.rows.N {
			if holds(on, a.rows.Row(i), b.rows.Row(j)) {
				found, matched[j] = true, true
				give(a.rows.Row(i), b.rows.Row(j))
			}
		}
		if !found && (kind == "LEFT" || kind == "FULL") {
			give(a.rows.Row(i), nulls)
		}
	}
	for j := range b.rows.N {
		if !matched[j] && (kind == "RIGHT" || kind == "FULL") {
			give(nulls, b.rows.Row(j))
		}
	}
	slices.Sort(out)
	return out
}

// TestJoinsAreThoseOfAModel compares joins of every kind with loops over all pairs of rows: over whole tables, over what
// their accesses name, and in batches of different sizes.
func TestJoinsAreThoseOfAModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	narrowed := 0
	for range 2000 {
		a, b := joinTable(r, "a", r.IntN(12)), joinTable(r, "b", r.IntN(12))
		ts := tables{"p.a": a, "p.b": b}
		kind := []string{"INNER", "LEFT", "RIGHT", "FULL"}[r.IntN(4)]
		on, where := someConditions(r, 3), someConditions(r, 2)
		text := fmt.Sprintf("SELECT * FROM p.a %s JOIN p.b ON %s WHERE %s", kind, conditionText(on), conditionText(where))
		q, err := bind(ts, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		want := modelJoin(a, b, kind, on, where)
		for size, all := range map[int]bool{1: true, 3: false, 100: false} {
			rows, read, err := run(q, ts, size, all)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			var got []string
			for i := range rows.N {
				row := rows.Row(i)
				got = append(got, fmt.Sprint(row[:3], row[3:]))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%s, in batches of %d:\n%s\nwant\n%s\nover\n%s\n%s", text, size, strings.Join(got, "\n"), strings.Join(want, "\n"), printRows(a.rows), printRows(b.rows))
			}
			if read < a.rows.N+b.rows.N {
				narrowed++
			}
		}
	}
	if narrowed < 500 {
		t.Fatalf("only %d of 6000 runs read less than both tables", narrowed)
	}
}

// TestATableIsLookedUpForFewRows joins a few rows with a large table by its key.
func TestATableIsLookedUpForFewRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ts := tables{"p.few": joinTable(r, "few", 5), "p.many": joinTable(r, "many", 20_000)}
	for text, most := range map[string]int{
		"SELECT m.y FROM p.few f JOIN p.many m ON m.k = f.x":                             10,
		"SELECT m.y FROM p.many m JOIN p.few f ON m.k = f.x":                             10,
		"SELECT m.y FROM p.few f LEFT JOIN p.many m ON m.k = f.x AND m.y = 'a'":          10,
		"SELECT m.y FROM p.many m RIGHT JOIN p.few f ON m.k = f.x":                       10,
		"SELECT m.y FROM p.many a JOIN p.many m ON m.k = a.x WHERE a.k IN (1, 2, 3)":     6,
		"SELECT m.y FROM p.many m LEFT JOIN p.few f ON m.k = f.x":                        20_005,
		"SELECT m.y FROM (SELECT x FROM p.many LIMIT 3) AS q JOIN p.many m ON q.x = m.k": 6,
		"SELECT y FROM p.many WHERE k IN (SELECT x FROM p.few)":                          10,
		"SELECT y FROM p.many WHERE x > 1 AND k = (SELECT max(x) FROM p.few)":            6,
		"SELECT y FROM p.many WHERE k = (SELECT x FROM p.few WHERE k = 77)":              0,
		"SELECT y FROM p.many WHERE k NOT IN (SELECT x FROM p.few)":                      20_005,
		"SELECT y FROM p.many WHERE k IN (SELECT x FROM p.few) OR x = 1":                 20_005,
		"SELECT y FROM p.many WHERE k IN (SELECT k FROM p.many WHERE k < 10001)":         10_001 + 20_000,
	} {
		q, err := bind(ts, text)
		if err != nil {
			t.Fatal(err)
		}
		if all, _, err := run(q, ts, 1024, true); err != nil {
			t.Error(err)
		} else if some, _, err := run(q, ts, 1024, false); err != nil || printRows(all) != printRows(some) && !strings.Contains(text, "LIMIT") {
			t.Errorf("%s: over all rows %d, over those looked up %d: %v", text, all.N, some.N, err)
		}
		if _, read, err := run(q, ts, 1024, false); err != nil || read > most {
			t.Errorf("%s: read %d rows, want at most %d: %v", text, read, most, err)
		}
	}
}

// TestTheSmallerSideOfAJoinIsHeld gives a join memory for its smaller side alone, whichever that is.
func TestTheSmallerSideOfAJoinIsHeld(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ts := tables{"p.few": joinTable(r, "few", 50), "p.many": joinTable(r, "many", 50_000)}
	for _, text := range []string{
		"SELECT count(*) FROM p.few f JOIN p.many m ON f.x = m.x",
		"SELECT count(*) FROM p.many m JOIN p.few f ON f.x = m.x",
		"SELECT count(*) FROM p.many m LEFT JOIN p.few f ON f.x = m.x",
		"SELECT count(*) FROM p.few f RIGHT JOIN p.many m ON f.x = m.x",
		"SELECT count(*) FROM p.few f FULL JOIN p.many m ON f.x = m.x",
		"SELECT count(*) FROM p.few f, p.many m",
	} {
		q, err := bind(ts, text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Run(&memory{ts: ts, size: 512}, plan.ExecOptions{MaxBytes: 600_000}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
