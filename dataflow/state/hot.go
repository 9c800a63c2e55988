package state

import "github.com/weirdb/weir/dataflow"

// AppendCommitted appends the value that a key has in a committed cut to dst, if the table can tell: it can for the newest
// cut that it knows of, when the key is in no uncommitted cut and has not changed since. The answer is Found or Absent then;
// InBase says that the cut itself is to be asked, as it is when the writer has the lock: who reads committed waits for
// nobody.
func (t *Table) AppendCommitted(cut dataflow.CheckpointID, key, dst []byte) (val []byte, a Answer) {
	if t.budget == nil || !t.mu.TryLock() { // without a budget it does not remember what is uncommitted
		return dst, InBase
	}
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.committed != cut {
		return dst, InBase
	}
	hash := dataflow.HashKey(key)
	part := partOf(hash)
	p := &t.mu.parts[part]
	if p.capacity == 0 {
		return dst, t.missedLocked(hash)
	}
	pos, found := p.find(&t.slots, hash, key)
	if !found {
		return dst, t.missedLocked(hash)
	}
	if t.uncommittedLocked(part, pos) {
		return dst, InBase
	}
	if val := t.slots.valueOf(p.slot(&t.slots, pos)); val != nil {
		return append(dst, val...), Found
	}
	return dst, Absent
}

// uncommittedLocked reports whether a slot has changed since the newest cut, or is in a cut that is not committed.
func (t *Table) uncommittedLocked(part, pos int) bool {
	if getBit(t.mu.parts[part].dirty, pos) {
		return true
	}
	for _, f := range t.mu.pending {
		if getBit(f.bits[part], pos) {
			return true
		}
	}
	return false
}

// missedLocked is the answer for a key that has no slot. A key of the cut has one, until it is evicted: one that was deleted
// since keeps its slot until a cut without it is committed.
func (t *Table) missedLocked(hash uint64) Answer {
	if t.inBaseLocked(hash) {
		return InBase
	}
	return Absent
}
