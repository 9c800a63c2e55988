package state

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// tableModel drives a table and a map of strings in step.
type tableModel struct {
	t     *testing.T
	rng   *rand.Rand
	shape Shape
	table *Table
	keys  []string
	now   map[string]string // what the table should hold

	committed map[string]string // the deltas gathered so far, laid over each other
	sets      []*frozenModel
}

// frozenModel is a freeze that is being gathered.
type frozenModel struct {
	id    dataflow.CheckpointID
	f     *Frozen
	delta map[string]*string // nil = deleted
	want  map[string]string  // the table at the freeze
}

// tableShapes are shapes whose keys and values lie in all the places there are.
var tableShapes = []Shape{
	{KeyBytes: 9},
	{KeyBytes: 9, ValBytes: 8},
	{KeyBytes: 16, ValBytes: 1},
	{KeyBytes: 16},
	{KeyBytes: 48, ValBytes: 24},
	{KeyBytes: 1000},
}

func newTableModel(t *testing.T, shape Shape, seed uint64, keys int) *tableModel {
	m := &tableModel{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), shape: shape, table: NewTable(shape, nil),
		now: map[string]string{}, committed: map[string]string{},
	}
	t.Cleanup(m.table.Close)
	lengths := []int{0, 1, 7, 8, 9, 12, 15, 16, 17, 47, 48, 61, 62, 63, 64, 300}
	for i := range keys {
		n := lengths[i%len(lengths)]
		k := fmt.Sprintf("%0*d", n, i)
		if n > 20 {
			k = strings.Repeat("x", n-20) + k[n-20:] // differ at the end only
		}
		m.keys = append(m.keys, k[:min(len(k), max(n, len(fmt.Sprint(i))))])
	}
	m.keys = slices.Compact(slices.Sorted(slices.Values(m.keys)))
	return m
}

func (m *tableModel) value() string {
	n := m.shape.ValBytes
	if n == 0 {
		n = m.rng.IntN(40)
		if m.rng.IntN(200) == 0 {
			n = m.rng.IntN(3 * maxCell)
		}
	}
	return strings.Repeat(string(rune('a'+m.rng.IntN(26))), n)
}

func (m *tableModel) key() string { return m.keys[m.rng.IntN(len(m.keys))] }

func (m *tableModel) change(key string) Slot {
	return m.table.Change(dataflow.HashKey([]byte(key)), []byte(key))
}

// put changes the value of a key in one of the ways that a writer has.
func (m *tableModel) put(key string) {
	m.table.Lock()
	defer m.table.Unlock()
	val := m.value()
	s := m.change(key)
	switch old := s.Value(); {
	case old == nil && m.rng.IntN(2) == 0:
		copy(s.Create(len(val)), val)
	case old != nil && len(val) <= cap(old) && m.rng.IntN(2) == 0: // in place
		old = old[:len(val)]
		copy(old, val)
		s.Set(old)
	default:
		s.Set([]byte(val))
	}
	m.now[key] = val
}

func (m *tableModel) remove(key string) {
	m.table.Lock()
	defer m.table.Unlock()
	m.change(key).Set(nil)
	delete(m.now, key)
}

func (m *tableModel) freeze() {
	m.sets = append(m.sets, &frozenModel{f: m.table.Freeze(0), delta: map[string]*string{}, want: maps.Clone(m.now)})
}

// gather gathers a part of the oldest freeze. When that is complete, its delta over the older ones must be the table at the
// freeze.
func (m *tableModel) gather(most int) {
	if len(m.sets) == 0 {
		return
	}
	o := m.sets[0]
	left, n := o.f.Len(), 0
	done := m.table.Gather(o.f, most, func(key, val []byte) {
		n++
		if _, twice := o.delta[string(key)]; twice {
			m.t.Fatalf("key %q gathered twice", key)
		}
		o.delta[string(key)] = nil
		if val != nil {
			v := string(val)
			o.delta[string(key)] = &v
		}
	})
	if o.f.Len() != left-n || done != (o.f.Len() == 0) {
		m.t.Fatalf("%d of %d changes gathered, %d left, done %v", n, left, o.f.Len(), done)
	}
	if !done {
		return
	}
	for k, v := range o.delta {
		if v == nil {
			delete(m.committed, k)
		} else {
			m.committed[k] = *v
		}
	}
	if !maps.Equal(m.committed, o.want) {
		m.t.Fatalf("after gathering: %d keys that are not those of the freeze, which had %d", len(m.committed), len(o.want))
	}
	m.sets = m.sets[1:]
}

