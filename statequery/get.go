package statequery

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Get returns the row with the key: a batch of one row, or of none when there is no such row. A key value of TypeUnknown
// is text, to be parsed as the key column's type.
func (e *Engine) Get(ctx context.Context, pipeline, table string, k dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, dataflow.Cut, error) {
	p, t, err := e.tableFor(ctx, pipeline, table, o)
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	encoded, err := encodeKey(t.stage, k)
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	r, err := e.open(ctx, p, o)
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	defer r.close()
	rows, err := r.row(ctx, t, encoded, &rowMemory{})
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	if rows == nil {
		rows = batch.NewBatch(t.stage.Schema)
	}
	return rows, r.describe(), nil
}

// BatchGet returns the rows that exist, in the order of keys, and which of the keys have one. All come from one cut.
func (e *Engine) BatchGet(ctx context.Context, pipeline, table string, keys []dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, []bool, dataflow.Cut, error) {
	return e.batchGetOf(ctx, pipeline, table, len(keys), o, func(m *lookupMemory, t *Table) error { return m.encodeRows(t.stage, keys) })
}

// BatchGetColumns is BatchGet of keys given as columns, one per part of the key and in its order. It costs less where a column
// has the type of the part of the key; others are converted, as values of other types are for Get.
func (e *Engine) BatchGetColumns(ctx context.Context, pipeline, table string, keys *batch.Batch, o dataflow.ReadOptions) (*batch.Batch, []bool, dataflow.Cut, error) {
	return e.batchGetOf(ctx, pipeline, table, keys.N, o, func(m *lookupMemory, t *Table) error { return m.encodeColumns(t.stage, keys) })
}

// batchGetOf is BatchGet of n keys, which encode puts into memory.
func (e *Engine) batchGetOf(ctx context.Context, pipeline, table string, n int, o dataflow.ReadOptions, encode func(*lookupMemory, *Table) error) (*batch.Batch, []bool, dataflow.Cut, error) {
	fail := func(err error) (*batch.Batch, []bool, dataflow.Cut, error) { return nil, nil, dataflow.Cut{}, err }
	if n > dataflow.MaxBatchGetKeys {
		return fail(dataflow.Errorf(dataflow.ReasonTooLarge, "keys: %d given; the limit is %d", n, dataflow.MaxBatchGetKeys))
	}
	p, t, err := e.tableFor(ctx, pipeline, table, o)
	if err != nil {
		return fail(err)
	}
	m := e.lookupMemory()
	defer e.forget(m)
	if err := encode(m, t); err != nil {
		return fail(err)
	}
	open := func(p *Pipeline) (*reading, error) { return e.open(ctx, p, o) }
	if n <= 1 {
		r, err := open(p)
		if err != nil {
			return fail(err)
		}
		defer r.close()
		rows, found, err := r.lookUp(ctx, t, m, e.cfg.MaxBytes, false)
		if err != nil {
			return fail(e.tooManyKeys(err))
		}
		return rows, found, r.describe(), nil
	}
	return e.batchGet(ctx, p, t, m, open)
}

// tableFor is table for a request that may be about a deployment which this node has not heard of yet: a session has seen it,
// or what is stale will not do.
func (e *Engine) tableFor(ctx context.Context, pipeline, table string, o dataflow.ReadOptions) (*Pipeline, *Table, error) {
	e.hearFor(ctx, o)
	p, t, err := e.table(pipeline, table)
	if p == nil || !ahead(o.Session, p) {
		return p, t, err
	}
	if err := e.catchUp(ctx, p, o.MaxWait); err != nil {
		return nil, nil, err
	}
	return e.table(pipeline, table)
}

// table resolves the names of a request.
func (e *Engine) table(pipeline, table string) (*Pipeline, *Table, error) {
	p, err := e.cfg.Catalog.Pipeline(pipeline)
	if err != nil {
		return nil, nil, err
	}
	t, err := e.cfg.Catalog.Table(p, table)
	return p, t, err
}
