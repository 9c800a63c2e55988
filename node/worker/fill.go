package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
)

const (
	// fillFirst is how many entries of a table are filled in before its tasks start. Small tables are whole then. The others
	// are filled on all processors, for headStart before the tasks start and then beside them; what is not there yet they look up.
	fillFirst = 4096
	// headStart is how long the tasks wait for the filling at most: tables are whole sooner when nothing else wants the
	// processors, and until then each row costs a look-up, unless its key can begin as a partial. Not more: whoever waits for
	// new rows would notice.
	headStart = 2 * time.Second
)

// filling is a table that is being filled from its shard's base.
type filling struct {
	table *state.Table
	stage dataflow.StageID
	shard dataflow.ShardID
	view  *state.View
}

// fill is state.Table.FillFrom.
func (f *filling) fill(ctx context.Context, limit int) (n int, more bool, err error) {
	return f.table.FillFrom(ctx, f.view, f.stage, limit)
}

// fillers fill the tables of a run while its tasks work.
type fillers struct {
	cancel  context.CancelFunc
	done    sync.WaitGroup
	working atomic.Bool
	filled  chan struct{} // closed when working ends; nil when there was nothing to do
}

// load fences older incarnations in every shard's log, waits until the base can be read there, and fills small tables and the
// beginning of large ones. It returns the tables that are to be filled on.
func (w *Worker) load(ctx context.Context, uid dataflow.PipelineUID, inc dataflow.Incarnation, base *dataflow.CheckpointCommit, run *Running) (keys int, large []*filling, err error) {
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	for _, s := range run.led {
		g.Go(func() error {
			ref := dataflow.DeltaRef{Incarnation: base.Incarnation, Seq: base.Shard(s.ID).Seq}
			if err := s.Log.BeginIncarnation(ctx, uid, inc, ref); err != nil {
				return fmt.Errorf("begin incarnation %d on shard %d: %w", inc, s.ID, err)
			}
			for _, stage := range run.Plan.Stages {
				view, err := s.Replica.Await(ctx, uid, base.ID, w.deleted(uid))
				if err != nil {
					return fmt.Errorf("open the base %d on shard %d: %w", base.ID, s.ID, err)
				}
				f := &filling{table: run.Table(stage.ID, s.ID), stage: stage.ID, shard: s.ID, view: view}
				f.table.Committed(base.ID)
				f.table.BeginFill()
				n, more, err := f.fill(ctx, fillFirst)
				mu.Lock()
				keys += n
				mu.Unlock()
				if err != nil {
					view.Release()
					return fmt.Errorf("load stage %d on shard %d: %w", stage.ID, s.ID, err)
				}
				if !more {
					view.Release()
					continue
				}
				stored, err := view.Stored(stage.ID)
				if err != nil {
					view.Release()
					return fmt.Errorf("load stage %d on shard %d: %w", stage.ID, s.ID, err)
				}
				f.table.Reserve(stored)
				mu.Lock()
				large = append(large, f)
				mu.Unlock()
			}
			return nil
		})
	}
	if err = g.Wait(); err != nil {
		for _, f := range large {
			f.view.Release()
		}
		return keys, nil, err
	}
	return keys, large, nil
}

// fillOn fills the large tables of a run until that is done, memory is short, or the run stops.
func (r *Running) fillOn(large []*filling, logger *slog.Logger) {
	if len(large) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.fillers.cancel = cancel
	r.fillers.working.Store(true)
	r.fillers.filled = make(chan struct{})
	r.fillers.done.Go(func() {
		defer close(r.fillers.filled)
		defer cancel()
		defer r.fillers.working.Store(false)
		began := time.Now()
		var g errgroup.Group
		g.SetLimit(runtime.GOMAXPROCS(0)) // the tasks, of which there are more, get their part
		var mu sync.Mutex
		keys := 0
		for _, f := range large {
			g.Go(func() error {
				defer f.view.Release()
				n, _, err := f.fill(ctx, 0)
				mu.Lock()
				keys += n
				mu.Unlock()
				if err != nil && ctx.Err() == nil {
					// What is missing is looked up in the same store: whoever needs it meets the same damage.
					logger.Error("a table is not filled further", "stage", f.stage, "shard", f.shard, "error", err)
				}
				return nil
			})
		}
		_ = g.Wait() // no error: each was said
		logger.Info("tables are filled", "incarnation", r.Incarnation, "keys", keys, "took", time.Since(began))
	})
}

// awaitFilling waits until the tables are filled, for headStart at most. The error is ctx's.
func (r *Running) awaitFilling(ctx context.Context) error {
	if r.fillers.filled == nil {
		return nil
	}
	timer := time.NewTimer(headStart)
	defer timer.Stop()
	select {
	case <-r.fillers.filled:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// stopFilling ends fillOn and waits for it.
func (r *Running) stopFilling() {
	if r.fillers.cancel != nil {
		r.fillers.cancel()
	}
	r.fillers.done.Wait()
}
