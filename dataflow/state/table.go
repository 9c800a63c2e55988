package state

import (
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/weirdb/weir/dataflow"
)

// tableParts is the number of parts a table's keys are spread over by the top byte of their hash. A reader that walks
// the table holds the lock for one part at a time. Why not fewer: a part of a table of a million keys has 4,000 and takes
// a fraction of a millisecond. Why not more: an empty map per part and table is memory too.
const tableParts = 256

// slotOverhead is what a key costs in memory besides its key and value bytes: the Slot, and its share of the map.
const slotOverhead = 96

// Table is the live keyed state of one stage on one shard. One goroutine, the task, writes it; any number of readers copy
// from it.
//
// The writer holds the lock for one batch at most:
//
//	t.Lock()
//	s := t.Slot(hash, key)
//	t.Touch(s)            // before the change
//	s.Val = update(s.Val) // in place or not; nil deletes
//	t.Unlock()
//
// Freeze, Gather, Load, Get, Scan and the figures take the lock themselves.
//
// The table holds all keys of its stage, so Get and Scan need nothing else: a live scan is a Scan, without an overlay over
// the newest cut.
type Table struct {
	mu struct {
		sync.Mutex
		parts [tableParts]map[string]*Slot
		// epoch numbers the time between two freezes, from 1.
		epoch uint64
		// dirty holds the slots touched in this epoch, each once.
		dirty []*Slot
		// frozen holds the frozen sets that are not fully gathered, oldest first.
		frozen []*Frozen
		keys   int
		bytes  int64
	}
}

// Slot is the place of one key. It belongs to its table: use it only under the table's lock, and do not keep it past
// Unlock, because a deleted key's slot is forgotten once it has been gathered.
type Slot struct {
	// Val is the value; nil = absent. The writer changes it after Touch, in place or by replacing it.
	Val []byte

	key  string
	hash uint64
	// epoch is the epoch of the last Touch until that epoch's frozen set has gathered the slot; then 0: clean.
	epoch uint64
	// counted is the part of Table.bytes that stands for Val. It lags behind Val by the changes since the last Touch.
	counted int64
}

// Frozen is what a table had changed when it was frozen: the keys, with the values of that moment. It is gathered by one
// goroutine, once, by Table.Gather.
type Frozen struct {
	epoch uint64
	slots []*Slot
	next  int
	// before holds the values at the freeze of slots that were touched again before they were gathered.
	before map[*Slot][]byte
}

// Len returns how many changes remain to be gathered. The gathering goroutine may call it.
func (f *Frozen) Len() int { return len(f.slots) - f.next }

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{}
	for i := range t.mu.parts {
		t.mu.parts[i] = make(map[string]*Slot)
	}
	t.mu.epoch = 1
	return t
}

// Lock takes the table's lock for the writer.
func (t *Table) Lock() { t.mu.Lock() }

// Unlock releases the table's lock.
func (t *Table) Unlock() { t.mu.Unlock() }

func part(hash uint64) int { return int(hash >> 56) }

// Slot returns the slot of a key, and makes an absent one when there is none. hash is dataflow.HashKey(key). The key is
// copied when it is new. Who makes a slot touches it: an absent slot that is never touched stays in memory. The caller
// holds the lock.
func (t *Table) Slot(hash uint64, key []byte) *Slot {
	p := t.mu.parts[part(hash)]
	if s, ok := p[string(key)]; ok {
		return s
	}
	return t.insertLocked(hash, string(key))
}

// Find returns the slot of a key, or nil. The caller holds the lock.
func (t *Table) Find(hash uint64, key []byte) *Slot { return t.mu.parts[part(hash)][string(key)] }

func (t *Table) insertLocked(hash uint64, key string) *Slot {
	s := &Slot{key: key, hash: hash}
	t.mu.parts[part(hash)][key] = s
	t.mu.keys++
	t.mu.bytes += int64(len(key)) + slotOverhead
	return s
}

// Touch says that the slot's value is about to change: it marks the slot dirty and, when its value has been frozen and
// not gathered yet, keeps a copy of that. Call it before every change. The caller holds the lock.
func (t *Table) Touch(s *Slot) {
	t.countLocked(s)
	if s.epoch == t.mu.epoch {
		return
	}
	if s.epoch != 0 {
		for _, f := range t.mu.frozen {
			if f.epoch == s.epoch {
				f.before[s] = clone(s.Val)
			}
		}
	}
	s.epoch = t.mu.epoch
	t.mu.dirty = append(t.mu.dirty, s)
}

func (t *Table) countLocked(s *Slot) {
	n := int64(cap(s.Val))
	t.mu.bytes += n - s.counted
	s.counted = n
}

