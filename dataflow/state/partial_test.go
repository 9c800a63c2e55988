package state

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// partialModel drives a table whose keys begin as partials, and the replica that has what it does not hold, as a task and a
// worker do.
type partialModel struct {
	t     *testing.T
	rng   *rand.Rand
	shape Shape
	r     *Replica
	keys  []string

	table   *Table
	budget  *Budget
	inc     dataflow.Incarnation
	seq     dataflow.DeltaSeq
	next    dataflow.CheckpointID
	base    dataflow.CheckpointID
	ref     dataflow.DeltaRef
	now     map[string]string
	cut     map[string]string // at base
	sets    []*partialSet     // frozen, oldest first
	ready   []*partialSet     // in the replica, not committed
	fill    []Entry           // what is still to be filled in
	passing bool              // memory was short: the table remembers only which keys there are

	resolved, filled, rows, asked int // how often a partial was met on each of its ways
	succeeded                     int // how often an incarnation has taken the table of the one before
}

type partialSet struct {
	id     dataflow.CheckpointID
	f      *Frozen
	whole  bool
	delta  []change
	want   map[string]string
	ref    dataflow.DeltaRef
	digest uint64
}

const partialPipeline, partialStage = dataflow.PipelineUID(1), dataflow.StageID(2)

// mergeOf returns a merge whose result does not depend on how what is merged was cut: sums of bytes, or sorted letters.
func mergeOf(shape Shape) Merge {
	return func(val, partial []byte) ([]byte, error) {
		if shape.ValBytes == 0 {
			val = append(val, partial...)
			slices.Sort(val)
			return val, nil
		}
		for i, b := range partial {
			val[i] += b
		}
		return val, nil
	}
}

func newPartialModel(t *testing.T, shape Shape, seed uint64) *partialModel {
	m := &partialModel{t: t, rng: rand.New(rand.NewPCG(seed, 3)), shape: shape, keys: newTableModel(t, shape, seed, 1500).keys,
		now: map[string]string{}, cut: map[string]string{}}
	m.r = openTest(t, vfs.NewCrashableMem())
	t.Cleanup(func() { closeTest(t, m.r) })
	if err := m.r.Publish(commitOf(partialPipeline, 0, dataflow.DeltaRef{Incarnation: 1}, 0)); err != nil {
		t.Fatal(err)
	}
	m.begin()
	t.Cleanup(func() {
		m.end()
		if m.table.Close(); m.budget.Used() != 0 {
			t.Errorf("closed tables take %d bytes", m.budget.Used())
		}
	})
	return m
}

// begin starts an incarnation from the newest cut.
func (m *partialModel) begin() {
	m.inc++
	if err := m.r.BeginIncarnation(0, partialPipeline, m.inc, m.ref); err != nil {
		m.t.Fatal(err)
	}
	limit := int64(40 << 10)
	if m.shape.ValBytes == 0 {
		limit = 128 << 10
	}
	m.seq, m.now, m.sets, m.ready, m.fill, m.passing = 0, maps.Clone(m.cut), nil, nil, nil, false
	if m.table != nil {
		if next := m.table.Succeed(m.base, m.rng.IntN(2) == 0); next != nil {
			if m.table, m.succeeded = next, m.succeeded+1; next.Filled() {
				return
			}
		}
	}
	if m.table == nil || m.table.mu.closed {
		m.budget = NewBudget(limit)
		m.table = NewTable(m.shape, m.budget)
		m.table.BeginAsPartials(mergeOf(m.shape))
		m.table.Committed(m.base)
	}
	m.table.BeginFill()
	v := mustView(m.t, m.r, partialPipeline, m.base)
	defer v.Release()
	if err := v.Each(partialStage, func(key, val []byte) bool {
		m.fill = append(m.fill, Entry{Key: bytes.Clone(key), Val: clone(val)})
		return true
	}); err != nil {
		m.t.Fatal(err)
	}
	if len(m.fill) == 0 {
		m.table.EndFill(true)
	}
}

