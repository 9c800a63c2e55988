package service

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/node/catalog"
	"github.com/weirdb/weir/node/fleet"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/statequery"
)

// PipelineInfo is what statequery needs to know of a pipeline.
func PipelineInfo(p *meta.Pipeline) *statequery.Pipeline {
	return &statequery.Pipeline{
		Name: p.Name, UID: p.UID, State: p.State, Timeline: p.Timeline, Incarnation: p.Incarnation,
		OnError: p.Options.OnError, Reads: p.Reads, Cuts: p.Cuts,
	}
}

// QuerySources gives statequery the catalog, the committed cuts, the live tables, the streams and the leases.
type QuerySources struct {
	Meta   *meta.Log
	Cat    *catalog.Catalog
	Worker *worker.Worker
	Fleet  *fleet.Fleet
	Shards []*worker.Shard
}

var (
	_ statequery.Catalog = QuerySources{}
	_ statequery.Store   = QuerySources{}
	_ statequery.Streams = QuerySources{}
	_ statequery.Leases  = QuerySources{}
)

// Pipeline returns a pipeline by name.
func (q QuerySources) Pipeline(name string) (*statequery.Pipeline, error) {
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	p, err := q.Meta.FindPipeline(ctx, name)
	if err != nil {
		return nil, err
	}
	return q.info(p), nil
}

// findTime bounds how long a pipeline is looked for that this node does not know, and perhaps another one does.
const findTime = 2 * time.Second

// info is PipelineInfo with the state that a reader meets.
func (q QuerySources) info(p *meta.Pipeline) *statequery.Pipeline {
	out := PipelineInfo(p)
	out.State = stateNow(q.Fleet, p)
	return out
}

// stateNow is a pipeline's state: what the meta log says, but while nothing runs of the shards that this node owns, as after
// its start, a pipeline that the log has RUNNING is about to recover.
func stateNow(f *fleet.Fleet, p *meta.Pipeline) dataflow.PipelineState {
	if p.State == dataflow.PipelineRunning && !f.Runs(p.UID) {
		return dataflow.PipelineRecovering
	}
	return p.State
}

// Cut returns a readable cut, also one that this node has not heard of and another one has.
func (q QuerySources) Cut(p *statequery.Pipeline, id dataflow.CheckpointID) (*dataflow.CheckpointCommit, error) {
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	return meta.Find(ctx, q.Meta, func(st *meta.State) (*dataflow.CheckpointCommit, error) {
		mp := st.Pipelines[p.UID]
		if mp == nil {
			return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %s was deleted", p.Name)
		}
		return mp.Cut(id)
	})
}

// CatchUp returns when this node knows what was committed to the meta log before.
func (q QuerySources) CatchUp(ctx context.Context) error {
	_, err := q.Meta.Current(ctx)
	return err
}

// Table returns a table of a pipeline.
func (q QuerySources) Table(p *statequery.Pipeline, name string) (*statequery.Table, error) {
	st := q.Meta.State()
	mp := st.Pipelines[p.UID]
	if mp == nil {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %s was deleted", p.Name)
	}
	prog, err := q.Cat.Program(st, mp)
	if err != nil {
		return nil, err
	}
	return prog.Table(name)
}

// TableNames returns the names of all tables.
func (q QuerySources) TableNames() []string {
	st := q.Meta.State()
	var names []string
	for _, p := range st.PipelineList() {
		prog, err := q.Cat.Program(st, p)
		if err != nil {
			continue // it cannot be suggested
		}
		for _, t := range prog.Plan.Tables() {
			names = append(names, p.Name+"."+t.Name)
		}
	}
	return names
}

// Streams returns the streams that exist.
func (q QuerySources) Streams() plan.Catalog { return catalog.Streams{State: q.Meta.State()} }

// Changed returns a channel that is closed when the meta log's state is replaced.
func (q QuerySources) Changed() <-chan struct{} { return q.Meta.Changed() }

// View returns a committed cut on a shard.
func (q QuerySources) View(ctx context.Context, shard dataflow.ShardID, uid dataflow.PipelineUID, cut dataflow.CheckpointID) (statequery.View, error) {
	v, err := q.Worker.View(ctx, shard, uid, cut)
	if err != nil {
		return nil, err
	}
	return view{v}, nil
}

type view struct{ *state.View }

func (v view) Iter(stage dataflow.StageID, lo, hi []byte) statequery.Iter {
	return v.View.Iter(stage, lo, hi)
}

func (v view) Changes(older statequery.View, stage dataflow.StageID, lo, hi []byte) statequery.Iter {
	return v.View.Changes(older.(view).View, stage, lo, hi) // all views come from the same store
}

// Live returns the running incarnation, or nil.
func (q QuerySources) Live(uid dataflow.PipelineUID) statequery.Live {
	here, spread := q.Fleet.Live(uid)
	switch {
	case here != nil:
		return live{here}
	case spread != nil:
		return spreadLive{spread}
	}
	return nil
}

