package statequery

import (
	"context"
	"slices"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// recoverRetry is when a live read of a recovering pipeline should be tried again.
const recoverRetry = 200 * time.Millisecond

// open resolves what a request reads of a pipeline, and waits for what it asks to be covered. The reading is of the
// deployment and the timeline that p is of. The caller closes it.
func (e *Engine) open(ctx context.Context, p *Pipeline, o dataflow.ReadOptions) (*reading, error) {
	if o.MaxStaleness > 0 {
		return e.openFresh(ctx, p, o)
	}
	return e.openAny(ctx, p, o)
}

// openAny is open without regard to staleness.
func (e *Engine) openAny(ctx context.Context, p *Pipeline, o dataflow.ReadOptions) (*reading, error) {
	after := dataflow.CheckpointID(0)
	if o.Session != nil {
		if err := checkSession(p, o.Session); err != nil {
			return nil, err
		}
		after = o.Session.Checkpoint
	}
	want := relevant(p, o.Min)
	if o.Isolation == dataflow.ReadUncommitted {
		if o.Checkpoint != nil {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "checkpoint_id: an uncommitted read has no checkpoint").WithHint("read committed, or leave checkpoint_id out")
		}
		// The answer's cut names the newest committed one, which must not go back either (G3).
		p, err := e.waitCommitted(ctx, p, nil, after, o.MaxWait)
		if err != nil {
			return nil, err
		}
		if r, err := e.openLive(ctx, p, want, o.MaxWait); r != nil || err != nil {
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
		return e.committed(p, c, true), nil
	}
	p, err := e.waitCommitted(ctx, p, want, after, o.MaxWait)
	if err != nil {
		return nil, err
	}
	r := e.committed(p, p.Newest(), false)
	r.wait, r.promised = o.MaxWait, len(want) > 0 || o.Session != nil
	return r, nil
}

// bound limits a wait to what the request allows.
func (e *Engine) bound(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait <= 0 {
		wait = e.cfg.MaxWait
	}
	return context.WithTimeout(ctx, wait)
}

// runs returns the live tables of the pipeline's incarnation, or nil.
func (e *Engine) runs(p *Pipeline) Live {
	live := e.cfg.Store.Live(p.UID)
	if live == nil || live.Incarnation() < p.Incarnation {
		return nil
	}
	return live
}

// A pipeline that was just deployed has no tasks for a few milliseconds. It is not recovering from anything, and whoever
// deployed it has been told that it is there: so a live read waits for them, looking every firstRunLook. Not for longer than
// firstRunWait: then something is wrong, and its caller should hear so.
const (
	firstRunWait = time.Second
	firstRunLook = 5 * time.Millisecond
)

// awaitFirstRun waits for the tasks of a pipeline in its first incarnation that has committed nothing yet. It returns nil
// when they do not come. The error is DEADLINE when ctx ends first, or says that the pipeline was deleted.
func (e *Engine) awaitFirstRun(ctx context.Context, p *Pipeline) (Live, error) {
	timer := time.NewTimer(firstRunWait)
	defer timer.Stop()
	tick := time.NewTicker(firstRunLook)
	defer tick.Stop()
	for {
		if live := e.runs(p); live != nil {
			return live, nil
		}
		if _, err := e.again(p); err != nil {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, deadline(ctx)
		}
	}
}

// openLive returns a reading of the live tables that cover want, for which it waits; nil when the pipeline does not run,
// so that its committed rows answer.
func (e *Engine) openLive(ctx context.Context, p *Pipeline, want dataflow.Positions, wait time.Duration) (*reading, error) {
	if !p.State.Active() {
		return nil, nil
	}
	live := e.runs(p)
	if live == nil && p.Incarnation == 1 && p.Newest().ID == 0 {
		var err error
		if live, err = e.awaitFirstRun(ctx, p); err != nil {
			return nil, err
		}
	}
	if live == nil {
		return nil, e.notLive(p)
	}
	r := &reading{e: e, pipeline: p, cut: p.Newest(), live: live, began: time.Now()}
	if len(want) == 0 {
		r.covered = covers(live.Covered(ctx), r.cut.Positions)
		return r, nil
	}
	ctx, cancel := e.bound(ctx, wait)
	defer cancel()
	covered, err := live.Processed(ctx, want)
	switch {
	case err == nil:
		r.covered = covered
		return r, nil
	case ctx.Err() != nil:
		return nil, notReached(p, r.cut.Positions, want, "processed")
	}
	return nil, e.notLive(p) // the incarnation has ended
}

// covers returns what the tables of an incarnation cover that is known to cover live: no less than the newest cut, which
// they or their base are past.
func covers(live, newest dataflow.Positions) dataflow.Positions {
	if live.Covers(newest) {
		return live
	}
	if newest.Covers(live) {
		return newest
	}
	both := live.Clone()
	both.Advance(newest)
	return both
}

// notLive says why a pipeline that was to run has no live tables.
func (e *Engine) notLive(p *Pipeline) error {
	if _, err := e.again(p); err != nil {
		return err
	}
	return dataflow.Errorf(dataflow.ReasonPipelineRecovering, "pipeline %s is %s and has no live state at this moment", p.Name, p.State).
		WithHint("try again, or read committed").WithRetry(recoverRetry).WithMeta("pipeline", p.Name)
}

// relevant returns the part of positions that is about streams the pipeline reads.
func relevant(p *Pipeline, positions dataflow.Positions) dataflow.Positions {
	if len(positions) == 0 {
		return nil
	}
	out := make(dataflow.Positions, len(positions))
	for k, v := range positions {
		if slices.Contains(p.Reads, k.Stream) {
			out[k] = v
		}
	}
	return out
}

// ahead reports whether a session has seen a deployment or a timeline of the pipeline that is newer than p: then this node has
// not heard of it yet.
func ahead(s *dataflow.SessionToken, p *Pipeline) bool {
	return s != nil && (s.Pipeline > p.UID || s.Pipeline == p.UID && s.Timeline > p.Timeline)
}

// catchUp has this node hear of what has become of p, for a session that knows.
func (e *Engine) catchUp(ctx context.Context, p *Pipeline, wait time.Duration) error {
	ctx, cancel := e.bound(ctx, wait)
	defer cancel()
	if err := e.cfg.Catalog.CatchUp(ctx); err != nil {
		return e.elsewhere(dataflow.Errorf(dataflow.ReasonTokenNotReached, "node %s has not learned in time what the session has seen of pipeline %s: %w", e.cfg.Node, p.Name, err)).
			WithMeta("pipeline", p.Name)
	}
	return nil
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
	return timelineChanged("pipeline %s %s since the session token was given", p.Name, what).
		WithHint("read again without the session token")
}

func timelineChanged(format string, args ...any) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonTimelineChanged, format, args...)
}

