package dataflow

import (
	"errors"
	"slices"
)

// Lookups is a batch of keys of one stage on one shard that are looked up together, so that what they have in common is paid
// for once: a lock, and the waits for memory, which overlap. Who asks adds the keys; then each place that may know answers
// what is open, newest first. One goroutine uses it at a time. Begin makes it ready.
type Lookups struct {
	keys   []lookup
	open   []int32
	memory []byte // of values; earlier pieces live on with the values in them
	room   int64  // for bytes of values
	full   bool
	merge  func(val, partial []byte) ([]byte, error)
	err    error
}

type lookup struct {
	key, val []byte
	hash     uint64
	found    bool
	answered bool
	partial  bool // val is to be merged into the answer
}

// LookupsAtOnce is how many keys are best looked up at once: enough for their waits to overlap, few enough for a lock.
const LookupsAtOnce = 256

// A piece of memory is made for as many values as there are open keys, of lookupBytes each, which is what counts and sums
// take, but of lookupPiece at most.
const (
	lookupBytes = 32
	lookupPiece = 16 << 10
)

// Begin forgets the keys, and bounds the values of all that follow to room bytes in all. Values stay good: they are not
// overwritten.
func (l *Lookups) Begin(room int64) {
	l.keys, l.open, l.full = l.keys[:0], l.open[:0], false
	l.room, l.err = room, nil
}

// Reuse forgets the keys and the values, whose memory is used again: for who has no more use for them.
func (l *Lookups) Reuse() {
	if l.memory = l.memory[:0]; cap(l.memory) > lookupPiece {
		l.memory = nil
	}
	l.Begin(0)
}

// Grow makes room for n keys at a time, for who knows how many there will be.
func (l *Lookups) Grow(n int) {
	l.keys, l.open = slices.Grow(l.keys, n), slices.Grow(l.open, n)
}

// Add adds a key; hash is HashKey(key). The key is not copied.
func (l *Lookups) Add(hash uint64, key []byte) {
	l.open = append(l.open, int32(len(l.keys)))
	l.keys = append(l.keys, lookup{key: key, hash: hash})
}

// Len returns how many keys were added.
func (l *Lookups) Len() int { return len(l.keys) }

// Open returns the numbers of the keys that have no answer yet, ascending; none once the answers have no room. It is good
// until it is called again.
func (l *Lookups) Open() []int32 {
	if l.full {
		return nil
	}
	l.open = slices.DeleteFunc(l.open, func(i int32) bool { return l.keys[i].answered })
	return l.open
}

// Key returns a key.
func (l *Lookups) Key(i int32) []byte { return l.keys[i].key }

// Hash returns the hash of a key.
func (l *Lookups) Hash(i int32) uint64 { return l.keys[i].hash }

// Found answers with a value, which is copied; it may be empty. It reports whether there is room for it: if not, all is over.
func (l *Lookups) Found(i int32, val []byte) bool {
	k := &l.keys[i]
	if k.partial {
		merged, err := l.merge(append([]byte{}, val...), k.val)
		if err != nil {
			l.err = errors.Join(l.err, err)
		}
		l.room += int64(len(k.val))
		val, k.partial = merged, false
	}
	if !l.keep(k, val) {
		return false
	}
	k.found, k.answered = true, true
	return true
}

// Partial says that a key's value is what merge makes of the next answer and a partial value, which is copied: in place or not,
// merge may change its first argument. It reports whether there is room for it, as Found does.
func (l *Lookups) Partial(i int32, partial []byte, merge func(val, partial []byte) ([]byte, error)) bool {
	l.merge = merge
	k := &l.keys[i]
	k.partial = l.keep(k, partial)
	return k.partial
}

// Again forgets the partial values, for who asks for them again.
func (l *Lookups) Again() {
	for _, i := range l.Open() {
		k := &l.keys[i]
		if k.partial {
			l.room += int64(len(k.val))
			k.val, k.partial = nil, false
		}
	}
}

// Err returns what went wrong with merging partial values.
func (l *Lookups) Err() error { return l.err }

// keep copies a value, if there is room.
func (l *Lookups) keep(k *lookup, val []byte) bool {
	if l.room -= int64(len(val)); l.room < 0 {
		l.full = true
		return false
	}
	if cap(l.memory)-len(l.memory) < len(val) {
		l.memory = make([]byte, 0, max(len(val), min(len(l.open)*lookupBytes, lookupPiece)))
	}
	at := len(l.memory)
	l.memory = append(l.memory, val...)
	k.val = l.memory[at:len(l.memory):len(l.memory)]
	return true
}

// Absent answers that there is no such key, or no more of it than the partial value.
func (l *Lookups) Absent(i int32) {
	k := &l.keys[i]
	k.found, k.partial, k.answered = k.partial, false, true
}

// Overflow says that the values, looked up elsewhere, were more than there is room for: all is over.
func (l *Lookups) Overflow() { l.full = true }

// Full reports whether the values were more than there is room for, and so not all is answered.
func (l *Lookups) Full() bool { return l.full }

// Room returns how many bytes of values there is room for yet.
func (l *Lookups) Room() int64 { return max(l.room, 0) }

// Value returns the value that a key was answered with; found is false when there is none.
func (l *Lookups) Value(i int32) (val []byte, found bool) {
	if k := &l.keys[i]; k.found {
		return k.val, true
	}
	return nil, false
}
