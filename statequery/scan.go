package statequery

import (
	"context"
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Scan returns a page of rows in key order, and the token of the next page, "" at the end or when as many rows have come as
// are wanted. A page can end before its limit,
// even without rows, when that many bytes or that much time have been spent on it.
func (e *Engine) Scan(ctx context.Context, pipeline, table string, sr dataflow.ScanRange, p dataflow.Page, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	fail := func(err error) (*batch.Batch, string, dataflow.Cut, error) { return nil, "", dataflow.Cut{}, err }
	limit, err := pageLimit(p, defaultPage)
	if err != nil {
		return fail(err)
	}
	if p.AtMost > 0 {
		limit = int(min(int64(limit), p.AtMost))
	}
	pl, t, err := e.tableFor(ctx, pipeline, table, o)
	if err != nil {
		return fail(err)
	}
	lo, hi, err := keyRange(t.stage, sr)
	if err != nil {
		return fail(err)
	}
	pg, err := e.page(p.Token, requestHash("scan", pipeline, table, string(lo), string(hi), o.Isolation.String()))
	if err != nil {
		return fail(err)
	}
	if pg.token != nil {
		lo = after(pg.token.After)
	}
	r, err := e.admit(ctx, e.queries, e.cfg.MaxBytes, pl, func(p *Pipeline) (*reading, error) { return pg.open(ctx, p, o) })
	if err != nil {
		return fail(err)
	}
	defer e.queries.leave(e.cfg.MaxBytes)
	defer r.close()
	rows, last, err := r.scan(ctx, t, lo, hi, limit)
	if err != nil {
		return fail(err)
	}
	next := ""
	if last == nil || p.AtMost > 0 && int64(rows.N) >= p.AtMost {
		pg.end(ctx, r)
	} else if next, err = pg.next(ctx, r, last); err != nil {
		return fail(err)
	}
	return rows, next, r.describe(), nil
}

// scan reads up to limit rows in key order. last is the key after which to go on; nil when nothing is left.
func (r *reading) scan(ctx context.Context, t *Table, lo, hi []byte, limit int) (out *batch.Batch, last []byte, err error) {
	w, err := r.walk(ctx, t, lo, hi, limit+1)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	out = batch.NewBatch(t.stage.Schema)
	bytes := 0
	for {
		rows, keys, err := w.next(ctx, limit+1-out.N) // one more than fits tells whether this page is the last
		if err != nil || rows == nil {
			return out, nil, err
		}
		for i := range rows.N {
			if out.N == limit || bytes >= pageBytes {
				return out, last, nil
			}
			for c, v := range out.Cols {
				v.AppendFrom(rows.Cols[c], i)
			}
			out.N++
			bytes += rows.RowBytes(i)
			last = keys[i]
		}
		if last = w.last; (bytes >= pageBytes || r.overtime()) && !w.ended() {
			return out, last, nil
		}
	}
}
