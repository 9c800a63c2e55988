package statequery

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// How stale an answer is, a node can say only of what it has heard: one that is cut off does not know what the others have
// acknowledged meanwhile, and a lag that it measures by its own logs is too small. So who asks for max_staleness has the
// node catch up with the group first, unless it has done so lately enough.

const (
	// catchUpTime bounds that. Longer than a busy group needs; not much longer, because another node may answer at once.
	catchUpTime = 2 * time.Second
	// watchFreshEvery is how often a watch looks at the least whether it is fresh enough.
	watchFreshEvery = 100 * time.Millisecond
)

// freshness knows up to when this node has heard of everything that the group has acknowledged. It is safe for concurrent use.
type freshness struct {
	catchUp func(context.Context) error // nil: this node is the whole group
	now     func() int64                // µs since 1970
	mu      struct {
		sync.Mutex
		until int64       // everything that was acknowledged before is known here
		try   *catchingUp // under way, for all who need it; nil = none
	}
}

type catchingUp struct {
	began int64
	done  chan struct{} // closed when err is set
	err   error
}

// known returns a time, at least least, before which everything acknowledged is known here. The error says that the others
// could not be asked, or that ctx has ended.
func (f *freshness) known(ctx context.Context, least int64) (int64, error) {
	if f.catchUp == nil {
		return f.now(), nil
	}
	for {
		f.mu.Lock()
		until, try := f.mu.until, f.mu.try
		if until >= least {
			f.mu.Unlock()
			return until, nil
		}
		if try == nil {
			try = &catchingUp{began: f.now(), done: make(chan struct{})}
			f.mu.try = try
			f.mu.Unlock()
			f.run(ctx, try)
		} else {
			f.mu.Unlock()
			select {
			case <-try.done:
			case <-ctx.Done():
				return 0, deadline(ctx)
			}
		}
		switch {
		case try.err != nil:
			return 0, try.err
		case ctx.Err() != nil:
			return 0, deadline(ctx)
		}
	}
}

// run catches up, for this caller and those who wait meanwhile: it goes on when this one has gone.
func (f *freshness) run(ctx context.Context, try *catchingUp) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), catchUpTime)
	defer cancel()
	err := f.catchUp(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.mu.until = max(f.mu.until, try.began)
	}
	try.err, f.mu.try = err, nil
	close(try.done)
}

// hearFor has this node hear of the others before it looks for what a request names, when that must not be stale. A failure is
// reported by openFresh.
func (e *Engine) hearFor(ctx context.Context, o dataflow.ReadOptions) {
	if o.MaxStaleness > 0 {
		_, _ = e.fresh.known(ctx, e.cfg.Now()-o.MaxStaleness.Microseconds())
	}
}

// openFresh is open for a request that says how stale its answer may be. Who has heard of everything up to a moment ago looks
// first; when that is too stale it catches up and looks again, because there may be a newer cut.
func (e *Engine) openFresh(ctx context.Context, p *Pipeline, o dataflow.ReadOptions) (*reading, error) {
	most, least := o.MaxStaleness.Microseconds(), int64(0)
	var stale int64
	if o.Checkpoint != nil {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "max_staleness: checkpoint_id names a cut, however old it is").WithHint("leave one of them out")
	}
	for again := false; ; again = true {
		if least = e.cfg.Now(); !again {
			least -= most
		}
		known, err := e.fresh.known(ctx, least)
		if err != nil {
			return nil, e.tooOld(p, p.Newest(), e.cfg.Now()-e.fresh.last(), o.MaxStaleness, err)
		}
		if p, err = e.again(p); err != nil {
			return nil, err
		}
		r, err := e.openAny(ctx, p, o)
		if again && dataflow.ReasonOf(err) == dataflow.ReasonTokenNotReached {
			return nil, e.tooOld(p, p.Newest(), stale, o.MaxStaleness, nil)
		}
		if err != nil {
			return nil, err
		}
		if stale = r.staleness(known); stale <= most {
			return r, nil
		}
		r.close()
		if again {
			return nil, e.tooOld(p, r.cut, stale, o.MaxStaleness, nil)
		}
		if r.live != nil { // what is known of live tables is a lower bound: have them say more
			o.Min, o.MaxWait = e.ends(p), o.MaxStaleness
		}
	}
}

// last returns the time before which everything acknowledged is known here.
func (f *freshness) last() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.until
}

// staleness returns how long ago, in µs, the oldest row may have been acknowledged that the reading lacks, when everything that
// was acknowledged before known is known here.
func (r *reading) staleness(known int64) int64 {
	cut := dataflow.Cut{Positions: r.cut.Positions, TriggeredAt: r.cut.TriggeredAt}
	if r.live != nil {
		cut.Positions = r.covered
	}
	now := r.e.cfg.Now()
	r.e.measureLag(&cut, r.pipeline.Reads, now)
	return max(now-known, cut.BehindMillis*1000)
}