func (m *tableModel) check() {
	key := m.key()
	val, a, _ := m.table.Get([]byte(key), nil)
	if want, there := m.now[key]; a > Found || (a == Found) != there || string(val) != want {
		m.t.Fatalf("get %q = %.20q, %v, want %.20q", key, val, a, want)
	}
	if got := m.table.Len(); got != len(m.now) {
		m.t.Fatalf("the table says it has %d keys, it has %d", got, len(m.now))
	}
}

func (m *tableModel) checkScan() {
	from, to, limit := []byte(m.key()), []byte(m.key()), m.rng.IntN(8)
	if m.rng.IntN(4) == 0 {
		to = nil
	}
	var want []string
	for _, k := range slices.Sorted(maps.Keys(m.now)) {
		if k >= string(from) && (to == nil || k < string(to)) && (limit == 0 || len(want) < limit) {
			want = append(want, k+"="+m.now[k])
		}
	}
	var got []string
	entries, _ := m.table.Scan(from, to, limit)
	for _, e := range entries {
		got = append(got, string(e.Key)+"="+string(e.Val))
	}
	if !slices.Equal(got, want) {
		m.t.Fatalf("scan %q…%q limit %d = %d entries, want %d", from, to, limit, len(got), len(want))
	}
}

// empty removes every key and gathers it all.
func (m *tableModel) empty() {
	for _, k := range slices.Sorted(maps.Keys(m.now)) {
		m.remove(k)
	}
	for m.freeze(); len(m.sets) > 0; {
		m.gather(100)
	}
}

// TestFreezesGiveTheStateAtTheirMoment drives tables at random, with several freezes outstanding, and checks that the
// gathered deltas, laid over each other in order, give the state at each freeze.
func TestFreezesGiveTheStateAtTheirMoment(t *testing.T) {
	t.Parallel()
	for i, shape := range tableShapes {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("shape=%d/seed=%d", i, seed), func(t *testing.T) {
				t.Parallel()
				m := newTableModel(t, shape, seed, []int{30, 3000}[seed%2])
				for _, k := range m.keys[:min(10, len(m.keys))] {
					v := m.value()
					m.table.Load([]byte(k), []byte(v))
					m.now[k], m.committed[k] = v, v
				}
				for range 6000 {
					switch op := m.rng.IntN(100); {
					case op < 60:
						m.put(m.key())
					case op < 80:
						m.remove(m.key())
					case op < 84:
						if len(m.sets) < 4 {
							m.freeze()
						}
					case op < 94:
						m.gather(1 + m.rng.IntN(1+len(m.keys)/8))
					case op < 99:
						m.check()
					default:
						m.checkScan()
					}
				}
				for m.freeze(); len(m.sets) > 0; {
					m.gather(7)
				}
				m.empty()
				if got := m.table.Len(); got != 0 {
					t.Fatalf("an emptied table has %d keys", got)
				}
			})
		}
	}
}

// TestMemoryFollowsTheKeys keeps a table at the same number of keys while all of them are replaced again and again.
func TestMemoryFollowsTheKeys(t *testing.T) {
	t.Parallel()
	for i, shape := range tableShapes {
		t.Run(fmt.Sprintf("shape=%d", i), func(t *testing.T) {
			t.Parallel()
			m := newTableModel(t, shape, 1, 0)
			var bytes int64
			for round := range 40 {
				for i := range 500 {
					m.remove(fmt.Sprintf("a key of round %d: %d", round-1, i))
					m.put(fmt.Sprintf("a key of round %d: %d", round, i))
				}
				for m.freeze(); len(m.sets) > 0; {
					m.gather(100)
				}
				if round == 8 {
					bytes = m.table.Bytes()
				}
			}
			if now := m.table.Bytes(); now > 2*bytes {
				t.Fatalf("500 keys take %d bytes after 8 rounds of replacing them and %d after 40", bytes, now)
			}
			m.empty()
			if now := m.table.Bytes(); now > 2*bytes {
				t.Fatalf("an emptied table has %d bytes, a full one had %d", now, bytes)
			}
		})
	}
}

