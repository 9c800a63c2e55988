package statequery_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

// heldStore lets nobody see a cut before open is closed.
type heldStore struct {
	statequery.Store
	open chan struct{}
}

func (s heldStore) View(ctx context.Context, shard dataflow.ShardID, uid dataflow.PipelineUID, cut dataflow.CheckpointID) (statequery.View, error) {
	<-s.open
	return s.Store.View(ctx, shard, uid, cut)
}

func TestAQueryThatWaitedForMemoryReadsTheNewestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.add(g2("a", 1), 1)
		w.commit()
		store := heldStore{Store: w, open: make(chan struct{})}
		e := w.engine(func(c *statequery.Config) { c.Store, c.TotalBytes = store, 1 }) // one query at once
		type answer struct {
			cut dataflow.Cut
			n   int64
			err error
		}
		query := func(to chan answer) {
			rows, _, cut, err := e.Query(context.Background(), "SELECT sum(n) AS n FROM p.counts", dataflow.Page{}, dataflow.ReadOptions{})
			a := answer{cut: cut, err: err}
			if err == nil {
				a.n = rows.Cols[0].Decs[0].Coeff.Int64()
			}
			to <- a
		}
		first, second := make(chan answer, 1), make(chan answer, 1)
		go query(first)
		synctest.Wait()
		go query(second)
		synctest.Wait()
		var newest dataflow.CheckpointID
		w.add(g2("a", 1), 1)
		newest = w.commit()
		for range w.mu.retained - 1 { // the cut that both began with goes
			newest = w.commit()
		}
		close(store.open)
		<-first // its cut was superseded under it: whatever it says
		if a := <-second; a.err != nil || a.cut.Checkpoint != newest || a.n != 2 {
			t.Errorf("cut %d, n = %d, %v; want cut %d, n = 2", a.cut.Checkpoint, a.n, a.err, newest)
		}
		w.unpinned()
	})
}
