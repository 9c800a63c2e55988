package statequery

import (
	"context"
	"slices"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/plan"
)

// Engine answers reads. It is safe for concurrent use and holds no state of its own.
type Engine struct{ cfg Config }

// New returns an engine.
func New(cfg Config) *Engine {
	cfg.ensureDefaults()
	return &Engine{cfg: cfg}
}

// recoverRetry is when a live read of a recovering pipeline should be tried again.
const recoverRetry = 200 * time.Millisecond

// reading is one request's view of a pipeline: a committed cut, or the live tables.
type reading struct {
	e        *Engine
	pipeline *Pipeline
	cut      *dataflow.CheckpointCommit
	live     Live // nil for a committed read
	covered  dataflow.Positions
	views    []View // by shard, opened when first used
}

// open resolves what a request reads, and waits for what it asks to be covered.
func (e *Engine) open(ctx context.Context, name string, o dataflow.ReadOptions) (*reading, error) {
	p, err := e.cfg.Catalog.Pipeline(name)
	if err != nil {
		return nil, err
	}
	if o.Session != nil {
		if err := checkSession(p, o.Session); err != nil {
			return nil, err
		}
	}
	wait := e.cfg.MaxWait
	if o.MaxWait > 0 {
		wait = o.MaxWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	want := relevant(p, o.Min)
	if o.Isolation == dataflow.ReadUncommitted {
		if o.Checkpoint != nil {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "checkpoint_id: an uncommitted read has no checkpoint").WithHint("read committed, or leave checkpoint_id out")
		}
		r, err := e.openLive(ctx, p, want)
		if r != nil || err != nil {
			return r, err
		}
	}
	if o.Checkpoint != nil {
		c, err := e.cfg.Catalog.Cut(p, *o.Checkpoint)
		if err != nil {
			return nil, err
		}
		if !c.Positions.Covers(want) {
			return nil, dataflow.Errorf(dataflow.ReasonTokenNotReached, "checkpoint %d does not cover the token and never will", c.ID)
		}
		return e.committed(p, c), nil
	}
	after := dataflow.CheckpointID(0)
	if o.Session != nil {
		after = o.Session.Checkpoint
	}
	p, err = e.waitCommitted(ctx, p, want, after)
	if err != nil {
		return nil, err
	}
	return e.committed(p, p.Newest()), nil
}

func (e *Engine) committed(p *Pipeline, c *dataflow.CheckpointCommit) *reading {
	return &reading{e: e, pipeline: p, cut: c, views: make([]View, e.cfg.Shards)}
}

// openLive returns a reading of the live tables; nil when the pipeline does not run, so that its committed rows answer.
func (e *Engine) openLive(ctx context.Context, p *Pipeline, want dataflow.Positions) (*reading, error) {
	if !p.State.Active() {
		return nil, nil
	}
	live := e.cfg.Store.Live(p.UID)
	if live == nil || p.State == dataflow.PipelineRecovering && live.Incarnation() != p.Incarnation {
		return nil, recovering(p)
	}
	r := &reading{e: e, pipeline: p, cut: p.Newest(), live: live}
	if len(want) == 0 {
		r.covered = live.Positions()
		return r, nil
	}
	covered, err := live.Processed(ctx, want)
	if err != nil {
		if ctx.Err() != nil {
			return nil, notReached(p, live.Positions(), want, "processed")
		}
		return nil, recovering(p)
	}
	r.covered = covered
	return r, nil
}

func recovering(p *Pipeline) error {
	return dataflow.Errorf(dataflow.ReasonPipelineRecovering, "pipeline %s is recovering and has no live state at this moment", p.Name).
		WithHint("try again, or read committed").WithRetry(recoverRetry).WithMeta("pipeline", p.Name)
}

// relevant returns the part of positions that is about streams the pipeline reads.
func relevant(p *Pipeline, positions dataflow.Positions) dataflow.Positions {
	out := make(dataflow.Positions, len(positions))
	for k, v := range positions {
		if slices.Contains(p.Reads, k.Stream) {
			out[k] = v
		}
	}
	return out
}

// checkSession refuses a session that saw another deployment or another timeline of the pipeline.
func checkSession(p *Pipeline, s *dataflow.SessionToken) error {
	if s.Pipeline == p.UID && s.Timeline == p.Timeline {
		return nil
	}
	what := "was rewound"
	if s.Pipeline != p.UID {
		what = "was deleted and deployed again, or another pipeline answered before,"
	}
	return dataflow.Errorf(dataflow.ReasonTimelineChanged, "pipeline %s %s since the session token was given", p.Name, what).
		WithHint("read again without the session token")
}