func (m *partialModel) end() {
	if err := m.table.EndResolve(); err != nil {
		m.t.Fatal(err)
	}
	m.table.EndFill(false)
}

func (m *partialModel) view(cut dataflow.CheckpointID) (*View, error) {
	return m.r.View(partialPipeline, cut)
}

// baseOf returns what a cut has of a key; nil = nothing.
func (m *partialModel) baseOf(cut dataflow.CheckpointID, key []byte) []byte {
	v := mustView(m.t, m.r, partialPipeline, cut)
	defer v.Release()
	val, found, err := v.Get(partialStage, key, []byte{})
	if err != nil {
		m.t.Fatal(err)
	}
	if !found {
		return nil
	}
	return val
}

func (m *partialModel) value() []byte {
	n := m.shape.ValBytes
	if n == 0 {
		n = 1 + m.rng.IntN(3)
	}
	return bytes.Repeat([]byte{byte('a' + m.rng.IntN(26))}, n)
}

func (m *partialModel) key() string { return m.keys[m.rng.IntN(len(m.keys))] }

func (m *partialModel) batch() {
	m.table.Relieve()
	keys := make([]string, 1+m.rng.IntN(30))
	hashes := make([]uint64, len(keys))
	for i := range keys {
		keys[i] = m.key()
		if m.rng.IntN(3) == 0 {
			keys[i] = m.keys[m.rng.IntN(1+len(m.keys)/10)]
		}
		hashes[i] = dataflow.HashKey([]byte(keys[i]))
	}
	m.table.Lock()
	missing := m.table.Missing(nil, hashes, func(i int) []byte { return []byte(keys[i]) })
	m.table.Unlock()
	for _, i := range missing {
		m.rows++
		if err := m.table.Resolved(hashes[i], []byte(keys[i]), m.baseOf(m.table.Base(), []byte(keys[i]))); err != nil {
			m.t.Fatal(err)
		}
	}
	merge := mergeOf(m.shape)
	m.table.Lock()
	defer m.table.Unlock()
	for i, k := range keys {
		add := m.value()
		s := m.table.Change(hashes[i], []byte(k))
		val := s.Value()
		if val == nil {
			s.Create(len(add))
			s.Set(add)
		} else {
			val, _ = merge(bytes.Clone(val), add)
			s.Set(val)
		}
		if old, there := m.now[k]; there {
			add, _ = merge([]byte(old), add)
		}
		m.now[k] = string(add)
	}
}

func (m *partialModel) freeze() {
	m.next++
	m.sets = append(m.sets, &partialSet{id: m.next, f: m.table.Freeze(m.next), want: maps.Clone(m.now)})
}

// gather makes a step with the oldest freeze.
func (m *partialModel) gather(most int) {
	if len(m.sets) == 0 {
		return
	}
	o := m.sets[0]
	if !o.whole {
		before := m.table.mu.partials
		done, err := m.table.Resolve(o.f, partialStage, most, m.view)
		if err != nil {
			m.t.Fatal(err)
		}
		m.resolved += before - m.table.mu.partials
		o.whole = done
		return
	}
	if !m.table.Gather(o.f, most, func(key, val []byte) {
		o.delta = append(o.delta, change{partialStage, string(key), clone(val)})
	}) {
		return
	}
	m.sets = m.sets[1:]
	if len(o.delta) > 0 {
		m.seq++
		o.digest = feed(m.t, m.r, dataflow.DeltaID{Pipeline: partialPipeline, Incarnation: m.inc, Seq: m.seq}, o.delta)
	} else if len(m.ready) > 0 {
		o.digest = m.ready[len(m.ready)-1].digest
	}
	o.ref = dataflow.DeltaRef{Incarnation: m.inc, Seq: m.seq}
	m.ready = append(m.ready, o)
}

