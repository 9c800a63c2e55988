package state

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
)

// View is one committed cut of one pipeline on one shard: immutable and safe for concurrent use. It keeps layers in memory
// and files on disk from being freed: hold it for a request, not for longer, and release it.
type View struct {
	r      *Replica
	uid    dataflow.PipelineUID
	id     dataflow.CheckpointID
	ref    dataflow.DeltaRef
	layers []*layer          // newest first
	base   dataflow.DeltaRef // up to where the layers do not reach, because the store held it when the view was made
	snap   *pebble.Snapshot  // nil when the store holds nothing of the pipeline
	refs   atomic.Int32      // 1 of the holder, 1 per open Iter
}

// Checkpoint returns the cut's id.
func (v *View) Checkpoint() dataflow.CheckpointID { return v.id }

// Ref returns the last delta that the view includes.
func (v *View) Ref() dataflow.DeltaRef { return v.ref }

// Get appends the value of a key to dst and reports whether the key is there. Errors: CORRUPT, SHUTTING_DOWN.
func (v *View) Get(stage dataflow.StageID, key, dst []byte) ([]byte, bool, error) {
	if len(v.layers) > 0 {
		hash := dataflow.HashKey(key)
		for _, l := range v.layers {
			if val, found := l.get(stage, hash, key); found {
				return append(dst, val...), val != nil, nil
			}
		}
	}
	if v.snap == nil {
		return dst, false, nil
	}
	if v.r.closed.Load() {
		return dst, false, errShuttingDown()
	}
	var buf [128]byte
	val, closer, err := v.snap.Get(appendStoreKey(buf[:0], v.uid, stage, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, corrupt(err)
	}
	dst = append(dst, val...)
	return dst, true, corrupt(closer.Close())
}

// Each passes the entries of a stage to fn without sorting or merging anything: what the layers say, the newest first and each
// in the order of a table's slots, then what the store has. So of a key that comes several times the first entry counts; a nil
// value says that the key is not there. It ends when fn returns false. What is passed to fn is good until it returns. Errors:
// CORRUPT, SHUTTING_DOWN.
func (v *View) Each(stage dataflow.StageID, fn func(key, val []byte) bool) error {
	for _, r := range runsOf(v.layers, stage) {
		for _, it := range r.order.items {
			if e := r.entry(it.place()); !fn(e.key, e.val) {
				return nil
			}
		}
	}
	it := v.iter(stage, nil, nil, nil)
	for it.Next() {
		if !fn(it.Key(), it.Value()) {
			break
		}
	}
	return it.Close()
}

// Iter walks the keys of a stage with lo ≤ key < hi in ascending order; a nil hi is no bound. The bounds may be reused
// when it returns. The iterator is for one goroutine; the view lives until it is closed, also when released before.
func (v *View) Iter(stage dataflow.StageID, lo, hi []byte) *Iter {
	return v.iter(stage, v.layers, lo, hi)
}

// iter is Iter with some of the view's layers.
func (v *View) iter(stage dataflow.StageID, layers []*layer, lo, hi []byte) *Iter {
	v.refs.Add(1)
	it := &Iter{v: v, m: newMerger(layers, stage, lo, hi)}
	if v.snap == nil || hi != nil && bytes.Compare(lo, hi) >= 0 {
		return it
	}
	if v.r.closed.Load() {
		it.err = errShuttingDown()
		return it
	}
	opts := &pebble.IterOptions{LowerBound: appendStoreKey(nil, v.uid, stage, lo)}
	if hi != nil {
		opts.UpperBound = appendStoreKey(nil, v.uid, stage, hi)
	} else {
		opts.UpperBound = prefixEnd(appendStoreKey(nil, v.uid, stage, nil))
	}
	if it.store, it.err = v.snap.NewIter(opts); it.err == nil {
		it.store.First()
	}
	it.err = corrupt(it.err)
	return it
}

// retain is for one more holder, unless the last one has released the view.
func (v *View) retain() bool {
	for {
		n := v.refs.Load()
		if n <= 0 {
			return false
		}
		if v.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends the use of the view by who got it from the Replica. Call it once.
func (v *View) Release() {
	switch n := v.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("state: a view was released twice")
	}
	if v.r.closed.Load() {
		return // Close has reported it, and the store is gone
	}
	v.drop()
}

func (v *View) drop() {
	if v.snap != nil {
		// Closing a snapshot fails only when it is closed twice, or the store has failed, which was logged.
		if err := v.r.store.run(v.snap.Close); err != nil && v.r.store.fail.get() == nil {
			v.r.cfg.Logger.Error("close a snapshot of the state store", "error", err)
		}
	}
	v.r.released(v)
}

// Iter is a position in an ordered walk over a View:
//
//	it := v.Iter(stage, lo, hi)
//	for it.Next() {
//		use(it.Key(), it.Value())
//	}
//	err := it.Close()
//
// Like a View it pins memory and files: hold it for a request.
type Iter struct {
	v        *View
	m        *merger
	store    *pebble.Iterator // nil when there is no store to read
	key, val []byte
	onStore  bool // the current entry is the store's
	err      error
}

// Next moves to the next entry and reports whether there is one. The first call moves to the first.
func (it *Iter) Next() bool {
	for it.err == nil {
		if it.onStore {
			it.store.Next()
			it.onStore = false
		}
		layered := it.m.peek()
		if it.store != nil && it.store.Valid() {
			key := it.store.Key()[storePrefix:]
			order := -1
			if layered != nil {
				order = bytes.Compare(key, layered.cur.key)
			}
			if order < 0 {
				it.key, it.onStore = key, true
				if it.val, it.err = it.store.ValueAndErr(); it.err != nil {
					it.err = corrupt(it.err)
					return false
				}
				return true
			}
			if order == 0 {
				it.store.Next()
			}
		} else if it.store != nil {
			if it.err = corrupt(it.store.Error()); it.err != nil {
				return false
			}
		}
		if layered == nil {
			return false
		}
		e := layered.cur
		it.m.skip(e.key)
		if e.val != nil {
			it.key, it.val = e.key, e.val
			return true
		}
	}
	return false
}

// Key returns the current key; valid until the next call of Next or Close, and not to be changed.
func (it *Iter) Key() []byte { return it.key }

// Value returns the current value; valid until the next call of Next or Close, and not to be changed.
func (it *Iter) Value() []byte { return it.val }

// Close ends the walk and returns what went wrong in it. Errors: CORRUPT, SHUTTING_DOWN.
func (it *Iter) Close() error {
	if it.store != nil && !it.v.r.closed.Load() && !it.v.r.store.fail.isStuck() {
		if err := it.store.Close(); it.err == nil {
			it.err = corrupt(err)
		}
	}
	it.v.Release()
	return it.err
}
