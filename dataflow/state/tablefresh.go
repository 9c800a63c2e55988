package state

import "math/bits"

// Fresh passes to emit the keys that have changed since the last Freeze, with their newest or partial values, nil for a deleted
// key, until emit returns false. It takes the lock for a part of the table at a time, under which emit runs: it copies what it
// needs, and does nothing else. The answer is false when the table is closed.
func (t *Table) Fresh(emit func(Entry) bool) (open bool) {
	for i := range t.mu.parts {
		more, open := t.freshPart(i, emit)
		if !open || !more {
			return open
		}
	}
	return true
}

func (t *Table) freshPart(i int, emit func(Entry) bool) (more, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return false, false
	}
	p := &t.mu.parts[i]
	for word, set := range p.dirty {
		for ; set != 0; set &= set - 1 {
			pos := word<<6 + bits.TrailingZeros64(set)
			if !emit(t.entryLocked(p, pos, t.slots.keyOf(p.slot(&t.slots, pos)))) {
				return false, true
			}
		}
	}
	return true, true
}
