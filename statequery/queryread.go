package statequery

import (
	"context"

	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
)

// execute runs a query within the budget of time and memory (Q3). All tables are read at the reading's cut.
func (r *reading) execute(ctx context.Context, b *binding, q *plan.Query) (*batch.Batch, error) {
	r.timed = true
	return q.Run(&queryTables{ctx: ctx, r: r, tables: b.tables}, plan.ExecOptions{MaxBytes: r.e.cfg.MaxBytes, Interrupt: r.interrupt(ctx)})
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
func (q *queryTables) Check() error { return q.r.interrupt(q.ctx)() }

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
		r := s.q.r
		if s.accs, _, err = r.accumulators(s.q.ctx, s.t, new(lookupMemory), s.keys[:n], r.e.cfg.MaxBytes); err != nil {
			return nil, r.e.tooManyKeys(err)
		}
		s.part, s.keys = s.keys[:n], s.keys[n:]
	}
	rows, n, err := s.q.r.visible(s.q.ctx, s.t, &s.pieces, s.part, s.accs, func(int) {})
	if err != nil {
		return nil, err
	}
	s.part, s.accs = s.part[n:], s.accs[n:]
	return rows, nil
}

// Close implements plan.Rows.
func (s *keyRows) Close() error { return nil }
