package statequery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

func TestAScanRangeSelectsKeys(t *testing.T) {
	w := newWorld(t, 3)
	for _, g := range []group2{
		g2("", 1), g2("a", 1), g2("a", 5), {a: "a", aOK: true}, g2("ab", 2), g2("abc", 3), g2("ac", 4), g2("b", 1), {b: 1, bOK: true}, {},
	} {
		w.add(g, 1)
	}
	w.commit()
	v := func(s string) *dataflow.Value { x := lit(s); return &x }
	cases := []struct {
		name string
		r    dataflow.ScanRange
		want string // keys in order, or the reason of the refusal
	}{
		{"all", dataflow.ScanRange{}, "/1 a/1 a/5 a/NULL ab/2 abc/3 ac/4 b/1 NULL/1 NULL/NULL"},
		{"leading part", dataflow.ScanRange{Equal: dataflow.Row{lit("a")}}, "a/1 a/5 a/NULL"},
		{"leading part NULL", dataflow.ScanRange{Equal: dataflow.Row{null}}, "NULL/1 NULL/NULL"},
		{"leading part empty", dataflow.ScanRange{Equal: dataflow.Row{lit("")}}, "/1"},
		{"leading part of nobody", dataflow.ScanRange{Equal: dataflow.Row{lit("zz")}}, ""},
		{"whole key", dataflow.ScanRange{Equal: dataflow.Row{lit("a"), lit("5")}}, "a/5"},
		{"whole key with NULL", dataflow.ScanRange{Equal: dataflow.Row{lit("a"), null}}, "a/NULL"},
		{"prefix", dataflow.ScanRange{Prefix: "ab"}, "ab/2 abc/3"},
		{"prefix of one", dataflow.ScanRange{Prefix: "a"}, "a/1 a/5 a/NULL ab/2 abc/3 ac/4"},
		{"prefix of nobody", dataflow.ScanRange{Prefix: "c"}, ""},
		{"from", dataflow.ScanRange{From: v("ab")}, "ab/2 abc/3 ac/4 b/1 NULL/1 NULL/NULL"},
		{"to", dataflow.ScanRange{To: v("ab")}, "/1 a/1 a/5 a/NULL"},
		{"from and to", dataflow.ScanRange{From: v("ab"), To: v("b")}, "ab/2 abc/3 ac/4"},
		{"from equals to", dataflow.ScanRange{From: v("ab"), To: v("ab")}, ""},
		{"from and to tell the table apart without loss", dataflow.ScanRange{From: v("b")}, "b/1 NULL/1 NULL/NULL"},
		{"prefix and from", dataflow.ScanRange{Prefix: "a", From: v("abc")}, "abc/3 ac/4"},
		{"prefix and to", dataflow.ScanRange{Prefix: "a", To: v("abc")}, "a/1 a/5 a/NULL ab/2"},
		{"prefix before from", dataflow.ScanRange{Prefix: "a", From: v("b")}, ""},
		{"prefix before from and to", dataflow.ScanRange{Prefix: "a", From: v("b"), To: v("c")}, ""},
		{"prefix after to", dataflow.ScanRange{Prefix: "b", To: v("a")}, ""},
		{"on the second part", dataflow.ScanRange{Equal: dataflow.Row{lit("a")}, From: v("2")}, "a/5 a/NULL"},
		{"below on the second part", dataflow.ScanRange{Equal: dataflow.Row{lit("a")}, To: v("5")}, "a/1"},
		{"from after to", dataflow.ScanRange{From: v("b"), To: v("a")}, "REQUEST_INVALID"},
		{"from NULL", dataflow.ScanRange{From: &null}, "KEY_INVALID"},
		{"to NULL", dataflow.ScanRange{To: &nullText}, "KEY_INVALID"},
		{"prefix of a number", dataflow.ScanRange{Equal: dataflow.Row{lit("a")}, Prefix: "1"}, "KEY_INVALID"},
		{"a bound that is no number", dataflow.ScanRange{Equal: dataflow.Row{lit("a")}, From: v("x")}, "KEY_INVALID"},
		{"nothing left to bound", dataflow.ScanRange{Equal: dataflow.Row{lit("a"), lit("1")}, From: v("1")}, "KEY_INVALID"},
		{"too many parts", dataflow.ScanRange{Equal: dataflow.Row{lit("a"), lit("1"), lit("1")}}, "KEY_INVALID"},
	}
	e := w.engine()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
				for _, limit := range []int{0, 1, 2, 100} {
					got := keysOf(t, e, c.r, limit, iso)
					if got != c.want {
						t.Errorf("%s, limit %d: got %q, want %q", iso, limit, got, c.want)
					}
				}
			}
			w.unpinned()
		})
	}
	if n := w.leases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// keysOf scans page by page and returns the keys as a/b, or the reason of the refusal.
