package statequery

import (
	"context"
	"encoding/binary"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// binding is the planner's view of the catalog. It keeps what the query was bound to, so that it runs against the same
// deployment.
type binding struct {
	Catalog
	pipelines map[string]*Pipeline
	tables    map[[2]string]*Table // by pipeline and name
}

func (e *Engine) binding() *binding {
	return &binding{Catalog: e.cfg.Catalog, pipelines: make(map[string]*Pipeline), tables: make(map[[2]string]*Table)}
}

var _ plan.TableCatalog = (*binding)(nil)

// Table implements plan.TableCatalog.
func (b *binding) Table(pipeline, table string) (plan.Table, error) {
	p := b.pipelines[pipeline]
	if p == nil {
		var err error
		if p, err = b.Pipeline(pipeline); err != nil {
			return plan.Table{}, err
		}
		b.pipelines[pipeline] = p
	}
	t, err := b.Catalog.Table(p, table)
	if err != nil {
		return plan.Table{}, err
	}
	b.tables[[2]string{pipeline, table}] = t
	return plan.TableOf(pipeline, t.stage), nil
}

// Query runs a query over tables of one pipeline, or explains one, and returns a page of its result, with the token of the
// next page. The result of a page after the first is computed again, at the cut of the first.
func (e *Engine) Query(ctx context.Context, text string, p dataflow.Page, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	fail := func(err error) (*batch.Batch, string, dataflow.Cut, error) { return nil, "", dataflow.Cut{}, err }
	limit, err := pageLimit(p, dataflow.MaxPageRows)
	if err != nil {
		return fail(err)
	}
	sel, explained, err := sql.ParseStatement(text)
	if err != nil {
		return fail(err)
	}
	if explained != nil {
		rows, _, cut, err := e.explain(ctx, explained, o)
		return rows, "", cut, err
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
	bound, q, err := e.bindFor(ctx, sel, at.now, o)
	if err != nil {
		return fail(err)
	}
	r, err := e.admit(ctx, e.queries, e.cfg.MaxBytes, bound.pipelines[q.Pipeline], func(p *Pipeline) (*reading, error) { return pg.open(ctx, p, o) })
	if err != nil {
		return fail(err)
	}
	defer e.queries.leave(e.cfg.MaxBytes)
	defer r.close()
	rows, err := r.execute(ctx, bound, q)
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

// bindFor binds a query to its tables. When a session has seen a deployment that this node has not heard of yet, it is bound
// again once the node has.
func (e *Engine) bindFor(ctx context.Context, sel *sql.Select, now int64, o dataflow.ReadOptions) (*binding, *plan.Query, error) {
	e.hearFor(ctx, o)
	for again := false; ; again = true {
		bound := e.binding()
		q, err := plan.BindQuery(sel, bound, now)
		behind := false
		for _, p := range bound.pipelines {
			if !again && ahead(o.Session, p) {
				behind = true
				if err := e.catchUp(ctx, p, o.MaxWait); err != nil {
					return nil, nil, err
				}
				break
			}
		}
		if !behind {
			return bound, q, err
		}
	}
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
