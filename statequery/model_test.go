package statequery_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

// TestReadsAgreeWithAModel makes random reads of both isolations, pages among them, between random rows, commits, crashes,
// stops and lapses of time, and compares each answer with what SQL says the tables are at its cut.
func TestReadsAgreeWithAModel(t *testing.T) {
	for i := range uint64(30) {
		seed := 1000 + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := &readers{t: t, rng: rand.New(rand.NewPCG(seed, 0)), w: newWorld(t, 1+int(seed%5))}
			r.e = r.w.engine()
			for range 400 {
				r.step()
				r.w.unpinned()
			}
		})
	}
}

// readers is one run of the test.
type readers struct {
	t     *testing.T
	rng   *rand.Rand
	w     *world
	e     *statequery.Engine
	scans []*pages // under way
}

// pages is a scan under way, page by page.
type pages struct {
	table string
	r     dataflow.ScanRange
	limit int
	token string
	cut   dataflow.CheckpointID
	got   []string
}

func (r *readers) step() {
	switch r.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		for range 1 + r.rng.IntN(5) {
			if r.w.Live(0) != nil {
				r.w.add(r.group(), int64(r.rng.IntN(100)))
			}
		}
	case 6, 7, 8:
		if r.w.Live(0) != nil {
			r.w.commit()
		}
	case 9:
		if r.w.Live(0) != nil {
			r.w.crash()
		} else {
			r.w.recover()
		}
	case 10:
		r.w.pass(time.Duration(r.rng.IntN(60)) * time.Second)
	case 11, 12:
		r.get(r.rng.IntN(2) == 0)
	case 13:
		r.query()
	case 14:
		r.liveScan()
	default:
		r.page()
	}
}

// group draws a key of few, so that groups meet: NULLs, the empty text and prefixes of each other among them.
func (r *readers) group() group2 {
	g := group2{a: []string{"", "a", "ab", "abc", "b", "é", "\x01", "z"}[r.rng.IntN(8)], b: int64(r.rng.IntN(6) - 3)}
	g.aOK, g.bOK = r.rng.IntN(8) > 0, r.rng.IntN(8) > 0
	if !g.aOK {
		g.a = ""
	}
	if !g.bOK {
		g.b = 0
	}
	return g
}

