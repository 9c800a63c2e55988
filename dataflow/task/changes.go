package task

import (
	"bytes"
	"math"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
)

// changes remembers, over one message, the old accumulator of each key that it touches, and turns old and new into the
// retractions and insertions of visible rows. A key gives at most one change per message: the old row out, then the new
// row in, on the same edge in that order, so that a group downstream never counts below zero.
type changes struct {
	fin   *operator.Finalizer
	slots []*state.Slot
	keys  [][]byte // copies
	old   [][]byte // copies; nil = absent
	seen  map[*state.Slot]struct{}

	pieces batch.Pieces
}

// newChanges returns the changes of a stage's table; interrupt ends the computing of rows.
func newChanges(st *plan.Stage, interrupt func() error) *changes {
	return &changes{fin: operator.NewFinalizer(st).Until(interrupt), seen: make(map[*state.Slot]struct{})}
}

func (c *changes) empty() bool { return len(c.slots) == 0 }

// note is called before the slot's first change by the message, under the table's lock.
func (c *changes) note(s *state.Slot, key []byte) {
	if _, ok := c.seen[s]; ok {
		return
	}
	c.seen[s] = struct{}{}
	var old []byte
	if s.Val != nil {
		old = bytes.Clone(s.Val)
	}
	c.slots = append(c.slots, s)
	c.keys = append(c.keys, bytes.Clone(key))
	c.old = append(c.old, old)
}

// each calls fn for the visible changes since the last call, with weights, in pieces, and forgets them. Changes have no
// append time: the planner refuses now() over a table.
func (c *changes) each(onError dataflow.OnError, fn func(*batch.Batch) error) error {
	keys, olds, news := c.take()
	for len(keys) > 0 {
		var out *batch.Batch
		n, err := c.pieces.Next(len(keys), func(n int) (fits bool, err error) {
			out, fits, err = c.visible(keys[:n], olds[:n], news[:n], onError)
			return fits, err
		})
		if err != nil {
			return err
		}
		keys, olds, news = keys[n:], olds[n:], news[n:]
		if out.N == 0 {
			continue
		}
		if err := fn(out); err != nil {
			return err
		}
	}
	return nil
}

// take returns the keys whose accumulator has changed, with the old and the new one.
func (c *changes) take() (keys, olds, news [][]byte) {
	for i, s := range c.slots {
		if bytes.Equal(c.old[i], s.Val) && (c.old[i] == nil) == (s.Val == nil) {
			continue
		}
		keys, olds, news = append(keys, c.keys[i]), append(olds, c.old[i]), append(news, s.Val)
	}
	c.slots, c.keys, c.old = c.slots[:0], c.keys[:0], c.old[:0]
	clear(c.seen)
	return keys, olds, news
}

// visible returns the old rows that have gone or changed and the new ones; not when they do not fit.
func (c *changes) visible(keys, olds, news [][]byte, onError dataflow.OnError) (out *batch.Batch, fits bool, err error) {
	before, wasVisible, fits, err := c.fin.Batch(keys, olds, onError)
	if err != nil || !fits {
		return nil, fits, err
	}
	after, isVisible, fits, err := c.fin.Batch(keys, news, onError)
	if err != nil || !fits {
		return nil, fits, err
	}
	out = batch.NewBatch(before.Schema)
	add := func(from *batch.Batch, row int, weight int8) {
		for c, v := range out.Cols {
			v.AppendFrom(from.Cols[c], row)
		}
		out.Weights = append(out.Weights, weight)
		out.N++
	}
	for i := range keys {
		was, is := wasVisible.Get(i), isVisible.Get(i)
		if was && is && sameRow(before, after, i) {
			continue
		}
		if was {
			add(before, i, -1)
		}
		if is {
			add(after, i, 1)
		}
	}
	return out, true, nil
}

// sameRow reports whether row i looks the same in both batches. Decimals that differ only in trailing zeros do not.
func sameRow(a, b *batch.Batch, i int) bool {
	for c := range a.Cols {
		v, w := a.Cols[c], b.Cols[c]
		if v.IsNull(i) || w.IsNull(i) {
			if v.IsNull(i) != w.IsNull(i) {
				return false
			}
			continue
		}
		switch v.Type {
		case dataflow.TypeText:
			if !bytes.Equal(v.Text(i), w.Text(i)) {
				return false
			}
		case dataflow.TypeDouble:
			if math.Float64bits(v.Floats[i]) != math.Float64bits(w.Floats[i]) {
				return false
			}
		case dataflow.TypeNumeric:
			if v.Decs[i].Exponent != w.Decs[i].Exponent || v.Decs[i].Cmp(&w.Decs[i]) != 0 {
				return false
			}
		default:
			if v.Ints[i] != w.Ints[i] {
				return false
			}
		}
	}
	return true
}