func keysOf(t *testing.T, e *statequery.Engine, r dataflow.ScanRange, limit int, iso dataflow.Isolation) string {
	t.Helper()
	var keys []string
	for token := ""; ; {
		rows, next, _, err := e.Scan(t.Context(), pipelineName, "counts", r, dataflow.Page{Limit: limit, Token: token}, dataflow.ReadOptions{Isolation: iso})
		if err != nil {
			return string(dataflow.ReasonOf(err))
		}
		if limit > 0 && rows.N > limit {
			t.Errorf("a page has %d rows of %d", rows.N, limit)
		}
		for i := range rows.N {
			row := rows.Row(i)
			keys = append(keys, strings.ReplaceAll(rowText(dataflow.Row{row[1], row[0]}), "|", "/"))
		}
		if token = next; token == "" {
			return strings.Join(keys, " ")
		}
	}
}

func TestPagesStayOnTheirCut(t *testing.T) {
	w := newWorld(t, 2)
	for i := range 10 {
		w.add(g2(fmt.Sprint(i), 1), 1)
	}
	w.commit()
	e := w.engine()
	scan := func(token string, o dataflow.ReadOptions) ([]string, string, dataflow.Cut) {
		t.Helper()
		rows, next, cut, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 4, Token: token}, o)
		if err != nil {
			t.Fatal(err)
		}
		w.unpinned()
		return text(rows), next, cut
	}
	first, next, _ := scan("", dataflow.ReadOptions{})
	for i := range 10 { // each of ten cuts changes every row
		for j := range 10 {
			w.add(g2(fmt.Sprint(j), 1), int64(i))
		}
		w.commit()
	}
	// The token that the first page was read with is not looked at again: it was covered then.
	second, last, cut := scan(next, dataflow.ReadOptions{Min: dataflow.Positions{{Stream: stream}: 1000}})
	again, _, _ := scan(next, dataflow.ReadOptions{})
	third, end, _ := scan(last, dataflow.ReadOptions{})
	if cut.Checkpoint != 1 || end != "" {
		t.Errorf("the second page is of cut %d; after the last page comes %q", cut.Checkpoint, end)
	}
	got := strings.Join(append(append(first, second...), third...), " ")
	if want := "1|0|1|1 1|1|1|1 1|2|1|1 1|3|1|1 1|4|1|1 1|5|1|1 1|6|1|1 1|7|1|1 1|8|1|1 1|9|1|1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if strings.Join(again, " ") != strings.Join(second, " ") {
		t.Errorf("asked for again, a page is %v instead of %v", again, second)
	}
}

