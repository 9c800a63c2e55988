package plan

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// evaluator evaluates expressions over the rows that a step is given and passes the results on, in pieces that fit in the
// run's memory. What it does cannot be told from evaluating row by row: a row that the next step does not want any more,
// because of a LIMIT, does not fail the query.
type evaluator struct {
	next   step
	mem    *budget
	src    *sql.Source
	env    expr.Env
	pieces batch.Pieces

	failed int // first row of the piece that failed; the piece's length when none has
	err    *dataflow.Error
	at     Place // of the expression being evaluated
	errAt  Place
}

func newEvaluator(r *run, next step) *evaluator {
	ev := &evaluator{next: next, mem: r.mem, src: r.q.src}
	ev.env.Now, ev.env.Lookups, ev.env.Interrupt = r.q.now, r.lookups, r.interrupt
	ev.env.Fail = func(row int, err *dataflow.Error) {
		if row < ev.failed {
			ev.failed, ev.err, ev.errAt = row, err, ev.at
		}
	}
	return ev
}

func (ev *evaluator) eval(x expr.Expr, at Place, b *batch.Batch) *batch.Vector {
	ev.at = at
	return x.Eval(&ev.env, b, nil)
}

// pieceShare is which part of the memory that is left a piece may take: the steps behind it need some too.
const pieceShare = 4

// pass cuts b in pieces and pushes what compute makes of each, without the rows from the first that failed. compute is told
// how many rows those are, when it has evaluated what it needs, by ev.failed. most bounds the pieces; noLimit does not.
func (ev *evaluator) pass(b *batch.Batch, most func() int64, compute func(piece *batch.Batch) func() *batch.Batch) error {
	for from := 0; from < b.N && !done(ev.next); {
		rest := b.N - from
		if m := most(); m != noLimit {
			rest = int(min(int64(rest), m))
		}
		var result func() *batch.Batch
		n, err := ev.pieces.Next(rest, func(n int) (bool, error) {
			piece := b
			if n < b.N {
				piece = b.Slice(from, from+n)
			}
			ev.failed, ev.err = n, nil
			limit := ev.mem.left() / pieceShare
			if n == 1 {
				limit = ev.mem.left()
			}
			ev.env.Begin(max(1, min(limit, int64(memoryOf(n)))))
			result = compute(piece)
			if err := ev.env.Interrupted(); err != nil {
				return false, err
			}
			if !ev.env.Over() || n > 1 {
				return !ev.env.Over(), nil
			}
			if err := ev.mem.take(ev.env.Used()); err != nil {
				return false, err
			}
			return false, ev.src.At(expr.ErrRowMemory(), ev.src.Span(ev.at.Line, ev.at.Column))
		})
		if err != nil {
			return err
		}
		used := ev.env.Used()
		if err := ev.mem.take(used); err != nil {
			return err
		}
		if out := result(); out.N > 0 {
			if err := ev.next.push(out); err != nil {
				return err
			}
		}
		ev.mem.give(used)
		if ev.err != nil && !done(ev.next) {
			return ev.src.At(ev.err, ev.src.Span(ev.errAt.Line, ev.errAt.Column))
		}
		from += n
	}
	return nil
}

// memoryOf is the most that the values made of n rows may take.
func memoryOf(n int) int {
	if n == 1 {
		return expr.MaxRowMemory
	}
	return expr.BatchMemory
}

func (ev *evaluator) finish() error { return ev.next.finish() }

// any lets pieces have any number of rows.
func (ev *evaluator) any() int64 { return noLimit }

// filterer passes on the rows for which a condition is true.
type filterer struct {
	*evaluator
	filter *Filter
}

func (f *filterer) push(b *batch.Batch) error {
	return f.pass(b, f.any, func(piece *batch.Batch) func() *batch.Batch {
		v := f.eval(f.filter.Cond, f.filter.At, piece)
		return func() *batch.Batch {
			sel := make([]int32, 0, f.failed)
			for i := range f.failed {
				if !v.IsNull(i) && v.Ints[i] != 0 {
					sel = append(sel, int32(i))
				}
			}
			if len(sel) == piece.N {
				return piece
			}
			return piece.Select(sel)
		}
	})
}

func (f *filterer) wants() int64 {
	if done(f.next) {
		return 0
	}
	return noLimit
}

// projector replaces the columns by expressions over them.
type projector struct {
	*evaluator
	project *Project
}

func (p *projector) push(b *batch.Batch) error {
	return p.pass(b, p.next.wants, func(piece *batch.Batch) func() *batch.Batch {
		cols := make([]*batch.Vector, len(p.project.Exprs))
		for i, x := range p.project.Exprs {
			cols[i] = p.eval(x, p.project.At[i], piece)
		}
		return func() *batch.Batch {
			out := piece.WithCols(p.project.Schema, cols)
			if p.failed < out.N {
				out = out.Slice(0, p.failed)
			}
			return out
		}
	})
}

func (p *projector) wants() int64 { return p.next.wants() }
