package state

import (
	"bytes"
	"container/heap"
	"slices"
)

// Entry is a key and its value, both the receiver's own. A nil Val says that the key is absent.
type Entry struct{ Key, Val []byte }

// Scan returns copies of the first limit entries with from ≤ key < to, by key. A nil to is no bound, a limit ≤ 0 is none. It
// takes the lock for a part of the table at a time, so it is not one moment of the table: each key is there once, with a
// value it had during the scan. Each call walks the whole table.
//
// The answer is Found when that is all there is; InBase when the keys that are not among the entries are in the base, read
// after the call: then keys that the table knows to be absent are among the entries too. Or it is Closed.
func (t *Table) Scan(from, to []byte, limit int) ([]Entry, Answer) {
	for {
		complete := t.Complete()
		h, open := t.scan(from, to, limit, !complete)
		switch {
		case !open:
			return nil, Closed
		case !complete:
			return h, InBase
		case t.Complete():
			return h, Found
		}
		// Entries were evicted meanwhile, before or after the scan came to them.
	}
}

func (t *Table) scan(from, to []byte, limit int, absent bool) (entries []Entry, open bool) {
	var h entryHeap
	for i := range t.mu.parts {
		t.mu.Lock()
		if t.mu.closed {
			t.mu.Unlock()
			return nil, false
		}
		p := &t.mu.parts[i]
		for pos := range p.capacity {
			slot := p.slot(&t.slots, pos)
			if slot[0] == 0 || slot[0]&headPresent == 0 && !absent {
				continue
			}
			key := t.slots.keyOf(slot)
			if bytes.Compare(key, from) < 0 || to != nil && bytes.Compare(key, to) >= 0 {
				continue
			}
			switch {
			case limit <= 0 || len(h) < limit:
				h = append(h, Entry{bytes.Clone(key), clone(t.slots.valueOf(slot))})
				if len(h) == limit {
					heap.Init(&h)
				}
			case bytes.Compare(key, h[0].Key) < 0:
				h[0] = Entry{bytes.Clone(key), clone(t.slots.valueOf(slot))}
				heap.Fix(&h, 0)
			}
		}
		t.mu.Unlock()
	}
	slices.SortFunc(h, func(a, b Entry) int { return bytes.Compare(a.Key, b.Key) })
	return h, true
}

// entryHeap is a heap with the largest key on top.
type entryHeap []Entry

func (h entryHeap) Len() int           { return len(h) }
func (h entryHeap) Less(i, j int) bool { return bytes.Compare(h[i].Key, h[j].Key) > 0 }
func (h entryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *entryHeap) Push(x any)        { *h = append(*h, x.(Entry)) }
func (h *entryHeap) Pop() any          { e := (*h)[len(*h)-1]; *h = (*h)[:len(*h)-1]; return e }

// clone copies b, keeping nil (absent) apart from empty.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
