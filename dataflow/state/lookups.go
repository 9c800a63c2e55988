package state

import (
	"bytes"
	"errors"
	"math/bits"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
)

// A batch of look-ups goes through memory in steps, each for all keys before the next step: the processor then waits for
// several of them at once, and a miss of its cache costs a part of what it does alone.

// GetAll answers the open keys with their newest values, under one hold of the lock. What it leaves open is in the cut base, as
// for Get; it has told l of the partials. It returns false when the table is closed.
func (t *Table) GetAll(l *dataflow.Lookups) (base dataflow.CheckpointID, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return 0, false
	}
	open := l.Open()
	t.touchLocked(l, open)
	for _, i := range open {
		if p := &t.mu.parts[partOf(l.Hash(i))]; p.capacity > 0 {
			if pos, found := p.find(&t.slots, l.Hash(i), l.Key(i)); found {
				if getBit(p.partial, pos) {
					if !t.answerPartialLocked(l, i, p, pos) {
						return t.mu.committed, true
					}
				} else if !t.answerLocked(l, i, p, pos) {
					return t.mu.committed, true
				}
				continue
			}
		}
		if !t.inBaseLocked(l.Hash(i)) {
			l.Absent(i)
		}
	}
	return t.mu.committed, true
}

// CommittedAll answers the open keys with their values in a committed cut, where it can tell: see AppendCommitted. It waits
// for nobody.
func (t *Table) CommittedAll(cut dataflow.CheckpointID, l *dataflow.Lookups) {
	if t.budget == nil || !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.committed != cut {
		return
	}
	open := l.Open()
	t.touchLocked(l, open)
	for _, i := range open {
		part := partOf(l.Hash(i))
		p := &t.mu.parts[part]
		pos, found := 0, false
		if p.capacity > 0 {
			pos, found = p.find(&t.slots, l.Hash(i), l.Key(i))
		}
		switch {
		case !found:
			if t.missedLocked(l.Hash(i)) == Absent {
				l.Absent(i)
			}
		case t.uncommittedLocked(part, pos):
		case !t.answerLocked(l, i, p, pos):
			return
		}
	}
}

// answerLocked answers with what a slot has, and reports whether there was room for it.
func (t *Table) answerLocked(l *dataflow.Lookups, i int32, p *subtable, pos int) bool {
	val := t.slots.valueOf(p.slot(&t.slots, pos))
	if val == nil {
		l.Absent(i)
		return true
	}
	return l.Found(i, val)
}

// touchLocked is Prefetch for look-ups: of both ends of a slot, as its value is read too.
func (t *Table) touchLocked(l *dataflow.Lookups, open []int32) {
	var sum byte
	for _, i := range open {
		h := l.Hash(i)
		p := &t.mu.parts[partOf(h)]
		home, _ := bits.Mul64(h, uint64(p.capacity))
		if at := int(home) * t.slots.size; at+t.slots.size <= len(p.mem.bytes) {
			sum += p.mem.bytes[at] + p.mem.bytes[at+t.slots.size-1]
		}
		if w := int(home >> 6); w < len(p.dirty) {
			sum += byte(p.dirty[w])
		}
	}
	t.mu.prefetched = sum
}

// GetAll answers all keys that are open. Errors: CORRUPT, SHUTTING_DOWN.
func (v *View) GetAll(stage dataflow.StageID, l *dataflow.Lookups) error {
	open := l.Open()
	if len(open) == 0 {
		return nil
	}
	// The layers are all asked for their runs before the first look-up: these are waits for memory too.
	var few [4 * probeRuns]*run
	runs := few[:0]
	for _, layer := range v.layers {
		if r := layer.run(stage); r != nil && len(r.filter) > 0 {
			runs = append(runs, r)
		}
	}
	var probes [lookupStep]probe
	for len(open) > 0 {
		n := min(len(open), lookupStep)
		left := probes[:n]
		for k, i := range open[:n] {
			rank := rankOf(l.Hash(i))
			left[k] = probe{key: i, rank: rank, bits: filterMask(rank)}
		}
		open = open[n:]
		for next := runs; len(next) > 0 && len(left) > 0; {
			n := min(len(next), probeRuns)
			var goOn bool
			if left, goOn = getSome(l, next[:n], left); !goOn {
				return nil
			}
			next = next[n:]
		}
		for k := range left {
			if v.snap == nil {
				l.Absent(left[k].key)
			} else if goOn, err := v.getStored(stage, l, left[k].key); !goOn || err != nil {
				return err
			}
		}
	}
	return nil
}

