package plan

import (
	"fmt"
	"math"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// ExecOptions bound one run of a query.
type ExecOptions struct {
	// MaxBytes is how much memory the run may hold: groups, rows to sort and the result. 0 = DefaultExecBytes.
	MaxBytes int64
	// Interrupt, if set, is asked again and again while expressions are evaluated; its error ends the run.
	Interrupt func() error
}

// DefaultExecBytes is the memory that a run of a query may hold when the caller does not say: a few such queries fit
// beside the state of a small node.
const DefaultExecBytes = 64 << 20

// Exec is one run of a query: rows of the table are pushed, then the result is taken. It has no I/O and no goroutine; one
// goroutine uses it.
type Exec struct {
	first  step
	result *collector
	err    error
}

// step is one step of a run. Batches given to push belong to it.
type step interface {
	push(b *batch.Batch) error
	// finish is called once, after the last push.
	finish() error
	// wants returns how many more rows the step can use: 0 none, noLimit any number.
	wants() int64
}

func done(s step) bool { return s.wants() == 0 }

// NewExec starts a run of the query.
func (q *Query) NewExec(opts ExecOptions) *Exec {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultExecBytes
	}
	mem := &budget{limit: opts.MaxBytes}
	result := &collector{out: batch.NewBatch(q.Schema), mem: mem}
	var next step = result
	for i := len(q.levels) - 1; i >= 0; i-- {
		next = q.levels[i].steps(q, mem, opts.Interrupt, next)
	}
	return &Exec{first: next, result: result}
}

// steps returns the steps of a level, which push what they give into next.
func (l *level) steps(q *Query, mem *budget, interrupt func() error, next step) step {
	evaluate := func(next step) *evaluator { return newEvaluator(q, mem, interrupt, next) }
	if l.limit != noLimit || l.offset > 0 {
		next = &limiter{next: next, skip: l.offset, left: l.limit}
	}
	if l.visible < len(l.outputs.Exprs) {
		next = &cutter{next: next, schema: l.outputs.Schema[:l.visible]}
	}
	if len(l.order) > 0 {
		keep := int64(noLimit)
		if l.limit != noLimit && l.limit+l.offset >= 0 { // the sum may overflow
			keep = l.limit + l.offset
		}
		next = &sorter{next: next, mem: mem, order: l.order, keep: keep}
	}
	if l.distinct {
		next = newDistinct(next, mem, l.outputs.Schema)
	}
	next = &projector{evaluator: evaluate(next), project: l.outputs}
	if l.having != nil {
		next = &filterer{evaluator: evaluate(next), filter: l.having}
	}
	if l.grouped {
		next = newGrouper(next, mem, l)
		next = &projector{evaluator: evaluate(next), project: l.input}
	}
	if l.filter != nil {
		next = &filterer{evaluator: evaluate(next), filter: l.filter}
	}
	return next
}

// Push gives rows of the table to the query: batches of the table's visible columns. The batch belongs to the Exec
// afterwards. The error is EXPRESSION_FAILED, SCAN_LIMIT, TOO_LARGE or Interrupt's; after one, the run has failed.
func (e *Exec) Push(b *batch.Batch) error {
	if e.err == nil && b.N > 0 && !done(e.first) {
		e.err = e.first.push(b)
	}
	return e.err
}

// Done reports that more rows cannot change the result: the caller may stop reading.
func (e *Exec) Done() bool { return e.err != nil || done(e.first) }

// Wants returns how many more rows at most the run can use, so that no more are read: 0 once Done.
func (e *Exec) Wants() int64 {
	switch n := e.first.wants(); {
	case e.err != nil:
		return 0
	case n == noLimit:
		return math.MaxInt64
	default:
		return n
	}
}

// Result ends the run and returns its rows, in the order that ORDER BY asks for. Rows of a grouping without ORDER BY come
// in the order of their keys, other rows in the order in which they were pushed. It is called once.
func (e *Exec) Result() (*batch.Batch, error) {
	if e.err == nil {
		e.err = e.first.finish()
	}
	if e.err != nil {
		return nil, e.err
	}
	return e.result.out, nil
}

// partBytes is about how many bytes the steps that hold rows pass on at a time: so much more than the budget says is held.
const partBytes = 4 << 20

// budget counts the memory that a run holds.
type budget struct{ limit, used int64 }

func (m *budget) take(n int64) error {
	if m.used += n; m.used <= m.limit {
		return nil
	}
	return dataflow.Errorf(dataflow.ReasonScanLimit, "the query holds more than its %d bytes of memory", m.limit).
		WithHint("narrow it with WHERE, group by less, or add LIMIT").WithMeta("limit", "memory").WithMeta("bytes", fmt.Sprint(m.limit))
}

// left returns what may still be taken.
func (m *budget) left() int64 { return max(m.limit-m.used, 0) }

func (m *budget) give(n int64) { m.used -= n }

// resultRowOverhead is about what a row of the result needs besides its values.
const resultRowOverhead = 8

// collector is the last step: it holds the result.
type collector struct {
	out *batch.Batch
	mem *budget
}

func (c *collector) push(b *batch.Batch) error {
	for i := range b.N {
		if err := c.mem.take(int64(b.RowBytes(i)) + resultRowOverhead); err != nil {
			return err
		}
		for j, v := range c.out.Cols {
			v.AppendFrom(b.Cols[j], i)
		}
		c.out.N++
	}
	return nil
}

func (c *collector) finish() error { return nil }
func (c *collector) wants() int64  { return noLimit }

// cutter drops the columns that only ORDER BY needed.
type cutter struct {
	next   step
	schema dataflow.Schema
}

func (c *cutter) push(b *batch.Batch) error {
	return c.next.push(b.WithCols(c.schema, b.Cols[:len(c.schema)]))
}

func (c *cutter) finish() error { return c.next.finish() }
func (c *cutter) wants() int64  { return c.next.wants() }

// limiter skips rows, passes some on, and drops the rest.
type limiter struct {
	next step
	skip int64
	left int64 // noLimit: all
}

func (l *limiter) push(b *batch.Batch) error {
	if l.skip >= int64(b.N) {
		l.skip -= int64(b.N)
		return nil
	}
	from := int(l.skip)
	l.skip = 0
	to := b.N
	if l.left != noLimit {
		to = int(min(int64(to), int64(from)+min(l.left, int64(b.N))))
		l.left -= int64(to - from)
	}
	if from == to {
		return nil
	}
	if from > 0 || to < b.N {
		b = b.Slice(from, to)
	}
	return l.next.push(b)
}

func (l *limiter) finish() error { return l.next.finish() }

func (l *limiter) wants() int64 {
	switch {
	case l.left == 0 || done(l.next):
		return 0
	case l.left == noLimit || l.skip+l.left < 0: // the sum may overflow
		return noLimit
	}
	return l.skip + l.left
}