func TestTheLeaseOfPagesEnds(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	page := func(token string, limit int) (string, error) {
		t.Helper()
		_, next, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: limit, Token: token}, dataflow.ReadOptions{})
		w.unpinned()
		return next, err
	}
	next, err := page("", 1)
	if err != nil || w.leases() != 1 {
		t.Fatalf("%d leases, %v", w.leases(), err)
	}
	w.pass(40 * time.Second)
	if next, err = page(next, 1); err != nil {
		t.Fatal(err) // and renewed
	}
	w.pass(40 * time.Second)
	if next, err = page(next, 1); err != nil || w.leases() != 1 {
		t.Fatalf("%d leases, %v", w.leases(), err)
	}
	w.pass(2 * time.Minute) // the lease has ended, the cut is still there: it is leased anew
	if next, err = page(next, 1); err != nil || w.leases() != 1 || next == "" {
		t.Fatalf("%d leases, next %q, %v", w.leases(), next, err)
	}
	if next, err = page("", 2); err != nil {
		t.Fatal(err)
	}
	w.pass(2 * time.Minute)
	w.commit()
	w.commit() // the cut is gone now
	_, err = page(next, 2)
	refused(t, err, dataflow.ReasonCheckpointExpired)
}

func TestTheLastPageGivesTheLeaseBack(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	scan := func(token string) string {
		t.Helper()
		_, next, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 3, Token: token}, dataflow.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	first := scan("")
	if next := scan(first); next != "" || w.leases() != 0 {
		t.Errorf("%d leases after the last page, next %q", w.leases(), next)
	}
	if next := scan(first); next != "" { // its answer may have been lost
		t.Errorf("the last page has a next one: %q", next)
	}
}

func TestAScanThatHasTheRowsItWantsKeepsNoLease(t *testing.T) {
	w := seeded(t) // five rows
	e := w.engine()
	scan := func(token string, limit int, atMost int64) (rows int, next string) {
		t.Helper()
		b, next, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: limit, Token: token, AtMost: atMost}, dataflow.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.unpinned()
		return b.N, next
	}
	if rows, next := scan("", 0, 2); rows != 2 || next != "" || w.leases() != 0 {
		t.Errorf("two rows: got %d, %d leases, next %q", rows, w.leases(), next)
	}
	rows, next := scan("", 2, 3)
	if rows != 2 || next == "" || w.leases() != 1 {
		t.Errorf("two of three rows: got %d, %d leases, next %q", rows, w.leases(), next)
	}
	if rows, next = scan(next, 2, 1); rows != 1 || next != "" || w.leases() != 0 {
		t.Errorf("the third row: got %d, %d leases, next %q", rows, w.leases(), next)
	}
	_, _, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{AtMost: -1}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonRequestInvalid)
}

func TestAPageTokenIsBoundToItsRequest(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	all := dataflow.ScanRange{}
	scan := func(r dataflow.ScanRange, token, table string, iso dataflow.Isolation) (string, error) {
		_, next, _, err := e.Scan(t.Context(), pipelineName, table, r, dataflow.Page{Limit: 1, Token: token}, dataflow.ReadOptions{Isolation: iso})
		return next, err
	}
	next, err := scan(all, "", "counts", dataflow.ReadCommitted)
	if err != nil {
		t.Fatal(err)
	}
	_, err = scan(dataflow.ScanRange{Prefix: "x"}, next, "counts", dataflow.ReadCommitted)
	refused(t, err, dataflow.ReasonTokenInvalid)
	_, err = scan(all, next, "uneven", dataflow.ReadCommitted)
	refused(t, err, dataflow.ReasonTokenInvalid)
	_, err = scan(all, next, "counts", dataflow.ReadUncommitted)
	refused(t, err, dataflow.ReasonTokenInvalid)
	_, _, _, err = e.Query(t.Context(), "SELECT * FROM p.counts", dataflow.Page{Token: next}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonTokenInvalid)
	_, err = scan(all, next[:len(next)-1], "counts", dataflow.ReadCommitted)
	refused(t, err, dataflow.ReasonTokenInvalid)
	tok, err := dataflow.ParsePageToken(next, group)
	if err != nil {
		t.Fatal(err)
	}
	tok.Group = dataflow.GroupID{8}
	_, err = scan(all, tok.String(), "counts", dataflow.ReadCommitted)
	refused(t, err, dataflow.ReasonTokenForeign)
	w.set(func(p *statequery.Pipeline) { p.UID++ })
	_, err = scan(all, next, "counts", dataflow.ReadCommitted)
	refused(t, err, dataflow.ReasonTokenInvalid)
	w.unpinned()
}

