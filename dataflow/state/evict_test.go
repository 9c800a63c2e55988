package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// evictModel drives a table that is too small for its keys, as a task does: what the table does not know is looked up in the
// newest committed cut.
type evictModel struct {
	*tableModel
	budget *Budget
	next   dataflow.CheckpointID
	base   dataflow.CheckpointID
	cuts   map[dataflow.CheckpointID]map[string]string // the gathered ones
	hot    int                                         // committed values that the table knew
	known  int                                         // keys that it knew not to be in the cut, because they were not evicted
}

// batch changes some keys as one message does.
func (m *evictModel) batch() {
	m.table.Relieve()
	keys := make([]string, 1+m.rng.IntN(40))
	hashes := make([]uint64, len(keys))
	for i := range keys {
		keys[i] = m.key()
		if m.rng.IntN(3) > 0 { // some keys more often than others
			keys[i] = m.keys[m.rng.IntN(1+len(m.keys)/10)]
		}
		hashes[i] = dataflow.HashKey([]byte(keys[i]))
	}
	m.table.Lock()
	missing := m.table.Missing(nil, hashes, func(i int) []byte { return []byte(keys[i]) })
	m.table.Unlock()
	looked := map[string]string{}
	for _, i := range missing {
		if v, ok := m.cuts[m.table.Base()][keys[i]]; ok {
			looked[keys[i]] = v
		}
	}
	m.table.Lock()
	defer m.table.Unlock()
	for i, k := range keys {
		s := m.table.Change(hashes[i], []byte(k))
		if v, ok := looked[k]; ok && s.Fresh() {
			s.Set([]byte(v))
		}
		old, there := m.now[k]
		if val := s.Value(); (val != nil) != there || string(val) != old {
			m.t.Fatalf("the writer finds %q = %.20q, want %.20q", k, val, old)
		}
		if m.rng.IntN(5) == 0 {
			s.Set(nil)
			delete(m.now, k)
			continue
		}
		v := m.value()
		s.Set([]byte(v))
		m.now[k] = v
	}
}

func (m *evictModel) freeze() {
	m.next++
	m.sets = append(m.sets, &frozenModel{id: m.next, f: m.table.Freeze(m.next), delta: map[string]*string{}, want: maps.Clone(m.now)})
}

func (m *evictModel) gather(most int) {
	if len(m.sets) > 0 {
		o := m.sets[0]
		if m.tableModel.gather(most); len(m.sets) == 0 || m.sets[0] != o {
			m.cuts[o.id] = o.want
		}
	}
}

// commit commits one of the gathered cuts; the attempts below it were given up.
func (m *evictModel) commit() {
	ids := slices.Sorted(maps.Keys(m.cuts))
	id := ids[m.rng.IntN(len(ids))]
	if id <= m.base {
		return
	}
	m.base = id
	m.table.Committed(id)
	maps.DeleteFunc(m.cuts, func(n dataflow.CheckpointID, _ map[string]string) bool { return n < id })
}

func (m *evictModel) check() {
	key := m.key()
	val, a, _ := m.table.Get([]byte(key), nil)
	got, there := string(val), a == Found
	if a == InBase {
		got, there = m.cuts[m.table.Base()][key]
	}
	if want, is := m.now[key]; a == Closed || there != is || got != want {
		m.t.Fatalf("get %q = %.20q, %v, want %.20q", key, got, a, want)
	}
	val, a = m.table.AppendCommitted(m.base, []byte(key), []byte("+"))
	if want, is := m.cuts[m.base][key]; a == Closed || a == Found && (!is || string(val) != "+"+want) || a == Absent && is {
		m.t.Fatalf("%q in cut %d = %.20q, %v, want %.20q", key, m.base, val, a, want)
	}
	if a != InBase {
		m.hot++
	}
	if _, a, _ := m.table.Get([]byte("never there "+key), nil); a == Absent && !m.table.Complete() {
		m.known++
	}
	if val, a := m.table.AppendCommitted(m.base+1, []byte(key), nil); a != InBase || val != nil {
		m.t.Fatalf("%q in a cut that is not committed = %.20q, %v", key, val, a)
	}
	m.checkAll()
}