// getStored answers a key that no layer has, and reports whether there was room.
func (v *View) getStored(stage dataflow.StageID, l *dataflow.Lookups, i int32) (goOn bool, err error) {
	if v.r.closed.Load() {
		return false, errShuttingDown()
	}
	var buf [128]byte
	val, closer, err := v.snap.Get(appendStoreKey(buf[:0], v.uid, stage, l.Key(i)))
	if errors.Is(err, pebble.ErrNotFound) {
		l.Absent(i)
		return true, nil
	}
	if err != nil {
		return false, corrupt(err)
	}
	goOn = l.Found(i, val)
	return goOn, corrupt(closer.Close())
}

// lookupStep is how many keys go through a step together. The processor has no more waits for memory under way at once
// than a quarter of that.
const lookupStep = 64

// probeRuns is how many runs' filters are asked about a key at once. Why not more: with keys that change often, most are in one
// of the newest, and the others were asked in vain. Why not fewer: each round has few keys left, whose waits hardly overlap.
const probeRuns = 4

// probe is a key that is looked for in one group of runs after the other.
type probe struct {
	bits   uint64 // that filters have of the key
	rank   uint32
	key    int32 // its number
	in     uint8 // the runs of the group that may have it, newest in the lowest bit
	run    uint8 // the one that is asked
	length byte  // what the entry begins with: the length of its key, if that is short
	from   uint32
	to     uint32 // the items to look at
	ahead  item   // is what is read of these ahead, so that it is not left out
}

// getSome answers those of at most lookupStep keys that the runs have, of which there are at most probeRuns, newest first. It
// returns the other keys, in the memory of keys. goOn is false when there was no room for an answer.
//
// What a step reads, it does not decide upon: a decision that the processor guesses wrong waits for its memory, and all reads
// after it wait along.
func getSome(l *dataflow.Lookups, runs []*run, keys []probe) (others []probe, goOn bool) {
	for k := range keys {
		p := &keys[k]
		p.in = 0
		for j, r := range runs {
			missing := p.bits &^ r.filter[uint64(p.rank)*uint64(len(r.filter))>>32]
			p.in |= uint8((missing|-missing)>>63^1) << j
		}
	}
	var at [lookupStep]uint8 // numbers in keys of those that a run may have
	for {
		n := 0
		for k := range keys {
			at[n] = uint8(k)
			if keys[k].in != 0 {
				n++
			}
		}
		if n == 0 {
			return keys, true
		}
		for _, k := range at[:n] {
			p := &keys[k]
			p.run = uint8(bits.TrailingZeros8(p.in))
			p.in &= p.in - 1
			o := &runs[p.run].order
			b := o.bucketOf(p.rank)
			p.from, p.to = o.starts[b], o.starts[b+1]
		}
		for _, k := range at[:n] {
			p := &keys[k]
			items := runs[p.run].order.items
			p.ahead = items[min(int(p.from), len(items)-1)] | items[max(p.to, 1)-1]
		}
		for _, k := range at[:n] {
			p := &keys[k]
			r := runs[p.run]
			for p.from < p.to && r.order.items[p.from].rank() != p.rank {
				p.from++
			}
			if p.from < p.to {
				p.length = r.raw(r.order.items[p.from].place())[0]
			}
		}
		answered := 0
		for _, k := range at[:n] {
			p := &keys[k]
			found, goOn := runs[p.run].answer(l, p)
			if !goOn {
				return nil, false
			}
			if found {
				p.key, p.in = -1, 0
				answered++
			}
		}
		if answered > 0 {
			keys = slices.DeleteFunc(keys, func(p probe) bool { return p.key < 0 })
		}
	}
}

// answer answers a probe's key if one of its items is the key's.
func (r *run) answer(l *dataflow.Lookups, p *probe) (found, goOn bool) {
	key := l.Key(p.key)
	for i := p.from; i < p.to && r.order.items[i].rank() == p.rank; i++ {
		if i == p.from && p.length < 0x80 && int(p.length) != len(key) {
			continue
		}
		e := r.entry(r.order.items[i].place())
		switch {
		case !bytes.Equal(e.key, key):
		case e.val == nil:
			l.Absent(p.key)
			return true, true
		default:
			return true, l.Found(p.key, e.val)
		}
	}
	return false, true
}
