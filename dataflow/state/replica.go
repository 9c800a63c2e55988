package state

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// Replica is the committed state of one shard, of all pipelines. It is safe for concurrent use.
//
// Two sides feed it: the shard's log, in log order, with deltas (ApplyChunk, EndDelta, BeginIncarnation, Settle,
// DropPipeline: what a shard needs of a state replica); and the node, from the meta log, with commits and what is
// retained (Publish, SetRetained, Merge). A cut is readable when both have come, in either order (P5).
//
// After a restart the layers are empty. The log feeds what is not settled again, in log order, and the node publishes the
// retained cuts again, oldest first.
type Replica struct {
	cfg    Config
	store  *store
	closed atomic.Bool // set when Close begins
	// merging is the token of the one merge into the store; a channel, because its holder waits for I/O (S5).
	merging chan struct{}
	wake    chan struct{} // tells the folder that there may be layers to merge
	stop    chan struct{} // ends the folder
	done    sync.WaitGroup
	// using counts the calls that are inside the store; Close waits for them. Added to under mu, while not closed.
	using sync.WaitGroup

	mu struct {
		sync.Mutex
		chains  map[dataflow.PipelineUID]*chain
		dropped map[dataflow.PipelineUID]struct{} // their late deltas are not wanted
		views   int
		changed chan struct{}
	}
}

// retryAfter is when to ask again for a cut that is not here yet. Deltas and commits arrive within milliseconds of each
// other; a checkpoint takes longer.
const retryAfter = 100 * time.Millisecond

// OpenReplica opens or makes the replica of one shard in its own directory.
func OpenReplica(cfg Config) (*Replica, error) {
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cfg.Logger.With("shard", cfg.Shard)
	store, marks, err := openStore(&cfg)
	if err != nil {
		return nil, fmt.Errorf("open the state of shard %d: %w", cfg.Shard, err)
	}
	r := &Replica{cfg: cfg, store: store, merging: make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: make(chan struct{})}
	r.mu.chains = make(map[dataflow.PipelineUID]*chain)
	r.mu.dropped = marks.dropped
	r.mu.changed = make(chan struct{})
	for uid, base := range marks.bases {
		r.mu.chains[uid] = newChain(base, true)
	}
	r.done.Go(r.foldLayers)
	return r, nil
}

// chainLocked returns the pipeline's chain, and makes it when there is none; nil when the pipeline was dropped.
func (r *Replica) chainLocked(uid dataflow.PipelineUID) *chain {
	if c := r.mu.chains[uid]; c != nil {
		return c
	}
	if _, dropped := r.mu.dropped[uid]; dropped {
		return nil
	}
	c := newChain(Base{}, false)
	r.mu.chains[uid] = c
	return c
}

// refreshLocked looks whether cuts have become readable, and tells who waits for that.
func (r *Replica) refreshLocked(c *chain) {
	if c.refresh() {
		r.announceLocked()
	}
	select {
	case r.wake <- struct{}{}:
	default: // it has been woken already
	}
}

func (r *Replica) announceLocked() {
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// ApplyChunk takes the next chunk of a delta. It keeps data, which must not change any more. Chunks that are here
// already, or belong to a delta that counts no more (P2), are skipped. The log calls it, EndDelta and the others one after the
// other: what arrives is theirs, and is worked on without the lock.
func (r *Replica) ApplyChunk(_ dataflow.LogIndex, d dataflow.DeltaID, chunk int, data []byte) error {
	s, err := r.stage(d, chunk)
	if err == nil && s != nil {
		err = s.add(data)
	}
	if err != nil {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "delta %s, chunk %d: %w", d, chunk, err)
	}
	return nil
}

func (r *Replica) stage(d dataflow.DeltaID, chunk int) (*staging, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chainLocked(d.Pipeline)
	if c == nil {
		return nil, nil
	}
	return c.stage(d.Ref(), chunk)
}

// EndDelta completes a delta. A digest or number of chunks other than what has come is CORRUPT.
func (r *Replica) EndDelta(_ dataflow.LogIndex, d dataflow.DeltaID, chunks int, digest uint64) error {
	c, s, err := r.endStaging(d, chunks, digest)
	var l *layer
	if err == nil && s != nil {
		l, err = s.layer.finish(d.Ref(), d.Ref())
	}
	if err != nil {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "delta %s: %w", d, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c == nil || c.dropped {
		return nil
	}
	if l != nil {
		c.endDelta(d.Ref(), digest, l)
	}
	r.refreshLocked(c)
	return nil
}

func (r *Replica) endStaging(d dataflow.DeltaID, chunks int, digest uint64) (*chain, *staging, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chainLocked(d.Pipeline)
	if c == nil {
		return nil, nil, nil
	}
	s, err := c.endStaging(d.Ref(), chunks, digest)
	return c, s, err
}

// BeginIncarnation drops the deltas of incarnations below min after base, those that are not complete, and those that
// come later (P2). An incarnation that is not newer than the current one has been seen before.
func (r *Replica) BeginIncarnation(_ dataflow.LogIndex, pipeline dataflow.PipelineUID, min dataflow.Incarnation, base dataflow.DeltaRef) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chainLocked(pipeline)
	if c == nil {
		return nil
	}
	if err := c.begin(min, base); err != nil {
		return dataflow.Errorf(dataflow.ReasonInternal, "pipeline %d: %w", pipeline, err)
	}
	r.refreshLocked(c)
	return nil
}

