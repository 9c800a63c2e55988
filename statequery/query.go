package statequery

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// tables is the planner's view of the catalog.
type tables struct{ Catalog }

// Table describes a table.
func (t tables) Table(pipeline, table string) (plan.Table, error) {
	p, err := t.Pipeline(pipeline)
	if err != nil {
		return plan.Table{}, err
	}
	st, err := t.Stage(p, table)
	if err != nil {
		return plan.Table{}, err
	}
	return plan.TableOf(pipeline, st), nil
}

// Query runs a SELECT over one table and returns a page of its result, with the token of the next page. The result of a
// page after the first is computed again, at the cut of the first.
func (e *Engine) Query(ctx context.Context, text string, page dataflow.Page, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	fail := func(err error) (*batch.Batch, string, dataflow.Cut, error) { return nil, "", dataflow.Cut{}, err }
	limit := dataflow.MaxPageRows
	if page.Limit != 0 {
		var err error
		if limit, err = pageLimit(page); err != nil {
			return fail(err)
		}
	}
	sel, err := sql.ParseQuery(text)
	if err != nil {
		return fail(err)
	}
	hash := requestHash("query", text, o.Isolation.String())
	before, err := e.resume(ctx, page.Token, hash, &o)
	if err != nil {
		return fail(err)
	}
	from, now := 0, e.cfg.Now()
	if before != nil {
		if from, now, err = queryPlace(before.After); err != nil {
			return fail(err)
		}
	}
	q, err := plan.BindQuery(sel, tables{e.cfg.Catalog}, now)
	if err != nil {
		return fail(err)
	}
	r, err := e.open(ctx, q.Table.Pipeline, o)
	if err != nil {
		return fail(err)
	}
	defer r.close()
	if err := samePipeline(r, before); err != nil {
		return fail(err)
	}
	rows, err := e.execute(ctx, r, q)
	if err != nil {
		return fail(err)
	}
	next := ""
	end := min(rows.N, from+limit)
	switch {
	case end >= rows.N:
		e.endPages(ctx, r, before)
	case r.live != nil:
		// A live result cannot be continued: by the next page the tables have moved.
		return fail(dataflow.Errorf(dataflow.ReasonScanLimit, "the result has %d rows; a live query answers %d at most", rows.N, limit).
			WithHint("add a LIMIT, or read committed, which pages"))
	default:
		if next, err = e.nextToken(ctx, r, before, hash, appendQueryPlace(end, now)); err != nil {
			return fail(err)
		}
	}
	if from > 0 || end < rows.N {
		rows = rows.Slice(min(from, end), end)
	}
	return rows, next, r.describe(), nil
}

// queryPlace says where the next page of a result begins, and what now() means in it.
func queryPlace(b []byte) (from int, now int64, err error) {
	if len(b) != 16 {
		return 0, 0, dataflow.Errorf(dataflow.ReasonTokenInvalid, "page_token: it does not continue a query")
	}
	n := binary.BigEndian.Uint64(b)
	if n > 1<<40 {
		return 0, 0, dataflow.Errorf(dataflow.ReasonTokenInvalid, "page_token: it is damaged")
	}
	return int(n), int64(binary.BigEndian.Uint64(b[8:])), nil
}

func appendQueryPlace(from int, now int64) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(from))
	return binary.BigEndian.AppendUint64(b, uint64(now))
}

// execute reads what the query needs and runs it, within the budget of time and memory (Q3).
func (e *Engine) execute(ctx context.Context, r *reading, q *plan.Query) (*batch.Batch, error) {
	st, err := e.cfg.Catalog.Stage(r.pipeline, q.Table.Name)
	if err != nil {
		return nil, err
	}
	x := q.NewExec(plan.ExecOptions{MaxBytes: e.cfg.MaxQueryBytes})
	began := time.Now()
	push := func(rows *batch.Batch, _ [][]byte) (bool, error) {
		if err := x.Push(rows); err != nil {
			return false, err
		}
		if took := time.Since(began); took > e.cfg.MaxQueryTime {
			return false, dataflow.Errorf(dataflow.ReasonScanLimit, "the query has run for %s, the limit is %s", took.Round(time.Millisecond), e.cfg.MaxQueryTime).
				WithHint("narrow the key in WHERE, or page through a scan").WithMeta("limit", "time")
		}
		return !x.Done(), nil
	}
	if q.Access.Points {
		err = e.points(ctx, r, st, q.Access.Keys, push)
	} else {
		for _, rg := range q.Access.Ranges {
			if err = r.walk(ctx, st, rg.Lo, rg.Hi, push); err != nil || x.Done() {
				break
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return x.Result()
}

// points looks keys up one by one.
func (e *Engine) points(ctx context.Context, r *reading, st *plan.Stage, keys [][]byte, push func(*batch.Batch, [][]byte) (bool, error)) error {
	for len(keys) > 0 {
		part := keys[:min(len(keys), walkRows)]
		keys = keys[len(part):]
		accs := make([][]byte, len(part))
		for i, k := range part {
			var err error
			if accs[i], err = r.get(ctx, st, k); err != nil {
				return err
			}
		}
		rows, _, err := finish(st, part, accs)
		if err != nil {
			return err
		}
		if rows.N == 0 {
			continue
		}
		if more, err := push(rows, nil); err != nil || !more {
			return err
		}
	}
	return nil
}
