package state

import (
	"bytes"
	"errors"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
)

// A batch of look-ups goes through memory in steps, each for all keys before the next step: the processor then waits for
// several of them at once, and a miss of its cache costs a part of what it does alone.

// GetAll answers the open keys with their newest values, under one hold of the lock. What it leaves open is in the cut base, as
// for Get; it has told l of the partials. It returns false when the table is closed.
func (t *Table) GetAll(l *dataflow.Lookups) (base dataflow.CheckpointID, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return 0, false
	}
	open := l.Open()
	t.touchLocked(l, open)
	for _, i := range open {
		if p := &t.mu.parts[partOf(l.Hash(i))]; p.capacity > 0 {
			if pos, found := p.find(&t.slots, l.Hash(i), l.Key(i)); found {
				if getBit(p.partial, pos) {
					if !t.answerPartialLocked(l, i, p, pos) {
						return t.mu.committed, true
					}
				} else if !t.answerLocked(l, i, p, pos) {
					return t.mu.committed, true
				}
				continue
			}
		}
		if !t.inBaseLocked(l.Hash(i)) {
			l.Absent(i)
		}
	}
	return t.mu.committed, true
}

// CommittedAll answers the open keys with their values in a committed cut, where it can tell: see AppendCommitted. It waits
// for nobody.
func (t *Table) CommittedAll(cut dataflow.CheckpointID, l *dataflow.Lookups) {
	if t.budget == nil || !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.committed != cut {
		return
	}
	open := l.Open()
	t.touchLocked(l, open)
	for _, i := range open {
		part := partOf(l.Hash(i))
		p := &t.mu.parts[part]
		pos, found := 0, false
		if p.capacity > 0 {
			pos, found = p.find(&t.slots, l.Hash(i), l.Key(i))
		}
		switch {
		case !found:
			if t.missedLocked(l.Hash(i)) == Absent {
				l.Absent(i)
			}
		case t.uncommittedLocked(part, pos):
		case !t.answerLocked(l, i, p, pos):
			return
		}
	}
}

// answerLocked answers with what a slot has, and reports whether there was room for it.
func (t *Table) answerLocked(l *dataflow.Lookups, i int32, p *subtable, pos int) bool {
	val := t.slots.valueOf(p.slot(&t.slots, pos))
	if val == nil {
		l.Absent(i)
		return true
	}
	return l.Found(i, val)
}

// touchLocked is Prefetch for look-ups.
func (t *Table) touchLocked(l *dataflow.Lookups, open []int32) {
	var sum byte
	for _, i := range open {
		h := l.Hash(i)
		p := &t.mu.parts[partOf(h)]
		home, _ := bits.Mul64(h, uint64(p.capacity))
		if at := int(home) * t.slots.size; at < len(p.mem.bytes) {
			sum += p.mem.bytes[at]
		}
	}
	t.mu.prefetched = sum
}

// GetAll answers all keys that are open. Errors: CORRUPT, SHUTTING_DOWN.
func (v *View) GetAll(stage dataflow.StageID, l *dataflow.Lookups) error {
	open := l.Open()
	for _, layer := range v.layers {
		if len(open) == 0 {
			return nil
		}
		if r := layer.run(stage); r != nil {
			for len(open) > 0 {
				n := min(len(open), lookupStep)
				r.getSome(l, open[:n])
				open = open[n:]
			}
			open = l.Open()
		}
	}
	if v.snap == nil {
		for _, i := range open {
			l.Absent(i)
		}
		return nil
	}
	for _, i := range open {
		if goOn, err := v.getStored(stage, l, i); !goOn || err != nil {
			return err
		}
	}
	return nil
}

// getStored answers a key that no layer has, and reports whether there was room.
func (v *View) getStored(stage dataflow.StageID, l *dataflow.Lookups, i int32) (goOn bool, err error) {
	if v.r.closed.Load() {
		return false, errShuttingDown()
	}
	var buf [128]byte
	val, closer, err := v.snap.Get(appendStoreKey(buf[:0], v.uid, stage, l.Key(i)))
	if errors.Is(err, pebble.ErrNotFound) {
		l.Absent(i)
		return true, nil
	}
	if err != nil {
		return false, corrupt(err)
	}
	goOn = l.Found(i, val)
	return goOn, corrupt(closer.Close())
}

// lookupStep is how many keys go through a step together. The processor has no more waits for memory under way at once
// than a quarter of that.
const lookupStep = 64

// getSome answers those of at most lookupStep keys that the run has.
func (r *run) getSome(l *dataflow.Lookups, keys []int32) {
	if len(r.filter) == 0 {
		return
	}
	var passed [lookupStep]bool
	for n, i := range keys {
		word, mask := r.filter.place(rankOf(l.Hash(i)))
		passed[n] = r.filter[word]&mask == mask
	}
	var at [lookupStep]struct {
		key      int32
		rank     uint32
		from, to int    // the items to look at
		place    uint32 // of the first entry to look at
		size     byte   // what that begins with: the length of its key, if that is short
	}
	n := 0
	for k, i := range keys {
		if passed[k] {
			a := &at[n]
			a.key, a.rank = i, rankOf(l.Hash(i))
			a.from, a.to = r.order.bucket(a.rank)
			n++
		}
	}
	for k := range at[:n] {
		a := &at[k]
		for a.from < a.to && r.order.items[a.from].rank() != a.rank {
			a.from++
		}
		if a.from < a.to {
			a.place = r.order.items[a.from].place()
		}
	}
	for k := range at[:n] {
		if a := &at[k]; a.from < a.to {
			a.size = r.raw(a.place)[0]
		}
	}
	for k := range at[:n] {
		a := &at[k]
		key := l.Key(a.key)
		for i := a.from; i < a.to && r.order.items[i].rank() == a.rank; i++ {
			if i == a.from && a.size < 0x80 && int(a.size) != len(key) {
				continue
			}
			if e := r.entry(r.order.items[i].place()); bytes.Equal(e.key, key) {
				if e.val == nil {
					l.Absent(a.key)
				} else if !l.Found(a.key, e.val) {
					return
				}
				break
			}
		}
	}
}
