package operator

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// Scratch is memory that Finalizer.BatchIn uses again and again. The zero value is ready; one goroutine uses it.
type Scratch struct {
	of      *Finalizer  // whose columns in and out have
	in      batch.Batch // keys and results of the aggregates
	out     batch.Batch
	sel     []int32
	visible batch.Bitmap
	env     expr.Env
	failed  RowError
	bad     batch.Bitmap // rows that failed; nil = none
}

// What a Scratch keeps is bounded: after more rows than scratchRows, or texts of more than scratchBytes in a column, it
// starts with new memory.
const (
	scratchRows  = 1024
	scratchBytes = 64 << 10
)

// large reports whether s holds more than it may keep.
func (s *Scratch) large() bool {
	if s.in.N > scratchRows {
		return true
	}
	for _, v := range s.in.Cols {
		if cap(v.Data) > scratchBytes || v.Elems != nil && cap(v.Elems.Data) > scratchBytes {
			return true
		}
	}
	return false
}

// begin makes room for n rows of f.
func (s *Scratch) begin(f *Finalizer, n int) {
	if s.of != f || s.large() {
		*s = Scratch{of: f}
		s.in.Schema, s.in.Cols = f.inner, make([]*batch.Vector, len(f.inner))
		for i, c := range f.inner {
			s.in.Cols[i] = batch.NewVector(c.Type, n)
		}
		s.out.Schema, s.out.Cols = f.stage.Schema, make([]*batch.Vector, len(f.stage.Output))
		s.env.Fail = s.fail
	} else {
		for _, v := range s.in.Cols {
			v.Reset()
		}
	}
	s.in.N = n
	if cap(s.sel) < n {
		s.sel = make([]int32, 0, n)
	}
	s.sel = s.sel[:0]
	if words := (n + 63) / 64; cap(s.visible) < words {
		s.visible = batch.NewBitmap(n)
	} else {
		s.visible = s.visible[:words]
		clear(s.visible)
	}
	s.failed, s.bad = RowError{}, nil
	s.env.Interrupt = f.interrupt
}

// fail notes that an expression fails for a row.
func (s *Scratch) fail(row int, err *dataflow.Error) {
	if s.bad == nil {
		s.bad = batch.NewBitmap(s.in.N)
	}
	s.bad.Set(row)
	if s.failed.Err == nil || row < s.failed.Row {
		s.failed = RowError{Row: row, Err: err}
	}
}
