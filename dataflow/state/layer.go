package state

import (
	"fmt"
	"math/bits"
	"sort"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
)

// layer is an immutable sorted run in memory: one complete delta, or several neighbouring ones merged, newest wins,
// tombstones kept. It covers the deltas first to last.
type layer struct {
	first, last dataflow.DeltaRef
	segs        [][]byte
	at          []uint64 // entries in order: segment << 32 | offset
	bytes       int64    // of entries
	filter      filter
	index       index
}

func (l *layer) entry(i int) rawEntry {
	e, err := decodeEntry(l.segs[l.at[i]>>32][uint32(l.at[i]):])
	if err != nil {
		// All entries were decoded once when the layer was made, and nothing has write access to its bytes since.
		panic(fmt.Sprintf("state: layer %s–%s changed in memory: %v", l.first, l.last, err))
	}
	return e
}

// search returns the index of the first entry that is not less than k.
func (l *layer) search(k stageKey) int {
	return sort.Search(len(l.at), func(i int) bool { return l.entry(i).stageKey.compare(k) >= 0 })
}

// get returns the value of k (nil = tombstone) and whether the layer says anything about k. hash is k.hash().
func (l *layer) get(k stageKey, hash uint64) (val []byte, found bool) {
	if !l.filter.mayContain(hash) {
		return nil, false
	}
	for slot := l.index.first(hash); l.index[slot] != 0; slot = l.index.next(slot) {
		if e := l.entry(int(l.index[slot] - 1)); e.stageKey.compare(k) == 0 {
			return e.val, true
		}
	}
	return nil, false
}

// hash mixes the stage into the hash of the key.
func (k stageKey) hash() uint64 {
	return xxhash.Sum64(k.key) ^ uint64(k.stage)*0x9E3779B97F4A7C15
}

// filter is a Bloom filter whose bits of one key stand in one 64-bit word: one cache miss per question. With five keys
// per word about one absent key in forty passes.
type filter []uint64

const (
	filterKeysPerWord = 5
	filterBits        = 6
)

func newFilter(hashes []uint64) filter {
	f := make(filter, len(hashes)/filterKeysPerWord+1)
	for _, h := range hashes {
		i, mask := f.place(h)
		f[i] |= mask
	}
	return f
}

func (f filter) place(hash uint64) (word uint64, mask uint64) {
	word, rest := bits.Mul64(hash, uint64(len(f)))
	rest *= 0x9E3779B97F4A7C15
	for i := 0; i < filterBits; i++ {
		mask |= 1 << (rest >> 58)
		rest <<= 6
	}
	return word, mask
}

func (f filter) mayContain(hash uint64) bool {
	if len(f) == 0 {
		return false
	}
	i, mask := f.place(hash)
	return f[i]&mask == mask
}

// index finds the entry of a key by its hash: open addressing, the number of the entry + 1, 0 = free. A search in the sorted
// entries costs a cache miss or two at each of its steps; here it is one or two in all. It is between a third and two
// thirds full, so a key takes 6 to 12 bytes.
type index []uint32

func newIndex(hashes []uint64) index {
	x := make(index, 1<<bits.Len(uint(len(hashes)+len(hashes)/2)))
	for i, h := range hashes {
		slot := x.first(h)
		for x[slot] != 0 {
			slot = x.next(slot)
		}
		x[slot] = uint32(i + 1)
	}
	return x
}

// first returns where to look first: the high bits of the hash. All keys of a shard have low bits in common, those that
// chose the shard.
func (x index) first(hash uint64) int {
	high, _ := bits.Mul64(hash, uint64(len(x)))
	return int(high)
}

func (x index) next(slot int) int { return (slot + 1) & (len(x) - 1) }

// layerBuilder makes a layer of entries that come in order.
type layerBuilder struct {
	segs   [][]byte
	at     []uint64
	hashes []uint64
	bytes  int64
	last   stageKey
}

// note records an entry that stands at the given offset of the newest segment. Entries must come sorted, each key once.
func (b *layerBuilder) note(off int, e rawEntry) error {
	if len(b.at) > 0 && b.last.compare(e.stageKey) >= 0 {
		return fmt.Errorf("%w: keys out of order", errDelta)
	}
	b.last = e.stageKey
	b.at = append(b.at, uint64(len(b.segs)-1)<<32|uint64(off))
	b.hashes = append(b.hashes, e.stageKey.hash())
	b.bytes += int64(e.size)
	return nil
}

