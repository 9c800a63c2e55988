package state

import (
	"math/bits"
	"sync"

	"github.com/weirdb/weir/dataflow"
)

// tableParts is the number of subtables that a table's keys are spread over by their hash. A subtable grows by itself, so
// a growing table pauses for a part of its keys at a time, and a reader that walks the table holds the lock for one part.
// Why not more: large parts are backed by huge pages, and an empty table costs its parts.
const (
	tableParts    = 32
	tablePartBits = 5
)

// Shape says what the entries of a table are like. It decides how they are kept, not what may be put in: a key of any
// length is taken.
type Shape struct {
	// KeyBytes is the length up to which keys are kept in their slot. Longer ones cost a further cache miss.
	KeyBytes int
	// ValBytes is the length of every value; 0 = values differ in length.
	ValBytes int
}

// Table is the live keyed state of one stage on one shard: an open-addressing hash table outside the heap of Go. One
// goroutine, the task, writes it; any number of readers copy from it.
//
// The writer holds the lock for one batch at most:
//
//	t.Lock()
//	s := t.Change(hash, key)     // the key's slot, which is about to change
//	val := s.Value()             // nil = absent
//	if val == nil {
//		val = s.Create(size)
//	}
//	s.Set(update(val))           // update works in place or not
//	t.Unlock()
//
// Freeze, Gather, Load, Get, Scan and the figures take the lock themselves.
//
// A table without a budget that is not being filled holds all keys of its stage. Of another one Get and Scan say so when a key
// is to be looked up in a committed cut, see evict.go. Close gives its memory back.
type Table struct {
	slots  slots
	budget *Budget
	wanted chan struct{} // capacity 1: see Wanted
	merge  Merge         // nil = no key begins as a partial: see partial.go
	whole  resolver      // used by the writer alone
	mu     struct {
		sync.Mutex
		parts [tableParts]subtable
		// changed counts the keys changed since the last freeze.
		changed int
		// frozen holds the frozen sets that are not fully gathered, oldest first.
		frozen []*Frozen
		keys   int  // that are present
		fresh  bool // the last Change has made its slot
		// Of a table with a budget: see evict.go.
		pending    []*pending            // oldest first
		committed  dataflow.CheckpointID // the newest cut that can be read
		incomplete bool                  // there are keys that are not in the table
		gone       gone                  // which these may be
		warming    chan struct{}         // closed when no more is filled in; nil when nothing is being filled in
		hand       int                   // the next part to evict from
		turn       uint                  // counts the rounds of hand: each evicts other slots than the one before
		exhausted  bool                  // nothing can be evicted until a cut has been committed
		counted    int64                 // the memory that the budget knows of
		// Of a table whose keys may begin as partials: how many there are, those that are frozen, and the memory of the resolver.
		partials, frozenPartials int
		resolving                int64
		merged                   []byte // scratch of resolveLocked
		// prefetched is what Prefetch has read, so that the reads are not left out.
		prefetched byte
		compacting struct{ part, pos int } // where compact goes on
		closed     bool
	}
}

// NewTable returns an empty table that shares a budget; nil = none, and it holds all keys of its stage.
func NewTable(shape Shape, budget *Budget) *Table {
	t := &Table{slots: newSlots(shape), budget: budget, wanted: make(chan struct{}, 1)}
	budget.join(t)
	return t
}

// Close gives the table's memory back. Reads and writes find it empty afterwards.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeLocked()
}

func (t *Table) closeLocked() {
	for i := range t.mu.parts {
		t.mu.parts[i].mem.free()
		t.mu.parts[i] = subtable{}
	}
	t.slots.slab.close()
	t.budget.leave(t)
	t.mu.frozen, t.mu.pending, t.mu.keys, t.mu.changed, t.mu.closed = nil, nil, 0, 0, true
	t.mu.partials, t.mu.frozenPartials, t.mu.resolving = 0, 0, 0
	t.mu.gone.giveUp(t.budget)
	t.endWarmingLocked()
	t.countLocked()
	if t.budget != nil { // it may have been this table that wanted memory
		if t.budget.committed(true); t.budget.Exceeded() {
			t.budget.ask()
		}
	}
}

// countLocked tells the budget what the table takes.
func (t *Table) countLocked() {
	if t.budget == nil {
		return
	}
	n := t.bytesLocked()
	t.budget.add(n - t.mu.counted)
	t.mu.counted = n
}

// Lock takes the table's lock for the writer.
func (t *Table) Lock() { t.mu.Lock() }