// ends returns where the streams of a pipeline end.
func (e *Engine) ends(p *Pipeline) dataflow.Positions {
	out := make(dataflow.Positions)
	for _, stream := range p.Reads {
		for s := range e.cfg.Shards {
			k := dataflow.StreamShard{Stream: stream, Shard: dataflow.ShardID(s)}
			out[k] = e.cfg.Streams.End(k)
		}
	}
	return out
}

// tooOld says that a cut is staler than a request allows, and who may have a fresher one. cause is why this node does not know
// what the others have; nil = it knows.
func (e *Engine) tooOld(p *Pipeline, c *dataflow.CheckpointCommit, staleMicros int64, most time.Duration, cause error) error {
	var age int64
	if now := e.cfg.Now(); c.CommittedAt > 0 {
		age = max(0, (now-c.CommittedAt)/1000)
	}
	others := e.others()
	var err *dataflow.Error
	if cause != nil {
		err = dataflow.Errorf(dataflow.ReasonCutTooOld, "node %s has not heard from all of its group within %s, so its newest cut of pipeline %s, checkpoint %d, may be older than that: %w", e.cfg.Node, most, p.Name, c.ID, cause)
		if len(others) > 0 {
			err = err.WithHint("ask %s", strings.Join(others, " or ")).WithMeta("nodes", strings.Join(others, ","))
		}
	} else {
		stale := time.Duration(staleMicros) * time.Microsecond
		err = dataflow.Errorf(dataflow.ReasonCutTooOld, "the newest cut of pipeline %s, checkpoint %d, lacks rows that were acknowledged %s ago; max_staleness is %s", p.Name, c.ID, stale.Round(time.Millisecond), most).
			WithMeta("stale_ms", strconv.FormatInt(staleMicros/1000, 10))
		if p.State.Active() {
			err = err.WithHint("no node has a newer one: try again, allow more, or read uncommitted; a shorter checkpoint.interval makes committed reads fresher")
		} else {
			err = err.WithHint("the pipeline is %s: weir pipeline resume %s", p.State, p.Name)
		}
	}
	return err.WithRetry(recoverRetry).WithMeta("pipeline", p.Name).WithMeta("checkpoint_id", c.ID.String()).
		WithMeta("age_ms", strconv.FormatInt(age, 10)).WithMeta("node", e.cfg.Node)
}

// others names the other nodes that may answer.
func (e *Engine) others() []string {
	if e.cfg.Others == nil {
		return nil
	}
	return e.cfg.Others()
}

// elsewhere adds to TOKEN_NOT_REACHED that this node lags behind others, and which may have what it has not.
func (e *Engine) elsewhere(err *dataflow.Error) *dataflow.Error {
	err = err.WithMeta("behind", e.cfg.Node)
	others := e.others()
	if len(others) == 0 {
		return err.WithHint("wait longer")
	}
	return err.WithHint("wait longer, or ask %s", strings.Join(others, " or ")).WithMeta("nodes", strings.Join(others, ","))
}

// checkWatch ends a watch that has said everything up to a cut, and would now be silent, when that is too stale.
func (e *Engine) checkWatch(ctx context.Context, p *Pipeline, c *dataflow.CheckpointCommit, most time.Duration) error {
	known, err := e.fresh.known(ctx, e.cfg.Now()-most.Microseconds())
	if err != nil {
		if ctx.Err() != nil {
			return deadline(ctx)
		}
		return e.tooOld(p, c, e.cfg.Now()-e.fresh.last(), most, err)
	}
	if p, err = e.sameDeployment(p.Name, p.UID, p.Timeline); err != nil {
		return err
	}
	if p.Newest().ID > c.ID {
		return nil // it is about to be said
	}
	if stale := e.committed(p, p.Newest(), true).staleness(known); stale > most.Microseconds() {
		return e.tooOld(p, c, stale, most, nil)
	}
	return nil
}

// checkLiveWatch is checkWatch for a live watch.
func (e *Engine) checkLiveWatch(ctx context.Context, p *Pipeline, most time.Duration) error {
	p, err := e.sameDeployment(p.Name, p.UID, p.Timeline)
	if err != nil {
		return err
	}
	r, err := e.openFresh(ctx, p, dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted, MaxStaleness: most})
	switch {
	case err == nil:
		r.close()
		return nil
	case dataflow.ReasonOf(err) == dataflow.ReasonPipelineRecovering:
		return e.checkWatch(ctx, p, p.Newest(), most) // what was committed is what there is
	}
	return err
}
