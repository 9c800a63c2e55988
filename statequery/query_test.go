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

func TestAQueryReadsOneCutPageByPage(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 25 {
		w.add(g2(fmt.Sprintf("%02d", i), int64(i%5)), int64(i))
	}
	w.commit()
	e := w.engine()
	const q = "SELECT b, count(*) AS c, now() AS at FROM p.counts GROUP BY b ORDER BY b DESC"
	var got []string
	for token := ""; ; {
		rows, next, cut, err := e.Query(t.Context(), q, dataflow.Page{Limit: 2, Token: token}, dataflow.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if cut.Checkpoint != 1 {
			t.Errorf("a page is of cut %d", cut.Checkpoint)
		}
		got = append(got, text(rows)...)
		w.add(g2("more", 4), 1)
		w.commit()
		w.pass(time.Second) // now() stays what it was
		if token = next; next == "" {
			break
		}
	}
	if want := "4|5|1970-01-01 00:00:01+00 3|5|1970-01-01 00:00:01+00 2|5|1970-01-01 00:00:01+00 1|5|1970-01-01 00:00:01+00 0|5|1970-01-01 00:00:01+00"; strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	w.unpinned()
}

func TestQueriesReadKeysRangesAndAll(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	for _, c := range []struct{ sql, want string }{
		{"SELECT n FROM p.counts WHERE a = 'x' AND b = 1", "2"},
		{"SELECT a, n FROM p.counts WHERE a IN ('x', 'nobody') AND b IN (1, 2)", "x|2 x|1"},
		{"SELECT n FROM p.counts WHERE a = 'nobody' AND b = 1", ""},
		{"SELECT b, n FROM p.counts WHERE a LIKE 'x%' AND n > 1", "1|2"},
		{"SELECT n FROM p.counts WHERE a IS NULL", "1"},
		{"SELECT count(*), sum(n) FROM p.counts", "5|6"},
		{"SELECT n, total FROM p.total", "6|32"},
		{"SELECT n FROM p.large", "6"},
		{"SELECT a FROM p.counts ORDER BY total DESC LIMIT 1", "x"},
		{"SELECT a FROM p.uneven WHERE a = 'x' AND b = 1", ""},
	} {
		for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
			rows, next, _, err := e.Query(t.Context(), c.sql, dataflow.Page{}, dataflow.ReadOptions{Isolation: iso})
			if err != nil {
				t.Errorf("%s: %v", c.sql, err)
				continue
			}
			if got := strings.Join(text(rows), " "); got != c.want || next != "" {
				t.Errorf("%s, %s: got %q, want %q", c.sql, iso, got, c.want)
			}
			w.unpinned()
		}
	}
}

func TestQueriesKeepToTheirBudgets(t *testing.T) {
	w := newWorld(t, 2)
	for i := range 3000 {
		w.add(g2(fmt.Sprintf("%04d", i), 1), 1)
	}
	w.commit()
	limit := func(err error) string { t.Helper(); return refused(t, err, dataflow.ReasonScanLimit).Metadata["limit"] }
	slow := w.engine(func(c *statequery.Config) { c.MaxTime = time.Nanosecond })
	_, _, _, err := slow.Query(t.Context(), "SELECT count(*) FROM p.counts", dataflow.Page{}, dataflow.ReadOptions{})
	if got := limit(err); got != "time" {
		t.Errorf("limit %q", got)
	}
	small := w.engine(func(c *statequery.Config) { c.MaxBytes = 10_000 })
	_, _, _, err = small.Query(t.Context(), "SELECT a FROM p.counts ORDER BY n", dataflow.Page{}, dataflow.ReadOptions{})
	if got := limit(err); got != "memory" {
		t.Errorf("limit %q", got)
	}
	_, _, _, err = w.engine().Query(t.Context(), "SELECT a FROM p.counts", dataflow.Page{Limit: 10}, dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted})
	if got := limit(err); got != "page" {
		t.Errorf("limit %q", got)
	}
	// With a LIMIT the walk ends before the time does.
	rows, _, _, err := slow.Query(t.Context(), "SELECT a FROM p.counts LIMIT 5", dataflow.Page{}, dataflow.ReadOptions{})
	if err != nil || rows.N != 5 {
		t.Errorf("%v", err)
	}
	w.unpinned()
}

func TestALargeResultHasPagesByBytes(t *testing.T) {
	w := newWorld(t, 2)
	long := strings.Repeat("x", 3500)
	for i := range 1500 {
		w.add(g2(fmt.Sprintf("%04d%s", i, long), 1), 1)
	}
	w.commit()
	e := w.engine()
	seen, pages := 0, 0
	for token := ""; ; {
		rows, next, _, err := e.Query(t.Context(), "SELECT a FROM p.counts", dataflow.Page{Token: token}, dataflow.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen += rows.N
		pages++
		if token = next; next == "" {
			break
		}
	}
	if seen != 1500 || pages < 2 || pages > 10 {
		t.Errorf("%d rows on %d pages", seen, pages)
	}
	w.unpinned()
}

func TestBadQueriesAreRefused(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	for sql, want := range map[string]dataflow.Reason{
		"SELECT":                           dataflow.ReasonSQLSyntax,
		"SELECT nope FROM p.counts":        dataflow.ReasonSQLType,
		"SELECT 1 / (n - n) FROM p.counts": dataflow.ReasonExpressionFailed,
	} {
		_, _, _, err := e.Query(t.Context(), sql, dataflow.Page{}, dataflow.ReadOptions{})
		refused(t, err, want)
		w.unpinned()
	}
	_, next, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 1}, dataflow.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, err = e.Query(t.Context(), "SELECT a FROM p.counts", dataflow.Page{Token: next}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonTokenInvalid)
}

// endingCtx ends when it has been asked some times.
type endingCtx struct {
	context.Context
	looks *int
}

func (c endingCtx) Err() error {
	if *c.looks--; *c.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestACallerWhoGoesEndsTheExpressionsOfItsRead(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 1000 {
		w.add(g2(fmt.Sprintf("%04d", i), 1), 1)
	}
	w.commit()
	e := w.engine()
	looks := 20 // more than one batch asks beside its expressions
	_, _, _, err := e.Query(endingCtx{t.Context(), &looks}, "SELECT count(*) FROM p.counts WHERE repeat(a, 100) ~ '(x|y)*z$'", dataflow.Page{}, dataflow.ReadOptions{})
	if dataflow.ReasonOf(err) != dataflow.ReasonDeadline || looks < -3 {
		t.Errorf("%v; asked %d times after it had gone", err, -looks-1)
	}
	w.unpinned()
}
