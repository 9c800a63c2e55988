package statequery

import (
	"context"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
)

// execute runs a query within the budget of time and memory (Q3). All tables are read at the reading's cut.
func (r *reading) execute(ctx context.Context, b *binding, q *plan.Query) (*batch.Batch, error) {
	return q.Run(&queryTables{ctx: ctx, r: r, tables: b.tables}, plan.ExecOptions{MaxBytes: r.e.cfg.MaxBytes})
}

// queryTables reads the tables of a query for one run of it. It holds the request's context because the planner is pure: it
// knows no contexts.
type queryTables struct {
	ctx    context.Context
	r      *reading
	tables map[[2]string]*Table
}

var (
	_ plan.Tables = (*queryTables)(nil)
	_ plan.Rows   = (*rangeRows)(nil)
	_ plan.Rows   = (*keyRows)(nil)
)

// Open implements plan.Tables.
func (q *queryTables) Open(t plan.Table, a plan.Access) (plan.Rows, error) {
	table := q.tables[[2]string{t.Pipeline, t.Name}]
	if a.Points {
		return &keyRows{q: q, t: table, keys: a.Keys}, nil
	}
	return &rangeRows{q: q, t: table, ranges: a.Ranges}, nil
}

// Check implements plan.Tables.
func (q *queryTables) Check() error {
	switch {
	case q.ctx.Err() != nil:
		return deadline(q.ctx)
	case q.r.overtime():
		return dataflow.Errorf(dataflow.ReasonScanLimit, "the query has run for %s, the limit is %s", time.Since(q.r.began).Round(time.Millisecond), q.r.e.cfg.MaxTime).
			WithHint("narrow the key in WHERE, or page through a scan").WithMeta("limit", "time")
	}
	return nil
}

// rangeRows gives the rows of ranges of the key.
type rangeRows struct {
	q      *queryTables
	t      *Table
	ranges []plan.Range // still to be opened
	w      *walker      // of the range that is being read; nil between ranges
}

// Next implements plan.Rows.
func (s *rangeRows) Next(most int) (*batch.Batch, error) {
	for {
		if s.w == nil {
			if len(s.ranges) == 0 {
				return nil, nil
			}
			var err error
			if s.w, err = s.q.r.walk(s.q.ctx, s.t, s.ranges[0].Lo, s.ranges[0].Hi, walkRows); err != nil {
				s.w = nil
				return nil, err
			}
			s.ranges = s.ranges[1:]
		}
		rows, _, err := s.w.next(s.q.ctx, min(most, walkRows))
		if err != nil || rows != nil {
			return rows, err
		}
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
}

// Close implements plan.Rows.
func (s *rangeRows) Close() error {
	if s.w == nil {
		return nil
	}
	w := s.w
	s.w = nil
	return w.close()
}

// keyRows gives the rows of keys.
type keyRows struct {
	q      *queryTables
	t      *Table
	keys   [][]byte // still to be looked up
	part   [][]byte // looked up, and not yet given
	accs   [][]byte // of part
	pieces batch.Pieces
}

// Next implements plan.Rows. It looks up no more keys than rows are wanted.
func (s *keyRows) Next(most int) (*batch.Batch, error) {
	if s.q.ctx.Err() != nil {
		return nil, deadline(s.q.ctx)
	}
	if len(s.part) == 0 {
		if len(s.keys) == 0 {
			return nil, nil
		}
		n := min(len(s.keys), most, walkRows)
		var err error
		if s.accs, err = s.q.r.accumulators(s.q.ctx, s.t, s.keys[:n]); err != nil {
			return nil, err
		}
		s.part, s.keys = s.keys[:n], s.keys[n:]
	}
	rows, n, err := s.t.visible(&s.pieces, s.part, s.accs, s.q.r.pipeline.OnError, func(int) {})
	if err != nil {
		return nil, err
	}
	s.part, s.accs = s.part[n:], s.accs[n:]
	return rows, nil
}

// Close implements plan.Rows.
func (s *keyRows) Close() error { return nil }
