package state

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/weirdb/weir/dataflow"
)

// run is the entries of one stage in a layer, in the order of the table that they come from. It is found by hash; the order of
// the keys, which only walks ask for, is made when the first does. Immutable.
type run struct {
	stage  dataflow.StageID
	segs   [][]byte
	order  order
	filter filter

	once  sync.Once
	byKey []uint32 // places
}

// A place names an entry: the number of its segment << segmentBits | its offset there. A segment larger than that has a
// single entry, near its start.
const (
	segmentBits = 18
	maxSegments = 1 << (32 - segmentBits)
	// MaxDeltaChunks is how many chunks a delta may have: of large entries, that is what fits into half of a layer.
	MaxDeltaChunks = maxSegments / 2
	// foldSegment is the size of the segments that merged layers are written to. An entry does not span two.
	foldSegment = 1 << segmentBits
)

// The offsets of a chunk's entries fit, unless it has a single large one.
const _ = uint(1<<segmentBits - dataflow.MaxDeltaChunkBytes)

func place(seg, off int) uint32 { return uint32(seg)<<segmentBits | uint32(off) }

func (r *run) raw(place uint32) []byte {
	return r.segs[place>>segmentBits][place&(1<<segmentBits-1):]
}

func (r *run) entry(place uint32) rawEntry {
	e, err := decodeEntry(r.raw(place))
	if err != nil {
		// All entries were decoded once when the layer was made, and nothing has write access to its bytes since.
		panic(fmt.Sprintf("state: a layer changed in memory: %v", err))
	}
	return e
}

// get returns the value of a key (nil = tombstone) and whether the run has the key.
func (r *run) get(hash uint64, key []byte) (val []byte, found bool) {
	rank := rankOf(hash)
	if !r.filter.mayContain(rank) {
		return nil, false
	}
	for i, to := r.order.bucket(rank); i < to; i++ {
		if it := r.order.items[i]; it.rank() == rank {
			if e := r.entry(it.place()); bytes.Equal(e.key, key) {
				return e.val, true
			}
		}
	}
	return nil, false
}

// sorted returns the places of the entries by key.
func (r *run) sorted() []uint32 {
	r.once.Do(func() { r.byKey = sortByKey(r) })
	return r.byKey
}

// runBuilder collects where the entries of a run are.
type runBuilder struct {
	stage dataflow.StageID
	notes notes
	bytes int64
}

func (b *runBuilder) note(it item, size int) {
	b.notes.add(it)
	b.bytes += int64(size)
}

// finish makes the run. The error says that a key came twice.
func (b *runBuilder) finish(segs [][]byte) (*run, error) {
	r := &run{stage: b.stage, segs: segs, order: newOrder(&b.notes)}
	r.filter = newFilter(r.order.items)
	items := r.order.items
	for i := 1; i < len(items); i++ {
		for j := i - 1; j >= 0 && items[j].rank() == items[i].rank(); j-- {
			if k := r.entry(items[i].place()).key; bytes.Equal(k, r.entry(items[j].place()).key) {
				return nil, fmt.Errorf("%w: key %x of stage %d comes twice", errDelta, k, b.stage)
			}
		}
	}
	return r, nil
}

// filter is a Bloom filter whose bits of one key stand in one 64-bit word: one cache miss per question. With five keys
// per word about one absent key in forty passes.
type filter []uint64

const (
	filterKeysPerWord = 5
	filterBits        = 6
)

func newFilter(items []item) filter {
	f := make(filter, len(items)/filterKeysPerWord+1)
	var p pacer
	for _, it := range items {
		i, mask := f.place(it.rank())
		f[i] |= mask
		p.did(1)
	}
	return f
}

// place says which word of the filter a key's bits are in, and which bits. Words are in the order of the ranks.
func (f filter) place(rank uint32) (word uint64, mask uint64) {
	return uint64(rank) * uint64(len(f)) >> 32, filterMask(rank)
}

// filterMask says which bits of its word a key has in every filter.
func filterMask(rank uint32) (mask uint64) {
	rest := uint64(rank) * 0x9E3779B97F4A7C15
	for range filterBits {
		mask |= 1 << (rest >> 58)
		rest <<= 6
	}
	return mask
}

func (f filter) mayContain(rank uint32) bool {
	if len(f) == 0 {
		return false
	}
	i, mask := f.place(rank)
	return f[i]&mask == mask
}
