package agg

import (
	"encoding/binary"

	"github.com/weirdb/weir/dataflow/batch"
)

// UpdateGroups folds the rows of b into accumulators of one length (Fixed), which lie one after the other in accs: row i into
// accumulator number groups[i]. It does what Update does with one row after the other, errors included.
//
// Aggregates do not see each other's bytes, so where none of them can fail it goes through the rows once per aggregate.
func (l *Layout) UpdateGroups(accs []byte, groups []int32, b *batch.Batch) error {
	if !l.byColumn || b.Weights != nil && !l.retracts {
		return l.updateRows(accs, groups, b)
	}
	g := grouped{accs: accs, size: l.fixed, of: groups, weights: b.Weights}
	g.count(0, nil)
	for i := range l.slots {
		s := &l.slots[i]
		if s.op == opRows {
			continue
		}
		col := b.Cols[s.col]
		switch s.op {
		case opCount:
			g.count(s.off, col.Nulls)
		case opInt:
			g.count(s.off, col.Nulls)
			g.sumInts(s.off+8, col)
		case opFloat:
			g.count(s.off, col.Nulls)
			g.sumFloats(s.off+8, col)
		case opMinInt, opMaxInt:
			g.bestInts(s.off, s.op == opMaxInt, col)
		case opMinFloat, opMaxFloat:
			g.bestFloats(s.off, s.op == opMaxFloat, col)
		}
	}
	return nil
}

// setKernels sets what UpdateGroups may do column by column.
func (l *Layout) setKernels() {
	l.byColumn, l.retracts = true, true
	for i := range l.slots {
		switch l.slots[i].op {
		case opRows, opCount, opInt, opFloat:
		case opMinInt, opMaxInt, opMinFloat, opMaxFloat:
			l.retracts = false
		default:
			l.byColumn = false
		}
	}
}

// updateRows is UpdateGroups row by row.
func (l *Layout) updateRows(accs []byte, groups []int32, b *batch.Batch) error {
	for row, g := range groups {
		at := int(g) * l.fixed
		if _, err := l.Update(accs[at:at+l.fixed], b, row, b.Weight(row)); err != nil {
			return err
		}
	}
	return nil
}

// grouped is what a kernel goes through: the rows' accumulators, of size bytes each, and weights; nil = all are 1. Kernels leave
// rows out whose argument is NULL.
type grouped struct {
	accs    []byte
	size    int
	of      []int32
	weights []int8
}

// at returns the bytes from off on of row's accumulator.
func (g *grouped) at(row int32, off int) []byte { return g.accs[int(row)*g.size+off:] }

func (g *grouped) weight(row int) int64 {
	if g.weights == nil {
		return 1
	}
	return int64(g.weights[row])
}

// count adds weights to the number at off.
func (g *grouped) count(off int, nulls batch.Bitmap) {
	if g.weights == nil && nulls == nil {
		for _, n := range g.of {
			p := g.accs[int(n)*g.size+off:][:8]
			binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)+1)
		}
		return
	}
	for row, n := range g.of {
		if !nulls.Get(row) {
			addInt(g.at(n, off), g.weight(row))
		}
	}
}

// sumInts adds numbers to the sum at off.
func (g *grouped) sumInts(off int, col *batch.Vector) {
	for row, n := range g.of {
		if !col.IsNull(row) {
			addInt128(g.at(n, off), col.Ints[row], g.weight(row))
		}
	}
}

// sumFloats adds numbers to the sum at off.
func (g *grouped) sumFloats(off int, col *batch.Vector) {
	for row, n := range g.of {
		if !col.IsNull(row) {
			addFloat(g.at(n, off), col.Floats[row], g.weight(row))
		}
	}
}

// bestInts takes over numbers that are better than the one at off.
func (g *grouped) bestInts(off int, largest bool, col *batch.Vector) {
	for row, n := range g.of {
		if !col.IsNull(row) {
			bestInt(g.at(n, off), largest, col.Ints[row])
		}
	}
}

// bestFloats takes over numbers that are better than the one at off.
func (g *grouped) bestFloats(off int, largest bool, col *batch.Vector) {
	for row, n := range g.of {
		if !col.IsNull(row) {
			bestFloat(g.at(n, off), largest, col.Floats[row])
		}
	}
}