// checkAll asks for several keys together: each has the answer that it has alone.
func (m *evictModel) checkAll() {
	rng := rand.New(rand.NewPCG(uint64(m.next), uint64(len(m.now))))     // what else the model does is as without this
	for _, cut := range []dataflow.CheckpointID{0, m.base, m.base + 1} { // 0: the newest values
		var l dataflow.Lookups
		l.Begin(1 << 30)
		for range 1 + rng.IntN(20) {
			key := []byte(m.keys[rng.IntN(len(m.keys))])
			l.Add(dataflow.HashKey(key), key)
		}
		if cut != 0 {
			m.table.CommittedAll(cut, &l)
		} else if _, open := m.table.GetAll(&l); !open {
			m.t.Fatal("the table is closed")
		}
		open := slices.Clone(l.Open())
		for i := range int32(l.Len()) {
			var want []byte
			var a Answer
			if cut != 0 {
				want, a = m.table.AppendCommitted(cut, l.Key(i), nil)
			} else {
				want, a, _ = m.table.Get(l.Key(i), nil)
			}
			got, found := l.Value(i)
			if string(got) != string(want) || found != (a == Found) || slices.Contains(open, i) != (a == InBase) {
				m.t.Fatalf("%q in cut %d together with others = %.20q, %v, alone %.20q, %v", l.Key(i), cut, got, found, want, a)
			}
		}
	}
}

// TestAnEvictedKeyIsInTheNewestCommittedCut drives tables whose budget is too small for their keys, with freezes and commits
// under way, and compares what the table and the newest cut say together with a model.
func TestAnEvictedKeyIsInTheNewestCommittedCut(t *testing.T) {
	t.Parallel()
	for i, shape := range tableShapes {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("shape=%d/seed=%d", i, seed), func(t *testing.T) {
				t.Parallel()
				limit := int64(40 << 10)
				if shape.ValBytes == 0 { // some values are large
					limit = 512 << 10
				}
				m := &evictModel{tableModel: newTableModel(t, shape, seed, 2000), budget: NewBudget(limit), cuts: map[dataflow.CheckpointID]map[string]string{}}
				m.table = NewTable(shape, m.budget)
				t.Cleanup(m.table.Close)
				m.rng = rand.New(rand.NewPCG(seed, 2))
				for _, k := range m.keys {
					m.now[k] = m.value()
				}
				// It is filled while it is used, as far as it goes.
				fill, passing := slices.Clone(m.keys), false
				start := maps.Clone(m.now)
				m.table.BeginFill()
				m.committed = maps.Clone(m.now)
				m.cuts[0] = maps.Clone(m.now)
				for range 1500 {
					if n := min(len(fill), 1+m.rng.IntN(20)); n > 0 {
						var entries []Entry
						for _, k := range fill[:n] {
							entries = append(entries, Entry{Key: []byte(k), Val: []byte(start[k])}, Entry{Key: []byte(k), Val: []byte("older")})
						}
						fill = fill[n:]
						if passing = passing || !m.table.Fill(entries); passing {
							remember(m.table, entries, len(fill) == 0)
						}
						if len(fill) == 0 {
							m.table.EndFill(!passing)
						}
					}
					switch op := m.rng.IntN(100); {
					case op < 60:
						m.batch()
					case op < 70:
						if len(m.sets) < 4 {
							m.freeze()
						}
					case op < 80:
						m.gather(1 + m.rng.IntN(2000))
					case op < 90:
						m.commit()
					default:
						m.check()
					}
				}
				if m.budget.Evicted() == 0 || m.hot == 0 || m.known == 0 {
					t.Fatalf("%d keys evicted, %d committed values known, %d times that a key is new", m.budget.Evicted(), m.hot, m.known)
				}
				for _, k := range m.keys {
					m.keys = []string{k}
					m.check()
				}
				for m.freeze(); len(m.sets) > 0; {
					m.gather(1000)
				}
				m.base = m.next
				m.table.Committed(m.base)
				for range 20 {
					m.table.Relieve()
				}
				if m.budget.Exceeded() {
					t.Fatalf("%d bytes are used of %d when everything is committed", m.budget.Used(), limit)
				}
			})
		}
	}
}

func TestATableWithNothingToEvictPressesTheBudgetUntilACommit(t *testing.T) {
	t.Parallel()
	b := NewBudget(15 << 10)
	table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, b)
	defer table.Close()
	table.Lock()
	for i := range 1000 {
		key := fmt.Appendf(nil, "key %d", i)
		table.Change(dataflow.HashKey(key), key).Create(8)
	}
	table.Unlock()
	pressed, changed := b.Pressed()
	table.Relieve()
	if pressed {
		t.Fatal("the budget was pressed before anything asked for memory")
	}
	<-changed
	if pressed, _ = b.Pressed(); !pressed {
		t.Fatal("the budget is not pressed, and nothing can be evicted")
	}
	f := table.Freeze(1)
	for !table.Gather(f, 100, func(_, _ []byte) {}) {
	}
	table.Committed(1)
	if pressed, _ = b.Pressed(); pressed {
		t.Fatal("the budget is pressed after a commit")
	}
	for range 10 { // each takes half of what there is
		table.Relieve()
	}
	if b.Exceeded() || table.Len() == 0 {
		t.Fatalf("%d keys are left in %d bytes", table.Len(), b.Used())
	}
}

