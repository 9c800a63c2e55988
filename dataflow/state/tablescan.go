package state

import (
	"bytes"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// Entry is a key and its value, both the receiver's own. A nil Val says that the key is absent.
type Entry struct {
	Key, Val []byte
	// Partial says that Val is a partial value, to be merged into the one that the cut Base has.
	Partial bool
	Base    dataflow.CheckpointID
}

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
	f := firsts{lo: from, hi: to, bounded: to != nil, limit: limit}
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
			if key := t.slots.keyOf(slot); f.admits(key) {
				f.add(t.entryLocked(p, pos, key))
			}
		}
		t.mu.Unlock()
	}
	f.cut()
	return f.found, true
}

// firsts collects the first limit entries of a range from entries in any order. It holds up to twice as many as it was
// asked for before it throws the later ones away, and takes none behind these from then on.
type firsts struct {
	lo, hi  []byte
	bounded bool // by hi
	limit   int  // 0 = none
	found   []Entry
}

func (f *firsts) admits(k []byte) bool {
	return bytes.Compare(k, f.lo) >= 0 && (!f.bounded || bytes.Compare(k, f.hi) < 0)
}

// add copies an entry.
func (f *firsts) add(e Entry) {
	e.Key, e.Val = bytes.Clone(e.Key), clone(e.Val)
	f.found = append(f.found, e)
	if f.limit > 0 && len(f.found) == 2*f.limit {
		f.cut()
		f.hi, f.bounded = f.found[f.limit-1].Key, true
	}
}

// cut sorts what was found and keeps the first.
func (f *firsts) cut() {
	slices.SortFunc(f.found, func(a, b Entry) int { return bytes.Compare(a.Key, b.Key) })
	if f.limit > 0 && len(f.found) > f.limit {
		clear(f.found[f.limit:])
		f.found = f.found[:f.limit]
	}
}

// clone copies b, keeping nil (absent) apart from empty.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
