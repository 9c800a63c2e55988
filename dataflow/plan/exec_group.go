package plan

import (
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

// groupOverhead is about what the map needs per group besides its key and accumulator.
const groupOverhead = 96

// grouper folds rows into groups: keys come first in its input, then the arguments of the aggregates.
type grouper struct {
	next   step
	mem    *budget
	keys   int
	layout *agg.Layout
	row    dataflow.Schema
	groups map[string][]byte
	buf    []byte
}

func newGrouper(next step, mem *budget, l *level) *grouper {
	return &grouper{next: next, mem: mem, keys: l.keys, layout: agg.NewLayout(l.specs), row: l.row, groups: make(map[string][]byte)}
}

// newDistinct returns a step that passes each row on once.
func newDistinct(next step, mem *budget, schema dataflow.Schema) *grouper {
	return &grouper{next: next, mem: mem, keys: len(schema), layout: agg.NewLayout(nil), row: schema, groups: make(map[string][]byte)}
}

func (g *grouper) push(b *batch.Batch) error {
	for i := range b.N {
		g.buf = g.buf[:0]
		for _, v := range b.Cols[:g.keys] {
			g.buf = key.AppendVector(g.buf, v, i)
		}
		old, have := g.groups[string(g.buf)]
		if !have {
			old = g.layout.New(nil)
			if err := g.mem.take(int64(len(g.buf) + len(old) + groupOverhead)); err != nil {
				return err
			}
		}
		size := len(old)
		acc, err := g.layout.Update(old, b, i, 1)
		if err != nil {
			return err
		}
		if err := g.mem.take(int64(len(acc) - size)); err != nil {
			return err
		}
		if !have || len(acc) != size || &acc[0] != &old[0] {
			g.groups[string(g.buf)] = acc
		}
	}
	return nil
}

// finish passes the groups on in the order of their keys. Aggregates without keys have one row, even over no rows.
func (g *grouper) finish() error {
	if g.keys == 0 && len(g.groups) == 0 {
		g.groups[""] = g.layout.New(nil)
	}
	keys := make([]string, 0, len(g.groups))
	for k := range g.groups {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for len(keys) > 0 && !done(g.next) {
		b := batch.NewBatch(g.row)
		for size := 0; len(keys) > 0 && b.N < batch.TargetRows && size < partBytes; keys = keys[1:] {
			k := keys[0]
			size += len(k) + len(g.groups[k])
			if err := key.DecodeInto([]byte(k), b.Cols[:g.keys]); err != nil {
				return err
			}
			for i, v := range b.Cols[g.keys:] {
				if err := g.layout.AppendResult(i, g.groups[k], v); err != nil {
					return err
				}
			}
			b.N++
		}
		if err := g.next.push(b); err != nil {
			return err
		}
	}
	return g.next.finish()
}

func (g *grouper) wants() int64 {
	if done(g.next) {
		return 0
	}
	return noLimit
}