func TestPagesOfALiveTableGoOnWithTheNextKey(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	o := dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted}
	scan := func(token string) ([]string, string, dataflow.Cut, error) {
		rows, next, cut, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 2, Token: token}, o)
		if err != nil {
			return nil, "", cut, err
		}
		return text(rows), next, cut, nil
	}
	first, next, cut, err := scan("")
	if err != nil || strings.Join(first, " ") != "7|7|1|9 1|x|2|15" || !cut.Speculative {
		t.Fatalf("%v %v %v", first, cut, err)
	}
	w.add(g2("a", 1), 1) // before the place: not seen any more
	w.add(g2("x", 2), 1) // behind it: seen
	w.crash()
	_, _, _, err = scan(next)
	if e := refused(t, err, dataflow.ReasonPipelineRecovering); e.RetryAfter == 0 {
		t.Errorf("no RetryInfo: %v", e)
	}
	w.recover()
	w.add(g2("x", 2), 1)
	second, next, cut, err := scan(next)
	if err != nil || strings.Join(second, " ") != "2|x|2|2 NULL|y|1|3" || cut.Incarnation != 2 || w.leases() != 0 {
		t.Fatalf("%v %v %v", second, cut, err)
	}
	w.set(func(p *statequery.Pipeline) { p.State = dataflow.PipelineStopped })
	third, next, cut, err := scan(next) // of the newest cut now
	if err != nil || strings.Join(third, " ") != "7|NULL|1|4" || next != "" || cut.Speculative {
		t.Fatalf("%v %q %v %v", third, next, cut, err)
	}
	first, next, _, err = scan("")
	if err != nil || w.leases() != 1 {
		t.Fatalf("%v %d leases %v", first, w.leases(), err)
	}
	w.set(func(p *statequery.Pipeline) { p.State = dataflow.PipelineRunning })
	w.add(g2("x", 2), 100)
	second, _, cut, err = scan(next) // its first page was of a cut: so are the others
	if err != nil || strings.Join(second, " ") != "2|x|1|1 NULL|y|1|3" || cut.Speculative {
		t.Fatalf("%v %v %v", second, cut, err)
	}
	w.unpinned()
}

func TestALongPageEndsEarly(t *testing.T) {
	w := newWorld(t, 2)
	long := strings.Repeat("x", 3000)
	for i := range 2000 {
		w.add(g2(fmt.Sprintf("%04d%s", i, long), 1), 1)
	}
	w.commit()
	e := w.engine()
	rows, next, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 10_000}, dataflow.ReadOptions{})
	if err != nil || next == "" || rows.N < 100 || rows.N > 1000 {
		t.Fatalf("by bytes: %d rows, next %q, %v", rows.N, next, err)
	}
	hurried := w.engine(func(c *statequery.Config) { c.MaxTime = time.Nanosecond })
	seen := 0
	for token := ""; ; token = next {
		rows, next, _, err = hurried.Scan(t.Context(), pipelineName, "uneven", dataflow.ScanRange{}, dataflow.Page{Limit: 1200, Token: token}, dataflow.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if seen += rows.N; next == "" {
			break
		}
	}
	if seen != 2000 {
		t.Errorf("pages that end by time have %d of 2000 rows", seen)
	}
	w.unpinned()
}

