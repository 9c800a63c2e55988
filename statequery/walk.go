package statequery

import (
	"bytes"
	"context"
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

const (
	// walkRows is how many keys are turned into visible rows at a time: enough for the cost per batch to vanish, few
	// enough that a caller who has gone is noticed soon.
	walkRows = 1024
	// walkBytes ends such a batch early, when its state is large.
	walkBytes = 4 << 20
)

// walker visits the rows of a table with lo ≤ key < hi in key order. A committed walk reads one cut; a live walk sees each
// key once, with a value it had during the walk. One goroutine uses it.
type walker struct {
	r *reading
	t *Table
	// cursors is a heap by key of one cursor per shard; one that is at its end is closed and leaves.
	cursors []cursor
	// keys and accs have been copied from the cursors and are to be visited next.
	keys, accs [][]byte
	pieces     batch.Pieces
	// last is the last key visited, whether its row is visible or not.
	last []byte
}

// walk begins a walk. hint is how many rows the caller wants, about. The caller closes the walker.
func (r *reading) walk(ctx context.Context, t *Table, lo, hi []byte, hint int) (*walker, error) {
	w := &walker{r: r, t: t}
	if len(t.stage.Key) == 0 {
		acc, err := r.get(ctx, t, nil)
		if acc != nil {
			w.cursors = []cursor{&loneCursor{acc: acc}}
		}
		return w, err
	}
	for s := range r.e.cfg.Shards {
		shard := dataflow.ShardID(s)
		var c cursor
		if r.live != nil {
			c = &liveCursor{live: r.live, stage: t.stage.ID, shard: shard, lo: lo, hi: hi, part: livePart(hint, r.e.cfg.Shards)}
		} else {
			view, err := r.view(ctx, shard)
			if err != nil {
				return nil, errors.Join(err, w.close())
			}
			c = &viewCursor{it: view.Iter(t.stage.ID, lo, hi)}
		}
		if ok, err := c.next(); err != nil {
			return nil, errors.Join(err, w.close())
		} else if ok {
			w.cursors = append(w.cursors, c)
		}
	}
	for i := len(w.cursors)/2 - 1; i >= 0; i-- {
		w.sink(i)
	}
	return w, nil
}

// next returns the rows that are visible among the next n keys at most, with their keys: perhaps none. The batch is nil at
// the end.
func (w *walker) next(ctx context.Context, n int) (*batch.Batch, [][]byte, error) {
	if ctx.Err() != nil {
		return nil, nil, deadline(ctx)
	}
	if len(w.keys) == 0 {
		var err error
		if w.keys, w.accs, err = w.gather(min(n, walkRows)); err != nil || len(w.keys) == 0 {
			return nil, nil, err
		}
	}
	n = min(n, len(w.keys))
	var shown [][]byte
	rows, n, err := w.r.visible(ctx, w.t, &w.pieces, w.keys[:n], w.accs[:n], func(i int) { shown = append(shown, w.keys[i]) })
	if err != nil {
		return nil, nil, err
	}
	w.last = w.keys[n-1]
	w.keys, w.accs = w.keys[n:], w.accs[n:]
	return rows, shown, nil
}

// ended reports that no key is left.
func (w *walker) ended() bool { return len(w.cursors) == 0 && len(w.keys) == 0 }

// gather copies the next n entries, fewer when they are large.
func (w *walker) gather(n int) (keys, accs [][]byte, err error) {
	var buf []byte // what it held before it grew stays with the slices of it
	for len(keys) < n && len(buf) < walkBytes && len(w.cursors) > 0 {
		least := w.cursors[0]
		at := len(buf)
		buf = append(buf, least.key()...)
		mid := len(buf)
		buf = append(buf, least.value()...)
		keys, accs = append(keys, buf[at:mid:mid]), append(accs, buf[mid:len(buf):len(buf)])
		ok, err := least.next()
		if err != nil || !ok {
			end := len(w.cursors) - 1
			w.cursors[0], w.cursors[end] = w.cursors[end], nil
			w.cursors = w.cursors[:end]
		}
		if err != nil {
			return nil, nil, err
		}
		w.sink(0)
	}
	return keys, accs, nil
}

// sink moves the cursor at i down to its place in the heap.
func (w *walker) sink(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(w.cursors); c++ {
			if bytes.Compare(w.cursors[c].key(), w.cursors[least].key()) < 0 {
				least = c
			}
		}
		if least == i {
			return
		}
		w.cursors[i], w.cursors[least] = w.cursors[least], w.cursors[i]
		i = least
	}
}