// Settle says that the log forgets the pipeline's deltas up to upTo. The node proposes it when Merge has returned, so
// there is nothing left to do, except on a replica that lags behind the leader: that one merges now.
func (r *Replica) Settle(_ dataflow.LogIndex, pipeline dataflow.PipelineUID, upTo dataflow.DeltaRef) error {
	return r.settle(pipeline, upTo)
}

// DropPipeline forgets all of a pipeline's deltas and state, durably when it returns. Open views go on.
func (r *Replica) DropPipeline(_ dataflow.LogIndex, pipeline dataflow.PipelineUID) error {
	r.mu.Lock()
	if r.closed.Load() {
		r.mu.Unlock()
		return errShuttingDown()
	}
	r.using.Add(1)
	defer r.using.Done()
	c := r.mu.chains[pipeline]
	r.mu.dropped[pipeline] = struct{}{}
	stored := false
	if c != nil {
		c.dropped = true
		stored = c.based || c.merging
		delete(r.mu.chains, pipeline)
		r.announceLocked()
	}
	r.mu.Unlock()
	if !stored {
		return nil
	}
	// A merge that has not reached its ingest gives up, as the chain says dropped; one that has is over when the writer's
	// token is free.
	err := r.store.drop(pipeline)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.mu.chains {
		other.unshare() // a view that others share would keep what was dropped on the disk
	}
	return err
}

