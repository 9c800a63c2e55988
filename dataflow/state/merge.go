package state

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// Merge folds the layers up to the cut floor, which must be readable, into the store, together with the marker that says
// so (S3, P6). Cuts below floor are CHECKPOINT_EXPIRED from its start, also when it fails. When it returns without an
// error the state at floor is durable, and the caller proposes to the shard's log to settle the deltas up to upTo.
//
// It runs on the caller's goroutine, one merge at a time, and takes about a microsecond per key; reads and deltas go on
// meanwhile. An error leaves everything as it was; when the store has failed, Failed says so. Errors are those of View.
func (r *Replica) Merge(ctx context.Context, pipeline dataflow.PipelineUID, floor dataflow.CheckpointID) (upTo dataflow.DeltaRef, err error) {
	if err := r.acquireMerge(ctx); err != nil {
		return dataflow.DeltaRef{}, err
	}
	defer r.releaseMerge()
	r.mu.Lock()
	c, k, err := r.readableLocked(pipeline, floor)
	if err != nil {
		r.mu.Unlock()
		return dataflow.DeltaRef{}, err
	}
	if l := c.across(k.at); l != nil { // the cut has kept its layers apart
		r.mu.Unlock()
		return dataflow.DeltaRef{}, fmt.Errorf("cut %d is at delta %s, inside the merged layer %s–%s", floor, k.at, l.first, l.last)
	}
	c.expireBelow(floor)
	upTo = k.at
	job := mergeJob{uid: pipeline, chain: c, base: Base{Checkpoint: k.id, Timeline: k.timeline, MetaIndex: k.metaIndex, Ref: upTo}}
	err = r.beginMergeLocked(&job)
	r.mu.Unlock()
	if err != nil {
		return dataflow.DeltaRef{}, err
	}
	return upTo, r.merge(ctx, &job)
}

// Foldable is what a Merge would fold.
type Foldable struct {
	Layers int
	Bytes  int64 // of their entries, in memory
	Logged int64 // of the deltas that they were made of: what a restart would read. A key that changed in several is in each
}

// Foldable returns what a Merge up to the cut floor would fold: nothing when the cut cannot be read here.
func (r *Replica) Foldable(pipeline dataflow.PipelineUID, floor dataflow.CheckpointID) (f Foldable) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.chains[pipeline]
	if c == nil {
		return f
	}
	k := c.lookup(floor)
	if k == nil || k.status != cutReady {
		return f
	}
	for _, l := range c.upTo(k.at) {
		f.Layers++
		f.Bytes += l.bytes
		f.Logged += l.logged
	}
	return f
}

// settle merges up to a position that the log is about to forget, or beyond, if the store does not hold it yet. When the deltas
// are not here either, the store has lost what it had, and that is CORRUPT.
func (r *Replica) settle(pipeline dataflow.PipelineUID, upTo dataflow.DeltaRef) error {
	held := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		c := r.chainLocked(pipeline)
		return c == nil || upTo.Compare(c.base.Ref) <= 0
	}
	if held() {
		return nil
	}
	ctx := context.Background() // the log cannot go on without it
	if err := r.acquireMerge(ctx); err != nil {
		return err
	}
	defer r.releaseMerge()
	if held() {
		return nil
	}
	r.mu.Lock()
	c := r.mu.chains[pipeline]
	if c == nil {
		r.mu.Unlock()
		return nil
	}
	if upTo.Seq != 0 && c.find(upTo) == nil {
		r.mu.Unlock()
		return dataflow.Errorf(dataflow.ReasonCorrupt, "pipeline %d is settled up to delta %s, which is not in this replica", pipeline, upTo)
	}
	if l := c.across(upTo); l != nil {
		// This copy knows of newer cuts than the one who settles, and has merged what lies between those that are kept. No
		// incarnation begins inside such a layer and no cut of it is kept, so all of it is settled.
		upTo = l.last
	}
	job := mergeJob{uid: pipeline, chain: c, base: c.base}
	// Of several cuts there the oldest: after a start, those below the store's are expired.
	if i := slices.IndexFunc(c.cuts, func(k *cut) bool { return k.status == cutReady && k.at == upTo }); i >= 0 {
		job.base = Base{Checkpoint: c.cuts[i].id, Timeline: c.cuts[i].timeline, MetaIndex: c.cuts[i].metaIndex}
	}
	job.base.Ref = upTo
	c.expireBefore(upTo)
	err := r.beginMergeLocked(&job)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.merge(ctx, &job)
}

