package state

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
)

// Stored returns how many entries the store has of a stage, about, for making room in a table: entries that a compaction will
// drop are counted too, those of files that other stages are in are not. Errors: CORRUPT, SHUTTING_DOWN.
func (v *View) Stored(stage dataflow.StageID) (int, error) {
	if v.snap == nil {
		return 0, nil
	}
	if v.r.closed.Load() {
		return 0, errShuttingDown()
	}
	lo := appendStoreKey(nil, v.uid, stage, nil)
	hi := prefixEnd(appendStoreKey(nil, v.uid, stage, nil))
	if hi == nil {
		return 0, nil // the last stage of the last pipeline that there can be
	}
	// The first stage's files may begin with the pipeline's marker.
	first := lo
	if stage == 0 {
		first = appendPipeline(nil, v.uid)
	}
	levels, err := v.r.store.db.SSTables(pebble.WithKeyRangeFilter(lo, hi), pebble.WithProperties())
	if err != nil {
		return 0, corrupt(err)
	}
	n := uint64(0)
	for _, level := range levels {
		for _, f := range level {
			if string(f.Smallest.UserKey) >= string(first) && string(f.Largest.UserKey) < string(hi) {
				n += f.Properties.NumEntries
			}
		}
	}
	return int(n), nil
}

// Reserve makes room for about so many keys, so that filling them in moves fewer entries again and again: for half of them,
// because the number is an estimate and an empty slot takes as much memory as a used one. It does nothing where the budget has
// no room for that.
func (t *Table) Reserve(keys int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	capacity := keys / 2 / tableParts * 9 / 5 // as much as makeRoomLocked would
	if t.mu.closed || t.budget != nil && t.budget.Used()+int64(capacity*tableParts*t.slots.size) > t.budget.Limit() {
		return
	}
	for part := range t.mu.parts {
		if own := capacity - capacity*part/(4*tableParts); own > t.mu.parts[part].capacity { // as makeRoomLocked begins
			t.rehashLocked(part, own, nil)
		}
	}
}