// Load puts a committed value into the table: the key is clean afterwards. It is for start-up, before the first Touch.
// key and val are copied.
func (t *Table) Load(key, val []byte) {
	hash := dataflow.HashKey(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.Slot(hash, key)
	s.Val = clone(val)
	t.countLocked(s)
}

// Freeze takes what has changed since the last Freeze out of the table as a set to be gathered, in constant time. Several
// sets may be outstanding; their deltas must go out in the order of the freezes.
func (t *Table) Freeze() *Frozen {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &Frozen{epoch: t.mu.epoch, slots: t.mu.dirty, before: make(map[*Slot][]byte)}
	t.mu.epoch++
	t.mu.dirty = nil
	if len(f.slots) > 0 {
		t.mu.frozen = append(t.mu.frozen, f)
	}
	return f
}

// Gather passes up to max changes of f to emit, with their values at the freeze, nil for a deleted key, in no particular
// order, and reports whether f has no more. emit runs under the lock: it copies what it needs, and does nothing else.
// Between two calls the writer may go on; a max of some thousand keeps the pauses well below a millisecond.
func (t *Table) Gather(f *Frozen, max int, emit func(key, val []byte)) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := min(f.next+max, len(f.slots))
	for i := f.next; i < end; i++ {
		s := f.slots[i]
		f.slots[i] = nil
		if s.epoch == f.epoch { // not touched since the freeze
			emit(bytesOf(s.key), s.Val)
			s.epoch = 0
			t.countLocked(s)
			if s.Val == nil {
				t.forgetLocked(s)
			}
			continue
		}
		emit(bytesOf(s.key), f.before[s])
		delete(f.before, s)
	}
	if f.next = end; end < len(f.slots) {
		return false
	}
	f.slots, f.next = nil, 0
	t.mu.frozen = slices.DeleteFunc(t.mu.frozen, func(o *Frozen) bool { return o == f })
	return true
}

func (t *Table) forgetLocked(s *Slot) {
	delete(t.mu.parts[part(s.hash)], s.key)
	t.mu.keys--
	t.mu.bytes -= int64(len(s.key)) + slotOverhead + s.counted
}

// Get appends the newest value of key to dst and reports whether the key is there.
func (t *Table) Get(key, dst []byte) ([]byte, bool) {
	hash := dataflow.HashKey(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.Find(hash, key)
	if s == nil || s.Val == nil {
		return dst, false
	}
	return append(dst, s.Val...), true
}

// Entry is a key and its value, both the receiver's own.
type Entry struct{ Key, Val []byte }

// Scan returns copies of the first limit entries with from ≤ key < to, by key. A nil to is no bound, a limit ≤ 0 is none.
// It takes the lock for a part of the table at a time, so it is not one moment of the table: each key is there once, with
// a value it had during the scan. Each call walks the whole table.
func (t *Table) Scan(from, to []byte, limit int) []Entry {
	f := firsts{lo: string(from), hi: string(to), bounded: to != nil, limit: limit}
	for i := range t.mu.parts {
		t.mu.Lock()
		for k, s := range t.mu.parts[i] {
			if s.Val != nil && f.admits(k) {
				f.add(k, clone(s.Val))
			}
		}
		t.mu.Unlock()
	}
	return f.entries()
}

// Len returns how many keys the table holds, deleted ones that are not gathered yet included.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.keys
}

// Dirty returns how many keys have changed since the last Freeze.
func (t *Table) Dirty() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.dirty)
}

// Bytes estimates the memory that the table's keys and values take.
func (t *Table) Bytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.bytes
}

// firsts collects the first limit entries of a range from entries in any order. It holds up to twice as many as it was
// asked for before it throws the later ones away, and takes none behind these from then on.
type firsts struct {
	lo, hi  string
	bounded bool // by hi
	limit   int  // 0 = none
	found   []found
}

type found struct {
	key string
	val []byte
}

func (f *firsts) admits(k string) bool { return k >= f.lo && (!f.bounded || k < f.hi) }

func (f *firsts) add(k string, val []byte) {
	f.found = append(f.found, found{k, val})
	if f.limit > 0 && len(f.found) == 2*f.limit {
		f.cut()
		f.hi, f.bounded = f.found[f.limit-1].key, true
	}
}

// cut sorts what was found and keeps the first.
func (f *firsts) cut() {
	slices.SortFunc(f.found, func(a, b found) int { return strings.Compare(a.key, b.key) })
	if f.limit > 0 && len(f.found) > f.limit {
		clear(f.found[f.limit:])
		f.found = f.found[:f.limit]
	}
}

func (f *firsts) entries() []Entry {
	f.cut()
	out := make([]Entry, len(f.found))
	for i, e := range f.found {
		out[i] = Entry{[]byte(e.key), e.val}
	}
	return out
}

// clone copies b, keeping nil (absent) apart from empty.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// bytesOf returns the bytes of s without a copy. The receiver must not change them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
