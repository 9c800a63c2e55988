package worker

import (
	"bytes"
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
)

// ErrEnded is returned by live reads of a run that has ended.
var ErrEnded = errors.New("the run has ended")

// ErrDeposed is returned by live reads of a shard whose log this node does not lead any more: another node's tables may be
// newer, and what these hold counts no more.
var ErrDeposed = errors.New("this node does not lead the shard any more")

// deposed reports whether this node has ceased to lead the log of a shard of the run. It may be that for a moment without
// knowing, in which no other node leads yet.
func (r *Running) deposed(shard dataflow.ShardID) bool {
	for _, s := range r.led {
		if s.ID == shard {
			return !s.Log.IsLeader()
		}
	}
	return false
}

// Get appends the newest value of a key to dst: the live table's or, when that does not hold the key, the one in the newest
// committed cut. Errors: ErrEnded, ErrDeposed, CORRUPT.
func (r *Running) Get(stage dataflow.StageID, shard dataflow.ShardID, key, dst []byte) (val []byte, found bool, err error) {
	if r.deposed(shard) {
		return dst, false, ErrDeposed
	}
	t := r.Table(stage, shard)
	n := len(dst)
	for {
		val, a, cut := t.Get(key, dst)
		switch a {
		case state.Closed:
			return dst, false, ErrEnded
		case state.Found, state.Absent:
			return val, a == state.Found, nil
		}
		view, err := r.base(shard, t, cut)
		if err != nil {
			return dst, false, err
		}
		if view == nil {
			continue
		}
		defer view.Release()
		if a == state.InBase {
			return view.Get(stage, key, dst)
		}
		whole, err := wholeOf(t, view, stage, key, val[n:])
		if err != nil {
			return dst, false, err
		}
		return append(val[:n], whole...), true, nil
	}
}

// wholeOf merges a partial value into the one that the view has.
func wholeOf(t *state.Table, view *state.View, stage dataflow.StageID, key, partial []byte) ([]byte, error) {
	base, found, err := view.Get(stage, key, nil)
	if err != nil {
		return nil, err
	}
	if !found {
		base = nil
	} else if base == nil {
		base = []byte{}
	}
	return t.Whole(partial, base)
}

// Committed appends the value that a key has in a committed cut to dst, if the live table can tell; known is false when the
// cut itself is to be asked. It does not wait.
func (r *Running) Committed(stage dataflow.StageID, shard dataflow.ShardID, cut dataflow.CheckpointID, key, dst []byte) (val []byte, found, known bool) {
	val, a := r.Table(stage, shard).AppendCommitted(cut, key, dst)
	return val, a == state.Found, a == state.Found || a == state.Absent
}

// GetAll answers the open keys as Get does, the live table's under one hold of its lock. Errors: Get's.
func (r *Running) GetAll(stage dataflow.StageID, shard dataflow.ShardID, l *dataflow.Lookups) error {
	if r.deposed(shard) {
		return ErrDeposed
	}
	t := r.Table(stage, shard)
	for {
		cut, open := t.GetAll(l)
		if !open {
			return ErrEnded
		}
		if len(l.Open()) == 0 {
			return nil
		}
		view, err := r.base(shard, t, cut)
		if err != nil {
			return err
		}
		if view == nil {
			l.Again()
			continue
		}
		defer view.Release()
		return errors.Join(view.GetAll(stage, l), l.Err())
	}
}

// CommittedAll answers those of the open keys that Committed has an answer for.
func (r *Running) CommittedAll(stage dataflow.StageID, shard dataflow.ShardID, cut dataflow.CheckpointID, l *dataflow.Lookups) {
	r.Table(stage, shard).CommittedAll(cut, l)
}