// Publish makes a committed cut known (P5). Cuts come in the order of the meta log; after a restart the retained ones
// come again. One whose deltas are not here yet becomes readable when they are. When the commit's digest is not that of
// the delta here, Publish, or the View later, says CORRUPT. Cuts of a dropped pipeline, which a meta log that lags behind
// the shard's may still have, are ignored.
func (r *Replica) Publish(commit *dataflow.CheckpointCommit) error {
	part := commit.Shard(r.cfg.Shard)
	k := &cut{
		id: commit.ID, timeline: commit.Timeline, metaIndex: commit.MetaIndex,
		named: dataflow.DeltaRef{Incarnation: commit.Incarnation, Seq: part.Seq}, digest: part.Digest,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chainLocked(commit.Pipeline)
	if c == nil {
		return nil
	}
	c.publish(k)
	r.refreshLocked(c)
	if k.status == cutCorrupt {
		return errCorruptCut(commit.Pipeline, k.id)
	}
	return nil
}

// SetRetained says which cuts are retained or leased. Of the cuts published so far, up to the newest of keep, the others
// become CHECKPOINT_EXPIRED; newer ones stay. Layers that no retained cut keeps apart are merged in the background (P6).
func (r *Replica) SetRetained(pipeline dataflow.PipelineUID, keep []dataflow.CheckpointID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.mu.chains[pipeline]; c != nil {
		c.retain(keep)
		r.refreshLocked(c)
	}
}

// SetBusy says whether a pipeline has better to do than to let its layers be merged in memory, as when its tables are being
// filled: they are left alone then while they are not too many.
func (r *Replica) SetBusy(pipeline dataflow.PipelineUID, busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.mu.chains[pipeline]; c != nil && c.busy != busy {
		c.busy = busy
		r.refreshLocked(c)
	}
}

// View returns a published cut; the caller releases it. Those who hold the same cut at once share a view: of a store in use a
// snapshot is a lock and, when it ends, a search for compactions. Errors: NO_COMMITTED_CHECKPOINT (it is not here yet, or the
// pipeline is not known here), CHECKPOINT_EXPIRED (it is not retained, or was never committed), PIPELINE_NOT_FOUND (it was
// dropped), CORRUPT, SHUTTING_DOWN.
func (r *Replica) View(pipeline dataflow.PipelineUID, id dataflow.CheckpointID) (*View, error) {
	r.mu.Lock()
	c, k, err := r.readableLocked(pipeline, id)
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	if v := c.shared; v != nil && v.id == id && v.ref == k.at && v.retain() {
		r.mu.Unlock()
		return v, nil
	}
	v := &View{r: r, uid: pipeline, id: id, ref: k.at, layers: c.upTo(k.at), base: c.base.Ref}
	v.refs.Store(1)
	based, state := c.based, c.changes
	if !based {
		c.shared = v
	}
	r.mu.views++
	r.using.Add(1)
	r.mu.Unlock()
	defer r.using.Done()
	if !based {
		return v, nil // the layers are the whole state
	}
	// The snapshot is taken outside the lock (S5), so a merge may run meanwhile. That changes nothing as long as it ends
	// at or below the cut, as the layers lie over it (S1); a merge beyond it has expired the cut before it began.
	snap, failed := r.store.snapshot()
	v.snap = snap
	r.mu.Lock()
	_, now, err := r.readableLocked(pipeline, id)
	switch {
	case err != nil:
	case failed != nil:
		err = failed
	case now != k:
		err = errExpired(pipeline, id)
	}
	if err == nil && c.changes == state {
		c.shared = v
	}
	r.mu.Unlock()
	if err != nil {
		v.drop()
		return nil, err
	}
	return v, nil
}

// Await is View, but waits until the cut is here, or the context ends. A replica that has been told nothing of a pipeline
// does not hear either that it was deleted: deleted says so, and a channel that is closed when its answer may have changed
// after the call. Await then returns PIPELINE_NOT_FOUND. It may be nil.
func (r *Replica) Await(ctx context.Context, pipeline dataflow.PipelineUID, id dataflow.CheckpointID, deleted func() (bool, <-chan struct{})) (*View, error) {
	if v, err := r.View(pipeline, id); err == nil { // as nearly always
		return v, nil
	}
	for {
		changed := r.Changed()
		v, err := r.View(pipeline, id)
		if dataflow.ReasonOf(err) != dataflow.ReasonNoCommittedCheckpoint {
			return v, err
		}
		var look <-chan struct{}
		if deleted != nil {
			gone, changed := deleted()
			if gone {
				return nil, errDropped(pipeline)
			}
			look = changed
		}
		select {
		case <-changed:
		case <-look:
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-r.store.fail.done:
			return nil, r.store.fail.err
		}
	}
}

// readableLocked finds a cut that can be read, or says why it cannot.
func (r *Replica) readableLocked(pipeline dataflow.PipelineUID, id dataflow.CheckpointID) (*chain, *cut, error) {
	if r.closed.Load() {
		return nil, nil, errShuttingDown()
	}
	if err := r.store.fail.get(); err != nil {
		return nil, nil, dataflow.Errorf(dataflow.ReasonShuttingDown, "the state store of shard %d has failed: %w", r.cfg.Shard, err)
	}
	c := r.mu.chains[pipeline]
	if c == nil {
		if _, dropped := r.mu.dropped[pipeline]; dropped {
			return nil, nil, errDropped(pipeline)
		}
		return nil, nil, errNotHere(pipeline, id)
	}
	k := c.lookup(id)
	switch {
	case k == nil && c.toCome(id):
		return nil, nil, errNotHere(pipeline, id)
	case k == nil:
		return nil, nil, errExpired(pipeline, id)
	case k.status == cutCorrupt:
		return nil, nil, errCorruptCut(pipeline, id)
	case k.status != cutReady:
		return nil, nil, errNotHere(pipeline, id)
	}
	return c, k, nil
}

// released takes back a view.
func (r *Replica) released(v *View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.views--
	if c := r.mu.chains[v.uid]; c != nil && c.shared == v {
		c.shared = nil
	}
}

// Newest returns the newest readable cut of a pipeline; ok = there is one.
func (r *Replica) Newest(pipeline dataflow.PipelineUID) (id dataflow.CheckpointID, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.chains[pipeline]
	if c == nil {
		return 0, false
	}
	for i := len(c.cuts) - 1; i >= 0; i-- {
		if c.cuts[i].status == cutReady {
			return c.cuts[i].id, true
		}
	}
	return 0, false
}

// Base returns what the store holds of a pipeline; ok = it holds something.
func (r *Replica) Base(pipeline dataflow.PipelineUID) (base Base, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.chains[pipeline]
	if c == nil {
		return Base{}, false
	}
	return c.base, c.based
}

// Changed returns a channel that is closed when a cut becomes readable or corrupt, or a pipeline is dropped, after the
// call.
func (r *Replica) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.changed
}

// Failed returns a channel that is closed when the store cannot go on, because a durable write failed: the node must stop.
// Err says why.
func (r *Replica) Failed() <-chan struct{} { return r.store.fail.done }

// Err returns why Failed is closed; nil when it is not.
func (r *Replica) Err() error { return r.store.fail.get() }

// Damaged is closed when a damaged file was met, by whatever read it. Unlike after Failed, all else is served on.
func (r *Replica) Damaged() <-chan struct{} { return r.store.fail.harmed }

// Damage returns why Damaged is closed, once it is.
func (r *Replica) Damage() error {
	select {
	case <-r.store.fail.harmed:
		return r.store.fail.harm
	default:
		return nil
	}
}

// Close ends background work, waits for it, and closes the store. Views and iterators must have been released: those
// that were not are an error, and answer SHUTTING_DOWN from then on. When Pebble could not write its log or manifest, its
// goroutines cannot be stopped and stay until the process exits.
func (r *Replica) Close() error {
	r.mu.Lock()
	if r.closed.Swap(true) {
		r.mu.Unlock()
		return nil
	}
	r.announceLocked()
	r.mu.Unlock()
	close(r.stop)
	r.done.Wait()
	r.using.Wait()
	r.mu.Lock()
	views := r.mu.views
	r.mu.Unlock()
	r.merging <- struct{}{} // no merge is under way, and none begins
	err := r.store.close()
	r.releaseMerge()
	if views > 0 {
		err = errors.Join(fmt.Errorf("close the state of shard %d: %d views or iterators were not released", r.cfg.Shard, views), err)
	}
	return err
}
