package statequery

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// Get returns the row with the key: a batch of one row, or of none when there is no such row. A key value of TypeUnknown
// is text, to be parsed as the key column's type.
func (e *Engine) Get(ctx context.Context, pipeline, table string, k dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, dataflow.Cut, error) {
	rows, _, cut, err := e.BatchGet(ctx, pipeline, table, []dataflow.Row{k}, o)
	return rows, cut, err
}

// BatchGet returns the rows that exist, in the order of keys, and which of the keys have one. All come from one cut.
func (e *Engine) BatchGet(ctx context.Context, pipeline, table string, keys []dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, []bool, dataflow.Cut, error) {
	if len(keys) > dataflow.MaxBatchGetKeys {
		return nil, nil, dataflow.Cut{}, dataflow.Errorf(dataflow.ReasonTooLarge, "keys: %d given; the limit is %d", len(keys), dataflow.MaxBatchGetKeys)
	}
	r, err := e.open(ctx, pipeline, o)
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	defer r.close()
	st, err := e.cfg.Catalog.Stage(r.pipeline, table)
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	encoded := make([][]byte, len(keys))
	for i, k := range keys {
		if encoded[i], err = encodeKey(st, k); err != nil {
			return nil, nil, dataflow.Cut{}, err
		}
	}
	accs := make([][]byte, len(keys))
	for i, k := range encoded {
		if i%256 == 255 && ctx.Err() != nil {
			return nil, nil, dataflow.Cut{}, deadline(ctx)
		}
		if accs[i], err = r.get(ctx, st, k); err != nil {
			return nil, nil, dataflow.Cut{}, err
		}
	}
	rows, found, err := finish(st, encoded, accs)
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	return rows, found, r.describe(), nil
}

// finish computes the visible rows of keys and accumulators, and says which are there.
func finish(st *plan.Stage, keys, accs [][]byte) (*batch.Batch, []bool, error) {
	rows, visible, err := operator.NewFinalizer(st).Batch(keys, accs)
	if err != nil {
		return nil, nil, err
	}
	found := make([]bool, len(keys))
	sel := make([]int32, 0, len(keys))
	for i := range keys {
		if visible.Get(i) {
			found[i] = true
			sel = append(sel, int32(i))
		}
	}
	if len(sel) < rows.N {
		rows = rows.Select(sel)
	}
	return rows, found, nil
}

func deadline(ctx context.Context) error {
	return dataflow.Errorf(dataflow.ReasonDeadline, "the request ended before its answer was complete: %w", context.Cause(ctx))
}
