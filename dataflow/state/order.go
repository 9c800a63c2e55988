package state

import (
	"runtime"
	"slices"
)

// Layers keep their entries in the order of a table's slots, which is that of the ranks of their hashes: a delta comes in it,
// about, so putting it in order goes through memory once, and layers are merged from one end to the other.

// rankOf returns the place of a hash in a table's order: by the part, and in it by the highest bits, as slots are.
func rankOf(hash uint64) uint32 {
	const within = 32 - tablePartBits
	return uint32(partOf(hash))<<within | uint32(hash>>(64-within))
}

// item is an entry of a run: its rank, and its place below that.
type item uint64

func newItem(rank, place uint32) item { return item(rank)<<32 | item(place) }

func (i item) rank() uint32  { return uint32(i >> 32) }
func (i item) place() uint32 { return uint32(i) }

// order holds the items of a run by rank. Ranks are spread evenly, so a bucket is found by a multiplication.
type order struct {
	items  []item
	starts []uint32 // of each bucket, and the end of the last; nil = there are no items
}

// bucketKeys is how many items a bucket has on average: half of a line of the processor's cache.
const bucketKeys = 4

// bucket returns where the items with a rank are, among others.
func (o *order) bucket(rank uint32) (from, to int) {
	if len(o.items) == 0 {
		return 0, 0
	}
	b := o.bucketOf(rank)
	return int(o.starts[b]), int(o.starts[b+1])
}

func (o *order) bucketOf(rank uint32) int { return int(uint64(rank) * uint64(len(o.starts)-1) >> 32) }

// newOrder puts items in order: each into its bucket, and those of a bucket by themselves.
func newOrder(l *notes) order {
	if l.n == 0 {
		return order{}
	}
	o := order{items: make([]item, l.n), starts: make([]uint32, l.n/bucketKeys+2)}
	var p pacer
	for _, part := range l.parts {
		for _, it := range part {
			o.starts[o.bucketOf(it.rank())+1]++
		}
		p.did(len(part))
	}
	last := len(o.starts) - 1
	for b := range last {
		o.starts[b+1] += o.starts[b]
	}
	for _, part := range l.parts {
		for _, it := range part {
			at := &o.starts[o.bucketOf(it.rank())]
			o.items[*at] = it
			*at++ // the starts become the ends
		}
		p.did(len(part))
	}
	copy(o.starts[1:], o.starts[:last])
	o.starts[0] = 0
	for b := range last {
		sortFew(o.items[o.starts[b]:o.starts[b+1]])
		p.did(bucketKeys)
	}
	return o
}

// sortFew sorts a bucket, which has few items unless somebody has made their hashes alike.
func sortFew(items []item) {
	if len(items) > 8*bucketKeys {
		slices.Sort(items)
		return
	}
	for i := 1; i < len(items); i++ {
		it, j := items[i], i
		for ; j > 0 && items[j-1] > it; j-- {
			items[j] = items[j-1]
		}
		items[j] = it
	}
}

// notes is a list of items that grows without being copied: only its first part grows by appending.
type notes struct {
	parts [][]item
	n     int
}

const notesPartSize = 1 << 13

func (l *notes) add(it item) {
	if l.n&(notesPartSize-1) == 0 {
		var part []item
		if l.n > 0 {
			part = make([]item, 0, notesPartSize)
		}
		l.parts = append(l.parts, part)
	}
	p := &l.parts[len(l.parts)-1]
	*p = append(*p, it)
	l.n++
}

// pacer lets a long computation give its processor to others now and then: without that, a read that has come meanwhile waits
// until the runtime interrupts what computes, which it does every ten milliseconds.
type pacer struct{ n int }

// paceEvery is how many entries are worked on between two breaks: half a millisecond of work, which a break is small beside.
const paceEvery = 16 << 10

// did says that n more entries were worked on.
func (p *pacer) did(n int) {
	if p.n += n; p.n >= paceEvery {
		p.n = 0
		runtime.Gosched()
	}
}
