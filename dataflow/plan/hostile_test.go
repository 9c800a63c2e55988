package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestHostileTextsEndSoon gives the planner texts that would take exponential or quadratic time, or endless memory, if it
// were careless: the test ends by itself when they do not.
func TestHostileTextsEndSoon(t *testing.T) {
	ts := tables{"p.t": randomTable(rand.New(rand.NewPCG(1, 2)), 10)}
	repeat := func(s string, n int) string { return strings.Repeat(s, n) }
	nestedWith := func(from string) string {
		q := "SELECT v FROM " + from
		for range 150 {
			q = "WITH c AS (" + q + ") SELECT v FROM c"
		}
		return q
	}
	chain := func(from string) string {
		var b strings.Builder
		b.WriteString("WITH c0 AS (SELECT v, v AS w FROM " + from + ")")
		for i := range 190 {
			fmt.Fprintf(&b, ", c%d AS (SELECT v + w AS v, v - w AS w FROM c%d)", i+1, i)
		}
		return b.String() + " SELECT count(*) AS n, sum(v) AS s FROM c190"
	}
	long := "v" + repeat(" + v", 2_400)
	doubling := func(n int) string {
		var b strings.Builder
		b.WriteString("WITH c0 AS (SELECT v FROM p.t)")
		for i := range n {
			fmt.Fprintf(&b, ", c%d AS (SELECT a.v FROM c%d a JOIN c%d b ON a.v = b.v)", i+1, i, i)
		}
		return fmt.Sprintf("%s SELECT count(*) FROM c%d", b.String(), n)
	}
	var joins, subqueries strings.Builder
	for i := range 98 {
		fmt.Fprintf(&joins, " JOIN p.t t%d ON t%d.v = t.v AND t%d.k2 > 1", i, i, i)
	}
	for range 99 {
		subqueries.WriteString(" OR v IN (SELECT k2 FROM p.t)")
	}
	in := repeat("1, 2, 3, 4, 5, ", 10_000) + "6"
	for name, c := range map[string]struct {
		text string
		want dataflow.Reason
	}{
		"nested WITH":              {nestedWith("p.t"), ""},
		"chain of WITH":            {chain("p.t"), ""},
		"two long lists":           {"SELECT v FROM p.t WHERE k2 IN (" + in + ") AND k2 IN (" + in + ")", ""},
		"long OR":                  {"SELECT v FROM p.t WHERE k2 = 1" + repeat(" OR k2 = 2", 2_400), ""},
		"long AND":                 {"SELECT v FROM p.t WHERE k2 > 1" + repeat(" AND k2 > 2", 2_400), ""},
		"long expression, grouped": {"SELECT " + long + " AS a FROM p.t GROUP BY " + long, ""},
		"nearly the same, grouped": {"SELECT " + long + " AS a FROM p.t GROUP BY " + long[:len(long)-4], dataflow.ReasonSQLType},
		"many columns":             {"SELECT v" + repeat(", v", 1599) + " FROM p.t", ""},
		"too many columns":         {"SELECT v" + repeat(", v", 1600) + " FROM p.t", dataflow.ReasonSQLUnsupported},
		"many stars":               {"SELECT *" + repeat(", *", 2000) + " FROM p.t", dataflow.ReasonSQLUnsupported},
		"many keys":                {"SELECT count(*) FROM p.t GROUP BY v" + repeat(", v", 100_000), dataflow.ReasonSQLUnsupported},
		"unread WITH":              {"WITH c AS (SELECT nothing FROM p.t) SELECT v FROM p.t", dataflow.ReasonSQLType},
		"doubling WITH":            {doubling(40), dataflow.ReasonSQLUnsupported},
		"many joins":               {"SELECT count(*) FROM p.t" + joins.String(), ""},
		"too many joins":           {"SELECT count(*) FROM p.t" + joins.String() + " CROSS JOIN p.t y CROSS JOIN p.t z", dataflow.ReasonSQLUnsupported},
		"many subqueries":          {"SELECT v FROM p.t WHERE false" + subqueries.String(), ""},
		"too many subqueries":      {"SELECT v FROM p.t WHERE false" + subqueries.String() + " OR v IN (SELECT k2 FROM p.t)", dataflow.ReasonSQLUnsupported},
		"many UNIONs":              {"SELECT v FROM p.t" + repeat(" UNION SELECT 1", 199), ""},
		"too many UNIONs":          {"SELECT v FROM p.t" + repeat(" UNION SELECT 1", 201), dataflow.ReasonSQLSyntax},
		"deep parentheses":         {repeat("(", 150) + "SELECT v FROM p.t" + repeat(")", 150), ""},
		"deeper parentheses":       {repeat("(", 100_000) + "SELECT v FROM p.t", dataflow.ReasonSQLSyntax},
		"deep joins":               {"SELECT 1 FROM " + repeat("(", 5000) + "p.t", dataflow.ReasonSQLSyntax},
		"many values":              {"SELECT count(*) FROM p.t, (VALUES (1)" + repeat(", (2)", 100_000) + ") AS x", ""},
		"many windows":             {"SELECT v" + repeat(", rank() OVER (ORDER BY v)", 1500) + " FROM p.t", ""},
		"deep correlation":         {"SELECT v FROM p.t WHERE " + repeat("EXISTS (SELECT 1 FROM p.t WHERE ", 90) + "true" + repeat(")", 90), ""},
		"a long constant":          {"SELECT v FROM p.t WHERE k1 = '" + repeat("x", 900_000) + "'", ""},
		"a long name":              {"SELECT " + repeat("x", 900_000) + " FROM p.t", dataflow.ReasonSQLType},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := bind(ts, c.text)
			if got := dataflow.ReasonOf(err); got != c.want {
				t.Fatalf("got %q (%.300v), want %q", got, err, c.want)
			}
			if err != nil && len(err.Error()) > 3000 {
				t.Fatalf("the error has %d bytes", len(err.Error()))
			}
			if err == nil && len(q.Scans[0].Access.Text) > 1000 {
				t.Fatalf("the access is told in %d bytes", len(q.Scans[0].Access.Text))
			}
		})
	}

	views := "CREATE VIEW v0 AS SELECT amount AS v, id AS w FROM orders;"
	for i := range 198 {
		views += fmt.Sprintf("CREATE VIEW v%d AS SELECT v + w AS v, v - w AS w FROM v%d;", i+1, i)
	}
	var tables strings.Builder
	for i := range 300 {
		fmt.Fprintf(&tables, "CREATE MATERIALIZED VIEW m%d AS SELECT w, count(*) AS n FROM v%d GROUP BY w;", i, i%190)
	}
	for name, c := range map[string]struct {
		text string
		want dataflow.Reason
	}{
		"nested WITH":    {"CREATE MATERIALIZED VIEW m AS " + strings.Replace(nestedWith("orders"), "SELECT v FROM orders", "SELECT amount AS v FROM orders GROUP BY 1", 1), ""},
		"chain of WITH":  {"CREATE MATERIALIZED VIEW m AS " + strings.Replace(chain("orders"), "SELECT v, v AS w", "SELECT amount AS v, id AS w", 1), ""},
		"chain of views": {views, ""},
		"many tables":    {views + tables.String(), dataflow.ReasonSQLUnsupported},
		"unread WITH that groups": {"CREATE MATERIALIZED VIEW m AS WITH c AS (SELECT DISTINCT count(*) AS n FROM orders GROUP BY country) " +
			"SELECT country, count(*) AS n FROM orders GROUP BY country", ""},
	} {
		t.Run("views: "+name, func(t *testing.T) {
			p, err := build(c.text)
			if got := dataflow.ReasonOf(err); got != c.want {
				t.Fatalf("got %q (%.300v), want %q", got, err, c.want)
			}
			if err == nil && strings.HasPrefix(name, "unread") && len(p.Stages) != 1 {
				t.Fatalf("the plan has %d stages", len(p.Stages))
			}
			if err == nil {
				checkPlan(t, p)
			}
		})
	}
}
