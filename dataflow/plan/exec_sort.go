package plan

import (
	"bytes"
	"container/heap"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

// sorter orders rows. With keep set it holds only the first keep rows (top k).
//
// Rows are compared by bytes: each column of ORDER BY is encoded as a key part, inverted for DESC, behind a byte that says
// where NULL goes. Rows that are equal in these are ordered by all their columns, so that the same rows come in the same
// order whatever order they were pushed in.
type sorter struct {
	next  step
	mem   *budget
	order []orderBy
	keep  int64 // noLimit: all

	rows   sortRows // a heap, last row first, once len(rows) == keep
	stored []*batch.Batch
	count  int   // rows in stored
	held   int64 // bytes of rows; those in stored that are no longer held are not among them
	bytes  int64 // bytes of the rows in stored, held or not
	buf    []byte
}

// sortRow is one row that is held.
type sortRow struct {
	key    []byte
	stored int32 // index of its batch in sorter.stored
	row    int32
	bytes  int64
}

// sortRowOverhead is about what a row needs besides its key and columns.
const sortRowOverhead = 64

func (s *sorter) push(b *batch.Batch) error {
	var admitted []int32
	first := len(s.stored)
	for i := range b.N {
		s.buf = s.appendKey(s.buf[:0], b, i)
		if s.keep != noLimit && int64(len(s.rows)) >= s.keep {
			if s.keep == 0 || bytes.Compare(s.buf, s.rows[0].key) >= 0 {
				continue
			}
			s.mem.give(s.rows[0].bytes)
			s.held -= s.rows[0].bytes
			heap.Pop(&s.rows)
		}
		r := sortRow{key: bytes.Clone(s.buf), stored: int32(first), row: int32(len(admitted))}
		r.bytes = int64(len(r.key) + b.RowBytes(i) + sortRowOverhead)
		if err := s.mem.take(r.bytes); err != nil {
			return err
		}
		s.held += r.bytes
		s.bytes += r.bytes
		admitted = append(admitted, int32(i))
		if s.keep == noLimit {
			s.rows = append(s.rows, r)
		} else {
			heap.Push(&s.rows, r)
		}
	}
	if len(admitted) == 0 {
		return nil
	}
	if len(admitted) < b.N {
		b = b.Select(admitted)
	}
	s.stored = append(s.stored, b)
	s.count += b.N
	if s.count > 2*len(s.rows)+4*batch.TargetRows || s.bytes > 2*s.held+partBytes {
		s.compact(b)
	}
	return nil
}

// appendKey appends the bytes that row i is ordered by.
func (s *sorter) appendKey(dst []byte, b *batch.Batch, i int) []byte {
	return appendColumns(s.appendOrder(dst, b, i), b.Cols, i)
}

// appendColumns appends bytes that tell rows apart by all columns.
func appendColumns(dst []byte, cols []*batch.Vector, i int) []byte {
	for _, v := range cols {
		switch t := v.Type; {
		case v.IsNull(i) || t.Ordered() && t != dataflow.TypeInterval:
			dst = key.AppendVector(dst, v, i)
		default: // no key, or one that several values share
			dst = batch.AppendCell(dst, v, i)
		}
	}
	return dst
}

// appendOrder appends the bytes that ORDER BY compares.
func (s *sorter) appendOrder(dst []byte, b *batch.Batch, i int) []byte {
	for _, o := range s.order {
		v := b.Cols[o.col]
		null := v.IsNull(i)
		if null == o.nullsFirst {
			dst = append(dst, 0)
		} else {
			dst = append(dst, 1)
		}
		if null {
			continue
		}
		from := len(dst)
		dst = key.AppendVector(dst, v, i)
		if o.desc {
			for j := from; j < len(dst); j++ {
				dst[j] = ^dst[j]
			}
		}
	}
	return dst
}

// compact copies the rows that are still held into one batch.
func (s *sorter) compact(like *batch.Batch) {
	kept := batch.NewBatch(like.Schema)
	for i := range s.rows {
		r := &s.rows[i]
		s.append(kept, *r)
		r.stored, r.row = 0, int32(kept.N-1)
	}
	s.stored, s.count, s.bytes = []*batch.Batch{kept}, kept.N, s.held
}

func (s *sorter) append(to *batch.Batch, r sortRow) {
	for j, v := range to.Cols {
		v.AppendFrom(s.stored[r.stored].Cols[j], int(r.row))
	}
	to.N++
}

func (s *sorter) finish() error {
	slices.SortFunc(s.rows, func(a, b sortRow) int { return bytes.Compare(a.key, b.key) })
	for at := 0; at < len(s.rows) && !done(s.next); {
		b := batch.NewBatch(s.stored[0].Schema)
		for size := int64(0); at < len(s.rows) && b.N < batch.TargetRows && size < partBytes; at++ {
			s.append(b, s.rows[at])
			size += s.rows[at].bytes
		}
		if err := s.next.push(b); err != nil {
			return err
		}
	}
	return s.next.finish()
}

func (s *sorter) wants() int64 {
	if done(s.next) {
		return 0
	}
	return noLimit
}

// sortRows is a heap with the last row on top.
type sortRows []sortRow

func (r sortRows) Len() int           { return len(r) }
func (r sortRows) Less(i, j int) bool { return bytes.Compare(r[i].key, r[j].key) > 0 }
func (r sortRows) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *sortRows) Push(x any)        { *r = append(*r, x.(sortRow)) }
func (r *sortRows) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}
