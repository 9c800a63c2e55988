package state

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
)

// Stored returns how many keys the store has of a stage, about, for making room in a table: as many as the level has that has
// most, because a key is once in a level and the others mostly repeat it. Where files hold other stages too, the stage's part of
// their bytes says what part of the keys is its own. Errors: CORRUPT, SHUTTING_DOWN.
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
	levels, err := v.r.store.db.SSTables(pebble.WithKeyRangeFilter(lo, hi), pebble.WithProperties())
	if err != nil {
		return 0, corrupt(err)
	}
	var most, all uint64
	for i, level := range levels {
		n := uint64(0)
		for _, f := range level {
			all += f.Properties.DataSize
			if i == 0 { // where files overlap
				n = max(n, f.Properties.NumEntries)
			} else {
				n += f.Properties.NumEntries
			}
		}
		most = max(most, n)
	}
	own, err := v.r.store.db.EstimateDiskUsage(lo, hi)
	if err != nil || all == 0 {
		return 0, corrupt(err)
	}
	return int(float64(most) * min(1, float64(own)/float64(all))), nil
}

// Reserve makes room for about so many keys, so that filling them in moves no entry: a part then is a little fuller than after it
// has grown by itself. It does nothing where the budget has no room for that.
func (t *Table) Reserve(keys int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	capacity := keys/tableParts*7/5 + 16 // seven tenths of the slots are used then; parts differ by less than the rest
	if t.mu.closed || t.budget != nil && t.budget.Used()+int64(capacity*tableParts*t.slots.size) > t.budget.Limit() {
		return
	}
	for part := range t.mu.parts {
		// As makeRoomLocked begins: the parts have different sizes, so that they do not grow all at once later.
		if own := capacity + capacity*part/(8*tableParts); own > t.mu.parts[part].capacity {
			t.rehashLocked(part, own, nil)
		}
	}
}