// commit commits one of the cuts that the replica has; the attempts below it were given up.
func (m *partialModel) commit() {
	if len(m.ready) == 0 {
		return
	}
	n := m.rng.IntN(len(m.ready))
	o := m.ready[n]
	if o.ref.Seq == 0 {
		return
	}
	for i := n; i >= 0 && o.digest == 0; i-- {
		o.digest = m.ready[i].digest
	}
	if o.digest == 0 {
		return // nothing has changed since the cut before
	}
	m.ready = m.ready[n+1:]
	if err := m.r.Publish(commitOf(partialPipeline, o.id, o.ref, o.digest)); err != nil {
		m.t.Fatal(err)
	}
	v := mustView(m.t, m.r, partialPipeline, o.id)
	defer v.Release()
	got := map[string]string{}
	it := v.Iter(partialStage, nil, nil)
	for it.Next() {
		got[string(it.Key())] = string(it.Value())
	}
	if err := it.Close(); err != nil {
		m.t.Fatal(err)
	}
	if !maps.Equal(got, o.want) {
		m.t.Fatalf("cut %d has %d keys that are not those of its freeze, which had %d", o.id, len(got), len(o.want))
	}
	m.base, m.ref, m.cut = o.id, o.ref, o.want
	if m.rng.IntN(3) == 0 {
		if _, err := m.r.Merge(m.t.Context(), partialPipeline, o.id); err != nil {
			m.t.Fatal(err)
		}
	}
	m.table.Committed(o.id)
}

func (m *partialModel) fillOn() {
	n := min(len(m.fill), 1+m.rng.IntN(60))
	if n == 0 {
		return
	}
	before := m.table.mu.partials
	entries := m.fill[:n]
	m.fill = m.fill[n:]
	if m.passing = m.passing || !m.table.Fill(entries); m.passing {
		remember(m.table, entries, len(m.fill) == 0)
	}
	m.filled += before - m.table.mu.partials
	if len(m.fill) == 0 {
		m.table.EndFill(!m.passing)
	}
}

// check compares what a reader of the newest values makes of the table and the cut with the model.
func (m *partialModel) check() {
	for range 5 {
		key := []byte(m.key())
		want, there := m.now[string(key)]
		val, a, cut := m.table.Get(key, nil)
		switch a {
		case Partial:
			m.asked++
			var err error
			if val, err = m.table.Whole(val, m.baseOf(cut, key)); err != nil {
				m.t.Fatal(err)
			}
		case InBase:
			val = m.baseOf(cut, key)
		}
		if (a != Absent && val != nil) != there || string(val) != want {
			m.t.Fatalf("get %q = %.20q, %v, want %.20q", key, val, a, want)
		}
		if got, a := m.table.AppendCommitted(m.base, key, []byte("+")); a == Partial || a == Found && string(got) != "+"+m.cut[string(key)] {
			m.t.Fatalf("%q in cut %d = %.20q, %v, want %.20q", key, m.base, got, a, m.cut[string(key)])
		}
	}
	var l dataflow.Lookups
	l.Begin(1 << 30)
	for range 1 + m.rng.IntN(40) {
		key := []byte(m.key())
		l.Add(dataflow.HashKey(key), key)
	}
	if m.rng.IntN(2) == 0 {
		m.table.GetAll(&l)
		l.Again()
	}
	cut, _ := m.table.GetAll(&l)
	v := mustView(m.t, m.r, partialPipeline, cut)
	defer v.Release()
	if err := v.GetAll(partialStage, &l); err != nil || l.Err() != nil {
		m.t.Fatal(err, l.Err())
	}
	for i := range int32(l.Len()) {
		val, found := l.Value(i)
		if want, there := m.now[string(l.Key(i))]; found != there || string(val) != want {
			m.t.Fatalf("get %q with others = %.20q, %v, want %.20q", l.Key(i), val, found, want)
		}
	}
	whole := func(e Entry) string {
		val := e.Val
		if e.Partial {
			val, _ = m.table.Whole(bytes.Clone(e.Val), m.baseOf(e.Base, e.Key))
		}
		return string(val)
	}
	m.table.Fresh(func(e Entry) bool {
		e.Val = clone(e.Val)
		if got := whole(e); got != m.now[string(e.Key)] {
			m.t.Fatalf("%q has changed to %.20q, want %.20q", e.Key, got, m.now[string(e.Key)])
		}
		return true
	})
	entries, _ := m.table.Scan(nil, nil, 0)
	for _, e := range entries {
		if got := whole(e); e.Val != nil && got != m.now[string(e.Key)] {
			m.t.Fatalf("a scan finds %q = %.20q, want %.20q", e.Key, got, m.now[string(e.Key)])
		}
	}
}

