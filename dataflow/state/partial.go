package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
)

// Where values can be merged, and nothing asks what a key's value was, a key that the table does not hold need not be looked
// up when it changes: it begins as a partial, the value that the key would have if it had had none. The partial is merged into
// the value in the base before the table hands the freeze over that it is in: by then there are many, and one walk through the
// store in the order of the keys finds them all. So
//
//   - a partial is changed since the last freeze, or frozen and not gathered: no cut includes a part of it, and every cut that
//     is committed meanwhile has the value that it is to be merged into;
//   - a frozen partial does not change: its key is looked up first (Missing, Resolved), so that what is kept of it is whole;
//   - a table is filled while it has partials: what comes in makes them whole;
//   - who reads a partial gets the number of the cut along with it.

// Merge folds a partial value into val, and returns the result: val changed in place, or another slice.
type Merge func(val, partial []byte) ([]byte, error)

// MergeError says of which key a partial could not be merged.
type MergeError struct {
	Key []byte
	Err error
}

func (e *MergeError) Error() string {
	return fmt.Sprintf("merge the value of key %x: %v", e.Key, e.Err)
}
func (e *MergeError) Unwrap() error { return e.Err }

// BeginAsPartials lets keys that the table does not hold begin as partials. It is called before the table is used, whose writer
// deletes nothing then.
func (t *Table) BeginAsPartials(merge Merge) { t.merge = merge }

// HasPartials reports whether keys may begin as partials.
func (t *Table) HasPartials() bool { return t.merge != nil }

func (t *Table) beginPartialLocked(p *subtable, pos int) {
	if p.partial == nil {
		p.partial = newBits(p.capacity)
	}
	setBit(p.partial, pos)
	t.mu.partials++
	t.budget.countPartials(1)
}

// resolveLocked makes a partial whole: base is the key's value in the base, nil when it has none.
func (t *Table) resolveLocked(part, pos int, base []byte) error {
	p := &t.mu.parts[part]
	slot := p.slot(&t.slots, pos)
	if base != nil {
		s := Slot{t: t, bytes: slot}
		if val := s.Value(); val == nil {
			s.Set(base)
		} else {
			t.mu.merged = append(t.mu.merged[:0], base...)
			merged, err := t.merge(t.mu.merged, val)
			if err != nil {
				return &MergeError{Key: bytes.Clone(t.slots.keyOf(slot)), Err: err}
			}
			t.mu.merged = merged
			s.Set(merged)
		}
	}
	clearBit(p.partial, pos)
	t.mu.partials--
	if !getBit(p.dirty, pos) {
		t.mu.frozenPartials--
	}
	return nil
}

// endPartialsLocked makes all partials whole: the base has none of their keys.
func (t *Table) endPartialsLocked() {
	for i := range t.mu.parts {
		t.mu.parts[i].partial = nil
	}
	t.mu.partials, t.mu.frozenPartials = 0, 0
}

// FrozenPartials returns how many keys Resolve has to see to before all that is frozen can be gathered.
func (t *Table) FrozenPartials() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.frozenPartials
}

func (t *Table) frozenPartialsLocked(dst []int32, hashes []uint64, key func(i int) []byte) []int32 {
	if t.mu.frozenPartials == 0 {
		return dst
	}
	t.Prefetch(hashes)
	for i, h := range hashes {
		p := &t.mu.parts[partOf(h)]
		if p.partial == nil {
			continue
		}
		if pos, found := p.find(&t.slots, h, key(i)); found && getBit(p.partial, pos) && !getBit(p.dirty, pos) {
			dst = append(dst, int32(i))
		}
	}
	return dst
}

// Resolved tells the table the value that a key has in the base, nil when it has none. It is for the keys of Missing, and for
// who must know the value of a key that may be a partial, or not be there, before changing it.
func (t *Table) Resolved(hash uint64, key, val []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	part := partOf(hash)
	if p := &t.mu.parts[part]; p.capacity > 0 {
		if pos, found := p.find(&t.slots, hash, key); found {
			if !getBit(p.partial, pos) {
				return nil
			}
			return t.resolveLocked(part, pos, val)
		}
	}
	if val != nil {
		t.loadLocked(hash, key, val)
	}
	return nil
}

// answerPartialLocked tells the look-ups of a partial and reports whether there was room for it.
func (t *Table) answerPartialLocked(l *dataflow.Lookups, i int32, p *subtable, pos int) bool {
	val := t.slots.valueOf(p.slot(&t.slots, pos))
	return val == nil || l.Partial(i, val, t.merge)
}