// addChunk decodes a chunk of a delta and keeps it.
func (b *layerBuilder) addChunk(data []byte) error {
	b.segs = append(b.segs, data)
	return decodeChunk(data, b.note)
}

func (b *layerBuilder) finish(first, last dataflow.DeltaRef) *layer {
	return &layer{first: first, last: last, segs: b.segs, at: b.at, bytes: b.bytes, filter: newFilter(b.hashes), index: newIndex(b.hashes)}
}

// cursor walks a range of a layer.
type cursor struct {
	l      *layer
	i, end int
	cur    rawEntry
}

func newCursor(l *layer, i, end int) cursor {
	c := cursor{l: l, i: i - 1, end: end}
	c.next()
	return c
}

func (c *cursor) valid() bool { return c.i < c.end }

func (c *cursor) next() {
	if c.i++; c.i < c.end {
		c.cur = c.l.entry(c.i)
	}
}

// merger walks several layers as one: each key once, with the newest layer's value, tombstones included. The cursors are
// few, so the smallest is found by looking at each.
type merger struct {
	cursors []cursor // newest layer first
}

func newMerger(newestFirst []*layer) *merger {
	m := &merger{cursors: make([]cursor, 0, len(newestFirst))}
	for _, l := range newestFirst {
		m.cursors = append(m.cursors, newCursor(l, 0, len(l.at)))
	}
	return m
}

// newRangeMerger is newMerger for lo ≤ key < hi of a stage; nil hi = to the stage's end.
func newRangeMerger(newestFirst []*layer, stage dataflow.StageID, lo, hi []byte) *merger {
	m := &merger{cursors: make([]cursor, 0, len(newestFirst))}
	for _, l := range newestFirst {
		end := len(l.at)
		if hi != nil {
			end = l.search(stageKey{stage, hi})
		} else if stage+1 != 0 {
			end = l.search(stageKey{stage: stage + 1})
		}
		if from := l.search(stageKey{stage, lo}); from < end {
			m.cursors = append(m.cursors, newCursor(l, from, end))
		}
	}
	return m
}

// peek returns the cursor with the smallest key, of equal ones the newest; nil at the end.
func (m *merger) peek() *cursor {
	var least *cursor
	for i := range m.cursors {
		if c := &m.cursors[i]; c.valid() && (least == nil || c.cur.stageKey.compare(least.cur.stageKey) < 0) {
			least = c
		}
	}
	return least
}

// skip moves all cursors past k.
func (m *merger) skip(k stageKey) {
	for i := range m.cursors {
		if c := &m.cursors[i]; c.valid() && c.cur.stageKey.compare(k) == 0 {
			c.next()
		}
	}
}

// foldSegment is the size of the segments that folded layers are written to. An entry does not span two.
const foldSegment = 1 << 20

// fold merges neighbouring layers, oldest first, into one.
func fold(layers []*layer) *layer {
	newestFirst := make([]*layer, len(layers))
	entries := 0
	for i, l := range layers {
		newestFirst[len(layers)-1-i] = l
		entries = max(entries, len(l.at))
	}
	b := layerBuilder{at: make([]uint64, 0, entries), hashes: make([]uint64, 0, entries)}
	m := newMerger(newestFirst)
	for c := m.peek(); c != nil; c = m.peek() {
		e := c.cur
		raw := c.l.segs[c.l.at[c.i]>>32][uint32(c.l.at[c.i]):][:e.size]
		if n := len(b.segs); n == 0 || len(b.segs[n-1])+len(raw) > cap(b.segs[n-1]) {
			b.segs = append(b.segs, make([]byte, 0, max(foldSegment, len(raw))))
		}
		seg := &b.segs[len(b.segs)-1]
		off := len(*seg)
		*seg = append(*seg, raw...)
		if err := b.note(off, e); err != nil {
			panic("state: merged layers are out of order") // the layers were checked when they were made
		}
		m.skip(e.stageKey)
	}
	return b.finish(layers[0].first, layers[len(layers)-1].last)
}