func (r *Replica) acquireMerge(ctx context.Context) error {
	select {
	case r.merging <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-r.store.fail.done:
		return r.store.fail.err
	}
	err := ctx.Err() // when both were ready, chance has chosen
	if r.closed.Load() {
		err = errShuttingDown()
	}
	if err != nil {
		r.releaseMerge()
	}
	return err
}

func (r *Replica) releaseMerge() { <-r.merging }

// mergeJob is one merge into the store.
type mergeJob struct {
	uid    dataflow.PipelineUID
	chain  *chain
	base   Base     // the marker to be
	layers []*layer // newest first
}

// beginMergeLocked fixes what is merged. It refuses a marker that would name a delta which no layer brings into the store: the next
// start would believe the marker, and be without the delta for good.
func (r *Replica) beginMergeLocked(job *mergeJob) error {
	c := job.chain
	if job.base.Digest = c.base.Digest; job.base.Ref != c.base.Ref {
		job.base.Digest = 0
		if d := c.find(job.base.Ref); d != nil {
			job.base.Digest = d.digest
		}
	}
	job.layers = c.upTo(job.base.Ref)
	if d := c.leftOut(job.layers, job.base.Ref); d != nil {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "merge pipeline %d of shard %d up to %s: delta %s would be left out", job.uid, r.cfg.Shard, job.base, d.ref)
	}
	c.merging = true
	return nil
}

// merge does the work outside the lock, and then lets go of the layers.
func (r *Replica) merge(ctx context.Context, job *mergeJob) error {
	c := job.chain
	var err error
	if job.base.Ref != c.base.Ref { // only a merge changes it, and this is the one
		err = r.store.fold(ctx, job.uid, job.layers, job.base, func() error { return r.stillMerging(job) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.merging = false
	if err != nil {
		return fmt.Errorf("merge pipeline %d of shard %d up to %s: %w", job.uid, r.cfg.Shard, job.base, err)
	}
	if job.base.Ref != c.base.Ref {
		c.merged(job.base)
	}
	for _, other := range r.mu.chains { // their snapshots keep what the merge has replaced
		other.unshare()
	}
	c.unshare() // it may have been dropped
	return nil
}

func (r *Replica) stillMerging(job *mergeJob) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if job.chain.dropped {
		return errDropped(job.uid)
	}
	if r.closed.Load() {
		return errShuttingDown()
	}
	return nil
}

// foldLayers merges neighbouring layers in memory until the replica is closed.
func (r *Replica) foldLayers() {
	for {
		select {
		case <-r.stop:
			return
		case <-r.wake:
		}
		for r.foldOne() {
			select {
			case <-r.stop:
				return
			default:
			}
		}
	}
}

// foldOne merges neighbouring layers of some pipeline and reports whether there were any to merge.
func (r *Replica) foldOne() bool {
	r.mu.Lock()
	var c *chain
	var some []*layer
	for _, c = range r.mu.chains {
		if some = slices.Clone(c.pickFold()); some != nil {
			break
		}
	}
	r.mu.Unlock()
	if some == nil {
		return false
	}
	folded := fold(some)
	r.mu.Lock()
	defer r.mu.Unlock()
	c.replace(some, folded)
	return true
}

// Stats are figures of a replica.
type Stats struct {
	Pipelines []PipelineStats // in no particular order
	OpenViews int             // views and iterators that were not released
	DiskBytes uint64          // the store's files
}

// PipelineStats are figures of one pipeline in a replica.
type PipelineStats struct {
	Pipeline     dataflow.PipelineUID
	Layers       int
	LayerBytes   int64 // of the entries of all layers
	LayerEntries int
	LayerMemory  int64 // what the layers take, with what they are found by
	Cuts         int   // published and not expired
	Base         Base
}

// entryOverhead is what an entry of a layer takes beside its bytes: its item, a share of the buckets and of the filter.
const entryOverhead = 11

// Stats returns the replica's figures.
func (r *Replica) Stats() Stats {
	var st Stats
	r.mu.Lock()
	open := !r.closed.Load() && r.store.fail.get() == nil
	if open {
		r.using.Add(1)
	}
	r.mu.Unlock()
	if open {
		st.DiskBytes = r.store.diskBytes()
		r.using.Done()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st.OpenViews = r.mu.views
	for uid, c := range r.mu.chains {
		p := PipelineStats{Pipeline: uid, Layers: len(c.layers), Cuts: len(c.cuts), Base: c.base}
		for _, l := range c.layers {
			p.LayerBytes += l.bytes
			p.LayerEntries += l.entries
			p.LayerMemory += l.bytes + int64(l.entries)*entryOverhead
		}
		st.Pipelines = append(st.Pipelines, p)
	}
	return st
}
