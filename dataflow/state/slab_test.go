package state

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestCellsNeverOverlap allocates and frees cells at random, each filled with bytes of its own.
func TestCellsNeverOverlap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var s slab
		type held struct {
			ref      uint64
			capacity int
			fill     byte
		}
		var cells []held
		for i := range 2000 {
			if len(cells) > 0 && rng.IntN(3) == 0 {
				at := rng.IntN(len(cells))
				c := cells[at]
				if b := s.bytes(c.ref, c.capacity); !bytes.Equal(b, bytes.Repeat([]byte{c.fill}, c.capacity)) {
					t.Fatalf("seed %d: a cell of %d bytes was overwritten", seed, c.capacity)
				}
				s.release(c.ref, c.capacity)
				cells[at] = cells[len(cells)-1]
				cells = cells[:len(cells)-1]
				continue
			}
			n := 1 + rng.IntN(100)
			if i == 0 || rng.IntN(50) == 0 { // also the very first
				n = maxCell + rng.IntN(maxCell)
			}
			c := held{fill: byte(i)}
			c.ref, c.capacity = s.alloc(n)
			copy(s.bytes(c.ref, c.capacity), bytes.Repeat([]byte{c.fill}, c.capacity))
			cells = append(cells, c)
		}
		for _, c := range cells {
			s.release(c.ref, c.capacity)
		}
		if s.size != 0 || s.live != 0 {
			t.Fatalf("seed %d: %d bytes are held, %d in use, after everything was freed", seed, s.size, s.live)
		}
	}
}

func TestLargeValuesSurviveACompaction(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 16}, NewBudget(1<<40))
	defer table.Close()
	want := map[string][]byte{}
	for i := range 40 {
		k, v := fmt.Sprint("key ", i), bytes.Repeat([]byte{byte(i)}, 10)
		if i%2 == 0 {
			v = bytes.Repeat([]byte{byte(i)}, maxCell+1)
		}
		table.Lock()
		table.Change(dataflow.HashKey([]byte(k)), []byte(k)).Set(v)
		table.Unlock()
		want[k] = v
	}
	table.slots.slab.age()
	for table.slots.slab.aging() {
		table.compact()
	}
	for k, v := range want {
		if got, a, _ := table.Get([]byte(k), nil); a != Found || !bytes.Equal(got, v) {
			t.Errorf("%s is %.20q, %v", k, got, a)
		}
	}
}

// TestASlabIsPackedInStepsWhileItIsUsed changes, removes and adds values between the steps of a compaction.
func TestASlabIsPackedInStepsWhileItIsUsed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		m := newTableModel(t, Shape{KeyBytes: 16}, seed, 0)
		large := strings.Repeat("a value that goes again", 40)
		for i := range 60_000 {
			if i < 40_000 {
				m.keys = append(m.keys, fmt.Sprint(i))
				m.table.Lock()
				m.change(m.keys[i]).Set([]byte(large))
				m.table.Unlock()
				m.now[m.keys[i]] = large
				continue
			}
			m.keys = append(m.keys, fmt.Sprintf("%d a key that is too long for a slot", i))
			m.put(m.keys[i])
		}
		for _, k := range m.keys[:40_000] {
			m.remove(k)
		}
		for m.freeze(); len(m.sets) > 0; {
			m.gather(10_000)
		}
		s := &m.table.slots.slab
		before, steps := s.size, 0
		if !s.sparse() {
			t.Fatalf("%d of %d bytes are in use, and it is not sparse", s.live, s.size)
		}
		for s.age(); s.aging(); steps++ {
			m.table.compact()
			for range 200 {
				m.put(m.keys[20_000+m.rng.IntN(40_000)]) // some are new
				m.remove(m.key())
			}
			m.check()
		}
		if steps < 5 || s.size >= before {
			t.Errorf("%d steps, %d bytes before and %d after", steps, before, s.size)
		}
		for _, k := range m.keys {
			m.keys = []string{k}
			m.check()
		}
	}
}

func TestAFoldedLayerIsNoLargerThanItsEntries(t *testing.T) {
	t.Parallel()
	one := func(seq dataflow.DeltaSeq) *layer {
		w := NewDeltaWriter()
		w.Add(1, fmt.Append(nil, "k", seq), []byte("v"))
		var b layerBuilder
		if _, _, err := w.Finish(func(_ int, chunk []byte) error { return b.addChunk(chunk) }); err != nil {
			t.Fatal(err)
		}
		l, err := b.finish(ref(1, seq), ref(1, seq))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	held := 0
	f := fold([]*layer{one(1), one(2)})
	for _, seg := range f.runs[0].segs {
		held += cap(seg)
	}
	if f.entries != 2 || int64(held) > f.bytes {
		t.Errorf("%d entries of %d bytes take %d", f.entries, f.bytes, held)
	}
}