// compare2 is the order of keys: NULLs last.
func compare2(x, y group2) int {
	null := func(ok bool) int {
		if ok {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(null(x.aOK), null(y.aOK)), strings.Compare(x.a, y.a), cmp.Compare(null(x.bOK), null(y.bOK)), cmp.Compare(x.b, y.b))
}

// shown returns the visible row of a group as SELECT says; "" when there is none.
func shown(table string, g group2, s sums) string {
	if s.n == 0 || table == "uneven" && s.n%2 == 0 {
		return ""
	}
	if table == "uneven" {
		return rowText(dataflow.Row{g.aValue(), g.bValue(), dataflow.BigInt(s.n)})
	}
	return rowText(dataflow.Row{g.bValue(), g.aValue(), dataflow.BigInt(s.n), dataflow.BigInt(s.v)})
}

// selected returns the visible rows of a range in key order.
func selected(table string, model map[group2]sums, sr dataflow.ScanRange) []string {
	var out []string
	for _, g := range slices.SortedFunc(maps.Keys(model), compare2) {
		if row := shown(table, g, model[g]); row != "" && matches(g, sr) {
			out = append(out, row)
		}
	}
	return out
}

func matches(g group2, sr dataflow.ScanRange) bool {
	next := g.aValue()
	if len(sr.Equal) > 0 {
		if sr.Equal[0].Null == g.aOK || g.aOK && sr.Equal[0].Str != g.a {
			return false
		}
		next = g.bValue()
	}
	at := func(v *dataflow.Value) int { // of next, compared with v
		switch {
		case next.Null:
			return 1
		case next.Type == dataflow.TypeText:
			return strings.Compare(next.Str, v.Str)
		}
		return cmp.Compare(next.Int, v.Int)
	}
	return (sr.Prefix == "" || !next.Null && strings.HasPrefix(next.Str, sr.Prefix)) &&
		(sr.From == nil || at(sr.From) >= 0) && (sr.To == nil || at(sr.To) < 0)
}

func (r *readers) scanRange() dataflow.ScanRange {
	var sr dataflow.ScanRange
	bound := func() *dataflow.Value { v := dataflow.Text(r.group().a); return &v }
	if r.rng.IntN(3) == 0 {
		sr.Equal = dataflow.Row{r.group().aValue()}
		bound = func() *dataflow.Value { v := dataflow.BigInt(int64(r.rng.IntN(8) - 4)); return &v }
	} else if r.rng.IntN(3) == 0 {
		sr.Prefix = []string{"a", "ab", "z", "é"}[r.rng.IntN(4)]
	}
	if r.rng.IntN(3) == 0 {
		sr.From = bound()
	}
	if sr.From == nil && r.rng.IntN(3) == 0 { // both may contradict each other
		sr.To = bound()
	}
	return sr
}

func (r *readers) table() string { return []string{"counts", "uneven"}[r.rng.IntN(2)] }

// recovering reports whether a live read was rightly refused.
func (r *readers) recovering(err error) bool {
	if r.w.Live(0) != nil {
		return false
	}
	refused(r.t, err, dataflow.ReasonPipelineRecovering)
	return true
}

// get looks up keys at a cut, or live.
func (r *readers) get(live bool) {
	o, table := dataflow.ReadOptions{}, r.table()
	if live {
		o.Isolation = dataflow.ReadUncommitted
	}
	var groups []group2
	var keys []dataflow.Row
	for range 1 + r.rng.IntN(4) {
		g := r.group()
		groups, keys = append(groups, g), append(keys, dataflow.Row{g.aValue(), g.bValue()})
	}
	rows, found, cut, err := r.e.BatchGet(r.t.Context(), pipelineName, table, keys, o)
	if live && r.recovering(err) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	model, total := r.w.model(cut.Checkpoint, live)
	var want []string
	for i, g := range groups {
		row := shown(table, g, model[g])
		if found[i] != (row != "") {
			r.t.Fatalf("%s %s: found %v, want %q", table, g, found[i], row)
		}
		if row != "" {
			want = append(want, row)
		}
	}
	r.equal(table+" keys", text(rows), want)
	r.covers(cut, total)
}

// covers checks that the positions of a cut are those of so many rows.
func (r *readers) covers(cut dataflow.Cut, total dataflow.Offset) {
	r.t.Helper()
	var n dataflow.Offset
	for _, at := range cut.Positions {
		n += at
	}
	if n != total {
		r.t.Fatalf("the cut's positions are %s, its tables have %d rows", cut.Positions, total)
	}
}

func (r *readers) equal(what string, got, want []string) {
	r.t.Helper()
	if !slices.Equal(got, want) {
		r.t.Fatalf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// liveScan scans a live table in pages, between which nothing happens.
func (r *readers) liveScan() {
	p := pages{table: r.table(), r: r.scanRange(), limit: r.rng.IntN(5)}
	for {
		rows, next, _, err := r.e.Scan(r.t.Context(), pipelineName, p.table, p.r, dataflow.Page{Limit: p.limit, Token: p.token}, dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted})
		if r.recovering(err) {
			return
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if p.got, p.token = append(p.got, text(rows)...), next; next == "" {
			break
		}
	}
	model, _ := r.w.model(0, true)
	r.equal("live scan", p.got, selected(p.table, model, p.r))
}

// page reads the next page of a scan under way, or the first of a new one.
func (r *readers) page() {
	var p *pages
	if len(r.scans) > 0 && r.rng.IntN(3) > 0 {
		p = r.scans[r.rng.IntN(len(r.scans))]
	} else {
		p = &pages{table: r.table(), r: r.scanRange()}
	}
	p.limit = 1 + r.rng.IntN(6)
	rows, next, cut, err := r.e.Scan(r.t.Context(), pipelineName, p.table, p.r, dataflow.Page{Limit: p.limit, Token: p.token}, dataflow.ReadOptions{})
	if p.token != "" && dataflow.ReasonOf(err) == dataflow.ReasonCheckpointExpired {
		if _, there := r.w.Cut(&statequery.Pipeline{}, p.cut); there == nil {
			r.t.Fatalf("the scan's cut %d is kept: %v", p.cut, err)
		}
		r.drop(p)
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	if p.token == "" {
		p.cut = cut.Checkpoint
		r.scans = append(r.scans, p)
	}
	if cut.Checkpoint != p.cut || cut.Speculative {
		r.t.Fatalf("a page of cut %d answers from %d", p.cut, cut.Checkpoint)
	}
	p.got, p.token = append(p.got, text(rows)...), next
	if next == "" {
		model, total := r.w.model(p.cut, false)
		r.equal(fmt.Sprintf("scan of %s %+v at cut %d", p.table, p.r, p.cut), p.got, selected(p.table, model, p.r))
		r.covers(cut, total)
		r.drop(p)
	}
}

func (r *readers) drop(p *pages) {
	r.scans = slices.DeleteFunc(r.scans, func(o *pages) bool { return o == p })
}

// query runs aggregates over a part of a table.
func (r *readers) query() {
	prefix := []string{"", "a", "ab", "z"}[r.rng.IntN(4)]
	iso := dataflow.Isolation(r.rng.IntN(2))
	rows, _, cut, err := r.e.Query(r.t.Context(), fmt.Sprintf("SELECT a, sum(n) AS n, count(*) AS groups FROM p.counts WHERE a LIKE '%s%%' GROUP BY a ORDER BY a", prefix),
		dataflow.Page{}, dataflow.ReadOptions{Isolation: iso})
	live := iso == dataflow.ReadUncommitted
	if live && r.recovering(err) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	model, _ := r.w.model(cut.Checkpoint, live)
	n, groups := make(map[string]int64), make(map[string]int64)
	for g, s := range model {
		if g.aOK && strings.HasPrefix(g.a, prefix) {
			n[g.a] += s.n
			groups[g.a]++
		}
	}
	var want []string
	for _, a := range slices.Sorted(maps.Keys(n)) {
		want = append(want, fmt.Sprintf("%s|%d|%d", a, n[a], groups[a]))
	}
	r.equal("query", text(rows), want)
}
