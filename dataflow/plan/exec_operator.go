package plan

import (
	"math"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// operator gives the rows of a node in a run, when it is asked for them.
type operator interface {
	// next returns rows, which are the caller's: nil at the end. most is about how many the caller can use, at least 1;
	// noLimit is any number.
	next(most int64) (*batch.Batch, error)
}

// chained is a chain of steps that an operator feeds. Levels that read each other are one chain, so that what a LIMIT does
// not want any more is not computed further down.
type chained struct {
	input      operator
	first      step
	subqueries []*subquery // to run before the first row, innermost first
	started    bool
}

// chain returns the steps of n and of the levels that it reads, which push into last.
func (r *run) chain(n node, last step) *chained {
	c := &chained{first: last}
	for {
		switch m := n.(type) {
		case *level:
			c.first = m.steps(r, c.first)
			c.subqueries = append(m.subqueries[:len(m.subqueries):len(m.subqueries)], c.subqueries...)
			n = m.input
			continue
		case *filterNode:
			for i := len(m.filters) - 1; i >= 0; i-- {
				c.first = &filterer{evaluator: newEvaluator(r, c.first), filter: m.filters[i]}
			}
			n = m.input
			continue
		case *unnestNode:
			c.first = &expander{r: r, next: c.first, schema: m.schema(), outer: m.outer}
			c.first = &projector{evaluator: newEvaluator(r, c.first), project: m.array}
			n = m.input
			continue
		}
		break
	}
	c.input = n.start(r)
	return c
}

// pull moves rows from the input into the steps. It reports false at the end, when it has finished them.
func (c *chained) pull(r *run) (bool, error) {
	if !c.started {
		c.started = true
		for _, s := range c.subqueries {
			if err := r.runSubquery(s); err != nil {
				return false, err
			}
		}
	}
	if done(c.first) {
		return false, nil
	}
	b, err := c.input.next(c.first.wants())
	if err != nil || b == nil {
		return false, err
	}
	if b.N > 0 {
		if err := c.first.push(b); err != nil {
			return false, err
		}
	}
	if done(c.first) {
		return false, nil // before the time is looked at: what is complete is not late
	}
	return true, r.tables.Check()
}

// drain runs a chain to its end, whose last step collects what it gives.
func (r *run) drain(c *chained) error {
	for {
		more, err := c.pull(r)
		if err != nil {
			return err
		}
		if !more {
			return c.first.finish()
		}
	}
}

// pulled gives what a chain of steps pushes to whoever asks for it.
type pulled struct {
	r     *run
	chain *chained
	out   *queue
	ended bool
}

// pull returns an operator for n.
func (r *run) pull(n node) operator {
	out := &queue{mem: r.mem}
	return &pulled{r: r, chain: r.chain(n, out), out: out}
}

func (l *level) start(r *run) operator      { return r.pull(l) }
func (n *filterNode) start(r *run) operator { return r.pull(n) }

func (p *pulled) next(most int64) (*batch.Batch, error) {
	for {
		if b := p.out.pop(); b != nil || p.ended {
			return b, nil
		}
		p.out.most = most
		more, err := p.chain.pull(p.r)
		if err != nil {
			return nil, err
		}
		if !more {
			p.ended, p.out.most = true, noLimit
			if err := p.chain.first.finish(); err != nil {
				return nil, err
			}
		}
	}
}

// queue is a last step: it holds rows until they are asked for.
type queue struct {
	mem     *budget
	batches []*batch.Batch
	bytes   []int64
	taken   int64 // bytes of the batch that was popped last
	most    int64 // rows that are asked for; noLimit: any
	rows    int64
}

func (q *queue) push(b *batch.Batch) error {
	n := bytesOf(b)
	if err := q.mem.take(n); err != nil {
		return err
	}
	q.batches, q.bytes, q.rows = append(q.batches, b), append(q.bytes, n), q.rows+int64(b.N)
	return nil
}

// pop returns the next batch, nil if there is none. What it has returned before has been used up.
func (q *queue) pop() *batch.Batch {
	q.mem.give(q.taken)
	q.taken = 0
	if len(q.batches) == 0 {
		return nil
	}
	b := q.batches[0]
	q.taken, q.rows = q.bytes[0], q.rows-int64(b.N)
	q.batches[0] = nil
	q.batches, q.bytes = q.batches[1:], q.bytes[1:]
	return b
}

func (q *queue) finish() error { return nil }

func (q *queue) wants() int64 {
	if q.most == noLimit {
		return noLimit
	}
	return max(0, q.most-q.rows)
}

// bytesOf returns about how much memory a batch takes.
func bytesOf(b *batch.Batch) int64 {
	n := int64(b.N) * resultRowOverhead
	for i := range b.N {
		n += int64(b.RowBytes(i))
	}
	return n
}

// scanner reads a table.
type scanner struct {
	r      *run
	node   *scanNode
	access Access
	rows   Rows // nil before the first row is asked for, and after the end
	opened bool
}

func (n *scanNode) start(r *run) operator {
	s := &scanner{r: r, node: n, access: n.Access}
	r.scans[n] = s
	return s
}

func (s *scanner) next(most int64) (*batch.Batch, error) {
	if !s.opened {
		s.opened = true
		if from := s.node.keysFrom; from != nil {
			s.access = s.r.lookups[from.index].(*lookup).access(s.access)
		}
		var err error
		if s.rows, err = s.r.tables.Open(s.node.Table, s.access); err != nil {
			return nil, err
		}
	}
	if s.rows == nil {
		return nil, nil
	}
	n := math.MaxInt32
	if most != noLimit {
		n = int(min(most, math.MaxInt32))
	}
	b, err := s.rows.Next(n)
	if err == nil && b == nil {
		err = s.close()
	}
	return b, err
}

// close ends the reading. It may be called again.
func (s *scanner) close() error {
	if s.rows == nil {
		return nil
	}
	rows := s.rows
	s.rows = nil
	return rows.Close()
}

// rowsOf gives the rows of VALUES.
type rowsOf struct {
	r    *run
	node *valuesNode
	at   int
}

func (n *valuesNode) start(r *run) operator { return &rowsOf{r: r, node: n} }

func (v *rowsOf) next(most int64) (*batch.Batch, error) {
	if v.at == len(v.node.rows) {
		return nil, nil
	}
	out := batch.NewBatch(v.node.cols)
	for v.at < len(v.node.rows) && out.N < batch.TargetRows && (most == noLimit || int64(out.N) < most) {
		row := v.node.rows[v.at]
		for i, x := range row.exprs {
			val, err := expr.EvalRow(x, nil, nil, v.r.q.now)
			if err != nil {
				return nil, v.node.src.At(err, row.at[i])
			}
			out.Cols[i].AppendValue(val)
		}
		out.N++
		v.at++
	}
	return out, nil
}

// series gives the values of generate_series.
type series struct {
	node  *seriesNode
	value dataflow.Value
	ended bool
}

func (n *seriesNode) start(*run) operator {
	return &series{node: n, value: n.from, ended: n.empty()}
}

func (s *series) next(most int64) (*batch.Batch, error) {
	out := batch.NewBatch(s.node.column)
	for !s.ended && out.N < batch.TargetRows && (most == noLimit || int64(out.N) < most) {
		order := compareValues(s.value, s.node.to)
		if order != 0 && order != -s.node.way {
			s.ended = true
			break
		}
		out.Cols[0].AppendValue(s.value)
		out.N++
		var err error
		if s.value, err = s.node.after(s.value); err != nil || s.node.way == 0 {
			s.ended = true // no value is behind the greatest one
		}
	}
	if out.N == 0 {
		return nil, nil
	}
	return out, nil
}
