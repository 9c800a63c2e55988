package conformance

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/internal/testkit/postgres"
	"github.com/weirdb/weir/node/nodetest"
)

var (
	randomQueries = flag.Int("random", 2000, "how many random queries -record compares with PostgreSQL")
	randomFile    = flag.String("random-file", "", "with -record, also write the first queries to this file of testdata")
)

// fileQueries is how many queries a file of random ones has: enough to meet every form, and some 120 KB with their answers.
const fileQueries = 200

const randomSchema = `CREATE STREAM t (id BIGINT NOT NULL, a BIGINT, b BIGINT, s TEXT, n NUMERIC, f BOOLEAN, at TIMESTAMPTZ, day DATE, j JSONB);
CREATE STREAM u (id BIGINT NOT NULL, a BIGINT, s TEXT, n NUMERIC, day DATE);`

// TestRandomQueriesEqualPostgreSQL asks both systems the same random queries over small tables with NULLs and odd values. It
// runs with -record only. What it finds becomes a block of a file.
func TestRandomQueriesEqualPostgreSQL(t *testing.T) {
	if !*record {
		t.Skip("needs PostgreSQL: -record")
	}
	used := *seed
	if used == 0 {
		used = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", used)
	p := randomProgram(t)
	r := &runner{t: t, p: p, pg: &database{postgres.Start(t, "client_min_messages=warning")}}
	r.start()
	g := queryGenerator{rand.New(rand.NewPCG(used, 11))}
	refused, failed := 0, 0
	blocks := make([]block, *randomQueries)
	for i := range blocks {
		c := block{sql: g.query(), folds: []string{"numeric-zeros"}}
		c.ordered = orderBy.MatchString(c.sql)
		blocks[i] = c
	}
	for i, want := range r.pg.askAll(t, blocks) {
		c := blocks[i]
		got := r.query(t, &c, c.asQuery(p), nodetest.Committed)
		switch {
		case got.err != "" && want.err != "":
			failed++ // texts of errors are compared where they are recorded
		case got.err != "" && strings.Contains(got.err, "not there"):
			refused++
		case got.print(&c) != want.print(&c):
			t.Errorf("%s\n%s", c.sql, diff(got.print(&c), want.print(&c)))
		}
	}
	t.Logf("%d queries, %d failed in both, %d refused by name", *randomQueries, failed, refused)
	if *randomFile != "" {
		writeRandomFile(t, *randomFile, used)
	}
}

// randomProgram is the tables that random queries read.
func randomProgram(t *testing.T) *program {
	r := rand.New(rand.NewPCG(5, 5))
	number := func(most int) any {
		if r.IntN(6) == 0 {
			return nil
		}
		return int64(r.IntN(most)) - 2
	}
	day := func() any { return pick(r, "2026-01-31", "2026-02-28", "2024-02-29", "1999-12-31", nil) }
	p := &program{name: "random", schema: randomSchema, feeds: []feed{{stream: "t"}, {stream: "u"}}}
	for i := range 40 {
		p.feeds[0].rows = append(p.feeds[0].rows, object(t, "id", i, "a", number(6), "b", number(9), "s", pick(r, "x", "y", "X", "", "é", "a b", nil),
			"n", pick(r, "0", "1.5", "-2.25", "100", "0.1", nil), "f", pick(r, true, false, nil), "at", pick(r, "2026-03-29T01:30:00Z", "2026-11-29T23:59:59.999999Z", "1970-01-01T00:00:00Z", nil),
			"day", day(), "j", pick(r, map[string]any{"k": 1, "v": []int{1, 2}}, map[string]any{"k": "x"}, []int{3}, 5, nil)))
	}
	for i := range 25 {
		p.feeds[1].rows = append(p.feeds[1].rows, object(t, "id", i*2, "a", number(5), "s", pick(r, "x", "z", "", "é", nil), "n", pick(r, "1.5", "7", "-2.25", nil), "day", day()))
	}
	return p
}

// writeRandomFile writes a file of testdata whose answers -record fills in.
func writeRandomFile(t *testing.T, path string, seed uint64) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Random queries: -random-file with -seed=%d wrote them.\nschema\n%s\n----\n\n", seed, randomSchema)
	for _, f := range randomProgram(t).feeds {
		fmt.Fprintf(&b, "rows stream=%s\n%s\n----\n\n", f.stream, strings.Join(f.rows, "\n"))
	}
	g := queryGenerator{rand.New(rand.NewPCG(seed, 11))}
	for range fileQueries {
		fmt.Fprintf(&b, "query digest fold=numeric-zeros\n%s\n----\n\n", g.query())
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// queryGenerator makes queries. The names of columns are qualified by the alias of their table, so that each means one.
type queryGenerator struct{ *rand.Rand }

func (g queryGenerator) pick(list ...string) string { return list[g.IntN(len(list))] }

// columns of the two tables, by kind.
var randomColumns = map[string]map[string][]string{
	"t": {"int": {"id", "a", "b"}, "text": {"s"}, "num": {"n"}, "bool": {"f"}, "time": {"at"}, "date": {"day"}, "json": {"j"}},
	"u": {"int": {"id", "a"}, "text": {"s"}, "num": {"n"}, "date": {"day"}},
}

// fromTable is a table in FROM with its alias.
type fromTable struct{ table, alias string }

// column returns a column of the kind, of one of the tables; "NULL" of none.
func (g queryGenerator) column(from []fromTable, kind string) string {
	f := from[g.IntN(len(from))]
	cols := randomColumns[f.table][kind]
	if len(cols) == 0 {
		f = from[0]
		cols = randomColumns[f.table][kind]
	}
	if len(cols) == 0 {
		return map[string]string{"bool": "true", "time": "TIMESTAMPTZ '2026-01-01 00:00Z'", "json": "'{\"k\": 2}'::jsonb"}[kind]
	}
	return f.alias + "." + cols[g.IntN(len(cols))]
}

// value returns an expression of a kind.
func (g queryGenerator) value(from []fromTable, kind string, depth int) string {
	if depth == 0 || g.IntN(3) == 0 {
		return g.column(from, kind)
	}
	v := func(kind string) string { return g.value(from, kind, depth-1) }
	if g.IntN(8) == 0 {
		return "CASE WHEN " + g.condition(from, depth-1) + " THEN " + v(kind) + g.pick("", " ELSE "+v(kind)) + " END"
	}
	if g.IntN(8) == 0 && kind != "json" {
		return g.pick("coalesce", "greatest", "least", "nullif") + "(" + v(kind) + ", " + v(kind) + ")"
	}
	switch kind {
	case "int":
		return g.pick("("+v("int")+g.pick(" + ", " - ", " * ")+v("int")+")", "length("+v("text")+")::bigint", "abs("+v("int")+")", "("+v("int")+" / nullif("+v("int")+", 0))", "("+v("int")+" % 3)",
			"("+v("date")+" - "+v("date")+")::bigint", "extract(month FROM "+v("date")+")::bigint", "("+v("num")+")::bigint", "jsonb_array_length(jsonb_build_array("+v("int")+"))::bigint", "- "+g.column(from, "int"))
	case "num":
		return g.pick("("+v("num")+g.pick(" + ", " - ", " * ")+v("num")+")", "round("+v("num")+", 1)", "("+v("int")+")::numeric", "("+v("num")+" / 3)", "("+v("num")+" * "+v("int")+")", "trunc("+v("num")+")", "extract(epoch FROM "+v("time")+")")
	case "text":
		return g.pick("("+v("text")+" || "+v("text")+")", "upper("+v("text")+")", "("+v("int")+")::text", "("+v("num")+")::text", "substr("+v("text")+", 1, 1)", "concat("+v("text")+", "+v("int")+")",
			"to_char("+v("time")+", 'YYYY-MM-DD')", "("+v("json")+" ->> 'k')", "("+v("date")+")::text", "repeat("+v("text")+", 2)", "("+v("bool")+")::text")
	case "bool":
		return "(" + g.condition(from, depth-1) + ")"
	case "time":
		return g.pick("date_trunc('"+g.pick("hour", "day", "month", "year")+"', "+v("time")+")", "("+v("time")+" + INTERVAL '1 month')", "("+v("time")+" - INTERVAL '36 hours')", "("+v("date")+")::timestamptz")
	case "date":
		return g.pick("("+v("date")+" + 1)", "("+v("date")+" - "+g.pick("1", "30")+")", "("+v("time")+")::date", "make_date(2026, 2, 28)")
	}
	return g.pick("("+v("json")+" -> 'v')", "jsonb_build_object('k', "+v("int")+")", "to_jsonb("+v("text")+")")
}

func (g queryGenerator) condition(from []fromTable, depth int) string {
	kind := g.pick("int", "int", "text", "num", "date", "time")
	v := func() string { return g.value(from, kind, max(depth-1, 0)) }
	simple := []string{
		v() + g.pick(" = ", " <> ", " < ", " <= ", " > ", " >= ") + v(), v() + g.pick(" IS NULL", " IS NOT NULL"), v() + " IS" + g.pick("", " NOT") + " DISTINCT FROM " + v(),
		v() + g.pick("", " NOT") + " IN (" + v() + ", " + v() + ")", v() + g.pick("", " NOT") + " BETWEEN " + v() + " AND " + v(),
		g.value(from, "text", 0) + g.pick(" LIKE '%x%'", " NOT LIKE 'a%'", " ~ '^[a-z]'", " ILIKE 'X'"), g.column(from, "bool") + g.pick("", " IS TRUE", " IS NOT TRUE", " IS UNKNOWN"),
		g.column(from, "int") + " = ANY (ARRAY[1, 2, NULL])",
	}
	if depth <= 0 {
		return simple[g.IntN(len(simple))]
	}
	inner := func() string { return g.condition(from, depth-1) }
	switch g.IntN(8) {
	case 0:
		return "(" + inner() + " AND " + inner() + ")"
	case 1:
		return "(" + inner() + " OR " + inner() + ")"
	case 2:
		return "NOT (" + inner() + ")"
	}
	return simple[g.IntN(len(simple))]
}

// subquery returns a condition with a subquery over table u, or t.
func (g queryGenerator) subquery(from []fromTable) string {
	in := []fromTable{{g.pick("t", "u"), "q"}}
	outer := g.column(from, "int")
	where := " WHERE " + g.pick(g.condition(in, 1), g.column(in, "int")+" = "+outer, g.column(in, "int")+" = "+outer+" AND "+g.condition(in, 1))
	of := " FROM {" + in[0].table + "} AS q" + where
	switch g.IntN(5) {
	case 0:
		return g.pick("", "NOT ") + "EXISTS (SELECT 1" + of + ")"
	case 1:
		return g.column(from, "int") + g.pick("", " NOT") + " IN (SELECT " + g.column(in, "int") + of + ")"
	case 2:
		return g.column(from, "text") + g.pick("", " NOT") + " IN (SELECT q.s" + of + ")"
	case 3:
		return "(SELECT " + g.pick("count(*)", "max(q.a)", "sum(q.id)", "min(q.id) + 1") + of + ")" + g.pick(" > ", " = ", " < ") + g.column(from, "int")
	}
	return "(SELECT q.id" + of + " ORDER BY q.id" + g.pick("", " DESC") + " LIMIT 1) " + g.pick("= ", "> ", "< ") + outer
}

// from returns FROM and WHERE with its tables.
func (g queryGenerator) from() (string, []fromTable) {
	tables := []fromTable{{g.pick("t", "t", "u"), "x"}}
	text := " FROM {" + tables[0].table + "} AS x"
	for i := range g.IntN(3) {
		next := fromTable{g.pick("t", "u", "u"), string(rune('y' + i))}
		both := append(tables[:len(tables):len(tables)], next)
		on := g.column(tables, "int") + " = " + g.column([]fromTable{next}, "int")
		if g.IntN(3) == 0 {
			on += " AND " + g.condition(both, 0)
		}
		text += " " + g.pick("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT JOIN") + " {" + next.table + "} AS " + next.alias + " ON " + on
		tables = both
	}
	switch g.IntN(6) {
	case 0, 1, 2:
		text += " WHERE " + g.condition(tables, 2)
	case 3, 4:
		text += " WHERE " + g.subquery(tables) + g.pick("", " AND "+g.condition(tables, 1), " OR "+g.condition(tables, 1))
	}
	return text, tables
}

var randomKinds = []string{"int", "int", "num", "text", "bool", "time", "date"}

func (g queryGenerator) kind() string { return randomKinds[g.IntN(len(randomKinds))] }

func (g queryGenerator) aggregate(from []fromTable) string {
	text, number := g.value(from, "text", 1), g.column(from, "int")
	a := g.pick("count(*)", "count("+g.value(from, g.kind(), 1)+")", "sum("+g.value(from, "int", 1)+")", "sum("+g.value(from, "num", 1)+")", "avg("+g.value(from, "int", 1)+")", "min("+g.value(from, g.pick("int", "num", "text", "date", "time"), 1)+")",
		"max("+g.value(from, g.pick("int", "num", "text", "date", "time"), 1)+")", "bool_and("+g.condition(from, 0)+")", "bool_or("+g.condition(from, 0)+")", "count(DISTINCT "+g.value(from, g.kind(), 1)+")",
		"string_agg("+text+", ',' ORDER BY "+text+")", "array_to_string(array_agg("+number+" ORDER BY "+number+"), ',')", "variance("+g.column(from, "num")+")")
	if g.IntN(4) == 0 {
		a += " FILTER (WHERE " + g.condition(from, 1) + ")"
	}
	return a
}

func (g queryGenerator) window(from []fromTable) string {
	ids := make([]string, len(from)) // a total order, so that every frame is determined
	for i, f := range from {
		ids[i] = f.alias + ".id"
	}
	over := g.pick("", "PARTITION BY "+g.value(from, g.kind(), 1)+" ")
	order := "ORDER BY " + g.value(from, g.kind(), 1) + g.pick("", " DESC", " NULLS FIRST", " DESC NULLS LAST") + ", " + strings.Join(ids, ", ")
	frame := g.pick("", "", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING", " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING", " ROWS UNBOUNDED PRECEDING")
	fn := g.pick("row_number()", "rank()", "dense_rank()", "ntile(3)", "lag("+g.column(from, "int")+")", "lead("+g.column(from, "text")+", 2, 'none')", "first_value("+g.column(from, "text")+")", "last_value("+g.column(from, "int")+")",
		"nth_value("+g.column(from, "int")+", 2)", "sum("+g.value(from, "int", 1)+")", "count(*)", "min("+g.column(from, "num")+")", "max("+g.column(from, "text")+")", "avg("+g.column(from, "int")+")")
	return fn + " OVER (" + over + order + frame + ")"
}

// query returns a query on one line.
func (g queryGenerator) query() string {
	from, tables := g.from()
	var items, order []string
	add := func(x string) {
		items = append(items, x+fmt.Sprintf(" AS c%d", len(items)+1))
		order = append(order, fmt.Sprintf("%d", len(items))+g.pick("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
	}
	kinds := make([]string, 1+g.IntN(3))
	for i := range kinds {
		kinds[i] = g.kind()
	}
	var text string
	switch g.IntN(5) {
	case 0: // groups
		var by []string
		for i, k := range kinds[:g.IntN(len(kinds)+1)] {
			add(g.value(tables, k, 1))
			by = append(by, fmt.Sprintf("%d", i+1))
		}
		for range 1 + g.IntN(3) {
			add(g.aggregate(tables))
		}
		text = "SELECT " + strings.Join(items, ", ") + from
		if len(by) > 0 {
			text += " GROUP BY " + strings.Join(by, ", ")
		}
		if g.IntN(3) == 0 {
			text += " HAVING " + g.pick("count(*) > 1", "count("+g.column(tables, "int")+") < 5", "min("+g.column(tables, "int")+") IS NOT NULL")
		}
	case 1: // windows
		for _, k := range kinds {
			add(g.value(tables, k, 1))
		}
		add(g.window(tables))
		if g.IntN(2) == 0 {
			add(g.window(tables))
		}
		text = "SELECT " + strings.Join(items, ", ") + from
	case 2: // set operations
		side := func() string {
			f, ts := g.from()
			list := make([]string, len(kinds))
			for i, k := range kinds {
				list[i] = g.value(ts, k, 1) + fmt.Sprintf(" AS c%d", i+1)
			}
			return "SELECT " + strings.Join(list, ", ") + f
		}
		for _, k := range kinds {
			add(k)
		}
		text = side() + g.pick(" UNION ", " UNION ALL ", " INTERSECT ", " EXCEPT ", " EXCEPT ALL ", " INTERSECT ALL ") + side()
	default:
		for _, k := range kinds {
			add(g.value(tables, k, 2))
		}
		text = "SELECT " + g.pick("", "", "DISTINCT ") + strings.Join(items, ", ") + from
	}
	if g.IntN(3) > 0 { // by all columns: what is cut off is determined then
		text += " ORDER BY " + strings.Join(order, ", ")
		text += g.pick("", "", " LIMIT 5", " LIMIT 3 OFFSET 2", " OFFSET 4")
	}
	return text
}
