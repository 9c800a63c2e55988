package statequery_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
	"github.com/weirdb/weir/statequery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const program = `
CREATE STREAM s (a TEXT, b BIGINT, v BIGINT);
CREATE MATERIALIZED VIEW counts AS SELECT b, a, count(*) AS n, sum(v) AS total FROM s GROUP BY a, b;
CREATE MATERIALIZED VIEW uneven AS SELECT a, b, count(*) AS n FROM s GROUP BY a, b HAVING count(*) % 2 = 1;
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(v) AS total FROM s;
CREATE MATERIALIZED VIEW large AS SELECT n FROM total WHERE n > 5;
`

const (
	pipelineName = "p"
	stream       = dataflow.StreamID(1)
)

var group = dataflow.GroupID{7}

// world is everything that an engine reads, in memory: one pipeline of program over one stream. Its rows arrive through
// add, in tables at once; commit makes a cut. All methods lock.
type world struct {
	t      testing.TB
	shards int
	tables map[string]*statequery.Table
	stages map[string]*plan.Stage

	mu struct {
		sync.Mutex
		pipeline  statequery.Pipeline
		cuts      map[dataflow.CheckpointID]*tables // of all cuts ever
		live      *tables                           // nil = no incarnation runs
		ends      dataflow.Positions
		times     map[dataflow.StreamShard][]int64
		now       int64
		leases    map[string]lease
		nextLease int
		changed   chan struct{}
		pinned    int                  // views and iterators that are open
		retained  int                  // cuts kept without a lease
		fail      error                // what views and iterators fail with, when set
		expireNow bool                 // views find every cut expired
		unheard   *statequery.Pipeline // what the pipeline is, as other nodes know
		cutOff    error                // what catching up ends with
	}
}

type lease struct {
	cut dataflow.CheckpointID
	end int64
}

// tables is the state of all tables: what views and live incarnations hold.
type tables struct {
	values map[string]map[string][]byte // by table, then key
	model  map[group2]sums
	rows   dataflow.Offset
	pos    dataflow.Positions
}

// group2 and sums are the model: what SQL says the tables are.
type group2 struct {
	a   string
	b   int64
	aOK bool
	bOK bool
}

type sums struct{ n, v int64 }

func (t *tables) clone() *tables {
	c := &tables{values: make(map[string]map[string][]byte), model: maps.Clone(t.model), rows: t.rows, pos: t.pos.Clone()}
	for name, m := range t.values {
		c.values[name] = maps.Clone(m)
	}
	return c
}

func newWorld(t testing.TB, shards int) *world {
	t.Helper()
	file, err := sql.Parse(program)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Build(file, plan.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, shards: shards, tables: make(map[string]*statequery.Table), stages: make(map[string]*plan.Stage)}
	empty := &tables{values: make(map[string]map[string][]byte), model: make(map[group2]sums), pos: make(dataflow.Positions)}
	for _, st := range p.Tables() {
		w.tables[st.Name], w.stages[st.Name] = statequery.NewTable(p, st), st
		empty.values[st.Name] = make(map[string][]byte)
	}
	w.mu.cuts = map[dataflow.CheckpointID]*tables{0: empty.clone()}
	w.mu.live = empty
	w.mu.ends = make(dataflow.Positions)
	w.mu.times = make(map[dataflow.StreamShard][]int64)
	w.mu.leases = make(map[string]lease)
	w.mu.changed = make(chan struct{})
	w.mu.now, w.mu.retained = 1_000_000, 2
	w.mu.pipeline = statequery.Pipeline{
		Name: pipelineName, UID: 5, State: dataflow.PipelineRunning, Timeline: 1, Incarnation: 1, Reads: []dataflow.StreamID{stream},
		Cuts: []*dataflow.CheckpointCommit{{Pipeline: 5, Timeline: 1, Incarnation: 1, CommittedAt: 1_000_000, Guarantee: dataflow.GuaranteeExactlyOnce}},
	}
	return w
}

func (w *world) engine(change ...func(*statequery.Config)) *statequery.Engine {
	cfg := statequery.Config{Node: "n1", Group: group, Shards: w.shards, Catalog: w, Store: w, Streams: w, Leases: w, Now: w.now}
	for _, f := range change {
		f(&cfg)
	}
	return statequery.New(cfg)
}

func (w *world) now() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.now
}

// announceLocked puts p in the catalog.
func (w *world) announceLocked(p statequery.Pipeline) {
	w.mu.pipeline = p
	close(w.mu.changed)
	w.mu.changed = make(chan struct{})
}

// set changes the pipeline.
func (w *world) set(f func(p *statequery.Pipeline)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.mu.pipeline
	f(&p)
	w.announceLocked(p)
}

// append acknowledges a row of a shard that no task has read.
func (w *world) append(shard dataflow.ShardID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appendLocked(shard)
}

func (w *world) appendLocked(shard dataflow.ShardID) {
	k := dataflow.StreamShard{Stream: stream, Shard: shard}
	w.mu.ends[k]++
	w.mu.times[k] = append(w.mu.times[k], w.mu.now)
}

// add acknowledges a row and lets the tasks take it.
func (w *world) add(g group2, v int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shard := dataflow.ShardID(w.mu.live.rows % dataflow.Offset(w.shards))
	w.appendLocked(shard)
	t := w.mu.live
	t.pos[dataflow.StreamShard{Stream: stream, Shard: shard}]++
	t.rows++
	s := t.model[g]
	s.n, s.v = s.n+1, s.v+v
	t.model[g] = s
	val := dataflow.BigInt(v)
	for _, name := range []string{"counts", "uneven"} {
		w.fold(t, name, dataflow.Row{g.aValue(), g.bValue()}, val)
	}
	w.fold(t, "total", nil, val)
	if t.rows > 5 { // the row of a view over total is replaced
		delete(t.values["large"], "")
		w.fold(t, "large", nil, dataflow.BigInt(int64(t.rows)))
	}
}

func (g group2) aValue() dataflow.Value {
	if !g.aOK {
		return dataflow.NullValue(dataflow.TypeText)
	}
	return dataflow.Text(g.a)
}

func (g group2) bValue() dataflow.Value {
	if !g.bOK {
		return dataflow.NullValue(dataflow.TypeBigInt)
	}
	return dataflow.BigInt(g.b)
}

// fold updates a key's accumulator with one row, whose aggregates' argument is arg.
func (w *world) fold(t *tables, table string, k dataflow.Row, arg dataflow.Value) {
	st := w.stages[table]
	layout := agg.NewLayout(st.Aggs)
	at := string(key.AppendRow(nil, k))
	acc := bytes.Clone(t.values[table][at])
	if acc == nil {
		acc = layout.New(nil)
	}
	b := &batch.Batch{N: 1}
	for range len(st.Key) + 1 {
		v := batch.NewVector(dataflow.TypeBigInt, 1)
		v.AppendValue(arg)
		b.Cols = append(b.Cols, v)
	}
	acc, err := layout.Update(acc, b, 0, 1)
	if err != nil {
		w.t.Fatal(err)
	}
	t.values[table][at] = acc
}

// commit makes a cut of the live tables and drops cuts that nothing keeps.
func (w *world) commit() dataflow.CheckpointID {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.mu.pipeline
	last := p.Newest()
	c := &dataflow.CheckpointCommit{Pipeline: p.UID, Timeline: p.Timeline, Incarnation: p.Incarnation, ID: last.ID + 1, Guarantee: last.Guarantee,
		TriggeredAt: w.mu.now, CommittedAt: w.mu.now, Positions: w.mu.live.pos.Clone()}
	w.mu.cuts[c.ID] = w.mu.live.clone()
	p.Cuts = append(slices.Clip(p.Cuts), c)
	w.releaseLocked(&p)
	w.announceLocked(p)
	return c.ID
}

func (w *world) releaseLocked(p *statequery.Pipeline) {
	maps.DeleteFunc(w.mu.leases, func(_ string, l lease) bool { return l.end <= w.mu.now })
	var kept []*dataflow.CheckpointCommit
	for i, c := range p.Cuts {
		leased := false
		for _, l := range w.mu.leases {
			leased = leased || l.cut == c.ID
		}
		if i >= len(p.Cuts)-w.mu.retained || leased {
			kept = append(kept, c)
		}
	}
	p.Cuts = kept
}

// pass lets time go by: leases end.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.now += d.Microseconds()
	p := w.mu.pipeline
	w.releaseLocked(&p)
	w.announceLocked(p)
}

// crash ends the incarnation; recover begins the next from the newest cut.
func (w *world) crash() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.live = nil
	p := w.mu.pipeline
	p.State = dataflow.PipelineRecovering
	p.Incarnation++
	w.announceLocked(p)
}

func (w *world) recover() {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.mu.pipeline
	w.mu.live = w.mu.cuts[p.Newest().ID].clone()
	for k := range w.mu.ends { // the rows after the cut are forgotten, as if they had never been
		w.mu.ends[k] = w.mu.live.pos[k]
		w.mu.times[k] = w.mu.times[k][:w.mu.ends[k]]
	}
	p.State = dataflow.PipelineRunning
	w.announceLocked(p)
}

// unpinned fails the test when a view or an iterator is still open.
func (w *world) unpinned() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.pinned != 0 {
		w.t.Fatalf("%d views and iterators are open", w.mu.pinned)
	}
}

// model returns what the tables of a cut are; of the live tables when live is set.
func (w *world) model(id dataflow.CheckpointID, live bool) (map[group2]sums, dataflow.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.mu.live
	if !live {
		t = w.mu.cuts[id]
	}
	return maps.Clone(t.model), t.rows
}

// text prints the rows of an answer, one string each: x|NULL|3.
func text(b *batch.Batch) []string {
	var out []string
	for i := range b.N {
		out = append(out, rowText(b.Row(i)))
	}
	return out
}

func rowText(row dataflow.Row) string {
	var out []byte
	for i, v := range row {
		if i > 0 {
			out = append(out, '|')
		}
		if v.Null {
			out = append(out, "NULL"...)
		} else {
			out = append(out, expr.FormatValue(v)...)
		}
	}
	return string(out)
}

// refused fails the test unless err has the reason.
func refused(t testing.TB, err error, want dataflow.Reason) *dataflow.Error {
	t.Helper()
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Fatalf("got %v (%s), want %s", err, dataflow.ReasonOf(err), want)
	}
	return e
}

func g2(a string, b int64) group2 { return group2{a: a, b: b, aOK: true, bOK: true} }

func (g group2) String() string {
	return fmt.Sprintf("(%s)", rowText(dataflow.Row{g.aValue(), g.bValue()}))
}