func TestEveryCommittedEntryCanBeEvicted(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, NewBudget(1))
	defer table.Close()
	for i := range 64 {
		key := fmt.Appendf(nil, "key %d", i)
		table.Lock()
		table.Change(dataflow.HashKey(key), key).Create(8)
		table.Unlock()
	}
	for f := table.Freeze(1); !table.Gather(f, 100, func(_, _ []byte) {}); {
	}
	table.Committed(1)
	for range 10 {
		table.Relieve()
	}
	if n, bytes := table.Len(), table.Bytes(); n > 0 || bytes > 0 {
		t.Errorf("%d committed keys are never evicted, %d bytes not given back", n, bytes)
	}
}

func TestABudgetIsNotPressedByATableThatIsGone(t *testing.T) {
	t.Parallel()
	b := NewBudget(1)
	table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, b)
	table.Lock()
	table.Change(dataflow.HashKey([]byte("k")), []byte("k")).Create(8)
	table.Unlock()
	table.Relieve()
	if pressed, _ := b.Pressed(); !pressed {
		t.Fatal("the budget is not pressed")
	}
	table.Close()
	if pressed, _ := b.Pressed(); pressed {
		t.Errorf("the budget is pressed with %d bytes used", b.Used())
	}
}

// TestATableWithoutWorkIsAskedForMemory lets one table take all memory while another, whose entries are committed, is idle.
func TestATableWithoutWorkIsAskedForMemory(t *testing.T) {
	t.Parallel()
	b := NewBudget(64 << 10)
	fill := func(n dataflow.CheckpointID) *Table {
		table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, b)
		t.Cleanup(table.Close)
		table.Lock()
		for i := range 1500 {
			key := fmt.Appendf(nil, "key %d", i)
			table.Change(dataflow.HashKey(key), key).Create(8)
		}
		table.Unlock()
		return table
	}
	idle := fill(1)
	for f := idle.Freeze(1); !idle.Gather(f, 100, func(_, _ []byte) {}); {
	}
	idle.Committed(1)
	select {
	case <-idle.Wanted():
	default:
	}
	busy := fill(1)
	busy.Relieve() // nothing of it is committed
	for range 20 {
		select {
		case <-idle.Wanted():
			idle.Relieve()
		default:
		}
	}
	if b.Exceeded() {
		t.Errorf("%d bytes are used of %d, the idle table has %d keys", b.Used(), b.Limit(), idle.Len())
	}
	if pressed, _ := b.Pressed(); pressed {
		t.Error("the sources still wait")
	}
}

// TestWhoWantsMemoryIsNotForgottenWhenAnotherCommits: a table that holds all memory, and no rows come for it any more, presses
// the budget until it commits, whatever other tables commit meanwhile. Without that its pipeline, whose checkpoints are off, made
// none, and memory stayed exceeded.
func TestWhoWantsMemoryIsNotForgottenWhenAnotherCommits(t *testing.T) {
	t.Parallel()
	b := NewBudget(64 << 10)
	change := func(table *Table, keys int) {
		table.Lock()
		defer table.Unlock()
		for i := range keys {
			key := fmt.Appendf(nil, "key %d", i)
			if s := table.Change(dataflow.HashKey(key), key); s.Fresh() {
				s.Create(8)
			}
		}
	}
	var tables [3]*Table
	for i := range tables {
		tables[i] = NewTable(Shape{KeyBytes: 16, ValBytes: 8}, b)
		defer tables[i].Close()
	}
	all, others := tables[0], tables[1:]
	change(all, 3000)
	for id := dataflow.CheckpointID(1); id <= 2000; id++ {
		for _, o := range others {
			change(o, 1)
			for f := o.Freeze(id); !o.Gather(f, 100, func(_, _ []byte) {}); {
			}
		}
		done := make(chan struct{})
		var writers, committers sync.WaitGroup
		for _, w := range tables {
			writers.Go(func() {
				for {
					select {
					case <-w.Wanted():
						w.Relieve()
					case <-done:
						return
					}
				}
			})
		}
		for _, o := range others {
			committers.Go(func() { o.Committed(id) })
		}
		committers.Wait()
		close(done)
		writers.Wait()
		for idle := false; !idle; {
			idle = true
			for _, w := range tables {
				select {
				case <-w.Wanted():
					w.Relieve()
					idle = false
				default:
				}
			}
		}
		if pressed, _ := b.Pressed(); !pressed {
			t.Fatalf("after commit %d nobody wants memory, of which %d bytes of %d are used", id, b.Used(), b.Limit())
		}
	}
}

