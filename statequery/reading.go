package statequery

import (
	"context"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// reading is one request's view of a pipeline: a committed cut, or the live tables. One goroutine uses it.
type reading struct {
	e        *Engine
	pipeline *Pipeline
	cut      *dataflow.CheckpointCommit
	named    bool               // the request named the cut, or its page token did
	live     Live               // nil for a committed read
	covered  dataflow.Positions // of a live read
	views    []View             // by shard, opened when first used
	// hot may have values of the cut in memory, for a committed read; nil when no incarnation runs. Set when asked is.
	hot   Live
	asked bool
	// isolation is what a Reader's request asked for; a live read of a pipeline that does not run is of a cut.
	isolation dataflow.Isolation
	began     time.Time
	wait      time.Duration // what the request says of waiting, also for the cut to come on a shard; 0 = nothing
	promised  bool          // the request has a token that the cut must cover
	timed     bool          // it fails when it is overtime; a scan ends its page instead
}

func (e *Engine) committed(p *Pipeline, c *dataflow.CheckpointCommit, named bool) *reading {
	return &reading{e: e, pipeline: p, cut: c, named: named, began: time.Now()}
}

// view returns the request's cut on a shard.
func (r *reading) view(ctx context.Context, shard dataflow.ShardID) (View, error) {
	if r.views == nil {
		r.views = make([]View, r.e.cfg.Shards)
	}
	if v := r.views[shard]; v != nil {
		return v, nil
	}
	if _, bounded := ctx.Deadline(); !bounded || r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = r.e.bound(ctx, r.wait)
		defer cancel()
	}
	v, err := r.e.cfg.Store.View(ctx, shard, r.pipeline.UID, r.cut.ID)
	if dataflow.ReasonOf(err) == dataflow.ReasonPipelineNotFound {
		return nil, deleted(r.pipeline)
	}
	if err != nil {
		if !r.named && dataflow.ReasonOf(err) == dataflow.ReasonCheckpointExpired {
			// Who has not chosen a cut need not care that this one was overtaken: the next try reads a newer one.
			err = dataflow.Errorf(dataflow.ReasonNoCommittedCheckpoint, "cut %d of pipeline %s was superseded before shard %d could be read", r.cut.ID, r.pipeline.Name, shard).
				WithRetry(recoverRetry)
		} else if r.promised && dataflow.ReasonOf(err) == dataflow.ReasonNoCommittedCheckpoint {
			err = r.e.elsewhere(dataflow.Errorf(dataflow.ReasonTokenNotReached, "node %s has not had checkpoint %d of pipeline %s on shard %d in time: %w", r.e.cfg.Node, r.cut.ID, r.pipeline.Name, shard, err)).
				WithMeta("pipeline", r.pipeline.Name)
		}
		return nil, err
	}
	r.views[shard] = v
	return v, nil
}

// close releases the views.
func (r *reading) close() {
	for _, v := range r.views {
		if v != nil {
			v.Release()
		}
	}
	r.views = nil
}

// get returns a copy of the accumulator of a key, nil when there is none. A table that always has one row has it before
// any input.
func (r *reading) get(ctx context.Context, t *Table, key []byte) ([]byte, error) {
	v, ok, err := r.find(ctx, t, key, nil)
	if err != nil {
		return nil, err
	}
	if !ok {
		return t.unfed, nil
	}
	return v, nil
}

// find appends the accumulator of a key to dst.
func (r *reading) find(ctx context.Context, t *Table, key, dst []byte) ([]byte, bool, error) {
	shard := r.e.shardOf(key)
	if r.live != nil {
		return r.live.Get(t.stage.ID, shard, key, dst)
	}
	if hot := r.inMemory(); hot != nil {
		if val, found, known := hot.Committed(t.stage.ID, shard, r.cut.ID, key, dst); known {
			return val, found, nil
		}
	}
	view, err := r.view(ctx, shard)
	if err != nil {
		return dst, false, err
	}
	return view.Get(t.stage.ID, key, dst)
}

// inMemory returns what may have values of the cut in memory, or nil.
func (r *reading) inMemory() Live {
	if !r.asked {
		r.hot, r.asked = r.e.cfg.Store.Live(r.pipeline.UID), true
	}
	return r.hot
}

// findAll answers keys of a shard.
func (r *reading) findAll(ctx context.Context, t *Table, shard dataflow.ShardID, keys *dataflow.Lookups) error {
	if r.live != nil {
		return r.live.GetAll(t.stage.ID, shard, keys)
	}
	if hot := r.inMemory(); hot != nil {
		hot.CommittedAll(t.stage.ID, shard, r.cut.ID, keys)
	}
	if len(keys.Open()) == 0 {
		return nil
	}
	view, err := r.view(ctx, shard)
	if err != nil {
		return err
	}
	return view.GetAll(t.stage.ID, keys)
}

// overtime reports whether the reading has taken longer than a request may.
func (r *reading) overtime() bool { return time.Since(r.began) > r.e.cfg.MaxTime }

// interrupt returns what ends the evaluation of expressions for a request.
func (r *reading) interrupt(ctx context.Context) func() error {
	return func() error {
		switch {
		case ctx.Err() != nil:
			return deadline(ctx)
		case r.timed && r.overtime():
			return r.timeLimit()
		}
		return nil
	}
}

func (r *reading) timeLimit() error {
	return dataflow.Errorf(dataflow.ReasonScanLimit, "the query has run for %s, the limit is %s", time.Since(r.began).Round(time.Millisecond), r.e.cfg.MaxTime).
		WithHint("narrow the key in WHERE, or page through a scan").WithMeta("limit", "time")
}

func deadline(ctx context.Context) error {
	return dataflow.Errorf(dataflow.ReasonDeadline, "the request ended before its answer was complete: %w", context.Cause(ctx))
}
