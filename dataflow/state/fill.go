package state

import (
	"context"
	"errors"
	"runtime"

	"github.com/weirdb/weir/dataflow"
)

const (
	// fillBatch is how many entries are filled in under one hold of a table's lock: a tenth of a millisecond's work.
	fillBatch = 512
	// fillTurn is how many batches are filled in before the processor is given to others, whatever waits for it: a millisecond
	// or two. Why not less: what gives its processor away has it back when all others, which the tasks of a pipeline that is
	// late are many of, have had a turn; filling then hardly goes on, and rows cost look-ups for as long. Why not more: reads wait.
	fillTurn = 16
)

// FillFrom fills the table with up to limit entries of a stage in a cut, 0 = all, and says how many there were. The table is to
// be filled on, from the beginning, when more is true. Else the fill has ended: all of the cut is in the table or, of what memory
// was too short for, among the keys that it knows to be gone; or that is too much as well, ctx has ended or there was an error. BeginFill has been called before. Errors are those of View.Each, and ctx's.
func (t *Table) FillFrom(ctx context.Context, v *View, stage dataflow.StageID, limit int) (n int, more bool, err error) {
	var b fillEntries
	all, passing := true, false // passing by what there is no memory for
	batches := 0
	some := func() (goOn bool) {
		if !passing {
			passing = !t.fillSome(&b)
		}
		return (!passing || t.remember(&b, false)) && ctx.Err() == nil
	}
	err = v.Each(stage, func(key, val []byte) bool {
		if limit > 0 && n == limit {
			all, more = false, true
			return false
		}
		n++
		if b.add(key, val); len(b.ends) < fillBatch {
			return true
		}
		all = some() // if there is no more, the last batch says so below
		if batches++; batches%fillTurn == 0 {
			runtime.Gosched() // reads are answered meanwhile
		}
		return all
	})
	if !passing && len(b.ends) > 0 {
		t.fillSome(&b)
		passing = len(b.ends) > 0 // else all of it went in, whether or not there is room for more
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		more = false
	}
	if passing && !t.remember(&b, all && err == nil) {
		more = false
	}
	if !more {
		t.EndFill(all && !passing && err == nil)
	}
	return n, more, err
}

// fillEntries is a batch of entries to fill in.
type fillEntries struct {
	arena  []byte
	ends   []keptEnd
	hashes []uint64
}

func (b *fillEntries) add(key, val []byte) {
	b.arena = append(b.arena, key...)
	at := len(b.arena)
	b.arena = append(b.arena, val...)
	b.ends = append(b.ends, keptEnd{key: at, val: len(b.arena), deleted: val == nil})
	b.hashes = append(b.hashes, dataflow.HashKey(key))
}

func (b *fillEntries) reset() { b.arena, b.ends, b.hashes = b.arena[:0], b.ends[:0], b.hashes[:0] }

// fillSome is Fill, and empties the batch unless the fill has been stopped before its end.
func (t *Table) fillSome(b *fillEntries) (goOn bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Prefetch(b.hashes)
	from := 0
	for i, e := range b.ends {
		if t.mu.closed || !t.slots.keepAbsent {
			return false
		}
		val := b.arena[e.key:e.val:e.val]
		if e.deleted {
			val = nil
		}
		t.loadLocked(b.hashes[i], b.arena[from:e.key], val)
		from = e.val
	}
	b.reset()
	t.mu.exhausted = false // a clean entry can be evicted
	if t.countLocked(); t.budget.Exceeded() {
		t.endWarmingLocked()
		return false
	}
	return true
}
