package batch

import (
	"math/bits"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

type decimal = apd.Decimal

// NewBatch returns an empty batch of the given columns.
func NewBatch(schema dataflow.Schema) *Batch {
	b := &Batch{Schema: schema, Cols: make([]*Vector, len(schema))}
	for i, c := range schema {
		b.Cols[i] = NewVector(c.Type, 0)
	}
	return b
}

// AppendRow adds a row with a value per column. Weights, append times and origins are the caller's to keep in step.
func (b *Batch) AppendRow(row dataflow.Row) {
	for i, v := range row {
		b.Cols[i].AppendValue(v)
	}
	b.N++
}

// Row returns row i as values.
func (b *Batch) Row(i int) dataflow.Row {
	row := make(dataflow.Row, len(b.Cols))
	for c, v := range b.Cols {
		row[c] = v.Value(i)
	}
	return row
}

// RowBytes returns about how many bytes row i takes when it is encoded: what MaxRowBytes limits.
func (b *Batch) RowBytes(i int) int {
	n := 0
	for _, v := range b.Cols {
		n += v.RowBytes(i)
	}
	return n
}

// CheckRows refuses rows over MaxRowBytes. The error is TOO_LARGE and names the first.
func (b *Batch) CheckRows() error {
	for i := range b.N {
		if n := b.RowBytes(i); n > dataflow.MaxRowBytes {
			return dataflow.Errorf(dataflow.ReasonTooLarge, "row %d has %d bytes; a row may have %d", i, n, dataflow.MaxRowBytes)
		}
	}
	return nil
}

// Select returns a batch of the rows that sel lists, in that order. A row may be listed more than once. The result
// shares no column memory with b, and keeps weights, append times and offsets.
func (b *Batch) Select(sel []int32) *Batch {
	out := &Batch{Schema: b.Schema, Cols: make([]*Vector, len(b.Cols)), N: len(sel), Stream: b.Stream, Shard: b.Shard, FirstOffset: b.FirstOffset}
	for i, v := range b.Cols {
		out.Cols[i] = v.Gather(sel)
	}
	b.selectMeta(out, sel)
	return out
}

// selectMeta fills what out has per row beside its columns from the rows of b that sel lists.
func (b *Batch) selectMeta(out *Batch, sel []int32) {
	if b.Weights != nil {
		out.Weights = gather(b.Weights, sel)
	}
	if b.AppendTime != nil {
		out.AppendTime = gather(b.AppendTime, sel)
	}
	if b.Origin != nil {
		out.Origin = gather(b.Origin, sel)
		return
	}
	out.Origin = make([]dataflow.Offset, len(sel))
	for i, r := range sel {
		out.Origin[i] = b.FirstOffset + dataflow.Offset(r)
	}
}

// WithRows returns a batch of other columns whose row i descends from row sel[i] of b: it has that row's weight, append
// time and offset. cols have len(sel) rows and belong to the result.
func (b *Batch) WithRows(schema dataflow.Schema, cols []*Vector, sel []int32) *Batch {
	out := &Batch{Schema: schema, Cols: cols, N: len(sel), Stream: b.Stream, Shard: b.Shard, FirstOffset: b.FirstOffset}
	b.selectMeta(out, sel)
	return out
}

// WithCols returns a batch of other columns for the same rows. cols have b.N rows; what is per row is shared with b.
func (b *Batch) WithCols(schema dataflow.Schema, cols []*Vector) *Batch {
	out := *b
	out.Schema, out.Cols = schema, cols
	return &out
}

// Weight returns +1 or -1: what row i adds to the number of rows.
func (b *Batch) Weight(i int) int64 {
	if b.Weights == nil {
		return 1
	}
	return int64(b.Weights[i])
}

// Slice returns rows from to to-1. The result shares memory with b.
func (b *Batch) Slice(from, to int) *Batch {
	out := *b
	out.N = to - from
	out.Cols = make([]*Vector, len(b.Cols))
	for i, v := range b.Cols {
		out.Cols[i] = v.Slice(from, to)
	}
	if b.Weights != nil {
		out.Weights = b.Weights[from:to:to]
	}
	if b.AppendTime != nil {
		out.AppendTime = b.AppendTime[from:to:to]
	}
	if b.Origin != nil {
		out.Origin = b.Origin[from:to:to]
	}
	out.FirstOffset += dataflow.Offset(from)
	return &out
}

// Slice returns rows from to to-1. It shares the elements and copies the bitmap, whose bits would be out of step otherwise. The first of Offs and
// Lists need not be 0 afterwards: rows are always Offs[i] to Offs[i+1].
func (v *Vector) Slice(from, to int) *Vector {
	out := &Vector{Type: v.Type, Nulls: v.Nulls.slice(from, to)}
	switch v.Type.Form() {
	case dataflow.FormFloat:
		out.Floats = v.Floats[from:to:to]
	case dataflow.FormDecimal:
		out.Decs = v.Decs[from:to:to]
	case dataflow.FormInterval:
		out.Ivls = v.Ivls[from:to:to]
	case dataflow.FormBytes:
		out.Offs, out.Data = v.Offs[from:to+1:to+1], v.Data[:len(v.Data):len(v.Data)]
	case dataflow.FormList:
		out.Lists, out.Elems = v.Lists[from:to+1:to+1], v.Elems
	default:
		out.Ints = v.Ints[from:to:to]
	}
	return out
}

// Gather returns a vector of the rows that sel lists, sharing no memory with v.
func (v *Vector) Gather(sel []int32) *Vector {
	out := &Vector{Type: v.Type, Nulls: v.Nulls.gather(sel)}
	switch v.Type.Form() {
	case dataflow.FormFloat:
		out.Floats = gather(v.Floats, sel)
	case dataflow.FormInterval:
		out.Ivls = gather(v.Ivls, sel)
	case dataflow.FormDecimal:
		out.Decs = make([]decimal, len(sel))
		for i, r := range sel {
			out.Decs[i].Set(&v.Decs[r])
		}
	case dataflow.FormBytes:
		size := 0
		for _, r := range sel {
			size += int(v.Offs[r+1] - v.Offs[r])
		}
		out.Offs = make([]uint32, 1, len(sel)+1)
		out.Data = make([]byte, 0, size)
		for _, r := range sel {
			out.Data = append(out.Data, v.Text(int(r))...)
			out.Offs = append(out.Offs, uint32(len(out.Data)))
		}
	case dataflow.FormList:
		out.Lists = make([]uint32, 1, len(sel)+1)
		out.Elems = NewVector(v.Elems.Type, 0)
		for _, r := range sel {
			for j := int(v.Lists[r]); j < int(v.Lists[r+1]); j++ {
				out.Elems.AppendFrom(v.Elems, j)
			}
			out.Lists = append(out.Lists, uint32(out.Elems.Len()))
		}
	default:
		out.Ints = gather(v.Ints, sel)
	}
	return out
}

func gather[T any](s []T, sel []int32) []T {
	out := make([]T, len(sel))
	for i, r := range sel {
		out[i] = s[r]
	}
	return out
}

// Count returns how many bits are set.
func (m Bitmap) Count() int {
	n := 0
	for _, w := range m {
		n += bits.OnesCount64(w)
	}
	return n
}

// Any reports whether any bit is set.
func (m Bitmap) Any() bool {
	for _, w := range m {
		if w != 0 {
			return true
		}
	}
	return false
}

// Clone returns a copy.
func (m Bitmap) Clone() Bitmap { return append(Bitmap(nil), m...) }

func (m Bitmap) slice(from, to int) Bitmap {
	if m == nil {
		return nil
	}
	out := NewBitmap(to - from)
	for i := from; i < to; i++ {
		if m.Get(i) {
			out.Set(i - from)
		}
	}
	if !out.Any() {
		return nil
	}
	return out
}

func (m Bitmap) gather(sel []int32) Bitmap {
	if m == nil {
		return nil
	}
	out := NewBitmap(len(sel))
	for i, r := range sel {
		if m.Get(int(r)) {
			out.Set(i)
		}
	}
	if !out.Any() {
		return nil
	}
	return out
}
