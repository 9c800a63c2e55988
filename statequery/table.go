package statequery

import (
	"context"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// Table is a table prepared for being read. It is immutable, for any number of requests; the Catalog keeps one per table.
type Table struct {
	plan  *plan.Plan // of its pipeline
	stage *plan.Stage
	fin   *operator.Finalizer
	// unfed is the state of the only row before any input; nil for a table that can be empty.
	unfed []byte
	// values lists the columns that do not belong to the key.
	values []int
}

// NewTable prepares the table that a stage of a plan keeps.
func NewTable(p *plan.Plan, st *plan.Stage) *Table {
	t := &Table{plan: p, stage: st, fin: operator.NewFinalizer(st)}
	for i := range st.Schema {
		if !slices.Contains(st.KeyCols, i) {
			t.values = append(t.values, i)
		}
	}
	if st.AlwaysHasRow() {
		t.unfed = agg.NewLayout(st.Aggs).New(nil)
	}
	return t
}

// rowMemory is what looking up one row takes, to be used again. The zero value is ready; one goroutine uses it.
type rowMemory struct {
	scratch    operator.Scratch
	acc        []byte
	keys, accs [1][]byte
}

// row returns the visible row of a key, or nil. It is valid until the next call with m.
func (r *reading) row(ctx context.Context, t *Table, key []byte, m *rowMemory) (*batch.Batch, error) {
	acc, found, err := r.find(ctx, t, key, m.acc[:0])
	if err != nil {
		return nil, err
	}
	m.acc = acc
	if !found {
		if acc = t.unfed; acc == nil {
			return nil, nil
		}
	}
	m.keys[0], m.accs[0] = key, acc
	rows, there, _, err := t.fin.BatchIn(&m.scratch, m.keys[:], m.accs[:], r.pipeline.OnError)
	if err != nil || !there.Get(0) {
		return nil, err
	}
	return rows, nil
}

// visible is Table.visible for a request.
func (r *reading) visible(ctx context.Context, t *Table, p *batch.Pieces, keys, accs [][]byte, shown func(i int)) (*batch.Batch, int, error) {
	return t.visible(p, keys, accs, r.pipeline.OnError, r.interrupt(ctx), shown)
}

// visible turns the first of keys and their accumulators, nil for none, into the rows that are there, and calls shown for
// the place of each. It returns how many keys it has seen to: those whose rows fit in memory together, one at least.
// interrupt ends it with its error.
func (t *Table) visible(p *batch.Pieces, keys, accs [][]byte, onError dataflow.OnError, interrupt func() error, shown func(i int)) (*batch.Batch, int, error) {
	var rows *batch.Batch
	var there batch.Bitmap
	fin := t.fin.Until(interrupt)
	n, err := p.Next(len(keys), func(n int) (fits bool, err error) {
		rows, there, fits, err = fin.Batch(keys[:n], accs[:n], onError)
		return fits, err
	})
	if err != nil {
		return nil, 0, err
	}
	return shownOf(rows, there, shown), n, nil
}

// shownOf returns the rows that are there, and calls shown for the place of each.
func shownOf(rows *batch.Batch, there batch.Bitmap, shown func(i int)) *batch.Batch {
	hidden := 0
	for i := range rows.N {
		if there.Get(i) {
			shown(i)
		} else {
			hidden++
		}
	}
	if hidden == 0 {
		return rows
	}
	sel := make([]int32, 0, rows.N-hidden)
	for i := range rows.N {
		if there.Get(i) {
			sel = append(sel, int32(i))
		}
	}
	return rows.Select(sel)
}