// entryLocked returns what a slot has, not copied.
func (t *Table) entryLocked(p *subtable, pos int, key []byte) Entry {
	e := Entry{Key: key, Val: t.slots.valueOf(p.slot(&t.slots, pos))}
	if getBit(p.partial, pos) {
		e.Partial, e.Base = true, t.mu.committed
	}
	return e
}

// Whole returns the value of an entry that is a partial, given what the base has of it: nil when it has nothing.
func (t *Table) Whole(partial, base []byte) ([]byte, error) {
	switch {
	case base == nil:
		return partial, nil
	case partial == nil:
		return base, nil
	}
	return t.merge(base, partial)
}

const (
	// resolveKeys is how many partials go through the store in one walk. More are found with fewer steps each, because more of
	// them are in the same block; fewer take less memory: some 60 bytes each.
	resolveKeys = 64 << 10
	// resolveBytes bounds the memory of their keys.
	resolveBytes = 4 << 20
)

// resolver walks through the base for a part of a freeze's partials.
type resolver struct {
	stage dataflow.StageID
	view  *View
	store *pebble.Iterator // nil when the walk has not begun, or there is no store

	arena  []byte   // the keys, in about the order of the hashes
	ends   []uint32 // of the keys in the arena
	hashes []uint64
	order  []int32 // the keys that no layer has, by key
	next   int     // of order

	vals  []byte     // what has been found
	found []foundVal // what is to be merged
	seek  []byte
}

// foundVal is a key's value in the base: from begin to end of vals, unless it is absent.
type foundVal struct {
	key        int32
	absent     bool
	begin, end uint32
}

func (r *resolver) key(i int32) []byte {
	from := uint32(0)
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.arena[from:r.ends[i]:r.ends[i]]
}

func (r *resolver) note(i int32, val []byte) {
	at := uint32(len(r.vals))
	r.vals = append(r.vals, val...)
	r.found = append(r.found, foundVal{key: i, absent: val == nil, begin: at, end: uint32(len(r.vals))})
}

// Resolve makes some of the partials of f whole, about max, and reports whether all are. base opens a cut of the stage. Only the
// writer calls it, until it is done, before it gathers f; EndResolve ends a walk that is under way. Errors: MergeError, CORRUPT,
// SHUTTING_DOWN, base's.
func (t *Table) Resolve(f *Frozen, stage dataflow.StageID, max int, base func(dataflow.CheckpointID) (*View, error)) (done bool, err error) {
	r := &t.whole
	if r.view == nil {
		cut, n := t.collect(f)
		if n == 0 {
			return true, nil
		}
		t.budget.CountLookups(n)
		if r.view, err = base(cut); err != nil {
			return false, err
		}
		r.stage = stage
		r.askLayers()
	}
	if err := t.mergeFound(max); err != nil || len(r.found) > 0 {
		return false, err
	}
	if err := r.walk(max); err != nil {
		return false, err
	}
	if err := t.mergeFound(max); err != nil {
		return false, err
	}
	if len(r.found) == 0 && r.next == len(r.order) {
		return false, t.EndResolve()
	}
	return false, nil
}

// EndResolve gives up what Resolve holds. What it has not made whole stays as it is.
func (t *Table) EndResolve() error {
	r := &t.whole
	var err error
	if r.store != nil {
		if !r.view.r.closed.Load() && !r.view.r.store.fail.isStuck() {
			err = corrupt(r.store.Close())
		}
		r.store = nil
	}
	if r.view != nil {
		r.view.Release()
		r.view = nil
	}
	return err
}

// collect takes up to resolveKeys partials of f, and returns the cut to find their values in and how many there are.
func (t *Table) collect(f *Frozen) (base dataflow.CheckpointID, n int) {
	r := &t.whole
	r.arena, r.ends, r.hashes, r.order, r.next = r.arena[:0], r.ends[:0], r.hashes[:0], r.order[:0], 0
	r.vals, r.found = r.vals[:0], r.found[:0]
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.frozenPartials > 0 && !t.mu.closed {
		for ; f.whole.part < tableParts; f.whole.part, f.whole.word = f.whole.part+1, 0 {
			if !t.collectPartLocked(f) {
				break
			}
		}
	}
	if len(r.ends) == 0 {
		*r = resolver{} // there may be none for long
	}
	t.mu.resolving = r.size()
	t.countLocked()
	return t.mu.committed, len(r.ends)
}

