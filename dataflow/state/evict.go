package state

import (
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// A table with a budget may hold a part of its stage's keys: those that changed since the last committed cut, and of the
// others as many as fit. An entry that is in no uncommitted cut can be evicted, because the newest committed cut has its
// value; what is not in the table is there. So with a budget a table remembers, for each freeze until its cut has been
// committed, which slots it was about.
//
// Only the writer evicts, with Relieve, between two batches: an entry that Missing has found, or that has been changed, stays
// until the batch is done.

// pending is what was frozen for a cut that is not committed yet.
type pending struct {
	id   dataflow.CheckpointID
	bits [tableParts][]uint64
}

// maxPending is how many cuts are remembered apart. Attempts that come to nothing would add up.
const maxPending = 8

// joinPendingLocked lets the oldest cut's slots wait for the next one's commit, when there are too many cuts.
func (t *Table) joinPendingLocked() {
	if len(t.mu.pending) <= maxPending {
		return
	}
	old, next := t.mu.pending[0], t.mu.pending[1]
	for i, b := range old.bits {
		if next.bits[i] == nil {
			next.bits[i] = b
			continue
		}
		for w := range b {
			next.bits[i][w] |= b[w]
		}
	}
	t.mu.pending = slices.Delete(t.mu.pending, 0, 1)
}

// Complete reports whether the table holds every key of its stage.
func (t *Table) Complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.mu.incomplete
}

// Committed says that the cut can be read: what the table had frozen for it, and for older attempts, can be evicted from now
// on, and is to be looked up in this cut or a newer one.
func (t *Table) Committed(id dataflow.CheckpointID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id <= t.mu.committed {
		return
	}
	t.mu.committed = id
	t.mu.exhausted = false
	before := len(t.mu.pending)
	t.mu.pending = slices.DeleteFunc(t.mu.pending, func(p *pending) bool { return p.id <= id })
	if t.budget != nil {
		if t.budget.committed(len(t.mu.pending) < before); t.budget.Exceeded() {
			t.want()
		}
	}
}

// Base returns the cut that has the values of the keys which are not in the table.
func (t *Table) Base() dataflow.CheckpointID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.committed
}

// BeginFill says that the table, which is empty or another one's successor, is to be filled from a cut while it is used: what it
// does not know is looked up there until EndFill.
func (t *Table) BeginFill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.incomplete, t.slots.keepAbsent, t.mu.gone.unknown = true, true, true
	if t.mu.warming == nil {
		t.mu.warming = make(chan struct{})
	}
}

// Warming returns a channel that is closed when no more entries are filled in, and nil when none are: who waits for it finds
// fewer keys to look up, or none.
func (t *Table) Warming() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.warming
}

func (t *Table) endWarmingLocked() {
	if t.mu.warming != nil {
		close(t.mu.warming)
		t.mu.warming = nil
	}
}

// stopFillLocked ends a fill before all is there.
func (t *Table) stopFillLocked() {
	if t.slots.keepAbsent {
		t.slots.keepAbsent, t.mu.incomplete = false, true
		t.endWarmingLocked()
	}
}

// Fill puts entries of the cut into the table that it knows nothing of: not those that have been changed since. Of a key that
// comes several times the first entry counts; a nil value says that the cut does not have the key. It reports whether the
// table is to be filled on: not when memory is short. Entries are copied.
func (t *Table) Fill(entries []Entry) (goOn bool) {
	var b fillEntries
	for _, e := range entries {
		b.add(e.Key, e.Val)
	}
	return t.fillSome(&b)
}

// EndFill ends what BeginFill has begun. all says that every entry of the cut was given to Fill.
func (t *Table) EndFill(all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots.keepAbsent && all {
		t.mu.incomplete, t.mu.gone.unknown = false, false
		t.endPartialsLocked()
	}
	t.slots.keepAbsent = false
	t.endWarmingLocked()
}

// Missing appends to dst the numbers of those of the keys whose value must be looked up in the base before they change: those
// that the table does not hold or, of a table whose keys may begin as partials, those that are partials and frozen. The caller
// holds the lock.
func (t *Table) Missing(dst []int32, hashes []uint64, key func(i int) []byte) []int32 {
	if !t.mu.incomplete {
		return dst
	}
	if t.merge != nil {
		return t.frozenPartialsLocked(dst, hashes, key)
	}
	for i, h := range hashes {
		p := &t.mu.parts[partOf(h)]
		if p.capacity > 0 {
			if _, found := p.find(&t.slots, h, key(i)); found {
				continue
			}
		}
		if !t.inBaseLocked(h) {
			continue
		}
		dst = append(dst, int32(i))
	}
	return dst
}

// Wanted is signalled when the writer should call Relieve although it has nothing to fold: something has become evictable, or
// another table wants memory.
func (t *Table) Wanted() <-chan struct{} { return t.wanted }

func (t *Table) want() {
	select {
	case t.wanted <- struct{}{}:
	default:
	}
}

