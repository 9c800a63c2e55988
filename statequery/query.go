package statequery

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// binding is the planner's view of the catalog. It keeps what the query was bound to, so that it runs against the same
// deployment.
type binding struct {
	Catalog
	pipeline *Pipeline
	table    *Table
}

var _ plan.TableCatalog = (*binding)(nil)

// Table implements plan.TableCatalog.
func (b *binding) Table(pipeline, table string) (plan.Table, error) {
	p, err := b.Pipeline(pipeline)
	if err != nil {
		return plan.Table{}, err
	}
	t, err := b.Catalog.Table(p, table)
	if err != nil {
		return plan.Table{}, err
	}
	b.pipeline, b.table = p, t
	return plan.TableOf(pipeline, t.stage), nil
}

// Query runs a SELECT over one table and returns a page of its result, with the token of the next page. The result of a
// page after the first is computed again, at the cut of the first.
func (e *Engine) Query(ctx context.Context, text string, p dataflow.Page, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	fail := func(err error) (*batch.Batch, string, dataflow.Cut, error) { return nil, "", dataflow.Cut{}, err }
	limit, err := pageLimit(p, dataflow.MaxPageRows)
	if err != nil {
		return fail(err)
	}
	sel, err := sql.ParseQuery(text)
	if err != nil {
		return fail(err)
	}
	pg, err := e.page(p.Token, requestHash("query", text, o.Isolation.String()))
	if err != nil {
		return fail(err)
	}
	at := queryPlace{now: e.cfg.Now()}
	if pg.token != nil {
		if at, err = parseQueryPlace(pg.token.After); err != nil {
			return fail(err)
		}
	}
	bound := &binding{Catalog: e.cfg.Catalog}
	q, err := plan.BindQuery(sel, bound, at.now)
	if err != nil {
		return fail(err)
	}
	r, err := e.admit(ctx, e.queries, bound.pipeline, func(p *Pipeline) (*reading, error) { return pg.open(ctx, p, o) })
	if err != nil {
		return fail(err)
	}
	defer e.queries.leave()
	defer r.close()
	rows, err := r.execute(ctx, bound.table, q)
	if err != nil {
		return fail(err)
	}
	from := min(at.from, rows.N)
	end := pageEnd(rows, from, limit)
	next := ""
	switch {
	case end == rows.N:
		pg.end(ctx, r)
	case r.live != nil: // it cannot be continued: by the next page the tables have moved
		return fail(dataflow.Errorf(dataflow.ReasonScanLimit, "the result has %d rows, of which one answer takes %d; a live query has one answer", rows.N, end-from).
			WithHint("add a LIMIT, or read committed, which pages").WithMeta("limit", "page"))
	default:
		if next, err = pg.next(ctx, r, queryPlace{from: end, now: at.now}.bytes()); err != nil {
			return fail(err)
		}
	}
	if from > 0 || end < rows.N {
		rows = copyRows(rows, from, end) // the rest need not be held until the answer is sent
	}
	return rows, next, r.describe(), nil
}

// pageEnd returns where a page of a result ends that begins at from: one row on at least.
func pageEnd(rows *batch.Batch, from, limit int) int {
	end, bytes := from, 0
	for end < rows.N && end-from < limit && bytes < pageBytes {
		bytes += rows.RowBytes(end)
		end++
	}
	return end
}

// copyRows returns rows from to end-1 in memory of their own.
func copyRows(b *batch.Batch, from, end int) *batch.Batch {
	sel := make([]int32, 0, end-from)
	for i := from; i < end; i++ {
		sel = append(sel, int32(i))
	}
	return b.Select(sel)
}

// queryPlace says where a page of a result begins, and what now() means in it, in µs since 1970.
type queryPlace struct {
	from int
	now  int64
}

func parseQueryPlace(b []byte) (queryPlace, error) {
	if len(b) != 16 || binary.BigEndian.Uint64(b) > 1<<40 {
		return queryPlace{}, dataflow.Errorf(dataflow.ReasonTokenInvalid, "page_token: it does not continue a query")
	}
	return queryPlace{from: int(binary.BigEndian.Uint64(b)), now: int64(binary.BigEndian.Uint64(b[8:]))}, nil
}

func (p queryPlace) bytes() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.from))
	return binary.BigEndian.AppendUint64(b, uint64(p.now))
}

// execute reads what the query needs and runs it, within the budget of time and memory (Q3).
func (r *reading) execute(ctx context.Context, t *Table, q *plan.Query) (*batch.Batch, error) {
	r.timed = true
	x := q.NewExec(plan.ExecOptions{MaxBytes: r.e.cfg.MaxBytes, Interrupt: r.interrupt(ctx)})
	var err error
	if q.Access.Points {
		err = r.feedKeys(ctx, t, q.Access.Keys, x)
	} else {
		for _, rg := range q.Access.Ranges {
			if err = r.feedRange(ctx, t, rg, x); err != nil || x.Done() {
				break
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return x.Result()
}

// feedRange pushes the rows of a range.
func (r *reading) feedRange(ctx context.Context, t *Table, rg plan.Range, x *plan.Exec) (err error) {
	w, err := r.walk(ctx, t, rg.Lo, rg.Hi, walkRows)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for !x.Done() {
		rows, _, err := w.next(ctx, int(min(x.Wants(), walkRows)))
		if err != nil || rows == nil {
			return err
		}
		if err := r.feed(rows, x); err != nil {
			return err
		}
	}
	return nil
}

// feedKeys looks keys up and pushes their rows.
func (r *reading) feedKeys(ctx context.Context, t *Table, keys [][]byte, x *plan.Exec) error {
	var pieces batch.Pieces
	for len(keys) > 0 && !x.Done() {
		part := keys[:min(len(keys), walkRows)]
		keys = keys[len(part):]
		accs, err := r.accumulators(ctx, t, part)
		if err != nil {
			return err
		}
		for len(part) > 0 && !x.Done() {
			if ctx.Err() != nil {
				return deadline(ctx)
			}
			rows, n, err := r.visible(ctx, t, &pieces, part, accs, func(int) {})
			if err != nil {
				return err
			}
			part, accs = part[n:], accs[n:]
			if err := r.feed(rows, x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reading) feed(rows *batch.Batch, x *plan.Exec) error {
	if err := x.Push(rows); err != nil {
		return err
	}
	if r.overtime() && !x.Done() {
		return r.timeLimit()
	}
	return nil
}