// Fresh returns copies of the entries that have changed since the last barrier, of maxBytes about at most; a nil value says
// that the key is gone. Errors are Get's.
func (r *Running) Fresh(stage dataflow.StageID, shard dataflow.ShardID, maxBytes int64) (keys, values [][]byte, err error) {
	if r.deposed(shard) {
		return nil, nil, ErrDeposed
	}
	t := r.Table(stage, shard)
	for {
		var entries []state.Entry
		left := maxBytes
		open := t.Fresh(func(e state.Entry) bool {
			if left -= int64(len(e.Key) + len(e.Val)); left < 0 {
				return false
			}
			e.Key = bytes.Clone(e.Key)
			if e.Val != nil {
				e.Val = append([]byte{}, e.Val...)
			}
			entries = append(entries, e)
			return true
		})
		if !open {
			return nil, nil, ErrEnded
		}
		done, err := r.makeWhole(stage, shard, t, entries)
		if err != nil {
			return nil, nil, err
		}
		if !done {
			continue
		}
		for _, e := range entries {
			keys, values = append(keys, e.Key), append(values, e.Val)
		}
		return keys, values, nil
	}
}

// base opens the cut that has what a table does not hold; nil when it has expired because the table has a newer one meanwhile.
func (r *Running) base(shard dataflow.ShardID, t *state.Table, cut dataflow.CheckpointID) (*state.View, error) {
	view, err := r.view(shard, cut)
	if err != nil && t.Base() != cut {
		return nil, nil
	}
	return view, err
}

// newest opens the newest cut that a table knows of.
func (r *Running) newest(shard dataflow.ShardID, t *state.Table) (*state.View, error) {
	for {
		if view, err := r.base(shard, t, t.Base()); view != nil || err != nil {
			return view, err
		}
	}
}

// makeWhole merges the partial ones of a table's entries into what their cuts have. done is false when one of these has expired:
// then the table is to be asked again.
func (r *Running) makeWhole(stage dataflow.StageID, shard dataflow.ShardID, t *state.Table, entries []state.Entry) (done bool, err error) {
	var view *state.View // of the cut that the last partial had: there are few, one after the other
	defer func() {
		if view != nil {
			view.Release()
		}
	}()
	for i := range entries {
		e := &entries[i]
		if !e.Partial {
			continue
		}
		if view == nil || view.Checkpoint() != e.Base {
			if view != nil {
				view.Release()
			}
			if view, err = r.base(shard, t, e.Base); view == nil {
				return false, err
			}
		}
		if e.Val, err = wholeOf(t, view, stage, e.Key, e.Val); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Scan returns copies of the first limit entries with lo ≤ key < hi, by key; a nil hi is no bound, a limit of 0 none. Each key
// is there once, with a value that it had during the call. Errors are Get's.
func (r *Running) Scan(stage dataflow.StageID, shard dataflow.ShardID, lo, hi []byte, limit int) ([]state.Entry, error) {
	if r.deposed(shard) {
		return nil, ErrDeposed
	}
	t := r.Table(stage, shard)
	var out []state.Entry
	for {
		entries, a := t.Scan(lo, hi, limit)
		switch a {
		case state.Closed:
			return nil, ErrEnded
		}
		if done, err := r.makeWhole(stage, shard, t, entries); err != nil {
			return nil, err
		} else if !done {
			continue
		}
		if a == state.Found {
			return append(out, entries...), nil
		}
		// What the table does not say stands in the base, opened after the scan. A scan that has reached its limit says nothing
		// of the keys behind its last one.
		to, cut := hi, limit > 0 && len(entries) == limit
		if cut {
			to = append(bytes.Clone(entries[limit-1].Key), 0)
		}
		view, err := r.newest(shard, t)
		if err != nil {
			return nil, err
		}
		out, err = overlay(out, entries, view.Iter(stage, lo, to), limit)
		view.Release()
		if err != nil || !cut || len(out) >= limit {
			return out, err
		}
		lo = to
	}
}

// overlay appends the entries of a table and those of the base that the table has no entry for, by key, up to limit in all.
func overlay(out, table []state.Entry, base *state.Iter, limit int) ([]state.Entry, error) {
	more := base.Next()
	for (more || len(table) > 0) && (limit <= 0 || len(out) < limit) {
		order := -1 // of the table's next entry and the base's
		switch {
		case len(table) == 0:
			order = 1
		case more:
			order = bytes.Compare(table[0].Key, base.Key())
		}
		if order > 0 {
			out = append(out, state.Entry{Key: bytes.Clone(base.Key()), Val: append([]byte{}, base.Value()...)})
			more = base.Next()
			continue
		}
		if table[0].Val != nil {
			out = append(out, table[0])
		}
		table = table[1:]
		if order == 0 {
			more = base.Next()
		}
	}
	return out, base.Close()
}
