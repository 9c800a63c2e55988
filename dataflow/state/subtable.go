package state

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// subtable is a part of a table: an open-addressing hash table with linear probing. The slot that a key looks at first is
// the high word of hash × capacity, so slots are in about the order of the hashes and the capacity need not be a power of
// two.
//
//	slot = head u8, key KeyBytes, value ValBytes
//	head = 0 free, else 0x80 | 0x40 if the key is present | length of the key, 0x3F = in the slab
//	key in the slab    its ref u64, and its hash u64 when KeyBytes has room for it
//	value in the slab  (ValBytes of the shape is 0) ref u64, length u32, capacity of the cell u32
//
// A deleted key keeps its slot as absent until the deletion has been gathered, and committed if the table has a budget; then
// it is a leftover that the next rehash drops.
type subtable struct {
	mem      memory
	capacity int // slots
	used     int // slots that are not free
	// dirty has a bit per slot that was changed in the current epoch; nil = none was.
	dirty []uint64
	// spare is a bitmap of the right length without a bit set, kept for the next epoch.
	spare []uint64
	// partial has a bit per slot whose value is a partial one; nil = none is.
	partial []uint64
}

const (
	headUsed    = 0x80
	headPresent = 0x40
	headLength  = 0x3F
	headLong    = headLength // the key is in the slab

	// maxInline is the longest key that a slot can hold.
	maxInline = headLong - 1
	// slackBytes stand after the last slot, so that a key can be read in words of eight bytes.
	slackBytes = 16

	// A subtable grows when more than loadNum/loadDen of its slots are used. Why not fuller: an absent key is then looked
	// for in 13 slots on average, at 7/8 already in 32.
	loadNum, loadDen = 4, 5
)

// words returns what probes compare of a key that a slot can hold and that has 8 bytes or more: its first and its last
// eight bytes.
func words(key []byte) (first, last uint64) {
	return binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[len(key)-8:])
}

// find returns the number of the key's slot, or of the free slot where the search for it ended. The capacity is not 0.
func (p *subtable) find(l *slots, hash uint64, key []byte) (pos int, found bool) {
	home, _ := bits.Mul64(hash, uint64(p.capacity))
	pos = int(home)
	if len(key) < 8 || len(key) > 16 || len(key) > l.inline {
		return p.findAny(l, hash, key, pos)
	}
	want, size := byte(headUsed|len(key)), l.size
	first, last := words(key)
	mem, lastAt := p.mem.bytes, len(key)-7
	for off := pos * size; ; off += size {
		if pos == p.capacity {
			pos, off = 0, 0
		}
		head := mem[off]
		if head == 0 {
			return pos, false
		}
		if head&^headPresent == want && binary.LittleEndian.Uint64(mem[off+1:]) == first && binary.LittleEndian.Uint64(mem[off+lastAt:]) == last {
			return pos, true
		}
		pos++
	}
}

// findAny is find for keys of any length.
func (p *subtable) findAny(l *slots, hash uint64, key []byte, pos int) (int, bool) {
	want := byte(headUsed | headLong)
	if len(key) <= l.inline {
		want = byte(headUsed | len(key))
	}
	for ; ; pos++ {
		if pos == p.capacity {
			pos = 0
		}
		slot := p.mem.bytes[pos*l.size:][:l.size]
		switch {
		case slot[0] == 0:
			return pos, false
		case slot[0]&^headPresent != want:
		case want == headUsed|headLong && l.hashed() && binary.LittleEndian.Uint64(slot[9:]) != hash:
		case bytes.Equal(l.keyOf(slot), key):
			return pos, true
		}
	}
}

// slot returns the bytes of a slot.
func (p *subtable) slot(l *slots, pos int) []byte { return p.mem.bytes[pos*l.size:][:l.size:l.size] }

