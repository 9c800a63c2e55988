package statequery

import (
	"context"

	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// Table is a table prepared for being read. It is immutable, for any number of requests; the Catalog keeps one per table.
type Table struct {
	stage *plan.Stage
	fin   *operator.Finalizer
	// unfed is the state of the only row before any input; nil for a table that can be empty.
	unfed []byte
}

// NewTable prepares the table that a stage keeps.
func NewTable(st *plan.Stage) *Table {
	t := &Table{stage: st, fin: operator.NewFinalizer(st)}
	if st.AlwaysHasRow() {
		t.unfed = agg.NewLayout(st.Aggs).New(nil)
	}
	return t
}

// visible turns the first of keys and their accumulators, nil for none, into the rows that are there, and calls shown for
// the place of each. It returns how many keys it has seen to: those whose rows fit in memory together, one at least.
func (r *reading) visible(ctx context.Context, t *Table, p *batch.Pieces, keys, accs [][]byte, shown func(i int)) (*batch.Batch, int, error) {
	var rows *batch.Batch
	var there batch.Bitmap
	fin := t.fin.Until(r.interrupt(ctx))
	n, err := p.Next(len(keys), func(n int) (fits bool, err error) {
		rows, there, fits, err = fin.Batch(keys[:n], accs[:n], r.pipeline.OnError)
		return fits, err
	})
	if err != nil {
		return nil, 0, err
	}
	sel := make([]int32, 0, rows.N)
	for i := range rows.N {
		if there.Get(i) {
			sel = append(sel, int32(i))
			shown(i)
		}
	}
	if len(sel) < rows.N {
		rows = rows.Select(sel)
	}
	return rows, n, nil
}
