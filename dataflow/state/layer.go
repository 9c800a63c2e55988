package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/weirdb/weir/dataflow"
)

// layer is an immutable set of entries in memory: one complete delta, or several neighbouring ones merged, newest wins,
// tombstones kept. It covers the deltas first to last.
type layer struct {
	first, last dataflow.DeltaRef
	runs        []*run // by stage
	entries     int
	bytes       int64 // of entries
	logged      int64 // of entries of the deltas that it was made of: what a restart would read
}

// run returns the entries of a stage, nil when there are none.
func (l *layer) run(stage dataflow.StageID) *run {
	for _, r := range l.runs {
		if r.stage == stage {
			return r
		}
	}
	return nil
}

// get returns the value of a key (nil = tombstone) and whether the layer says anything about it. hash is
// dataflow.HashKey(key).
func (l *layer) get(stage dataflow.StageID, hash uint64, key []byte) (val []byte, found bool) {
	if r := l.run(stage); r != nil {
		return r.get(hash, key)
	}
	return nil, false
}

// layerBuilder makes a layer of the chunks of a delta, or of older layers.
type layerBuilder struct {
	segs [][]byte
	runs []*runBuilder
	last *runBuilder
	left int64 // bytes that add is still to be given at most
}

func (b *layerBuilder) run(stage dataflow.StageID) *runBuilder {
	if b.last != nil && b.last.stage == stage {
		return b.last
	}
	for _, r := range b.runs {
		if r.stage == stage {
			b.last = r
			return r
		}
	}
	b.last = &runBuilder{stage: stage}
	b.runs = append(b.runs, b.last)
	return b.last
}

// addChunk decodes a chunk of a delta and keeps it.
func (b *layerBuilder) addChunk(data []byte) error {
	if len(b.segs) == maxSegments {
		return fmt.Errorf("%w: it has more than %d chunks", errDelta, maxSegments)
	}
	b.segs = append(b.segs, data)
	seg := place(len(b.segs)-1, 0)
	return decodeChunk(data, func(stage dataflow.StageID, at int, e rawEntry) {
		b.run(stage).note(newItem(rankOf(dataflow.HashKey(e.key)), seg+uint32(at)), e.size)
	})
}

// add copies an entry.
func (b *layerBuilder) add(r *runBuilder, rank uint32, e []byte) {
	n := len(b.segs)
	if n == 0 || len(b.segs[n-1])+len(e) > cap(b.segs[n-1]) {
		b.segs = append(b.segs, make([]byte, 0, max(int(min(foldSegment, b.left)), len(e))))
		n++
	}
	b.left -= int64(len(e))
	seg := &b.segs[n-1]
	r.note(newItem(rank, place(n-1, len(*seg))), len(e))
	*seg = append(*seg, e...)
}

// finish makes the layer. The error says that a key came twice.
func (b *layerBuilder) finish(first, last dataflow.DeltaRef) (*layer, error) {
	l := &layer{first: first, last: last}
	for _, rb := range b.runs {
		r, err := rb.finish(b.segs)
		if err != nil {
			return nil, err
		}
		l.runs = append(l.runs, r)
		l.entries += rb.notes.n
		l.bytes += rb.bytes
	}
	l.logged = l.bytes
	slices.SortFunc(l.runs, func(a, b *run) int { return cmp.Compare(a.stage, b.stage) })
	return l, nil
}

// maxFold is the size up to which layers are merged with each other: what a layer's places can name, with room to spare
// for the ends of segments.
const maxFold = maxSegments / 2 * foldSegment

// fold merges neighbouring layers, oldest first, into one. All are in the table's order, and so is the result.
func fold(layers []*layer) *layer {
	var b layerBuilder
	for _, l := range layers {
		b.left += l.bytes
	}
	newestFirst := slices.Clone(layers)
	slices.Reverse(newestFirst)
	for _, stage := range stages(layers) {
		runs := runsOf(newestFirst, stage)
		rb := b.run(stage)
		mergeRuns(runs, func(rank uint32, raw []byte, _ rawEntry) bool {
			b.add(rb, rank, raw)
			return true
		})
	}
	l, err := b.finish(layers[0].first, layers[len(layers)-1].last)
	if err != nil {
		panic("state: merged layers have a key twice") // each layer was checked when it was made
	}
	l.logged = 0
	for _, old := range layers {
		l.logged += old.logged
	}
	return l
}

// runsOf returns what layers have of a stage, in their order.
func runsOf(layers []*layer, stage dataflow.StageID) (runs []*run) {
	for _, l := range layers {
		if r := l.run(stage); r != nil {
			runs = append(runs, r)
		}
	}
	return runs
}

