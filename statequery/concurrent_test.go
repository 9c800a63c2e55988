package statequery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
)

// TestEveryAnswerIsOfOneCutWhileCutsAreMade reads while rows arrive and cuts are made: the counts of a scan or a query must
// add up to the rows below the positions of the answer's cut, and a session must never go back.
func TestEveryAnswerIsOfOneCutWhileCutsAreMade(t *testing.T) {
	w := newWorld(t, 4)
	w.mu.retained = 1 << 30 // how long a request takes here does not matter
	e := w.engine()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writer sync.WaitGroup
	writer.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			if ctx.Err() != nil {
				return
			}
			for range 10 {
				w.add(g2(strconv.Itoa(rng.IntN(300)), 1), 1)
			}
			w.commit()
		}
	})
	// check adds up the column of an answer.
	check := func(n int64, cut dataflow.Cut) error {
		var below dataflow.Offset
		for _, at := range cut.Positions {
			below += at
		}
		if dataflow.Offset(n) != below {
			return fmt.Errorf("the rows of cut %d add up to %d, its positions to %d", cut.Checkpoint, n, below)
		}
		return nil
	}
	var g errgroup.Group
	for range 2 {
		g.Go(func() error {
			var session *dataflow.SessionToken
			for range 50 {
				rows, _, cut, err := e.Query(ctx, "SELECT sum(n) FROM p.counts", dataflow.Page{}, dataflow.ReadOptions{Session: session})
				if err != nil {
					return err
				}
				n, _ := strconv.ParseInt(text(rows)[0], 10, 64) // NULL before the first row
				if err := check(n, cut); err != nil {
					return err
				}
				if session != nil && cut.Checkpoint < session.Checkpoint {
					return fmt.Errorf("the session went back from %d to %d", session.Checkpoint, cut.Checkpoint)
				}
				session = &cut.Session
			}
			return nil
		})
		g.Go(func() error {
			for range 10 {
				var n int64
				for token := ""; ; {
					rows, next, cut, err := e.Scan(ctx, pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{Limit: 40, Token: token}, dataflow.ReadOptions{})
					if err != nil {
						return err
					}
					for i := range rows.N {
						n += rows.Cols[2].Ints[i]
					}
					if token = next; next == "" {
						if err := check(n, cut); err != nil {
							return err
						}
						break
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	stop()
	writer.Wait()
	w.unpinned()
}
