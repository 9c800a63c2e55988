package task

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
)

// lookUp makes room in the table and finds the accumulators of those of a message's keys that the table does not hold: they
// are in the base. It reads the store, so it does not hold the table's lock meanwhile. It returns how many of the keys it has
// seen to: as many as give maxLooked bytes.
func (k *keyed) lookUp(hashes []uint64, key func(i int) []byte) (n int, err error) {
	k.looked.reset()
	if k.table.Relieve(); k.table.Complete() {
		return len(hashes), nil
	}
	k.table.Lock()
	k.looked.rows = k.table.Missing(k.looked.rows, hashes, key)
	k.table.Unlock()
	if len(k.looked.rows) == 0 {
		return len(hashes), nil
	}
	if k.table.HasPartials() { // a few, of those that are frozen
		view, err := k.base()
		if err != nil {
			return 0, k.lookUpFailure(err)
		}
		defer view.Release()
		for _, row := range k.looked.rows {
			if err := k.resolveIn(view, hashes[row], key(int(row))); err != nil {
				return 0, err
			}
		}
		k.run.cfg.Memory.CountLookups(len(k.looked.rows))
		k.looked.reset()
		return len(hashes), nil
	}
	view, err := k.base()
	if err != nil {
		return 0, k.lookUpFailure(err)
	}
	defer view.Release()
	for at, row := range k.looked.rows {
		if len(k.looked.arena) > maxLooked {
			k.looked.rows = k.looked.rows[:at]
			k.run.cfg.Memory.CountLookups(at)
			return int(row), nil
		}
		if k.looked.again(hashes, key, int(row)) {
			k.looked.ends = append(k.looked.ends, -1)
			continue
		}
		val, found, err := view.Get(k.stage.ID, key(int(row)), k.looked.arena)
		if err != nil {
			return 0, k.lookUpFailure(err)
		}
		if !found {
			k.looked.ends = append(k.looked.ends, -1)
			continue
		}
		k.looked.arena = val
		k.looked.ends = append(k.looked.ends, len(val))
	}
	k.run.cfg.Memory.CountLookups(len(k.looked.rows))
	return len(hashes), nil
}

// resolve makes the value of a key whole that is a partial, or not in the table.
func (k *keyed) resolve(hash uint64, key []byte) error {
	if k.table.Complete() {
		return nil
	}
	view, err := k.base()
	if err != nil {
		return k.lookUpFailure(err)
	}
	defer view.Release()
	return k.resolveIn(view, hash, key)
}

// resolveIn is resolve with the cut opened.
func (k *keyed) resolveIn(view *state.View, hash uint64, key []byte) error {
	val, found, err := view.Get(k.stage.ID, key, k.looked.arena[:0])
	if err != nil {
		return k.lookUpFailure(err)
	}
	k.looked.arena = val[:0]
	if !found {
		val = nil
	}
	return k.lookUpFailure(k.table.Resolved(hash, key, val))
}

// lookUpFailure says what was being done when err, which may be nil, happened.
func (k *keyed) lookUpFailure(err error) error {
	if merge := (*state.MergeError)(nil); errors.As(err, &merge) {
		return &RowFailure{View: k.name(), Text: k.keyText(merge.Key), Err: asError(merge.Err)}
	}
	if err != nil {
		return fmt.Errorf("look up keys of %s on shard %d: %w", k.name(), k.shard, err)
	}
	return nil
}

// base opens the cut that has what the table does not hold.
func (k *keyed) base() (*state.View, error) { return k.view(k.table.Base()) }

// view opens a cut or, when that has expired, the newer one that the table has for its base meanwhile.
func (k *keyed) view(cut dataflow.CheckpointID) (*state.View, error) {
	for {
		view, err := k.run.cfg.View(k.shard, cut)
		if err == nil {
			return view, nil
		}
		now := k.table.Base()
		if now == cut {
			return nil, err
		}
		cut = now
	}
}

// maxLooked is how many bytes of accumulators are looked up at a time, about: an accumulator has a MiB at most.
const maxLooked = 4 << 20

// looked holds the accumulators that a message's keys have in the base, by row.
type looked struct {
	rows  []int32
	ends  []int // where the accumulator of the row ends in the arena; -1 = there is none, or an earlier row has it
	arena []byte
	next  int // of rows
	from  int // where the next accumulator begins

	seen map[uint64]int32 // the first row with a hash
	key  []byte           // scratch of again
}

func (l *looked) reset() {
	if cap(l.arena) > 2*maxLooked {
		l.arena = nil
	}
	clear(l.seen)
	*l = looked{rows: l.rows[:0], ends: l.ends[:0], arena: l.arena[:0], seen: l.seen, key: l.key}
}

// again reports whether an earlier row has the key of this one: then it is in the table when this one's turn comes.
func (l *looked) again(hashes []uint64, key func(i int) []byte, row int) bool {
	if l.seen == nil {
		l.seen = make(map[uint64]int32)
	}
	first, there := l.seen[hashes[row]]
	if !there {
		l.seen[hashes[row]] = int32(row)
		return false
	}
	l.key = append(l.key[:0], key(int(first))...)
	return bytes.Equal(l.key, key(row))
}

// take returns the accumulator of a row, nil when it was not looked up or is not there. Rows are asked for in order.
func (l *looked) take(row int) []byte {
	if l.next == len(l.rows) || int(l.rows[l.next]) != row {
		return nil
	}
	from, end := l.from, l.ends[l.next]
	l.next++
	if end < 0 {
		return nil
	}
	l.from = end
	return l.arena[from:end]
}
