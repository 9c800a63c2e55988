package statequery

import (
	"bytes"
	"context"
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// walkRows is how many keys are turned into visible rows at a time.
const walkRows = 1024

// walk visits the visible rows with lo ≤ key < hi in key order, in batches with their keys, until visit returns false.
// A committed walk reads one cut; a live walk sees each key once, with a value it had during the walk.
func (r *reading) walk(ctx context.Context, st *plan.Stage, lo, hi []byte, visit func(rows *batch.Batch, keys [][]byte) (more bool, err error)) error {
	fin := operator.NewFinalizer(st)
	next, done, err := r.merged(ctx, st, lo, hi)
	if err != nil {
		return err
	}
	more := true
	for more && err == nil {
		if ctx.Err() != nil {
			err = deadline(ctx)
			break
		}
		var keys, accs [][]byte
		var ended bool
		if keys, accs, ended, err = next(walkRows); err != nil || len(keys) == 0 {
			break
		}
		var rows *batch.Batch
		var visible batch.Bitmap
		if rows, visible, err = fin.Batch(keys, accs); err != nil {
			break
		}
		sel := make([]int32, 0, rows.N)
		shown := keys[:0]
		for i := range rows.N {
			if visible.Get(i) {
				sel = append(sel, int32(i))
				shown = append(shown, keys[i])
			}
		}
		if len(sel) < rows.N {
			rows = rows.Select(sel)
		}
		if rows.N > 0 {
			more, err = visit(rows, shown)
		}
		more = more && !ended
	}
	return errors.Join(err, done())
}

// chunk returns up to n entries in key order, and whether there are no more.
type chunk func(n int) (keys, accs [][]byte, ended bool, err error)

// merged merges the shards' entries by key. done ends it and returns what went wrong.
func (r *reading) merged(ctx context.Context, st *plan.Stage, lo, hi []byte) (next chunk, done func() error, err error) {
	if len(st.Key) == 0 { // a table without key columns has one row at most
		acc, err := r.get(ctx, st, nil)
		return func(int) ([][]byte, [][]byte, bool, error) { return [][]byte{{}}, [][]byte{acc}, true, nil }, func() error { return nil }, err
	}
	var cursors []cursor
	done = func() error {
		var errs []error
		for _, c := range cursors {
			errs = append(errs, c.close())
		}
		return errors.Join(errs...)
	}
	for s := range r.e.cfg.Shards {
		shard := dataflow.ShardID(s)
		var c cursor
		if r.live != nil {
			c = &liveCursor{live: r.live, stage: st.ID, shard: shard, lo: lo, hi: hi}
		} else {
			view, err := r.view(ctx, shard)
			if err != nil {
				return nil, nil, errors.Join(err, done())
			}
			c = &viewCursor{it: view.Iter(st.ID, lo, hi)}
		}
		cursors = append(cursors, c)
		c.advance()
	}
	next = func(n int) (keys, accs [][]byte, ended bool, err error) {
		for len(keys) < n {
			var least cursor
			for _, c := range cursors { // as many as shards: a heap would not pay
				if c.key() != nil && (least == nil || bytes.Compare(c.key(), least.key()) < 0) {
					least = c
				}
			}
			if least == nil {
				return keys, accs, true, nil
			}
			keys, accs = append(keys, bytes.Clone(least.key())), append(accs, bytes.Clone(least.value()))
			least.advance()
		}
		return keys, accs, false, nil
	}
	return next, done, nil
}

// cursor walks over the entries of one shard. key is nil past the end.
type cursor interface {
	advance()
	key() []byte
	value() []byte
	close() error
}

type viewCursor struct {
	it Iter
	ok bool
}

func (c *viewCursor) advance() { c.ok = c.it.Next() }
func (c *viewCursor) key() []byte {
	if !c.ok {
		return nil
	}
	return c.it.Key()
}
func (c *viewCursor) value() []byte { return c.it.Value() }
func (c *viewCursor) close() error  { return c.it.Close() }

// liveCursor copies the table in parts. Each part walks the whole table, so parts grow.
type liveCursor struct {
	live   Live
	stage  dataflow.StageID
	shard  dataflow.ShardID
	lo, hi []byte
	keys   [][]byte
	values [][]byte
	at     int
	size   int
	ended  bool
}

// The first part of a live walk, and how much larger each next one is: a short scan copies little, a long one walks the
// table a few times only.
const (
	livePart       = walkRows
	livePartGrowth = 16
)

func (c *liveCursor) advance() {
	if c.at++; c.size > 0 && c.at < len(c.keys) {
		return
	}
	if c.ended {
		c.keys = nil
		return
	}
	if c.size == 0 {
		c.size = livePart
	} else {
		c.lo = append(bytes.Clone(c.keys[len(c.keys)-1]), 0) // just after the last key
		c.size *= livePartGrowth
	}
	c.keys, c.values = c.live.Scan(c.stage, c.shard, c.lo, c.hi, c.size)
	c.at = 0
	c.ended = len(c.keys) < c.size
}

func (c *liveCursor) key() []byte {
	if c.at >= len(c.keys) {
		return nil
	}
	return c.keys[c.at]
}
func (c *liveCursor) value() []byte { return c.values[c.at] }
func (c *liveCursor) close() error  { return nil }
