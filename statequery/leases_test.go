package statequery_test

import (
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

func TestScansOfACutShareOneLease(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	scan := func(token string, limit int) (string, dataflow.Cut) {
		_, next, cut, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: limit, Token: token}, dataflow.ReadOptions{})
		if err != nil {
			t.Error(err)
		}
		return next, cut
	}
	const scans = 50
	next := make([]string, scans)
	var first dataflow.Cut
	var wg sync.WaitGroup
	for i := range scans {
		wg.Go(func() {
			var cut dataflow.Cut
			if next[i], cut = scan("", 1); i == 0 {
				first = cut
			}
		})
	}
	wg.Wait()
	if n := w.leases(); n != 1 {
		t.Fatalf("%d leases of one cut", n)
	}
	w.commit()
	w.commit()
	w.commit() // the cut is there by its lease only
	if last, _ := scan(next[1], 100); last != "" {
		t.Fatalf("the first scan has not ended: %q", last)
	}
	for i := range 10 {
		w.pass(50 * time.Second)
		var cut dataflow.Cut
		if next[0], cut = scan(next[0], 1); cut.Checkpoint != first.Checkpoint || next[0] == "" && i < 3 {
			t.Fatalf("page %d is of cut %d, the first of %d", i, cut.Checkpoint, first.Checkpoint)
		}
		if next[0] == "" {
			break
		}
	}
	w.pass(2 * time.Minute)
	if n := w.leases(); n != 0 {
		t.Errorf("%d leases are left when nobody has read for two minutes", n)
	}
	refusedScan(t, e, next[2])
}

// refusedScan checks that the cut of a page token has gone.
func refusedScan(t *testing.T, e *statequery.Engine, token string) {
	t.Helper()
	_, _, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 1, Token: token}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonCheckpointExpired)
}
