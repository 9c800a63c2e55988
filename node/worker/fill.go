package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
)

const (
	// fillFirst is how many entries of a table are filled in before its tasks start. Small tables are whole then. The others
	// are filled on all processors beside the tasks; keys that are not there yet begin as partials, or are looked up.
	fillFirst = 4096
	// headStart is how long the tasks wait at most for the filling of tables whose keys cannot begin as partials: they are whole
	// sooner when nothing else wants the processors, and until then each row costs a look-up. Not more: whoever waits for new
	// rows would notice.
	headStart = 2 * time.Second
	// fillPatience is how long a checkpoint waits for the filling of tables whose keys begin as partials. Why not less: ten
	// million keys are filled in in three to five seconds. Why not more: nothing is committed meanwhile.
	fillPatience = 5 * time.Second
)

// filling is a table that is being filled from its shard's base.
type filling struct {
	table *state.Table
	stage dataflow.StageID
	shard dataflow.ShardID
	view  *state.View
	// warming is closed when the filling ends.
	warming <-chan struct{}
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
				if _, kept := run.kept[tableRef{stage.ID, s.ID}]; kept {
					view.Release()
					continue
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
				f.warming = f.table.Warming()
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
	slices.SortStableFunc(large, func(a, b *filling) int { return cmp.Compare(a.rank(), b.rank()) })
	ctx, cancel := context.WithCancel(context.Background())
	r.fillers.cancel = cancel
	r.fillers.working.Store(true)
	r.fillers.done.Go(func() {
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

// rank says which tables are filled first: those whose tasks wait for it.
func (f *filling) rank() int {
	if f.table.HasPartials() {
		return 1
	}
	return 0
}

// awaitFilling waits until the tables are filled whose keys cannot begin as partials, for headStart at most. The error is ctx's.
func awaitFilling(ctx context.Context, large []*filling) error {
	timer := time.NewTimer(headStart)
	defer timer.Stop()
	for _, f := range large {
		if f.table.HasPartials() || f.warming == nil {
			continue
		}
		select {
		case <-f.warming:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
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
