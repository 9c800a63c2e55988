package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/raftlog/meta"
)

// MergePolicy says when the layers of a pipeline on a shard are folded into the store: when one of the bounds is met by those
// that can be, the layers up to the release floor. Folding costs the write of each of their keys, an SST and its syncs, and
// later a compaction, which reads and writes again what the store has in the same range: of keys that are spread evenly, all of
// it. Not folding costs memory, where each key is once, a longer look-up, and a longer replay after a restart, which reads each
// delta. Zero fields take the defaults.
type MergePolicy struct {
	Bytes  int64         // of deltas, or storeShare times what the store has when that is more (maxLogged); default 32 MiB
	Layers int           // in memory; default 48
	Age    time.Duration // since the last fold, when there is anything to fold; default 30 s
	Every  time.Duration // how often the bounds are looked at; default 1 s
}

const (
	// storeShare is how many times as many bytes of deltas as the store has wait for a fold: what a fold and the compactions
	// after it write is about twice the store, whatever part of it has changed.
	storeShare = 4
	// maxLogged bounds how much waits because the store is large. Eight shards then have a gigabyte of deltas to replay after a
	// restart, two or three seconds on two processors.
	maxLogged = 128 << 20
	// maxHeld is how many bytes of layers a shard's pipeline holds in memory before they are folded whatever else there is.
	maxHeld = 64 << 20
	// busyShare is how many times as much waits while the pipeline has better to do: its tables are being filled from the
	// same store, until when each row costs a look-up, or rows wait that it is late with. A fold and the compactions after it
	// take the processor from that.
	busyShare = 4
	// shortBytes is how much of a shard is worth a fold when memory is short: a fold and its syncs take some milliseconds.
	shortBytes = 1 << 20
	// lateAfter is how old the next row must be for a pipeline to be late. Why not less: under load, rows of a checkpoint's
	// length wait now and then.
	lateAfter = 2 * time.Second
)

// foldable is what can be folded of a pipeline on a shard.
type foldable struct {
	state.Foldable
	store uint64 // bytes of the shard's store
	busy  bool   // the pipeline has better to do
	short bool   // the layers of all shards take more than their part of the memory
}

// due reports whether it is time to fold, age after the last one.
func (m *MergePolicy) due(f foldable, age time.Duration) bool {
	enough := max(m.Bytes, min(storeShare*int64(f.store), maxLogged))
	if f.short && f.Bytes >= shortBytes {
		return true
	}
	if f.busy {
		return f.Logged >= busyShare*enough || f.Bytes >= busyShare*maxHeld
	}
	return f.Layers > 0 && (f.Logged >= enough || f.Bytes >= maxHeld || f.Layers >= m.Layers || age >= m.Age)
}

func (m *MergePolicy) ensureDefaults() {
	m.Bytes = cmp.Or(m.Bytes, 32<<20)
	m.Layers = cmp.Or(m.Layers, 48)
	m.Age = cmp.Or(m.Age, 30*time.Second)
	m.Every = cmp.Or(m.Every, time.Second)
}

// dropTimeout bounds one proposal of the reconciler; what it did not do it tries again.
const dropTimeout = 10 * time.Second

// publisher reconciles the replicas with the meta log: it publishes committed cuts (P5), says which are retained, folds
// layers up to the release floor (P6), and drops what the meta log has dropped (P1: by an entry of the shard's own log).
type publisher struct {
	cfg Config
	// readable is told of each cut that has become readable on a shard; optional.
	readable func(dataflow.ShardID, *dataflow.CheckpointCommit)
	// busy reports whether a pipeline has better to do than to let its layers be folded; optional.
	busy func(dataflow.PipelineUID) bool
	// published holds which cuts the replicas have been told of, per pipeline; used by the publish loop alone.
	published map[dataflow.PipelineUID]cutSet
	// merged holds when a pipeline's layers were last folded on a shard; used by the merge loop alone.
	merged map[mergeKey]time.Time
}

// cutSet tells the readable cuts of a pipeline from others: cuts come at the end only, and a cut that goes is one less.
type cutSet struct {
	newest dataflow.CheckpointID
	count  int
}