// Relieve evicts entries while the budget is exceeded. The writer calls it before a batch, not during one, and when it is
// Wanted. It holds the lock for a part at a time.
func (t *Table) Relieve() {
	if t.budget == nil {
		return
	}
	t.compact()
	evicted := 0
	for range tableParts {
		n, goOn := t.relievePart()
		if evicted += n; !goOn {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots.slab.sparse() {
		t.slots.slab.age()
		t.mu.compacting.part, t.mu.compacting.pos = 0, 0
		t.want() // for the first step
		t.countLocked()
	}
	if !t.budget.Exceeded() {
		return
	}
	t.budget.ask()
	if evicted > 0 {
		t.want() // for the other half
		return
	}
	t.mu.exhausted = true // until a cut has been committed
	if t.mu.changed > 0 || len(t.mu.pending) > 0 {
		t.budget.press(true) // a commit helps
	}
}

// relievePart evicts from the next part, if the budget is exceeded and there is a prospect of it.
func (t *Table) relievePart() (evicted int, goOn bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.countLocked(); t.mu.closed || !t.budget.Exceeded() {
		return 0, false
	}
	if t.mu.exhausted {
		if t.mu.changed > 0 || len(t.mu.pending) > 0 {
			t.budget.press(true)
		}
		return 0, false
	}
	evicted = t.evictLocked(t.mu.hand)
	if t.mu.hand++; t.mu.hand == tableParts {
		t.mu.hand = 0
		t.mu.turn++ // the next round takes the other half
	}
	return evicted, true
}

// evictLocked evicts half of the entries of a part that can be, and gives their memory back. Those that changed in the last
// two checkpoints or so cannot be: what is used often stays.
func (t *Table) evictLocked(part int) (evicted int) {
	p := &t.mu.parts[part]
	held := t.bitmapsLocked(part)
	drop := newBits(p.capacity)
	needed := 0
	for pos := range p.capacity {
		head := p.mem.bytes[pos*t.slots.size]
		if head == 0 {
			continue
		}
		switch {
		case p.heldBy(held, pos):
			needed++
		case head&headPresent == 0: // a leftover, or of a table that was being filled
		case (pos^int(t.mu.turn))&1 == 0:
			needed++
		default:
			setBit(drop, pos)
			t.mu.gone.add(dataflow.HashKey(t.slots.keyOf(p.slot(&t.slots, pos))), t.mu.keys, t.budget)
			evicted++
		}
	}
	if p.used == 0 && p.capacity > 0 {
		t.freePartLocked(part)
		return 0
	}
	if evicted == 0 && (p.used == needed || t.slots.keepAbsent) {
		return 0
	}
	if evicted > 0 {
		t.mu.incomplete = true
		t.stopFillLocked()
	}
	t.mu.keys -= evicted
	t.budget.evicted.Add(uint64(evicted))
	t.rehashLocked(part, max(16, needed*9/5+1), drop)
	if p.used == 0 {
		t.freePartLocked(part)
	}
	return evicted
}

// freePartLocked gives the memory of a part without entries back.
func (t *Table) freePartLocked(part int) {
	t.mu.parts[part].mem.free()
	t.mu.parts[part] = subtable{}
	for _, f := range t.mu.frozen {
		f.bits[part] = nil
	}
	for _, p := range t.mu.pending {
		p.bits[part] = nil
	}
	t.countLocked()
}

// compactSlots is how many slots a step of compact looks at: it holds the lock for a fraction of a millisecond when values are
// short. compactBytes bounds what it moves when they are long.
const (
	compactSlots = 4096
	compactBytes = 1 << 20
)

// compact moves a part of what is in the aged chunks of the slab into new ones, and gives the aged ones back when nothing is
// left there.
func (t *Table) compact() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.slots.slab.aging() {
		return
	}
	at := &t.mu.compacting
	for slots, bytes := compactSlots, compactBytes; at.part < tableParts; at.part, at.pos = at.part+1, 0 {
		p := &t.mu.parts[at.part]
		for ; at.pos < p.capacity; at.pos++ {
			if slots == 0 || bytes <= 0 {
				t.countLocked()
				t.want() // for the next step, also when no rows come
				return
			}
			slots--
			if slot := p.slot(&t.slots, at.pos); slot[0] != 0 {
				bytes -= t.slots.move(slot)
			}
		}
	}
	t.slots.slab.dropAged()
	t.countLocked()
}

// neededLocked counts the slots of a part that a rehash keeps.
func (t *Table) neededLocked(part int) (n int) {
	p := &t.mu.parts[part]
	held := t.bitmapsLocked(part)
	for pos := range p.capacity {
		if head := p.mem.bytes[pos*t.slots.size]; head&headPresent != 0 || head != 0 && (t.slots.keepAbsent || p.heldBy(held, pos)) {
			n++
		}
	}
	return n
}

// heldBy reports whether a slot is in an uncommitted cut, or changed since.
func (p *subtable) heldBy(held [][]uint64, pos int) bool {
	if getBit(p.dirty, pos) {
		return true
	}
	for _, b := range held {
		if getBit(b, pos) {
			return true
		}
	}
	return false
}

// bitmapsLocked returns the bitmaps of a part in all that is outstanding: first those of freezes, then those of cuts.
func (t *Table) bitmapsLocked(part int) [][]uint64 {
	out := make([][]uint64, 0, len(t.mu.frozen)+len(t.mu.pending))
	for _, f := range t.mu.frozen {
		out = append(out, f.bits[part])
	}
	for _, p := range t.mu.pending {
		out = append(out, p.bits[part])
	}
	return out
}