func (t *Table) collectPartLocked(f *Frozen) (goOn bool) {
	r := &t.whole
	p, frozen := &t.mu.parts[f.whole.part], f.bits[f.whole.part]
	if p.partial == nil {
		return true
	}
	for ; f.whole.word < len(frozen); f.whole.word++ {
		if len(r.ends) >= resolveKeys || len(r.arena) >= resolveBytes {
			return false
		}
		for set := frozen[f.whole.word] & p.partial[f.whole.word]; set != 0; set &= set - 1 {
			key := t.slots.keyOf(p.slot(&t.slots, f.whole.word<<6+bits.TrailingZeros64(set)))
			r.arena = append(r.arena, key...)
			r.ends = append(r.ends, uint32(len(r.arena)))
			r.hashes = append(r.hashes, dataflow.HashKey(key))
		}
	}
	return true
}

// size is the memory of the resolver's slices.
func (r *resolver) size() int64 {
	return int64(cap(r.arena) + cap(r.vals) + 4*cap(r.ends) + 8*cap(r.hashes) + 4*cap(r.order) + 16*cap(r.found))
}

// askLayers finds what the layers have of the keys, which are in about the order of the hashes, as the layers are, and puts the
// others in the order of the store.
func (r *resolver) askLayers() {
	known := newBits(len(r.ends))
	for _, l := range r.view.layers {
		run := l.run(r.stage)
		if run == nil {
			continue
		}
		for i, h := range r.hashes {
			if getBit(known, i) {
				continue
			}
			if val, found := run.get(h, r.key(int32(i))); found {
				setBit(known, i)
				r.note(int32(i), val)
			}
		}
	}
	type item struct {
		prefix uint64
		key    int32
	}
	items := make([]item, 0, len(r.ends)-len(r.found))
	var common []byte
	for i := range int32(len(r.ends)) {
		if getBit(known, int(i)) {
			continue
		}
		key := r.key(i)
		if len(items) == 0 {
			common = key
		}
		common = common[:min(len(common), len(key))]
		for !bytes.HasPrefix(key, common) {
			common = common[:len(common)-1]
		}
		items = append(items, item{key: i})
	}
	for n := range items {
		var p [8]byte
		copy(p[:], r.key(items[n].key)[len(common):])
		items[n].prefix = binary.BigEndian.Uint64(p[:])
	}
	slices.SortFunc(items, func(a, b item) int {
		if c := cmp.Compare(a.prefix, b.prefix); c != 0 {
			return c
		}
		return bytes.Compare(r.key(a.key), r.key(b.key))
	})
	for _, it := range items {
		r.order = append(r.order, it.key)
	}
}

// walk finds about max keys in the store.
func (r *resolver) walk(max int) error {
	v := r.view
	if v.snap == nil {
		for ; max > 0 && r.next < len(r.order); max, r.next = max-1, r.next+1 {
			r.note(r.order[r.next], nil)
		}
		return nil
	}
	if r.next == len(r.order) {
		return nil
	}
	if v.r.closed.Load() {
		return errShuttingDown()
	}
	if r.store == nil {
		it, err := v.snap.NewIter(&pebble.IterOptions{
			LowerBound: appendStoreKey(nil, v.uid, r.stage, nil),
			UpperBound: prefixEnd(appendStoreKey(nil, v.uid, r.stage, nil)),
		})
		if err != nil {
			return corrupt(err)
		}
		r.store = it
	}
	for ; max > 0 && r.next < len(r.order); max, r.next = max-1, r.next+1 {
		i := r.order[r.next]
		r.seek = appendStoreKey(r.seek[:0], v.uid, r.stage, r.key(i))
		if !r.store.SeekGE(r.seek) || !bytes.Equal(r.store.Key(), r.seek) {
			if err := r.store.Error(); err != nil {
				return corrupt(err)
			}
			r.note(i, nil)
			continue
		}
		val, err := r.store.ValueAndErr()
		if err != nil {
			return corrupt(err)
		}
		if val == nil {
			val = []byte{}
		}
		r.note(i, val)
	}
	return nil
}

// mergeFound merges about max of the values that were found.
func (t *Table) mergeFound(max int) error {
	r := &t.whole
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(max, len(r.found))
	for _, v := range r.found[len(r.found)-n:] {
		hash, key := r.hashes[v.key], r.key(v.key)
		part := partOf(hash)
		p := &t.mu.parts[part]
		if p.capacity == 0 {
			continue // closed
		}
		pos, found := p.find(&t.slots, hash, key)
		if !found || !getBit(p.partial, pos) {
			continue // a row or a fill has made it whole meanwhile
		}
		var base []byte
		if !v.absent {
			base = r.vals[v.begin:v.end:v.end]
		}
		if err := t.resolveLocked(part, pos, base); err != nil {
			return err
		}
	}
	if r.found = r.found[:len(r.found)-n]; len(r.found) == 0 {
		r.vals = r.vals[:0]
	}
	t.mu.resolving = r.size()
	t.countLocked()
	return nil
}
