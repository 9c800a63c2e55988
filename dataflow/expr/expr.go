package expr

import (
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Expr is a typed expression over the columns of a batch. It is immutable; Eval may be called by many goroutines.
type Expr interface {
	// Type returns the type of the result. TypeUnknown for a bare NULL.
	Type() dataflow.Type

	// String returns the expression as canonical SQL text. Equal texts over equal schemas mean equal expressions.
	String() string

	// Eval computes the rows of b that sel lists, all of them if sel is nil. The result has b.N rows; those that are
	// not selected are NULL or hold nothing of use. It may share memory with b and must not be modified.
	Eval(env *Env, b *batch.Batch, sel Sel) *batch.Vector
}

// Sel is a selection: row numbers in ascending order. A nil Sel selects every row, an empty one none.
type Sel = []int32

// Env is what an evaluation needs beside the batch. One goroutine uses it at a time; reuse it between batches, because
// it also keeps what was compiled for patterns that are not constant. The zero Env is ready to use.
type Env struct {
	// Now is what now() means for batches without append times, in microseconds since 1970 UTC: the time of the query.
	// In a batch with append times now() is the row's own (P10).
	Now int64

	// Fail is told of rows for which the expression fails, in no promised order of rows. When several parts of an
	// expression fail for one row it is called for each; the first call is the row's error. Nil ignores failures.
	Fail func(row int, err *dataflow.Error)

	// Lookups are the results of the subqueries of the query that runs, by number. Views have none.
	Lookups []Lookup

	// Interrupt, if set, is asked again and again during an evaluation, at the latest after some KB of work. Once it
	// returns an error all evaluations give up: see Interrupted.
	Interrupt func() error

	patterns patternCache
	room     room
	stopped  error // of Interrupt
}

// fail hands on a copy of err, which may be one of the shared ones.
func (env *Env) fail(row int, err *dataflow.Error) {
	if env.Fail != nil && !env.room.over {
		e := *err
		env.Fail(row, &e)
	}
}

// Walk calls fn for e and its descendants, parents first. Where fn returns false the descendants are skipped.
func Walk(e Expr, fn func(Expr) bool) {
	if e == nil || !fn(e) {
		return
	}
	switch e := e.(type) {
	case *Call:
		for _, a := range e.args {
			Walk(a, fn)
		}
	case *Case:
		for _, w := range e.whens {
			Walk(w.Cond, fn)
			Walk(w.Then, fn)
		}
		Walk(e.els, fn)
	case *Cast:
		Walk(e.arg, fn)
	case *Subquery:
		for _, a := range e.args {
			Walk(a, fn)
		}
	case *Packed:
		for _, f := range e.fields {
			Walk(f, fn)
		}
	case *Field:
		Walk(e.row, fn)
	}
}

// Columns returns the column numbers that e reads, ascending, each once.
func Columns(e Expr) []int {
	var cols []int
	Walk(e, func(e Expr) bool {
		if c, ok := e.(*Column); ok {
			cols = append(cols, c.Index)
		}
		return true
	})
	slices.Sort(cols)
	return slices.Compact(cols)
}

// EvalRow evaluates e over one row, with now as now(). The error is an *dataflow.Error.
func EvalRow(e Expr, schema dataflow.Schema, row dataflow.Row, now int64) (dataflow.Value, error) {
	b := &batch.Batch{Schema: schema, N: 1, Cols: make([]*batch.Vector, len(schema))}
	for _, c := range Columns(e) {
		b.Cols[c] = singleton(schema[c].Type, row[c])
	}
	var failed *dataflow.Error
	env := Env{Now: now, Fail: func(_ int, err *dataflow.Error) {
		if failed == nil {
			failed = err
		}
	}}
	env.Begin(MaxRowMemory)
	v := e.Eval(&env, b, nil)
	if env.Over() {
		failed = ErrRowMemory()
	}
	if failed != nil {
		return dataflow.NullValue(e.Type()), failed
	}
	return valueAt(v, 0), nil
}