// TestLayersCountForHalfOfTheBudget lets layers take more and more: tables give way, but for half of the budget at most.
func TestLayersCountForHalfOfTheBudget(t *testing.T) {
	t.Parallel()
	b := NewBudget(64 << 10)
	table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, b)
	defer table.Close()
	table.Lock()
	for i := range 1000 {
		key := fmt.Appendf(nil, "key %d", i)
		table.Change(dataflow.HashKey(key), key).Create(8)
	}
	table.Unlock()
	for f := table.Freeze(1); !table.Gather(f, 100, func(_, _ []byte) {}); {
	}
	table.Committed(1)
	if table.Relieve(); b.Exceeded() || table.Len() != 1000 {
		t.Fatalf("%d bytes are used, %d keys there", b.Used(), table.Len())
	}
	b.SetLayers(1 << 30)
	select {
	case <-table.Wanted():
	default:
		t.Error("the table is not asked for memory")
	}
	for range 10 {
		table.Relieve()
	}
	if b.Exceeded() || !b.LayersExceeded() || table.Len() == 0 || b.Used() > 32<<10 {
		t.Errorf("%d bytes are used beside layers, %d keys are left", b.Used(), table.Len())
	}
}

func TestAttemptsThatComeToNothingDoNotAddUp(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, NewBudget(1<<30))
	defer table.Close()
	for n := range dataflow.CheckpointID(100) {
		key := fmt.Appendf(nil, "key %d", n)
		table.Lock()
		table.Change(dataflow.HashKey(key), key).Create(8)
		table.Unlock()
		for f := table.Freeze(n + 1); !table.Gather(f, 100, func(_, _ []byte) {}); {
		}
	}
	if n := len(table.mu.pending); n > maxPending {
		t.Errorf("%d cuts are remembered", n)
	}
	if _, a := table.AppendCommitted(0, []byte("key 3"), nil); a != InBase {
		t.Errorf("a key of a given-up attempt is taken for committed: %v", a)
	}
	table.Committed(100)
	if _, a := table.AppendCommitted(100, []byte("key 3"), nil); a != Found {
		t.Errorf("a committed key is not known: %v", a)
	}
}

// TestATableKnowsWhichKeysItHasEvicted asks for keys that were evicted, and for others, until so many are gone that it is no
// longer worth its memory.
func TestATableKnowsWhichKeysItHasEvicted(t *testing.T) {
	t.Parallel()
	b := NewBudget(64 << 10)
	table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, b)
	defer table.Close()
	ask := func(name string, from, n int) (inBase int) {
		for i := range n {
			if _, a, _ := table.Get(fmt.Appendf(nil, "%s %d", name, from+i), nil); a == InBase {
				inBase++
			}
		}
		return inBase
	}
	put := func(n dataflow.CheckpointID, from int) {
		table.Lock()
		for i := range 1500 {
			key := fmt.Appendf(nil, "key %d", from+i)
			table.Change(dataflow.HashKey(key), key).Create(8)
		}
		table.Unlock()
		for f := table.Freeze(n); !table.Gather(f, 100, func(_, _ []byte) {}); {
		}
		table.Committed(n)
		table.Relieve()
	}
	put(1, 0)
	put(2, 1500)
	if table.Complete() || table.Len()+ask("key", 0, 3000) < 3000 {
		t.Errorf("%d keys are there and %d in the cut, of 3000", table.Len(), ask("key", 0, 3000))
	}
	if n := ask("new", 0, 1000); n > 100 {
		t.Errorf("%d of 1000 new keys are to be looked up", n)
	}
	for n := 3; !table.mu.gone.given; n++ {
		put(dataflow.CheckpointID(n), n*1500)
	}
	if n := ask("new", 0, 1000); n != 1000 || b.gone.Load() != 0 {
		t.Errorf("%d of 1000 new keys are to be looked up, the filters have %d bytes", n, b.gone.Load())
	}
}

// remember lets a table know which entries are passed by.
func remember(t *Table, entries []Entry, all bool) {
	var b fillEntries
	for _, e := range entries {
		b.add(e.Key, e.Val)
	}
	t.remember(&b, all)
}
