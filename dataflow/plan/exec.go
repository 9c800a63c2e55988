package plan

import (
	"errors"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// ExecOptions bound one run of a query.
type ExecOptions struct {
	// MaxBytes is how much memory the run may hold: groups, sides of joins, rows to sort and the result. 0 = DefaultExecBytes.
	MaxBytes int64
	// Interrupt, if set, is asked again and again while expressions are evaluated; its error ends the run.
	Interrupt func() error
}

// DefaultExecBytes is the memory that a run of a query may hold when the caller does not say: a few such queries fit
// beside the state of a small node.
const DefaultExecBytes = 64 << 20

// Tables reads the tables of a query for a run, all at one cut. One goroutine uses it.
type Tables interface {
	// Open starts to read what an access names of a table; rows outside of it may come too. Several readings may be open at
	// once. The run closes each.
	Open(t Table, a Access) (Rows, error)
	// Check returns an error when the run must end, because its time is over or its caller has gone. It is called every few
	// thousand rows of work.
	Check() error
}

// Rows is one reading of a table.
type Rows interface {
	// Next returns rows in the order of the key, at most so many, perhaps none: batches of the table's visible columns, which
	// are the caller's. Nil is the end.
	Next(most int) (*batch.Batch, error)
	Close() error
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

// run is one run of a query. It has no goroutine; one goroutine uses it.
type run struct {
	q       *Query
	mem     *budget
	tables  Tables
	lookups []expr.Lookup // of the subqueries that have run
	scans   map[*scanNode]*scanner
	// interrupt ends the evaluation of expressions with its error; nil = never.
	interrupt func() error
}

// Run runs the query and returns its rows, in the order that ORDER BY asks for. Rows of a grouping without ORDER BY come in
// the order of their keys, other rows of one table in the order in which they are read. The error is EXPRESSION_FAILED,
// SCAN_LIMIT or TOO_LARGE, or one of tables.
func (q *Query) Run(tables Tables, opts ExecOptions) (_ *batch.Batch, err error) {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultExecBytes
	}
	r := &run{q: q, mem: &budget{limit: opts.MaxBytes}, tables: tables, lookups: make([]expr.Lookup, len(q.subqueries)), scans: make(map[*scanNode]*scanner), interrupt: opts.Interrupt}
	defer func() { err = errors.Join(err, r.close()) }()
	result := &collector{out: batch.NewBatch(q.Schema), mem: r.mem}
	if err := r.drain(r.chain(q.root, result)); err != nil {
		return nil, err
	}
	return result.out, nil
}

// close closes what is still being read.
func (r *run) close() error {
	var errs []error
	for _, s := range r.scans {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// steps returns the steps of a level, which push what they give into next.
func (l *level) steps(r *run, next step) step {
	mem := r.mem
	evaluate := func(next step) *evaluator { return newEvaluator(r, next) }
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
	if l.windows != nil {
		next = newWindower(r, next, l.windows)
		next = &projector{evaluator: evaluate(next), project: l.windows.input}
	}
	if l.having != nil {
		next = &filterer{evaluator: evaluate(next), filter: l.having}
	}
	if l.grouped {
		next = newGrouper(next, mem, l)
		next = &projector{evaluator: evaluate(next), project: l.groupBy}
	}
	if l.filter != nil {
		next = &filterer{evaluator: evaluate(next), filter: l.filter}
	}
	return next
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
