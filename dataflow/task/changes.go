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
	noted []noted
	arena []byte  // keys and old accumulators
	index []int32 // open addressing by hash: number of the entry + 1; 0 = free

	pieces batch.Pieces
}

// noted is a key that the message touches: where it and its old accumulator lie in the arena.
type noted struct {
	hash      uint64
	key, from int // the key is from key to from, the accumulator from from to end
	end       int
	absent    bool // the key had no accumulator
	indexed   int32
}

// newChanges returns the changes of a stage's table; interrupt ends the computing of rows.
func newChanges(st *plan.Stage, interrupt func() error) *changes {
	return &changes{fin: operator.NewFinalizer(st).Until(interrupt), index: make([]int32, 64)}
}

func (c *changes) empty() bool { return len(c.noted) == 0 }

// note is called before a key's change by the message, under the table's lock; only the first call for a key counts. old
// is the accumulator, nil for an absent key.
func (c *changes) note(hash uint64, key, old []byte) {
	if 2*len(c.noted) >= len(c.index) {
		c.grow()
	}
	mask := uint64(len(c.index) - 1)
	i := hash >> 32 & mask // the low bits are those of the shard
	for ; c.index[i] != 0; i = (i + 1) & mask {
		if n := &c.noted[c.index[i]-1]; n.hash == hash && bytes.Equal(c.arena[n.key:n.from], key) {
			return
		}
	}
	n := noted{hash: hash, key: len(c.arena), absent: old == nil, indexed: int32(i)}
	c.arena = append(c.arena, key...)
	n.from = len(c.arena)
	c.arena = append(c.arena, old...)
	n.end = len(c.arena)
	c.noted = append(c.noted, n)
	c.index[i] = int32(len(c.noted))
}

func (c *changes) grow() {
	c.index = make([]int32, 2*len(c.index))
	mask := uint64(len(c.index) - 1)
	for k := range c.noted {
		i := c.noted[k].hash >> 32 & mask
		for c.index[i] != 0 {
			i = (i + 1) & mask
		}
		c.index[i], c.noted[k].indexed = int32(k+1), int32(i)
	}
}

// reset forgets the message's keys.
func (c *changes) reset() {
	for i := range c.noted {
		c.index[c.noted[i].indexed] = 0
	}
	c.noted, c.arena = c.noted[:0], c.arena[:0]
}

// each calls fn for the visible changes since the last call, with weights, in pieces, and forgets them. Changes have no
// append time: the planner refuses now() over a table.
func (c *changes) each(table *state.Table, onError dataflow.OnError, fn func(*batch.Batch) error) error {
	defer c.reset()
	keys, olds, news := c.take(table)
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

// take returns the keys whose accumulator has changed, with the old and the new one. They are good until reset.
func (c *changes) take(table *state.Table) (keys, olds, news [][]byte) {
	var values []byte // the new accumulators
	table.Lock()
	defer table.Unlock()
	for i := range c.noted {
		n := &c.noted[i]
		var old, val []byte
		if !n.absent {
			old = c.arena[n.from:n.end:n.end]
		}
		from, key := len(values), c.arena[n.key:n.from:n.from]
		var a state.Answer
		if values, a = table.Append(n.hash, key, values); a == state.Found {
			val = values[from:len(values):len(values)]
		}
		if (a == state.Found) != n.absent && bytes.Equal(old, val) {
			continue
		}
		keys, olds, news = append(keys, key), append(olds, old), append(news, val)
	}
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
		switch v.Type.Form() {
		case dataflow.FormBytes:
			if !bytes.Equal(v.Text(i), w.Text(i)) {
				return false
			}
		case dataflow.FormFloat:
			if math.Float64bits(v.Floats[i]) != math.Float64bits(w.Floats[i]) {
				return false
			}
		case dataflow.FormDecimal:
			if v.Decs[i].Exponent != w.Decs[i].Exponent || v.Decs[i].Cmp(&w.Decs[i]) != 0 {
				return false
			}
		case dataflow.FormInterval:
			if v.Ivls[i] != w.Ivls[i] {
				return false
			}
		case dataflow.FormList:
			if !bytes.Equal(batch.AppendCell(nil, v, i), batch.AppendCell(nil, w, i)) {
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
