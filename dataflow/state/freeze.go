package state

import (
	"math/bits"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// Frozen is what a table had changed when it was frozen: the keys, with the values of that moment. It is gathered by one
// goroutine, once, by Table.Gather.
//
// Freezing takes the bitmap of changed slots away from each part. A slot that changes again before it has been gathered
// leaves its key and old value in before, and its bit is cleared: a bit that is set always means that the slot still has
// the value of the freeze.
type Frozen struct {
	bits [tableParts][]uint64
	left int // changes that remain to be gathered

	part, word int // where Gather goes on
	whole      struct {
		part, word int // where Resolve goes on
	}

	before struct {
		arena []byte
		ends  []keptEnd
		next  int // the first that has not been gathered
	}
}

// keptEnd says where a kept key and its value end in the arena.
type keptEnd struct {
	key, val int
	deleted  bool
}

func (f *Frozen) keep(key, val []byte) {
	b := &f.before
	b.arena = append(b.arena, key...)
	at := len(b.arena)
	b.arena = append(b.arena, val...)
	b.ends = append(b.ends, keptEnd{key: at, val: len(b.arena), deleted: val == nil})
}

func (f *Frozen) size() int64 {
	return int64(cap(f.before.arena)+24*cap(f.before.ends)) + bitBytes(&f.bits)
}

func bitBytes(bits *[tableParts][]uint64) (n int64) {
	for _, b := range bits {
		n += int64(8 * len(b))
	}
	return n
}

// Len returns how many changes remain to be gathered. The gathering goroutine may call it.
func (f *Frozen) Len() int { return f.left }

// Freeze takes what has changed since the last Freeze out of the table as a set to be gathered for checkpoint attempt n. It
// takes the bitmaps, and copies them when the table has a budget: a bit per slot, whatever has changed. Several sets may be outstanding; their deltas must go out in the order of the freezes.
func (t *Table) Freeze(n dataflow.CheckpointID) *Frozen {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &Frozen{left: t.mu.changed}
	if t.mu.changed == 0 {
		return f
	}
	t.mu.changed = 0
	t.mu.frozenPartials = t.mu.partials
	if t.budget != nil {
		held := &pending{id: n}
		for i := range t.mu.parts {
			held.bits[i] = slices.Clone(t.mu.parts[i].dirty)
		}
		t.mu.pending = append(t.mu.pending, held)
		t.joinPendingLocked()
	}
	for i := range t.mu.parts {
		p := &t.mu.parts[i]
		f.bits[i], p.dirty = p.dirty, nil
	}
	t.mu.frozen = append(t.mu.frozen, f)
	return f
}

// Gather passes up to max changes of f to emit, with their values at the freeze, nil for a deleted key, each key once, and
// reports whether f has no more. Most come in about the order of their hashes. emit runs under the lock: it copies what it
// needs, and does nothing else. Between two calls the writer may go on; a max of some thousand keeps the pauses well below
// a millisecond. The partials of f have been resolved before.
func (t *Table) Gather(f *Frozen, max int, emit func(key, val []byte)) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return true
	}
	for max > 0 && f.left > 0 && f.part < tableParts {
		if f.word < len(f.bits[f.part]) {
			max -= t.gatherWordLocked(f, emit)
			continue
		}
		t.partGatheredLocked(f)
	}
	b := &f.before
	for ; max > 0 && b.next < len(b.ends); max-- {
		from, e := 0, b.ends[b.next]
		if b.next > 0 {
			from = b.ends[b.next-1].val
		}
		val := b.arena[e.key:e.val:e.val]
		if e.deleted {
			val = nil
		}
		emit(b.arena[from:e.key:e.key], val)
		b.next++
		f.left--
	}
	if f.left > 0 {
		return false
	}
	for f.part < tableParts {
		t.partGatheredLocked(f)
	}
	*f = Frozen{part: tableParts}
	t.mu.frozen = slices.DeleteFunc(t.mu.frozen, func(o *Frozen) bool { return o == f })
	return true
}

// gatherWordLocked emits the changes of one word of the bitmap and returns how many there were.
func (t *Table) gatherWordLocked(f *Frozen, emit func(key, val []byte)) (n int) {
	p, w := &t.mu.parts[f.part], f.bits[f.part][f.word]
	for rest := w; rest != 0; rest &= rest - 1 {
		slot := p.slot(&t.slots, f.word<<6+bits.TrailingZeros64(rest))
		emit(t.slots.keyOf(slot), t.slots.valueOf(slot))
		n++
	}
	f.bits[f.part][f.word] = 0
	f.word++
	f.left -= n
	return n
}

// partGatheredLocked goes on to the next part. The bitmap, which has no bit left, is used again.
func (t *Table) partGatheredLocked(f *Frozen) {
	p := &t.mu.parts[f.part]
	if b := f.bits[f.part]; p.spare == nil && len(b) == (p.capacity+63)/64 {
		p.spare = b
	}
	f.bits[f.part] = nil
	f.part, f.word = f.part+1, 0
}
