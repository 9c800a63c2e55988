package plan

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// expander repeats each row once per element of the array that is its last column, which the element replaces.
type expander struct {
	r      *run
	next   step
	schema dataflow.Schema
	outer  bool
}

func (e *expander) push(b *batch.Batch) error {
	last := len(b.Cols) - 1
	arrays := b.Cols[last]
	out, size := batch.NewBatch(e.schema), 0
	flush := func() error {
		if out.N == 0 || done(e.next) {
			return nil
		}
		if err := e.r.mem.take(int64(size)); err != nil {
			return err
		}
		err := e.next.push(out)
		e.r.mem.give(int64(size))
		out, size = batch.NewBatch(e.schema), 0
		return err
	}
	row := func(i, elem int) error {
		for c, v := range b.Cols[:last] {
			out.Cols[c].AppendFrom(v, i)
		}
		if elem < 0 {
			out.Cols[last].AppendNull()
		} else {
			out.Cols[last].AppendFrom(arrays.Elems, elem)
		}
		out.N++
		size += out.RowBytes(out.N-1) + resultRowOverhead
		if out.N < batch.TargetRows && size < partBytes {
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		return e.r.tables.Check()
	}
	for i := range b.N {
		from, to := 0, 0
		if !arrays.IsNull(i) {
			from, to = int(arrays.Lists[i]), int(arrays.Lists[i+1])
		}
		if from == to && e.outer {
			if err := row(i, -1); err != nil {
				return err
			}
		}
		for elem := from; elem < to; elem++ {
			if done(e.next) {
				return nil
			}
			if err := row(i, elem); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (e *expander) finish() error { return e.next.finish() }

// wants is any number: a row may have no element.
func (e *expander) wants() int64 {
	if done(e.next) {
		return 0
	}
	return noLimit
}