type mergeKey struct {
	shard    dataflow.ShardID
	pipeline dataflow.PipelineUID
}

func newPublisher(cfg Config) *publisher {
	return &publisher{cfg: cfg, published: make(map[dataflow.PipelineUID]cutSet), merged: make(map[mergeKey]time.Time)}
}

func (p *publisher) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.publishLoop(ctx) })
	g.Go(func() error { return p.mergeLoop(ctx) })
	return g.Wait()
}

// dropRetry is when drops that did not succeed are tried again.
const dropRetry = time.Second

func (p *publisher) publishLoop(ctx context.Context) error {
	for {
		changed := p.cfg.Meta.Changed()
		st := p.cfg.Meta.State()
		for _, pl := range st.PipelineList() {
			if err := p.publish(pl); err != nil {
				return err
			}
		}
		var again <-chan time.Time
		if !p.drop(ctx, st) {
			again = time.After(dropRetry)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// publish hands the cuts of a pipeline that are new to every replica, in order, and says which are kept.
func (p *publisher) publish(pl *meta.Pipeline) error {
	set := cutSet{newest: pl.Newest().ID, count: len(pl.Cuts)}
	last, known := p.published[pl.UID]
	if known && set == last {
		return nil
	}
	p.cfg.Phases.Enter(phase.Publish)
	defer p.cfg.Phases.Leave(phase.Publish)
	keep := make([]dataflow.CheckpointID, len(pl.Cuts))
	for i, c := range pl.Cuts {
		keep[i] = c.ID
	}
	for _, s := range p.cfg.Shards {
		if !known && set.count > 0 {
			// After a start there are layers to merge, and tables to be filled. Whether it is busy the merge loop sees soon.
			s.Replica.SetBusy(pl.UID, true)
		}
		for _, c := range pl.Cuts {
			if known && c.ID <= last.newest {
				continue
			}
			err := s.Replica.Publish(c)
			if dataflow.ReasonOf(err) == dataflow.ReasonCorrupt {
				// Readers of the cut get this error; other pipelines have nothing to do with it.
				p.cfg.Logger.Error("a cut is damaged and is not served", "pipeline", pl.Name, "cut", c.ID, "shard", s.ID, "error", err)
				continue
			}
			if err != nil {
				return fmt.Errorf("publish cut %d of pipeline %s on shard %d: %w", c.ID, pl.Name, s.ID, err)
			}
			if p.readable != nil {
				p.readable(s.ID, c)
			}
		}
		s.Replica.SetRetained(pl.UID, keep)
	}
	p.published[pl.UID] = set
	return nil
}

// drop removes what belongs to deleted pipelines and streams, and reports whether all of it is gone.
func (p *publisher) drop(ctx context.Context, st *meta.State) (done bool) {
	p.cfg.Catalog.Forget(st)
	// Replicas have been told of the cuts of pipelines that their logs may never have heard of.
	var gone []dataflow.PipelineUID
	for uid := range p.published {
		if st.PipelineDeleted(uid) {
			gone = append(gone, uid)
		}
	}
	done = true
	for _, s := range p.cfg.Shards {
		if !s.Log.IsLeader() {
			continue // the one that leads does
		}
		uids := append(s.Log.Pipelines(), gone...)
		slices.Sort(uids)
		for _, uid := range slices.Compact(uids) {
			if st.PipelineDeleted(uid) && !p.attempt(ctx, "drop pipeline", s, uint64(uid), func(ctx context.Context) error { return s.Log.DropPipeline(ctx, uid) }) {
				done = false
			}
		}
		for _, id := range s.Log.Streams() {
			if st.StreamDropped(id) && !p.attempt(ctx, "drop stream", s, uint64(id), func(ctx context.Context) error { return s.Log.DropStream(ctx, id) }) {
				done = false
			}
		}
	}
	if done {
		for _, uid := range gone {
			delete(p.published, uid)
		}
	}
	return done
}

// attempt makes a proposal that will be made again when it does not succeed, which it reports.
func (p *publisher) attempt(ctx context.Context, what string, s *Shard, id uint64, propose func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	err := propose(ctx)
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn(what, "shard", s.ID, "id", id, "error", err)
	}
	return err == nil
}

func (p *publisher) mergeLoop(ctx context.Context) error {
	tick := time.NewTicker(p.cfg.Merge.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		st := p.cfg.Meta.State()
		maps.DeleteFunc(p.merged, func(k mergeKey, _ time.Time) bool { return st.PipelineDeleted(k.pipeline) })
		p.countLayers()
		for _, s := range p.cfg.Shards {
			stats := s.Replica.Stats()
			for _, ps := range stats.Pipelines {
				pl := st.Pipelines[ps.Pipeline]
				if pl == nil {
					continue // it will be dropped
				}
				f := foldable{Foldable: s.Replica.Foldable(ps.Pipeline, pl.Floor().ID), store: stats.DiskBytes,
					busy: p.busy != nil && p.busy(ps.Pipeline), short: p.cfg.Memory.LayersExceeded()}
				s.Replica.SetBusy(ps.Pipeline, f.busy && !f.short)
				if err := p.mergeIfDue(ctx, s, pl, f); err != nil {
					return err
				}
			}
		}
	}
}

// countLayers tells the budget what the layers of all replicas take.
func (p *publisher) countLayers() {
	var n int64
	for _, s := range p.cfg.Shards {
		for _, ps := range s.Replica.Stats().Pipelines {
			n += ps.LayerMemory
		}
	}
	p.cfg.Memory.SetLayers(n)
}

func (p *publisher) mergeIfDue(ctx context.Context, s *Shard, pl *meta.Pipeline, f foldable) error {
	k := mergeKey{s.ID, pl.UID}
	last, ok := p.merged[k]
	if !ok {
		last = time.Now()
		p.merged[k] = last
	}
	base, merged := s.Replica.Base(pl.UID)
	if merged {
		p.settle(ctx, s, pl.UID, base.Ref)
	}
	floor := pl.Floor()
	if floor.ID <= base.Checkpoint || !p.cfg.Merge.due(f, time.Since(last)) {
		return nil
	}
	p.cfg.Phases.Enter(phase.Merge)
	defer p.cfg.Phases.Leave(phase.Merge)
	ref, err := s.Replica.Merge(ctx, pl.UID, floor.ID)
	switch dataflow.ReasonOf(err) {
	case "":
	case dataflow.ReasonNoCommittedCheckpoint, dataflow.ReasonCheckpointNotFound, dataflow.ReasonCheckpointExpired, dataflow.ReasonPipelineNotFound:
		return nil // not here yet, overtaken, or dropped: the next tick sees
	case dataflow.ReasonCorrupt:
		if s.Replica.Err() == nil { // the pipeline's layers, not the store: its readers know
			p.cfg.Logger.Error("layers are damaged and cannot be folded", "pipeline", pl.Name, "shard", s.ID, "error", err)
			p.merged[k] = time.Now()
			return nil
		}
		return fmt.Errorf("fold pipeline %s on shard %d: %w", pl.Name, s.ID, err)
	default:
		if ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return ctx.Err()
		}
		return fmt.Errorf("fold pipeline %s on shard %d: %w", pl.Name, s.ID, err)
	}
	p.merged[k] = time.Now()
	p.settle(ctx, s, pl.UID, ref)
	return nil
}

// settle tells the shard's log that the store holds the pipeline's deltas up to ref, unless it knows. What an attempt did
// not achieve, the next look at the pipeline does.
func (p *publisher) settle(ctx context.Context, s *Shard, uid dataflow.PipelineUID, ref dataflow.DeltaRef) {
	known, ok := s.Log.Pipeline(uid)
	if !ok || !s.Log.IsLeader() || ref.Compare(known.Settled) <= 0 {
		return
	}
	p.attempt(ctx, "settle deltas", s, uint64(uid), func(ctx context.Context) error { return s.Log.Settle(ctx, uid, ref) })
}