// spreadLive gives a run on several nodes as statequery reads it.
type spreadLive struct{ *fleet.Live }

// Owner returns the node that runs a shard.
func (l spreadLive) Owner(shard dataflow.ShardID) string { return l.Live.Owner(shard) }

func (l spreadLive) Get(stage dataflow.StageID, shard dataflow.ShardID, key, dst []byte) ([]byte, bool, error) {
	val, found, err := l.Live.Get(stage, shard, key, dst)
	return val, found, ended(l.Incarnation(), err)
}

func (l spreadLive) GetAll(stage dataflow.StageID, shard dataflow.ShardID, keys *dataflow.Lookups) error {
	return ended(l.Incarnation(), l.Live.GetAll(stage, shard, keys))
}

func (l spreadLive) Scan(stage dataflow.StageID, shard dataflow.ShardID, lo, hi []byte, limit int) (keys, values [][]byte, err error) {
	keys, values, err = l.Live.Scan(stage, shard, lo, hi, limit)
	return keys, values, ended(l.Incarnation(), err)
}

func (l spreadLive) Fresh(stage dataflow.StageID, shard dataflow.ShardID, maxBytes int64) (keys, values [][]byte, err error) {
	keys, values, err = l.Live.Fresh(stage, shard, maxBytes)
	return keys, values, ended(l.Incarnation(), err)
}

// live gives a run as statequery reads it.
type live struct{ *worker.Running }

func (l live) Incarnation() dataflow.Incarnation { return l.Running.Incarnation }

// Owner says that all of it runs here.
func (l live) Owner(dataflow.ShardID) string { return "" }

func (l live) Get(stage dataflow.StageID, shard dataflow.ShardID, key, dst []byte) ([]byte, bool, error) {
	val, found, err := l.Running.Get(stage, shard, key, dst)
	return val, found, ended(l.Incarnation(), err)
}

func (l live) GetAll(stage dataflow.StageID, shard dataflow.ShardID, keys *dataflow.Lookups) error {
	return ended(l.Incarnation(), l.Running.GetAll(stage, shard, keys))
}

func (l live) Scan(stage dataflow.StageID, shard dataflow.ShardID, lo, hi []byte, limit int) (keys, values [][]byte, err error) {
	entries, err := l.Running.Scan(stage, shard, lo, hi, limit)
	for _, e := range entries {
		keys, values = append(keys, e.Key), append(values, e.Val)
	}
	return keys, values, ended(l.Incarnation(), err)
}

func (l live) Fresh(stage dataflow.StageID, shard dataflow.ShardID, maxBytes int64) (keys, values [][]byte, err error) {
	keys, values, err = l.Running.Fresh(stage, shard, maxBytes)
	return keys, values, ended(l.Incarnation(), err)
}

// ended is the answer to a read that met the end of the incarnation it had begun on; other errors are their own.
func ended(inc dataflow.Incarnation, err error) error {
	switch {
	case errors.Is(err, worker.ErrDeposed):
		return dataflow.Errorf(dataflow.ReasonPipelineRecovering, "incarnation %d ends: %w", inc, err).WithHint("try again, or read committed").WithRetry(liveRetry)
	case !errors.Is(err, worker.ErrEnded):
		return err
	}
	return dataflow.Errorf(dataflow.ReasonPipelineRecovering, "incarnation %d ended during the live read", inc).WithRetry(liveRetry)
}

// liveRetry is when a live read should be tried again whose incarnation has ended.
const liveRetry = 200 * time.Millisecond

// End returns where a stream ends in a shard.
func (q QuerySources) End(at dataflow.StreamShard) dataflow.Offset { return q.Worker.End(at) }

// AppendTime returns when a row was appended, 0 when it was dropped.
func (q QuerySources) AppendTime(at dataflow.StreamShard, offset dataflow.Offset) int64 {
	log := q.Shards[at.Shard].Log
	if first, _, _ := log.Range(at.Stream); offset < first {
		return 0
	}
	return log.AppendTime(at.Stream, offset)
}

// Lease keeps a cut readable.
func (q QuerySources) Lease(ctx context.Context, uid dataflow.PipelineUID, cut dataflow.CheckpointID, ttl time.Duration) (string, error) {
	l, err := q.Meta.Lease(ctx, uid, cut, ttl)
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(l.ID, 10), nil
}

// Renew lets a lease live on.
func (q QuerySources) Renew(ctx context.Context, uid dataflow.PipelineUID, id string, ttl time.Duration) error {
	n, err := leaseID(id)
	if err != nil {
		return err
	}
	_, err = q.Meta.RenewLease(ctx, uid, n, ttl)
	return err
}

// Release ends a lease.
func (q QuerySources) Release(ctx context.Context, uid dataflow.PipelineUID, id string) error {
	n, err := leaseID(id)
	if err != nil {
		return err
	}
	return q.Meta.ReleaseLease(ctx, uid, n)
}
