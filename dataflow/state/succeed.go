package state

import (
	"math/bits"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// Succeed moves what the table has of a committed cut into a new table, and closes it: an incarnation that begins where its
// predecessor has worked need not fill a table that it has. What is in no cut up to base goes, and the new table knows which keys
// those were: they are looked up in base. own says that base was committed by the incarnation that wrote the table, so that the
// table may not have been told of it yet. It returns nil, and leaves the table as it is, when that has not what base has: it is
// closed, has no budget and so does not know what is uncommitted, or stems from another cut. The table's writer has ended, and
// so has its fill; when that came to no end the new table is to be filled as an empty one is.
func (t *Table) Succeed(base dataflow.CheckpointID, own bool) *Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.mu.committed == base || own && t.mu.committed < base
	if t.budget == nil || t.mu.closed || base == 0 || !known {
		return nil
	}
	next := &Table{slots: t.slots, budget: t.budget, wanted: make(chan struct{}, 1), merge: t.merge}
	next.slots.keepAbsent = false
	next.mu.Lock()
	defer next.mu.Unlock()
	next.mu.parts, next.mu.keys, next.mu.gone = t.mu.parts, t.mu.keys, t.mu.gone
	next.mu.incomplete, next.mu.committed, next.mu.hand, next.mu.turn = t.mu.incomplete, base, t.mu.hand, t.mu.turn
	t.mu.pending = slices.DeleteFunc(t.mu.pending, func(p *pending) bool { return p.id <= base })
	for part := range next.mu.parts {
		p := &next.mu.parts[part]
		drop := newBits(p.capacity)
		for _, held := range append(t.bitmapsLocked(part), p.dirty, p.partial) {
			for w, set := range held {
				drop[w] |= set
			}
		}
		p.dirty, p.partial, p.spare = nil, nil, nil
		next.forgetLocked(part, drop)
	}
	t.mu.parts, t.mu.gone = [tableParts]subtable{}, gone{}
	t.slots.slab = slab{}
	t.closeLocked()
	t.budget.join(next)
	next.countLocked()
	return next
}

// Filled reports whether all that the table does not hold is among the keys that it knows to be gone, or that it does not know
// these because they were too many: filling it would be of no use, or not for long.
func (t *Table) Filled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.mu.incomplete || !t.mu.gone.unknown || t.mu.gone.given
}

// forgetLocked takes the slots that drop names out of a part that no bitmap says anything of, and remembers their keys as gone.
func (t *Table) forgetLocked(part int, drop []uint64) {
	p := &t.mu.parts[part]
	for w := range drop {
		for drop[w] != 0 { // a slot that moves takes its bit along, and not to an earlier word
			pos := w<<6 + bits.TrailingZeros64(drop[w])
			slot := p.slot(&t.slots, pos)
			if slot[0] == 0 {
				clearBit(drop, pos)
				continue
			}
			t.mu.gone.add(dataflow.HashKey(t.slots.keyOf(slot)), t.mu.keys, t.budget)
			t.mu.incomplete = true
			if slot[0]&headPresent != 0 {
				t.slots.remove(slot)
				t.mu.keys--
			}
			t.slots.dropKey(slot)
			p.takeOut(&t.slots, pos, drop)
		}
	}
}

// takeOut makes a slot free, and moves slots behind it up that would not be found any more, with their bits.
func (p *subtable) takeOut(l *slots, pos int, marks []uint64) {
	clearBit(marks, pos)
	for next := pos; ; {
		if next++; next == p.capacity {
			next = 0
		}
		slot := p.slot(l, next)
		if slot[0] == 0 {
			break
		}
		high, _ := bits.Mul64(dataflow.HashKey(l.keyOf(slot)), uint64(p.capacity))
		home := int(high)
		if stays := pos < home && home <= next; stays || next < pos && (pos < home || home <= next) {
			continue
		}
		copy(p.slot(l, pos), slot)
		if getBit(marks, next) {
			setBit(marks, pos)
			clearBit(marks, next)
		}
		pos = next
	}
	p.slot(l, pos)[0] = 0
	p.used--
}
