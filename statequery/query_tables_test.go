package statequery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

func TestAQueryReadsSeveralTablesAtOneCut(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	for _, c := range []struct{ sql, want string }{
		{"SELECT c.a, c.n, t.n FROM p.counts c CROSS JOIN p.total t WHERE c.n = 2", "x|2|6"},
		{"SELECT a, b, u.n FROM p.counts LEFT JOIN p.uneven u USING (a, b) ORDER BY a, b", "7|7|1 x|1|NULL x|2|1 y|NULL|NULL NULL|7|NULL"},
		{"SELECT sum(c.n) = max(t.n) FROM p.counts c, p.total t", "true"},
		{"SELECT a FROM p.counts WHERE n = (SELECT max(n) FROM p.counts)", "x"},
		{"SELECT a FROM p.uneven UNION SELECT a FROM p.counts ORDER BY a DESC NULLS LAST", "y x 7 NULL"},
		{"SELECT b, rank() OVER (ORDER BY n DESC, b) FROM p.counts ORDER BY 2 LIMIT 2", "1|1 2|2"},
		{"SELECT o.a FROM p.counts o WHERE NOT EXISTS (SELECT 1 FROM p.uneven u WHERE u.a = o.a) ORDER BY 1", "NULL"},
	} {
		for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
			rows, _, cut, err := e.Query(t.Context(), c.sql, dataflow.Page{}, dataflow.ReadOptions{Isolation: iso})
			if err != nil {
				t.Errorf("%s: %v", c.sql, err)
				continue
			}
			if got := strings.Join(text(rows), " "); got != c.want || cut.Checkpoint != 1 {
				t.Errorf("%s, %s: got %q, want %q, of cut %d", c.sql, iso, got, c.want, cut.Checkpoint)
			}
			w.unpinned()
		}
	}
}

// TestAJoinOfOneCutNeverMixesTwo commits between the pages of a join: each page must compare a table with itself at the cut of
// the first page.
func TestAJoinOfOneCutNeverMixesTwo(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 40 {
		w.add(g2(fmt.Sprintf("%02d", i), 1), 1)
	}
	w.commit()
	e := w.engine()
	const q = "SELECT c.a, t.n AS all_n, (SELECT count(*) FROM p.counts) AS keys FROM p.counts c, p.total t ORDER BY c.a"
	seen := 0
	for token := ""; ; {
		rows, next, _, err := e.Query(t.Context(), q, dataflow.Page{Limit: 7, Token: token}, dataflow.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range text(rows) {
			if !strings.HasSuffix(line, "|40|40") {
				t.Errorf("row %s mixes cuts", line)
			}
		}
		seen += rows.N
		w.add(g2(fmt.Sprintf("new %d", seen), 1), 1)
		w.commit()
		if token = next; next == "" {
			break
		}
	}
	if seen != 40 {
		t.Errorf("%d rows", seen)
	}
	w.unpinned()
}

// largeJoin makes 25,000,000 rows of the world's 5,000 and keeps none of them.
const largeJoin = "SELECT count(*) FROM p.counts a, p.counts b WHERE a.n > b.n + 1"

func manyKeys(t *testing.T) *world {
	w := newWorld(t, 2)
	for i := range 5000 {
		w.add(g2(fmt.Sprintf("%04d", i), 1), 1)
	}
	w.commit()
	return w
}

func TestALongJoinEndsWithItsTime(t *testing.T) {
	w := manyKeys(t)
	slow := w.engine(func(c *statequery.Config) { c.MaxTime = 50 * time.Millisecond })
	_, _, _, err := slow.Query(t.Context(), largeJoin, dataflow.Page{}, dataflow.ReadOptions{})
	if got := refused(t, err, dataflow.ReasonScanLimit).Metadata["limit"]; got != "time" {
		t.Errorf("limit %q", got)
	}
	w.unpinned()
}

func TestALongJoinEndsWithItsCaller(t *testing.T) {
	w := manyKeys(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, _, err := w.engine().Query(ctx, largeJoin, dataflow.Page{}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonDeadline)
	w.unpinned()
}

func TestAJoinKeepsToItsMemory(t *testing.T) {
	w := manyKeys(t)
	small := w.engine(func(c *statequery.Config) { c.MaxBytes = 200_000 })
	for _, sql := range []string{
		"SELECT count(*) FROM p.counts a JOIN p.uneven b ON a.n = b.n",
		"SELECT count(*) FROM p.counts WHERE a IN (SELECT a FROM p.counts)",
		"SELECT count(*) FROM (SELECT a FROM p.counts UNION SELECT a FROM p.uneven) AS u",
		"SELECT max(r) FROM (SELECT rank() OVER (ORDER BY a) AS r FROM p.counts) AS q",
	} {
		_, _, _, err := small.Query(t.Context(), sql, dataflow.Page{}, dataflow.ReadOptions{})
		if got := refused(t, err, dataflow.ReasonScanLimit).Metadata["limit"]; got != "memory" {
			t.Errorf("%s: limit %q", sql, got)
		}
		w.unpinned()
	}
}

func TestExplainShowsQueriesTablesAndFiles(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	for sql, want := range map[string]string{
		"EXPLAIN SELECT n FROM p.counts WHERE a = 'x' AND b = 1": "p.counts: look up a = 'x'",
		"EXPLAIN p.large":  "changes of",
		"explain p.total;": "its changes go to large (stage 3)",
		"EXPLAIN CREATE STREAM s2 (a TEXT); CREATE MATERIALIZED VIEW v AS SELECT DISTINCT a FROM s2": "stream s2 (a TEXT)",
		"EXPLAIN WITH c AS (SELECT a FROM p.counts) SELECT * FROM c JOIN c AS d USING (a)":           "inner hash join",
		"EXPLAIN (SELECT a FROM p.counts) UNION ALL SELECT 'x' ORDER BY 1":                           "union all",
	} {
		rows, next, _, err := e.Query(t.Context(), sql, dataflow.Page{}, dataflow.ReadOptions{})
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if got := strings.Join(text(rows), "\n"); !strings.Contains(got, want) || next != "" {
			t.Errorf("%s: got\n%s\nwithout %q", sql, got, want)
		}
		w.unpinned()
	}
	for sql, want := range map[string]dataflow.Reason{
		"EXPLAIN":                           dataflow.ReasonSQLSyntax,
		"EXPLAIN ANALYZE SELECT 1":          dataflow.ReasonSQLUnsupported,
		"EXPLAIN (VERBOSE) SELECT 1":        dataflow.ReasonSQLUnsupported,
		"EXPLAIN p.nothing":                 dataflow.ReasonTableNotFound,
		"EXPLAIN q.counts":                  dataflow.ReasonPipelineNotFound,
		"EXPLAIN p.counts.n":                dataflow.ReasonTableNotFound,
		"EXPLAIN INSERT INTO t VALUES (1)":  dataflow.ReasonSQLUnsupported,
		"EXPLAIN CREATE STREAM x (a TEXT)":  dataflow.ReasonSQLUnsupported,
		"EXPLAIN SELECT nope FROM p.counts": dataflow.ReasonSQLType,
		"EXPLAIN SELECT 1; SELECT 2":        dataflow.ReasonSQLUnsupported,
	} {
		_, _, _, err := e.Query(t.Context(), sql, dataflow.Page{}, dataflow.ReadOptions{})
		if dataflow.ReasonOf(err) != want {
			t.Errorf("%s: got %v, want %s", sql, err, want)
		}
	}
}