// TestPartialsGiveTheSumsThatLookUpsGive drives tables that are too small for their keys, through freezes that overlap, commits,
// attempts that are given up, folds into the store, fills and recoveries, and compares every cut and every read with a model.
func TestPartialsGiveTheSumsThatLookUpsGive(t *testing.T) {
	t.Parallel()
	for i, shape := range tableShapes {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("shape=%d/seed=%d", i, seed), func(t *testing.T) {
				t.Parallel()
				m := newPartialModel(t, shape, seed)
				for range 2500 {
					switch op := m.rng.IntN(1000); {
					case op < 400:
						m.batch()
					case op < 450:
						if len(m.sets) < 4 {
							m.freeze()
						}
					case op < 700:
						m.gather(1 + m.rng.IntN(700))
					case op < 800:
						m.commit()
					case op < 850:
						m.fillOn()
					case op < 997:
						if op%4 == 0 {
							m.check()
						}
					default: // the dataflow begins anew, here or where its tables are not
						m.end()
						if m.rng.IntN(2) == 0 {
							m.table.Close()
						}
						m.begin()
					}
				}
				if m.resolved == 0 || m.filled == 0 || m.rows == 0 || m.asked == 0 || m.succeeded == 0 {
					t.Errorf("partials made whole at freezes: %d, by fills: %d, for rows: %d, for reads: %d; tables taken over: %d", m.resolved, m.filled, m.rows, m.asked, m.succeeded)
				}
			})
		}
	}
}

// TestAPartialThatCannotBeMergedIsAnErrorThatNamesTheKey has a base that the merge refuses.
func TestAPartialThatCannotBeMergedIsAnErrorThatNamesTheKey(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	digest := feed(t, r, dataflow.DeltaID{Pipeline: 1, Incarnation: 1, Seq: 1}, []change{{0, "k", []byte("bad")}})
	if err := r.Publish(commitOf(1, 1, dataflow.DeltaRef{Incarnation: 1, Seq: 1}, digest)); err != nil {
		t.Fatal(err)
	}
	table := NewTable(Shape{KeyBytes: 16}, NewBudget(1<<20))
	defer table.Close()
	table.BeginAsPartials(func(val, _ []byte) ([]byte, error) { return nil, fmt.Errorf("no %s", val) })
	table.Committed(1)
	table.BeginFill()
	table.Lock()
	table.Change(dataflow.HashKey([]byte("k")), []byte("k")).Create(1)
	table.Unlock()
	if table.Fill([]Entry{{Key: []byte("k"), Val: []byte("bad")}}); table.mu.partials != 1 {
		t.Error("a fill made it whole")
	}
	f := table.Freeze(2)
	_, err := table.Resolve(f, 0, 10, func(cut dataflow.CheckpointID) (*View, error) { return r.View(1, cut) })
	if err == nil || !strings.Contains(err.Error(), "key 6b: no bad") {
		t.Errorf("the error is %v", err)
	}
	if err := table.EndResolve(); err != nil {
		t.Error(err)
	}
}
