package operator

import (
	"errors"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
)

// Finalizer turns the state of a stage into the rows that users and downstream stages see. It is immutable and may be
// used by many goroutines.
type Finalizer struct {
	stage  *plan.Stage
	layout *agg.Layout
	inner  dataflow.Schema // key columns, then the aggregates' results: what Output and Having read

	interrupt func() error // of the expressions' evaluation; nil = never
	most      int64        // that the values made of several keys' rows may take
}

// NewFinalizer returns a finalizer for s.
func NewFinalizer(s *plan.Stage) *Finalizer {
	f := &Finalizer{stage: s, layout: agg.NewLayout(s.Aggs), most: expr.BatchMemory}
	f.inner = append(f.inner, s.Key...)
	for _, a := range s.Aggs {
		f.inner = append(f.inner, dataflow.Column{Name: a.Fn.String(), Type: a.Out})
	}
	return f
}

// Until returns a finalizer for the same stage whose Batch gives up, with its error, once interrupt returns one: it is
// asked after some KB of work (expr.Env).
func (f *Finalizer) Until(interrupt func() error) *Finalizer {
	g := *f
	g.interrupt = interrupt
	return &g
}

// Within returns a finalizer for the same stage whose Batch does not fit several keys the values of whose rows take more than
// most bytes, if that is less than expr.BatchMemory.
func (f *Finalizer) Within(most int64) *Finalizer {
	g := *f
	g.most = min(most, expr.BatchMemory)
	return &g
}

// Batch computes a row of the stage's visible columns per key. accs[i] is the accumulator of keys[i]; nil means that the
// table has no such key. visible has a set bit for each row that is there: the group has rows, or the stage always has its
// row, and Having admits it. Columns of the others hold nothing of use. The result shares no memory with keys and accs,
// which are not trusted.
//
// The error is CORRUPT for bytes that do not decode. When an expression fails for a row that is there, the row is not
// visible under dataflow.OnErrorSkip; otherwise the error is the expression's, names the key, and is that of the first such
// row.
//
// fits is false when the values made of the keys' rows would take more than expr.BatchMemory (Within): the caller asks for fewer
// keys then (O5). One key always fits; its row fails when it takes more than expr.MaxRowMemory.
func (f *Finalizer) Batch(keys, accs [][]byte, onError dataflow.OnError) (b *batch.Batch, visible batch.Bitmap, fits bool, err error) {
	return f.BatchIn(&Scratch{}, keys, accs, onError)
}

// BatchIn is Batch with memory that the caller keeps from call to call: the result is valid until the next call with s. For
// those who ask for few keys at a time, again and again.
func (f *Finalizer) BatchIn(s *Scratch, keys, accs [][]byte, onError dataflow.OnError) (b *batch.Batch, visible batch.Bitmap, fits bool, err error) {
	s.begin(f, len(keys))
	in := &s.in
	nkeys := len(f.stage.Key)
	for i, k := range keys {
		if err := key.DecodeInto(k, in.Cols[:nkeys]); err != nil {
			return nil, nil, false, dataflow.Errorf(dataflow.ReasonCorrupt, "state of %s: %w", f.name(), err)
		}
		if accs[i] == nil {
			f.appendNulls(in.Cols[nkeys:])
			continue
		}
		if err := f.layout.Check(accs[i]); err != nil {
			return nil, nil, false, err
		}
		if f.layout.Rows(accs[i]) == 0 && !f.stage.AlwaysHasRow() {
			f.appendNulls(in.Cols[nkeys:])
			continue
		}
		var failed error
		for a, v := range in.Cols[nkeys:] {
			if err := f.layout.AppendResult(a, accs[i], v); err != nil && failed == nil {
				failed = err
			}
		}
		switch {
		case failed == nil:
			s.sel = append(s.sel, int32(i))
		case onError != dataflow.OnErrorSkip:
			return nil, nil, false, f.rowError(in, i, failed)
		}
	}
	return f.output(s, onError)
}

func (f *Finalizer) appendNulls(cols []*batch.Vector) {
	for _, v := range cols {
		v.AppendNull()
	}
}

// output evaluates Having and Output over the rows of s.in that s.sel lists.
func (f *Finalizer) output(s *Scratch, onError dataflow.OnError) (b *batch.Batch, visible batch.Bitmap, fits bool, err error) {
	in, sel, env := &s.in, s.sel, &s.env
	limit := f.most
	if in.N == 1 {
		limit = expr.MaxRowMemory
	}
	env.Begin(limit)
	if f.stage.Having != nil {
		cond := f.stage.Having.Eval(env, in, sel)
		kept := sel[:0:0]
		for _, row := range sel {
			if cond.Type == dataflow.TypeBool && cond.Ints[row] != 0 && !cond.IsNull(int(row)) {
				kept = append(kept, row)
			}
		}
		sel = kept
	}
	if sel == nil {
		sel = []int32{} // nil would select every row
	}
	out := &s.out
	out.N = in.N
	for i, e := range f.stage.Output {
		out.Cols[i] = e.Eval(env, in, sel)
	}
	switch {
	case env.Interrupted() != nil:
		return nil, nil, false, env.Interrupted()
	case !env.Over():
	case in.N > 1:
		return nil, nil, false, nil
	default:
		out, sel = batch.NewBatch(f.stage.Schema), []int32{}
		for _, v := range out.Cols {
			v.AppendNull()
		}
		out.N, s.failed = 1, RowError{Err: expr.ErrRowMemory()}
	}
	if s.failed.Err != nil && onError != dataflow.OnErrorSkip {
		return nil, nil, false, f.rowError(in, s.failed.Row, s.failed.Err)
	}
	for _, row := range sel {
		if !s.bad.Get(int(row)) {
			s.visible.Set(int(row))
		}
	}
	return out, s.visible, true, nil
}

// rowError says for which key an output column cannot be computed.
func (f *Finalizer) rowError(in *batch.Batch, row int, failed error) error {
	parts := make([]string, len(f.stage.Key))
	for i := range parts {
		parts[i] = "NULL"
		if v := in.Cols[i].Value(row); !v.Null {
			parts[i] = expr.FormatValue(v)
		}
	}
	var e dataflow.Error
	if of := (*dataflow.Error)(nil); errors.As(failed, &of) {
		e = *of
	}
	e.Message = f.name() + ", key (" + strings.Join(parts, ", ") + "): " + e.Message
	return &e
}

func (f *Finalizer) name() string {
	if f.stage.Name != "" {
		return f.stage.Name
	}
	return "subquery"
}