// again looks the pipeline of a request up once more. The error says that it was deleted or rewound meanwhile.
func (e *Engine) again(p *Pipeline) (*Pipeline, error) {
	now, err := e.cfg.Catalog.Pipeline(p.Name)
	switch {
	case dataflow.ReasonOf(err) == dataflow.ReasonPipelineNotFound:
		return nil, deleted(p)
	case err != nil:
		return nil, err
	case now.UID != p.UID:
		return nil, timelineChanged("pipeline %s was deleted and deployed again meanwhile", p.Name)
	case now.Timeline != p.Timeline:
		return nil, timelineChanged("pipeline %s was rewound meanwhile", p.Name)
	}
	return now, nil
}

func deleted(p *Pipeline) error {
	return dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %s was deleted meanwhile", p.Name).WithMeta("pipeline", p.Name)
}

// waitCommitted returns the pipeline as soon as its newest cut covers want and is at least after.
func (e *Engine) waitCommitted(ctx context.Context, p *Pipeline, want dataflow.Positions, after dataflow.CheckpointID, wait time.Duration) (*Pipeline, error) {
	if reached(p, want, after) {
		return p, nil
	}
	ctx, cancel := e.bound(ctx, wait)
	defer cancel()
	for {
		changed := e.cfg.Catalog.Changed()
		now, err := e.again(p)
		switch {
		case err != nil:
			return nil, err
		case reached(now, want, after):
			return now, nil
		case !now.State.Active() && now.Newest().ID >= after:
			// It commits nothing until somebody resumes it.
			return nil, notReached(now, now.Newest().Positions, want, "committed")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if now.Newest().ID < after {
				return nil, e.elsewhere(dataflow.Errorf(dataflow.ReasonTokenNotReached, "node %s has not seen checkpoint %d of pipeline %s in time, which the session has", e.cfg.Node, after, p.Name)).
					WithMeta("pipeline", p.Name)
			}
			return nil, notReached(now, now.Newest().Positions, want, "committed")
		}
	}
}

func reached(p *Pipeline, want dataflow.Positions, after dataflow.CheckpointID) bool {
	c := p.Newest()
	return c.ID >= after && c.Positions.Covers(want)
}

func notReached(p *Pipeline, have, want dataflow.Positions, what string) error {
	var missing uint64
	for k, v := range want {
		if v > have[k] {
			missing += uint64(v - have[k])
		}
	}
	in, hint := "in time", "wait longer"
	if !p.State.Active() {
		in, hint = "and is "+p.State.String(), "weir pipeline resume "+p.Name
	}
	return dataflow.Errorf(dataflow.ReasonTokenNotReached, "pipeline %s has not %s the %d rows up to the token %s", p.Name, what, missing, in).
		WithHint("%s", hint).WithMeta("pipeline", p.Name)
}