// waitCommitted returns the pipeline as soon as its newest cut covers want and is at least after.
func (e *Engine) waitCommitted(ctx context.Context, p *Pipeline, want dataflow.Positions, after dataflow.CheckpointID) (*Pipeline, error) {
	for {
		if c := p.Newest(); c.ID >= after && c.Positions.Covers(want) {
			return p, nil
		}
		changed := e.cfg.Catalog.Changed()
		now, err := e.cfg.Catalog.Pipeline(p.Name)
		if err != nil {
			return nil, err
		}
		if now.UID != p.UID {
			return nil, dataflow.Errorf(dataflow.ReasonTimelineChanged, "pipeline %s was deleted and deployed again meanwhile", p.Name)
		}
		p = now
		if c := p.Newest(); c.ID >= after && c.Positions.Covers(want) {
			return p, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, notReached(p, p.Newest().Positions, want, "committed")
		}
	}
}

func notReached(p *Pipeline, have, want dataflow.Positions, what string) error {
	var missing uint64
	for k, v := range want {
		if v > have[k] {
			missing += uint64(v - have[k])
		}
	}
	hint := "wait longer"
	if !p.State.Active() {
		hint = "the pipeline is " + p.State.String() + "; resume it"
	}
	return dataflow.Errorf(dataflow.ReasonTokenNotReached, "pipeline %s has not %s the %d rows up to the token in time", p.Name, what, missing).
		WithHint("%s", hint).WithMeta("pipeline", p.Name)
}

// WaitCommitted waits until a committed cut of the pipeline covers want, and returns it.
func (e *Engine) WaitCommitted(ctx context.Context, pipeline string, want dataflow.Positions) (dataflow.Cut, error) {
	p, err := e.cfg.Catalog.Pipeline(pipeline)
	if err != nil {
		return dataflow.Cut{}, err
	}
	if p, err = e.waitCommitted(ctx, p, relevant(p, want), 0); err != nil {
		return dataflow.Cut{}, err
	}
	return e.NewestCut(p), nil
}

// WaitProcessed waits until the live tables of the pipeline cover want, and returns the cut of a live read.
func (e *Engine) WaitProcessed(ctx context.Context, pipeline string, want dataflow.Positions) (dataflow.Cut, error) {
	for {
		p, err := e.cfg.Catalog.Pipeline(pipeline)
		if err != nil {
			return dataflow.Cut{}, err
		}
		changed := e.cfg.Catalog.Changed()
		r, err := e.openLive(ctx, p, relevant(p, want))
		switch {
		case err == nil && r != nil:
			return r.describe(), nil
		case err == nil:
			return dataflow.Cut{}, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s and processes nothing", p.Name, p.State)
		case dataflow.ReasonOf(err) != dataflow.ReasonPipelineRecovering:
			return dataflow.Cut{}, err
		}
		select { // a recovery ends with a change of the pipeline
		case <-changed:
		case <-time.After(recoverRetry):
		case <-ctx.Done():
			return dataflow.Cut{}, notReached(p, p.Newest().Positions, relevant(p, want), "processed")
		}
	}
}

// view returns the request's cut on a shard.
func (r *reading) view(ctx context.Context, shard dataflow.ShardID) (View, error) {
	if v := r.views[shard]; v != nil {
		return v, nil
	}
	v, err := r.e.cfg.Store.View(ctx, shard, r.pipeline.UID, r.cut.ID)
	if err != nil {
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

// shardOf returns the shard that owns an encoded key.
func (e *Engine) shardOf(key []byte) dataflow.ShardID {
	return dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(key)), e.cfg.Shards)
}

// get returns a copy of the accumulator of a key, nil when there is none. A table that always has one row has it
// before any input.
func (r *reading) get(ctx context.Context, st *plan.Stage, key []byte) ([]byte, error) {
	v, err := r.find(ctx, st, key)
	if v == nil && err == nil && st.AlwaysHasRow() {
		return agg.NewLayout(st.Aggs).New(nil), nil
	}
	return v, err
}

func (r *reading) find(ctx context.Context, st *plan.Stage, key []byte) ([]byte, error) {
	shard := r.e.shardOf(key)
	if r.live != nil {
		if v, ok := r.live.Get(st.ID, shard, key, nil); ok {
			return v, nil
		}
		return nil, nil
	}
	view, err := r.view(ctx, shard)
	if err != nil {
		return nil, err
	}
	v, ok, err := view.Get(st.ID, key, nil)
	if err != nil || !ok {
		return nil, err
	}
	return v, nil
}