// slots is what all subtables of a table have in common: how a slot is laid out, and the slab.
type slots struct {
	inline int // longest key in a slot
	value  int // length of every value in a slot; 0 = values are in the slab
	size   int // of a slot
	slab   slab
	// keepAbsent lets no rehash drop an absent slot: it says that what the table is being filled from is out of date.
	keepAbsent bool
}

// cellSize is what a value that is in the slab takes in its slot.
const cellSize = 8 + 4 + 4

func newSlots(shape Shape) slots {
	l := slots{inline: min(max(shape.KeyBytes, 8), maxInline), value: shape.ValBytes}
	l.size = 1 + l.inline + l.value
	if l.value == 0 {
		l.size += cellSize
	}
	return l
}

// hashed says that a slot has room for the hash of a key that is in the slab.
func (l *slots) hashed() bool { return l.inline >= 16 }

// keyOf returns the key of a used slot.
func (l *slots) keyOf(slot []byte) []byte {
	n := int(slot[0] & headLength)
	if n != headLong {
		return slot[1 : 1+n : 1+n]
	}
	ref := binary.LittleEndian.Uint64(slot[1:])
	n = int(binary.LittleEndian.Uint32(l.slab.bytes(ref, 4)))
	return l.slab.bytes(ref, 4+n)[4:]
}

// setKey makes a free slot that of an absent key.
func (l *slots) setKey(slot []byte, hash uint64, key []byte) {
	if len(key) <= l.inline {
		slot[0] = headUsed | byte(len(key))
		copy(slot[1:], key)
		return
	}
	ref, _ := l.slab.alloc(4 + len(key))
	cell := l.slab.bytes(ref, 4+len(key))
	binary.LittleEndian.PutUint32(cell, uint32(len(key)))
	copy(cell[4:], key)
	slot[0] = headUsed | headLong
	binary.LittleEndian.PutUint64(slot[1:], ref)
	if l.hashed() {
		binary.LittleEndian.PutUint64(slot[9:], hash)
	}
}

// move copies what a slot has in aged chunks of the slab into others, and returns how many bytes that were.
func (l *slots) move(slot []byte) (moved int) {
	if slot[0]&headLength == headLong {
		if ref := binary.LittleEndian.Uint64(slot[1:]); l.slab.isAged(ref) {
			n := 4 + int(binary.LittleEndian.Uint32(l.slab.bytes(ref, 4)))
			to, _ := l.slab.alloc(n)
			copy(l.slab.bytes(to, n), l.slab.bytes(ref, n))
			_, capacity := capacityFor(n)
			l.slab.release(ref, capacity)
			binary.LittleEndian.PutUint64(slot[1:], to)
			moved += n
		}
	}
	if l.value > 0 || slot[0]&headPresent == 0 {
		return moved
	}
	area := slot[1+l.inline:]
	if ref, n, capacity := cell(area); l.slab.isAged(ref) {
		to, room := l.slab.alloc(n)
		copy(l.slab.bytes(to, n), l.slab.bytes(ref, n))
		l.slab.release(ref, capacity)
		setCell(area, to, n, room)
		moved += n
	}
	return moved
}

// dropKey gives back what the key of an absent slot has in the slab.
func (l *slots) dropKey(slot []byte) {
	if slot[0]&headLength != headLong {
		return
	}
	ref := binary.LittleEndian.Uint64(slot[1:])
	n := int(binary.LittleEndian.Uint32(l.slab.bytes(ref, 4)))
	_, capacity := capacityFor(4 + n)
	l.slab.release(ref, capacity)
}

// valueOf returns the value of a slot, nil when the key is absent. Up to its capacity it may be changed in place.
func (l *slots) valueOf(slot []byte) []byte {
	if slot[0]&headPresent == 0 {
		return nil
	}
	area := slot[1+l.inline:]
	if l.value > 0 {
		return area[:l.value:l.value]
	}
	ref, n, capacity := cell(area)
	return l.slab.bytes(ref, capacity)[:n]
}