// Unlock releases the table's lock. No slot or value may be used afterwards.
func (t *Table) Unlock() { t.mu.Unlock() }

// partOf takes bits of the hash that choose neither the shard, as the lowest ten do, nor the slot, as the highest do.
func partOf(hash uint64) int { return int(hash>>10) & (tableParts - 1) }

// Slot is the place of one key, under the table's lock. It and the values it gives are good until the next Change, which
// may move them. Four words are as many as the compiler keeps in registers.
type Slot struct {
	t     *Table
	bytes []byte
}

// Fresh reports whether the slot was made by this Change: if the key is one that Missing has named, its value is still to be
// Set.
func (s Slot) Fresh() bool { return s.t.mu.fresh }

// Value returns the value, nil when the key is absent. It aliases the table: the writer may change it in place, up to its
// capacity, after Change.
func (s Slot) Value() []byte { return s.t.slots.valueOf(s.bytes) }

// Create gives an absent key a value of n zero bytes and returns it.
func (s Slot) Create(n int) []byte {
	s.t.mu.keys++
	return s.t.slots.create(s.bytes, n)
}

// Set makes val the value: what Value or Create has returned, changed in place, or another one, which is copied. A nil
// val makes the key absent.
func (s Slot) Set(val []byte) {
	present := s.bytes[0]&headPresent != 0
	switch {
	case val == nil && present:
		s.t.slots.remove(s.bytes)
		s.t.mu.keys--
	case val == nil:
	case present:
		s.t.slots.set(s.bytes, val)
	default:
		copy(s.Create(len(val)), val)
	}
}

// Prefetch brings the slots of keys with these hashes into the processor's cache, many at a time: it pays before as many
// calls of Change as there are hashes when the table is larger than the cache. The caller holds the lock.
func (t *Table) Prefetch(hashes []uint64) {
	var sum byte
	for _, h := range hashes {
		p := &t.mu.parts[partOf(h)]
		home, _ := bits.Mul64(h, uint64(p.capacity))
		if at := int(home) * t.slots.size; at < len(p.mem.bytes) {
			sum += p.mem.bytes[at]
		}
		if w := int(home >> 6); w < len(p.dirty) {
			sum += byte(p.dirty[w])
		}
	}
	t.mu.prefetched = sum
}

// Change returns the slot of a key whose value is about to change, and makes an absent one when there is none. It marks the
// key as changed and, when its value has been frozen and not gathered yet, keeps a copy of that. hash is
// dataflow.HashKey(key); the key is copied when it is new. The caller holds the lock.
func (t *Table) Change(hash uint64, key []byte) Slot {
	part := partOf(hash)
	p := &t.mu.parts[part]
	if (p.used+1)*loadDen > p.capacity*loadNum {
		t.makeRoomLocked(part)
	}
	pos, found := p.find(&t.slots, hash, key)
	slot := p.slot(&t.slots, pos)
	if !found {
		t.slots.setKey(slot, hash, key)
		p.used++
		if t.merge != nil && t.inBaseLocked(hash) {
			t.beginPartialLocked(p, pos)
		}
	}
	if p.dirty == nil {
		if p.dirty, p.spare = p.spare, nil; p.dirty == nil {
			p.dirty = newBits(p.capacity)
		}
	}
	word, bit := &p.dirty[pos>>6], uint64(1)<<(pos&63)
	if *word&bit == 0 {
		*word |= bit
		t.mu.changed++
		if found {
			t.keepLocked(part, pos, slot)
		}
	}
	t.mu.fresh = !found
	return Slot{t: t, bytes: slot}
}

// keepLocked saves what outstanding freezes have not gathered of a slot that is about to change for the first time in its
// epoch.
func (t *Table) keepLocked(part, pos int, slot []byte) {
	for _, f := range t.mu.frozen {
		if b := f.bits[part]; getBit(b, pos) {
			if getBit(t.mu.parts[part].partial, pos) {
				panic("state: a frozen partial changes: Missing has named it") // its old value would not be known
			}
			clearBit(b, pos)
			f.keep(t.slots.keyOf(slot), t.slots.valueOf(slot))
			return // a slot is in one set at most: the next change would have moved it out
		}
	}
}

