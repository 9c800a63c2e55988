package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/weirdb/weir/dataflow"
)

// run is the entries of one stage in a layer. It is found by hash; the order of the keys, which only walks ask for, is
// made when the first does. Immutable.
type run struct {
	stage  dataflow.StageID
	segs   [][]byte
	index  index
	filter filter

	once  sync.Once
	order []uint32 // places by key
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
	if !r.filter.mayContain(hash) {
		return nil, false
	}
	for slot := r.index.first(hash); r.index[slot] != 0; slot = r.index.next(slot) {
		if e := r.entry(r.index[slot] - 1); bytes.Equal(e.key, key) {
			return e.val, true
		}
	}
	return nil, false
}

// each calls fn for every entry, in the order of the index, until it returns false; then each does.
func (r *run) each(fn func(hash uint64, raw []byte, e rawEntry) bool) bool {
	for _, at := range r.index {
		if at == 0 {
			continue
		}
		e := r.entry(at - 1)
		if !fn(dataflow.HashKey(e.key), r.raw(at - 1)[:e.size], e) {
			return false
		}
	}
	return true
}

// sorted returns the places of the entries by key.
func (r *run) sorted() []uint32 {
	r.once.Do(r.sort)
	return r.order
}

// sort compares the eight bytes after what all keys have in common, and the whole keys only where these are equal.
func (r *run) sort() {
	type item struct {
		prefix uint64
		at     uint32
	}
	items := make([]item, 0, len(r.index)*2/3)
	var common []byte
	for _, at := range r.index {
		if at == 0 {
			continue
		}
		key := r.entry(at - 1).key
		if len(items) == 0 {
			common = key
		}
		common = common[:min(len(common), len(key))]
		for !bytes.HasPrefix(key, common) {
			common = common[:len(common)-1]
		}
		items = append(items, item{at: at - 1})
	}
	for i := range items {
		var p [8]byte
		copy(p[:], r.entry(items[i].at).key[len(common):])
		items[i].prefix = binary.BigEndian.Uint64(p[:])
	}
	slices.SortFunc(items, func(a, b item) int {
		if c := cmp.Compare(a.prefix, b.prefix); c != 0 {
			return c
		}
		return bytes.Compare(r.entry(a.at).key, r.entry(b.at).key)
	})
	r.order = make([]uint32, len(items))
	for i := range items {
		r.order[i] = items[i].at
	}
}

// runBuilder collects where the entries of a run are.
type runBuilder struct {
	stage dataflow.StageID
	notes notes
	bytes int64
	twice []byte // a key that is there twice
}

func (b *runBuilder) note(at uint32, hash uint64, size int) {
	b.notes.add(at, hash)
	b.bytes += int64(size)
}

// notes is a list of hashes and places that grows without being copied: only its first part grows by appending.
type notes struct {
	parts []notesPart
	n     int
}

type notesPart struct {
	hashes []uint64
	places []uint32
}

const (
	notesPartBits = 13
	notesPartSize = 1 << notesPartBits
)

func (l *notes) add(place uint32, hash uint64) {
	if l.n&(notesPartSize-1) == 0 {
		var p notesPart
		if l.n > 0 {
			p = notesPart{make([]uint64, 0, notesPartSize), make([]uint32, 0, notesPartSize)}
		}
		l.parts = append(l.parts, p)
	}
	p := &l.parts[len(l.parts)-1]
	p.hashes, p.places = append(p.hashes, hash), append(p.places, place)
	l.n++
}

func (l *notes) hash(i int) uint64 { return l.parts[i>>notesPartBits].hashes[i&(notesPartSize-1)] }

func (l *notes) place(i int) uint32 { return l.parts[i>>notesPartBits].places[i&(notesPartSize-1)] }

func (b *runBuilder) finish(segs [][]byte) (*run, error) {
	r := &run{stage: b.stage, segs: segs, filter: newFilter(&b.notes)}
	r.index = newIndex(&b.notes, func(i, j int) {
		if e := r.entry(b.notes.place(i)); bytes.Equal(e.key, r.entry(b.notes.place(j)).key) {
			b.twice = e.key
		}
	})
	if b.twice != nil {
		return nil, fmt.Errorf("%w: key %x of stage %d comes twice", errDelta, b.twice, b.stage)
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

func newFilter(l *notes) filter {
	f := make(filter, l.n/filterKeysPerWord+1)
	for _, p := range l.parts {
		for _, h := range p.hashes {
			i, mask := f.place(h)
			f[i] |= mask
		}
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

// index finds the entry of a key by its hash: open addressing, the place of the entry + 1, 0 = free. It is between a third
// and two thirds full, so a key takes 6 to 12 bytes. A delta comes in about the order of the hashes, which is that of the
// index, so filling it goes through memory once.
type index []uint32

// newIndex returns the index of the entries. It calls same for the numbers of two entries whose hashes are equal.
func newIndex(l *notes, same func(i, j int)) index {
	x := make(index, 1<<bits.Len(uint(l.n+l.n/2)))
	i := 0
	for _, p := range l.parts {
		for _, h := range p.hashes {
			slot := x.first(h)
			for ; x[slot] != 0; slot = x.next(slot) {
				if j := int(x[slot] - 1); l.hash(j) == h {
					same(i, j)
				}
			}
			i++
			x[slot] = uint32(i)
		}
	}
	for slot, n := range x {
		if n != 0 {
			x[slot] = l.place(int(n-1)) + 1
		}
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