func cell(area []byte) (ref uint64, n, capacity int) {
	return binary.LittleEndian.Uint64(area), int(binary.LittleEndian.Uint32(area[8:])), int(binary.LittleEndian.Uint32(area[12:]))
}

func setCell(area []byte, ref uint64, n, capacity int) {
	binary.LittleEndian.PutUint64(area, ref)
	binary.LittleEndian.PutUint32(area[8:], uint32(n))
	binary.LittleEndian.PutUint32(area[12:], uint32(capacity))
}

// create gives an absent slot a value of n zero bytes, and returns it.
func (l *slots) create(slot []byte, n int) []byte {
	slot[0] |= headPresent
	area := slot[1+l.inline:]
	var val []byte
	if l.value > 0 {
		val = area[:l.value:l.value]
	} else {
		ref, capacity := l.slab.alloc(n)
		setCell(area, ref, n, capacity)
		val = l.slab.bytes(ref, capacity)[:n]
	}
	clear(val)
	return val
}

// set makes val the value of a present slot. val may be what valueOf has returned, changed in place.
func (l *slots) set(slot, val []byte) {
	area := slot[1+l.inline:]
	if l.value > 0 {
		copy(area[:l.value], val)
		return
	}
	ref, _, capacity := cell(area)
	if len(val) > capacity {
		old, had := ref, capacity
		ref, capacity = l.slab.alloc(len(val))
		copy(l.slab.bytes(ref, len(val)), val)
		l.slab.release(old, had)
	} else {
		copy(l.slab.bytes(ref, len(val)), val) // onto itself, or from outside
	}
	setCell(area, ref, len(val), capacity)
}

// remove makes a present slot absent.
func (l *slots) remove(slot []byte) {
	slot[0] &^= headPresent
	if l.value > 0 {
		return
	}
	ref, _, capacity := cell(slot[1+l.inline:])
	l.slab.release(ref, capacity)
}

// rehash moves the entries into memory for the given number of slots, without the leftovers and those that drop names. held
// are the bitmaps of this part in what is outstanding, which move along.
func (p *subtable) rehash(l *slots, capacity int, held [][]uint64, drop []uint64) {
	old := *p
	p.mem, p.capacity, p.used, p.spare = newMemory(capacity*l.size+slackBytes), capacity, 0, nil
	was := slices.Clone(held)
	for i, b := range was {
		if b != nil {
			held[i] = newBits(capacity)
		}
	}
	if p.dirty != nil {
		p.dirty = newBits(capacity)
	}
	if p.partial != nil {
		p.partial = newBits(capacity)
	}
	for pos := range old.capacity {
		from := old.mem.bytes[pos*l.size:][:l.size]
		if from[0] == 0 {
			continue
		}
		switch present := from[0]&headPresent != 0; {
		case present && !getBit(drop, pos):
		case present:
			l.remove(from)
			l.dropKey(from)
			continue
		case !l.keepAbsent && !old.heldBy(was, pos):
			l.dropKey(from)
			continue
		}
		key := l.keyOf(from)
		home, _ := bits.Mul64(dataflow.HashKey(key), uint64(capacity))
		at := int(home)
		for p.mem.bytes[at*l.size] != 0 {
			if at++; at == capacity {
				at = 0
			}
		}
		copy(p.mem.bytes[at*l.size:], from)
		p.used++
		if getBit(old.dirty, pos) {
			setBit(p.dirty, at)
		}
		if getBit(old.partial, pos) {
			setBit(p.partial, at)
		}
		for i, b := range was {
			if getBit(b, pos) {
				setBit(held[i], at)
			}
		}
	}
	old.mem.free()
}

func newBits(n int) []uint64 { return make([]uint64, (n+63)/64) }

func getBit(b []uint64, i int) bool { return b != nil && b[i>>6]&(1<<(i&63)) != 0 }
func setBit(b []uint64, i int)      { b[i>>6] |= 1 << (i & 63) }
func clearBit(b []uint64, i int)    { b[i>>6] &^= 1 << (i & 63) }