// foldTogether merges neighbouring layers, newest first, as far as one layer can hold them: what is to be sorted by key then has
// each key once.
func foldTogether(newestFirst []*layer) (out []*layer) {
	for from := 0; from < len(newestFirst); {
		to, bytes := from+1, newestFirst[from].bytes
		for to < len(newestFirst) && bytes+newestFirst[to].bytes <= maxFold {
			bytes += newestFirst[to].bytes
			to++
		}
		l := newestFirst[from]
		if to > from+1 {
			oldestFirst := slices.Clone(newestFirst[from:to])
			slices.Reverse(oldestFirst)
			l = fold(oldestFirst)
		}
		out, from = append(out, l), to
	}
	return out
}

// mergeRuns passes each key of the runs to emit once, as the newest run has it, in the table's order, until emit returns false;
// then it does.
func mergeRuns(newestFirst []*run, emit func(rank uint32, raw []byte, e rawEntry) bool) bool {
	if len(newestFirst) == 0 {
		return true
	}
	const end = 1 << 32 // above all ranks
	next := make([]int, len(newestFirst))
	heads := make([]uint64, len(newestFirst)) // ranks of the items that come next
	head := func(i int) {
		heads[i] = end
		if items := newestFirst[i].order.items; next[i] < len(items) {
			heads[i] = uint64(items[next[i]].rank())
		}
	}
	for i := range newestFirst {
		head(i)
	}
	var same [][]byte // keys of the rank that were emitted
	var p pacer
	for {
		rank := slices.Min(heads)
		if rank == end {
			return true
		}
		same = same[:0]
		for i, r := range newestFirst {
			for heads[i] == rank {
				raw := r.raw(r.order.items[next[i]].place())
				e := r.entry(r.order.items[next[i]].place())
				if !slices.ContainsFunc(same, func(k []byte) bool { return bytes.Equal(k, e.key) }) {
					same = append(same, e.key)
					if !emit(uint32(rank), raw[:e.size], e) {
						return false
					}
				}
				next[i]++
				head(i)
				p.did(1)
			}
		}
	}
}

// cursor walks a range of a run in key order.
type cursor struct {
	r     *run
	order []uint32
	i     int
	cur   rawEntry
	ahead int  // entries up to here have been touched
	sum   byte // what that has read, so that it is not left out
}

// cursorAhead is how many entries are touched together before they are read: in the order of the keys each is somewhere else in
// memory, and so the misses of the cache overlap.
const cursorAhead = 32

func (c *cursor) valid() bool { return c.i < len(c.order) }

func (c *cursor) next() {
	if c.i++; c.i < len(c.order) {
		if c.i >= c.ahead {
			c.ahead = min(c.i+cursorAhead, len(c.order))
			for _, at := range c.order[c.i:c.ahead] {
				c.sum += c.r.raw(at)[0]
			}
		}
		c.cur = c.r.entry(c.order[c.i])
	}
}

// merger walks a stage's entries in several layers as one: each key once, with the newest layer's value, tombstones
// included. The cursors are few, so the smallest is found by looking at each.
type merger struct {
	cursors []cursor // newest layer first
}

// newMerger walks lo ≤ key < hi; a nil hi is no bound. It sorts the layers that have not been sorted yet.
func newMerger(newestFirst []*layer, stage dataflow.StageID, lo, hi []byte) *merger {
	m := &merger{cursors: make([]cursor, 0, len(newestFirst))}
	for _, l := range newestFirst {
		r := l.run(stage)
		if r == nil {
			continue
		}
		order := r.sorted()
		at := func(k []byte) int {
			return sort.Search(len(order), func(i int) bool { return bytes.Compare(r.entry(order[i]).key, k) >= 0 })
		}
		if hi != nil {
			order = order[:at(hi)]
		}
		if len(lo) > 0 {
			order = order[at(lo):]
		}
		if len(order) > 0 {
			m.cursors = append(m.cursors, cursor{r: r, order: order, cur: r.entry(order[0])})
		}
	}
	return m
}

// peek returns the cursor with the smallest key, of equal ones the newest; nil at the end.
func (m *merger) peek() *cursor {
	if len(m.cursors) == 1 && m.cursors[0].valid() {
		return &m.cursors[0]
	}
	var least *cursor
	for i := range m.cursors {
		if c := &m.cursors[i]; c.valid() && (least == nil || bytes.Compare(c.cur.key, least.cur.key) < 0) {
			least = c
		}
	}
	return least
}

// skip moves all cursors past a key, which is that of the cursor that peek has returned.
func (m *merger) skip(key []byte) {
	if len(m.cursors) == 1 {
		m.cursors[0].next()
		return
	}
	for i := range m.cursors {
		if c := &m.cursors[i]; c.valid() && bytes.Equal(c.cur.key, key) {
			c.next()
		}
	}
}

// stages returns the stages that the layers have entries of, ascending.
func stages(layers []*layer) []dataflow.StageID {
	var out []dataflow.StageID
	for _, l := range layers {
		for _, r := range l.runs {
			out = append(out, r.stage)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