func TestAPageOfHiddenRowsHasANextPage(t *testing.T) {
	w := newWorld(t, 2)
	for i := range 3000 { // every group has two rows, and so is hidden from uneven
		w.add(g2(fmt.Sprintf("%04d", i/2), 1), 1)
	}
	w.add(g2("zz", 1), 1)
	w.commit()
	hurried := w.engine(func(c *statequery.Config) { c.MaxTime = time.Nanosecond })
	rows, next, _, err := hurried.Scan(t.Context(), pipelineName, "uneven", dataflow.ScanRange{}, dataflow.Page{}, dataflow.ReadOptions{})
	if err != nil || rows.N != 0 || next == "" {
		t.Fatalf("%d rows, next %q, %v", rows.N, next, err)
	}
	rows, next, _, err = w.engine().Scan(t.Context(), pipelineName, "uneven", dataflow.ScanRange{}, dataflow.Page{Token: next}, dataflow.ReadOptions{})
	if err != nil || strings.Join(text(rows), " ") != "zz|1|1" || next != "" {
		t.Fatalf("%v, next %q, %v", text(rows), next, err)
	}
	w.unpinned()
}

func TestBadLimitsAreRefusedAndLargeOnesClamped(t *testing.T) {
	e := seeded(t).engine()
	_, _, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: -1}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonRequestInvalid)
	_, _, _, err = e.Query(t.Context(), "SELECT * FROM p.counts", dataflow.Page{Limit: -1}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonRequestInvalid)
	rows, _, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 1 << 30}, dataflow.ReadOptions{})
	if err != nil || rows.N != 5 {
		t.Errorf("%d rows, %v", rows.N, err)
	}
}

func TestAFailureOfTheStoreReachesTheCallerAndLeaksNothing(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	broken := dataflow.Errorf(dataflow.ReasonCorrupt, "a block does not match its checksum")
	w.mu.fail = broken
	for name, read := range map[string]func(ctx context.Context) error{
		"get": func(ctx context.Context) error {
			_, _, err := e.Get(ctx, pipelineName, "counts", dataflow.Row{lit("x"), lit("1")}, dataflow.ReadOptions{})
			return err
		},
		"scan": func(ctx context.Context) error {
			_, _, _, err := e.Scan(ctx, pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{}, dataflow.ReadOptions{})
			return err
		},
		"query": func(ctx context.Context) error {
			_, _, _, err := e.Query(ctx, "SELECT count(*) FROM p.counts", dataflow.Page{}, dataflow.ReadOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, read(t.Context()), dataflow.ReasonCorrupt)
			w.unpinned()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			w.mu.fail = nil
			if err := read(ctx); err == nil && name != "get" {
				t.Error("an ended context has an answer")
			}
			w.unpinned()
			w.mu.fail = broken
		})
	}
}

func TestAnIteratorThatFailsInTheMiddleFailsTheScan(t *testing.T) {
	w := newWorld(t, 2)
	for i := range 3000 {
		w.add(g2(fmt.Sprintf("%04d", i), 1), 1)
	}
	w.commit()
	failing := failingStore{world: w, after: 500}
	e := w.engine(func(c *statequery.Config) { c.Store = &failing })
	_, _, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 5000}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonCorrupt)
	if !errors.Is(err, errDamaged) {
		t.Errorf("got %v", err)
	}
	w.unpinned()
}

var errDamaged = dataflow.Errorf(dataflow.ReasonCorrupt, "damaged")

// failingStore has iterators that fail after some entries.
type failingStore struct {
	*world
	after int
}

func (s *failingStore) View(ctx context.Context, shard dataflow.ShardID, uid dataflow.PipelineUID, cut dataflow.CheckpointID) (statequery.View, error) {
	v, err := s.world.View(ctx, shard, uid, cut)
	return failingView{v, s}, err
}

type failingView struct {
	statequery.View
	s *failingStore
}

func (v failingView) Iter(stage dataflow.StageID, lo, hi []byte) statequery.Iter {
	return &failingIter{Iter: v.View.Iter(stage, lo, hi), left: v.s.after}
}

type failingIter struct {
	statequery.Iter
	left int
}

func (it *failingIter) Next() bool {
	it.left--
	return it.left >= 0 && it.Iter.Next()
}

func (it *failingIter) Close() error {
	err := it.Iter.Close()
	if it.left < 0 {
		return errDamaged
	}
	return err
}