func TestAKeyOfEightBytesTakesAtMost32WithItsValueAtAnyFill(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 9, ValBytes: 8}, nil)
	defer table.Close()
	key := make([]byte, 9)
	for n := 1; n <= 400_000; n++ {
		key[0], key[1], key[2], key[3] = byte(n), byte(n>>8), byte(n>>16), 0x80
		table.Load(key, key[1:])
		if n >= 10_000 && n%5_000 == 0 {
			if per := float64(table.Bytes()) / float64(n); per > 32 {
				t.Fatalf("%d keys take %.1f bytes each", n, per)
			}
		}
	}
}

func TestFreezeOfAnUnchangedTableIsEmpty(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 16}, nil)
	defer table.Close()
	table.Load([]byte("k"), []byte("v"))
	f := table.Freeze(0)
	if f.Len() != 0 || !table.Gather(f, 1, func(key, _ []byte) { t.Fatalf("gathered %s", key) }) {
		t.Fatal("a loaded key counts as changed")
	}
}

func TestAnEmptyValueIsNotADeletedOne(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 16}, nil)
	defer table.Close()
	change := func(val []byte) {
		table.Lock()
		defer table.Unlock()
		table.Change(dataflow.HashKey([]byte("k")), []byte("k")).Set(val)
	}
	change([]byte{})
	f := table.Freeze(0)
	change(nil)
	table.Gather(f, 10, func(_, val []byte) {
		if val == nil {
			t.Fatal("the empty value was gathered as a tombstone")
		}
	})
}

func TestAClosedTableSaysSo(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 16}, nil)
	table.Load([]byte("k"), []byte("v"))
	table.Close()
	if _, a, _ := table.Get([]byte("k"), nil); a != Closed {
		t.Error("a closed table answers a get")
	}
	if entries, a := table.Scan(nil, nil, 0); len(entries) > 0 || a != Closed {
		t.Error("a closed table answers a scan")
	}
	if table.Bytes() != 0 {
		t.Errorf("a closed table keeps %d bytes", table.Bytes())
	}
}

func TestSizesOfCellsWasteAFifthAtMost(t *testing.T) {
	t.Parallel()
	for n := 1; n <= maxCell; n++ {
		_, capacity := capacityFor(n)
		if capacity < n || n >= 16 && capacity > n+n/4 {
			t.Fatalf("%d bytes get a cell of %d", n, capacity)
		}
		if again := classSize(classOf(capacity)); again != capacity {
			t.Fatalf("a cell of %d bytes goes back to those of %d", capacity, again)
		}
	}
}

// TestReadersRunBesideTheWriter is for the race detector.
func TestReadersRunBesideTheWriter(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 16}, nil)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if val, _, _ := table.Get([]byte("k1"), nil); bytes.Trim(val, "0123456789") != nil {
					t.Errorf("read %q", val)
				}
				table.Scan(nil, nil, 5)
				table.Bytes()
			}
		})
	}
	for i := range 300 {
		table.Lock()
		for j := range 20 {
			key := fmt.Appendf(nil, "k%d", j)
			table.Change(dataflow.HashKey(key), key).Set(fmt.Append(nil, i))
		}
		table.Unlock()
		if i%10 == 0 {
			for f := table.Freeze(0); !table.Gather(f, 3, func(_, _ []byte) {}); {
			}
		}
	}
	close(stop)
	readers.Wait()
	table.Close()
}

func BenchmarkTableUpdate(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 5_000_000} {
		b.Run(fmt.Sprint("keys=", n), func(b *testing.B) {
			table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, nil)
			defer table.Close()
			keys, hashes := make([][14]byte, n), make([]uint64, n)
			for i := range keys {
				copy(keys[i][:], fmt.Appendf(nil, "\x15key-%08d", i))
				hashes[i] = dataflow.HashKey(keys[i][:])
				table.Load(keys[i][:], make([]byte, 8))
			}
			rand.Shuffle(n, func(i, j int) { keys[i], keys[j], hashes[i], hashes[j] = keys[j], keys[i], hashes[j], hashes[i] })
			b.ReportAllocs()
			const batch = 500
			at := 0
			for b.Loop() {
				table.Lock()
				if at+batch > n {
					at = 0
				}
				table.Prefetch(hashes[at : at+batch])
				for ; at < n && at%batch != batch-1; at++ {
					table.Change(hashes[at], keys[at][:]).Value()[0]++
				}
				at++
				table.Unlock()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/key")
			b.ReportMetric(float64(table.Bytes())/float64(n), "B/key")
		})
	}
}
