package statequery

import (
	"context"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// Engine answers reads. It is safe for concurrent use and holds no state of its own but the leases of its scans, who is
// reading, and what watched tables have changed lately. EndWatches ends its goroutines.
type Engine struct {
	cfg    Config
	leases *sharedLeases

	fresh   freshness
	watches *watchHub
	queries *gate // queries and scans
	short   *gate // look-ups of few keys, which do not wait behind anything that takes long
	long    *gate // look-ups of many keys, or with large answers

	memories sync.Pool // of *lookupMemory
}

// New returns an engine.
func New(cfg Config) *Engine {
	cfg.ensureDefaults()
	short, long := max(shortBytes, cfg.TotalBytes/shortShare), max(cfg.MaxBytes, cfg.TotalBytes/longShare)
	e := &Engine{
		cfg: cfg, leases: newSharedLeases(cfg.Leases, cfg.Now),
		queries: newGate("queries and scans", max(cfg.MaxBytes, cfg.TotalBytes-short-long)),
		short:   newGate("look-ups of few keys", short), long: newGate("look-ups of many keys", long),
	}
	e.fresh.catchUp, e.fresh.now = cfg.CatchUp, cfg.Now
	e.watches = newWatchHub(e)
	return e
}

// What part of the memory is for look-ups of several keys: a sixteenth for short ones, a sixth for the others.
const (
	shortShare = 16
	longShare  = 6
)

// WaitCommitted waits until a committed cut of the pipeline covers want, and returns it. It waits as long as ctx allows.
// The error is TOKEN_NOT_REACHED when ctx ends first, or when the pipeline commits nothing any more.
func (e *Engine) WaitCommitted(ctx context.Context, pipeline string, want dataflow.Positions) (dataflow.Cut, error) {
	p, err := e.cfg.Catalog.Pipeline(pipeline)
	if err != nil {
		return dataflow.Cut{}, err
	}
	if p, err = e.waitCommitted(ctx, p, relevant(p, want), 0, untilDone); err != nil {
		return dataflow.Cut{}, err
	}
	return e.NewestCut(p), nil
}

// untilDone is a wait that the context alone ends.
const untilDone time.Duration = 1<<63 - 1

// WaitProcessed waits until the live tables of the pipeline cover want, through recoveries, and returns the cut of a live
// read. It waits as long as ctx allows; then the error is TOKEN_NOT_REACHED. A pipeline that does not run is
// PIPELINE_STATE.
func (e *Engine) WaitProcessed(ctx context.Context, pipeline string, want dataflow.Positions) (dataflow.Cut, error) {
	for {
		changed := e.cfg.Catalog.Changed()
		p, err := e.cfg.Catalog.Pipeline(pipeline)
		if err != nil {
			return dataflow.Cut{}, err
		}
		r, err := e.openLive(ctx, p, relevant(p, want), untilDone)
		switch {
		case err == nil && r != nil:
			return r.describe(), nil
		case err == nil:
			e := dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s and processes nothing", p.Name, p.State).
				WithHint("weir pipeline resume %s", p.Name).WithMeta("pipeline", p.Name)
			if p.State == dataflow.PipelineFailed { // resumed as it is it may fail there again
				e = e.WithHint("weir pipeline describe %s says why, and how it goes on", p.Name)
			}
			return dataflow.Cut{}, e
		case dataflow.ReasonOf(err) != dataflow.ReasonPipelineRecovering:
			return dataflow.Cut{}, err
		}
		select { // a recovery ends with a change of the pipeline, a moment after the tasks run
		case <-changed:
		case <-time.After(recoverRetry):
		case <-ctx.Done():
			return dataflow.Cut{}, notReached(p, p.Newest().Positions, relevant(p, want), "processed")
		}
	}
}

// shardOf returns the shard that owns an encoded key.
func (e *Engine) shardOf(key []byte) dataflow.ShardID {
	return e.shardOfHash(dataflow.HashKey(key))
}

// shardOfHash is shardOf for who has the key's hash.
func (e *Engine) shardOfHash(hash uint64) dataflow.ShardID {
	return dataflow.ShardOf(dataflow.KeyGroupOf(hash), e.cfg.Shards)
}