// makeRoomLocked gives a part more slots, or frees those of leftovers.
func (t *Table) makeRoomLocked(part int) {
	p := &t.mu.parts[part]
	needed := t.neededLocked(part) + 1
	capacity := p.capacity
	if 4*needed < capacity {
		capacity = 2 * needed // most were leftovers
	}
	if capacity == 0 {
		// The parts begin, and so grow, at different sizes: the table as a whole grows smoothly.
		capacity = 16 + 8*part/tableParts
	}
	// Half as many again: less would move entries more often, more would leave more slots empty. After it a good half of
	// the slots is used.
	for 9*needed > 5*capacity {
		capacity += capacity / 2
	}
	t.rehashLocked(part, capacity, nil)
}

// rehashLocked moves the entries of a part, without those that drop names (nil = all).
func (t *Table) rehashLocked(part, capacity int, drop []uint64) {
	held := t.bitmapsLocked(part)
	t.mu.parts[part].rehash(&t.slots, capacity, held, drop)
	for i, f := range t.mu.frozen {
		f.bits[part] = held[i]
		if f.part == part {
			f.word = 0 // what has been gathered has no bit any more
		}
		if f.whole.part == part {
			f.whole.word = 0
		}
	}
	if t.mu.compacting.part == part {
		t.mu.compacting.pos = 0
	}
	for i, p := range t.mu.pending {
		p.bits[part] = held[len(t.mu.frozen)+i]
	}
	t.countLocked()
}

// Load puts a committed value into the table: the key is unchanged afterwards. It is for a table that is not used yet; Fill
// is for one that is. key and val are copied.
func (t *Table) Load(key, val []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loadLocked(dataflow.HashKey(key), key, val)
}

// loadLocked is Load unless the table knows something of the key. A partial becomes whole.
func (t *Table) loadLocked(hash uint64, key, val []byte) {
	part := partOf(hash)
	p := &t.mu.parts[part]
	if (p.used+1)*loadDen > p.capacity*loadNum {
		t.makeRoomLocked(part)
	}
	pos, found := p.find(&t.slots, hash, key)
	if found {
		if getBit(p.partial, pos) {
			// An error says that the base is damaged: the partial stays one, and who needs its value meets the error again.
			_ = t.resolveLocked(part, pos, val)
		}
		return
	}
	slot := p.slot(&t.slots, pos)
	t.slots.setKey(slot, hash, key)
	p.used++
	Slot{t: t, bytes: slot}.Set(val)
}

// Answer says what a table knows of a key.
type Answer uint8

const (
	// Absent: the stage has no such key.
	Absent Answer = iota
	// Found: the value is the newest there is.
	Found
	// InBase: the table does not hold the key; a cut from Base on has the newest value, if there is one.
	InBase
	// Closed: the table is closed.
	Closed
	// Partial: what the table holds is a partial value, to be merged into the one in Base.
	Partial
)

// Get appends the newest value of key to dst, if it is Found, or its Partial. base is the cut that has, InBase or Partial,
// what the table does not know.
func (t *Table) Get(key, dst []byte) (val []byte, a Answer, base dataflow.CheckpointID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	val, a = t.Append(dataflow.HashKey(key), key, dst)
	return val, a, t.mu.committed
}

// Append is Get for a caller that holds the lock.
func (t *Table) Append(hash uint64, key, dst []byte) (val []byte, a Answer) {
	if t.mu.closed {
		return dst, Closed
	}
	if p := &t.mu.parts[partOf(hash)]; p.capacity > 0 {
		if pos, found := p.find(&t.slots, hash, key); found {
			val := t.slots.valueOf(p.slot(&t.slots, pos))
			switch partial := getBit(p.partial, pos); {
			case val != nil && partial:
				return append(dst, val...), Partial
			case val != nil:
				return append(dst, val...), Found
			case !partial:
				return dst, Absent
			}
			return dst, InBase
		}
	}
	if t.inBaseLocked(hash) {
		return dst, InBase
	}
	return dst, Absent
}

// Len returns how many keys the table holds.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.keys
}

// Bytes returns the memory that the table takes, in and outside the heap.
func (t *Table) Bytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytesLocked()
}

func (t *Table) bytesLocked() int64 {
	n := t.slots.slab.counted() + t.mu.resolving + t.mu.gone.size()
	for i := range t.mu.parts {
		p := &t.mu.parts[i]
		n += int64(len(p.mem.bytes) + 8*(len(p.dirty)+len(p.spare)+len(p.partial)))
	}
	for _, f := range t.mu.frozen {
		n += f.size()
	}
	for _, p := range t.mu.pending {
		n += bitBytes(&p.bits)
	}
	return n
}