// close ends the walk, at its end or before.
func (w *walker) close() error {
	var errs []error
	for _, c := range w.cursors {
		errs = append(errs, c.close())
	}
	w.cursors = nil
	return errors.Join(errs...)
}

// cursor walks over the entries of one shard by key.
type cursor interface {
	// next moves to the next entry, at first to the first. Without one, or with an error, the cursor is closed.
	next() (bool, error)
	// key and value are valid until the next call of next.
	key() []byte
	value() []byte
	close() error
}

var (
	_ cursor = (*viewCursor)(nil)
	_ cursor = (*liveCursor)(nil)
	_ cursor = (*loneCursor)(nil)
)

// viewCursor walks over a committed cut.
type viewCursor struct{ it Iter }

func (c *viewCursor) next() (bool, error) {
	if c.it.Next() {
		return true, nil
	}
	return false, c.it.Close()
}
func (c *viewCursor) key() []byte   { return c.it.Key() }
func (c *viewCursor) value() []byte { return c.it.Value() }
func (c *viewCursor) close() error  { return c.it.Close() }

// loneCursor has the only row of a table without key columns.
type loneCursor struct{ acc []byte }

func (c *loneCursor) next() (bool, error) { return false, nil }
func (c *loneCursor) key() []byte         { return []byte{} }
func (c *loneCursor) value() []byte       { return c.acc }
func (c *loneCursor) close() error        { return nil }

// liveCursor copies a live table in parts.
type liveCursor struct {
	live   Live
	stage  dataflow.StageID
	shard  dataflow.ShardID
	lo, hi []byte // of what has not been copied yet
	part   int    // how many entries to copy next
	keys   [][]byte
	values [][]byte
	at     int
	ended  bool // nothing is left to copy
}

// livePart is how much to copy of each shard at first, for a walk of about hint rows: a little more than its share, so that
// one part is mostly enough.
func livePart(hint, shards int) int { return min(hint, hint/shards*5/4+livePartLeast) }

// Each part walks the whole table, so each is larger than the one before: a short scan copies little, a long one walks the
// table a few times only. livePartMost and livePartBytes bound the copies.
const (
	livePartGrowth = 16
	livePartLeast  = 256
	livePartMost   = 1 << 18
	livePartBytes  = 4 << 20
)

func (c *liveCursor) next() (bool, error) {
	if c.at++; c.at < len(c.keys) {
		return true, nil
	}
	if c.ended {
		return false, nil
	}
	var err error
	if c.keys, c.values, err = c.live.Scan(c.stage, c.shard, c.lo, c.hi, c.part); err != nil {
		return false, err
	}
	c.at = 0
	if c.ended = len(c.keys) < c.part; c.ended {
		return len(c.keys) > 0, nil
	}
	c.lo = after(c.keys[len(c.keys)-1])
	c.part = min(c.part*livePartGrowth, livePartMost, max(livePartLeast, livePartBytes/c.average()))
	return true, nil
}

// average returns about how many bytes an entry of the part has, one at least.
func (c *liveCursor) average() int {
	size := 0
	for i, k := range c.keys {
		size += len(k) + len(c.values[i])
	}
	return max(1, size/len(c.keys))
}
func (c *liveCursor) key() []byte   { return c.keys[c.at] }
func (c *liveCursor) value() []byte { return c.values[c.at] }
func (c *liveCursor) close() error  { return nil }

// after returns the smallest key greater than k.
func after(k []byte) []byte { return append(bytes.Clone(k), 0) }
