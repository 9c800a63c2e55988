// Package worker runs the tasks that are placed on this node, keeps the committed cuts of its shards published and
// merged, and drops what the meta log has dropped.
//
// It decides nothing: the leader's coordinator says what to start, stop and inject, the meta log says which cuts exist.
// Everything here reconciles the node with those two, and can be repeated.
package worker

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/dataflow/link"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/dataflow/task"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/node/catalog"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// Shard is a shard that this node holds: its log and the replica of its state.
type Shard struct {
	ID      dataflow.ShardID
	Log     *shard.Log
	Replica *state.Replica
}

// Config describes a Worker.
type Config struct {
	Node    string   // this one's name, as owners have it
	Shards  []*Shard // all shards of the group, by id
	Meta    *meta.Log
	Catalog *catalog.Catalog
	Merge   MergePolicy
	// Links connects runs with their parts on other nodes; nil in a group of one node.
	Links *link.Hub
	// Memory is the budget of all live tables; nil = they hold all their keys, whatever that takes.
	Memory *state.Budget
	// RetentionEvery is how often streams are looked at for rows to drop; default DefaultRetentionEvery.
	RetentionEvery time.Duration
	// Source, if set, replaces the rows of the shards' logs: see Source.
	Source func(dataflow.ShardID) Source
	// Now is the wall clock, µs since 1970; default time.Now.
	Now    func() int64
	Phases *phase.Recorder // records what the runs and the publisher do; optional
	Logger *slog.Logger
}

// Source is where the tasks of a shard read rows instead of in its log, for a measurement of the dataflow without ingest
// (weir bench engine). Everything else is as always: the plan, the barriers, the deltas in the shards' logs, the commits.
type Source interface {
	task.RowLog
	// End returns the offset that the next row of the stream will get.
	End(stream dataflow.StreamID) dataflow.Offset
}

// Worker holds the runs of this node.
type Worker struct {
	cfg Config
	mu  struct {
		sync.Mutex
		runs     map[dataflow.PipelineUID]*Running
		fences   map[dataflow.PipelineUID]fence
		rested   map[dataflow.PipelineUID]rested
		ended    bool                                             // nothing rests any more
		steps    map[dataflow.PipelineUID]func(coordinator.Event) // who takes the reports of tasks
		appended chan struct{}                                    // closed and replaced when a shard's log has applied something
	}
	publisher *publisher
}

// New returns a worker without runs. Run must be called for cuts to be published.
func New(cfg Config) *Worker {
	cfg.Merge.ensureDefaults()
	cfg.RetentionEvery = cmp.Or(cfg.RetentionEvery, DefaultRetentionEvery)
	if cfg.Now == nil {
		cfg.Now = func() int64 { return time.Now().UnixMicro() }
	}
	w := &Worker{cfg: cfg}
	w.mu.runs = make(map[dataflow.PipelineUID]*Running)
	w.mu.rested = make(map[dataflow.PipelineUID]rested)
	w.mu.fences = make(map[dataflow.PipelineUID]fence)
	w.mu.steps = make(map[dataflow.PipelineUID]func(coordinator.Event))
	w.mu.appended = make(chan struct{})
	w.publisher = newPublisher(cfg)
	w.publisher.readable = w.committed
	w.publisher.busy = w.busy
	return w
}

// busy reports whether a pipeline recovers, its tables are being filled, or it is late.
func (w *Worker) busy(uid dataflow.PipelineUID) bool {
	if p := w.cfg.Meta.State().Pipelines[uid]; p != nil && p.State == dataflow.PipelineRecovering {
		return true
	}
	r := w.Live(uid)
	return r != nil && (r.fillers.working.Load() || w.late(r.Run.Positions(), time.UnixMicro(w.cfg.Now()).Add(-lateAfter)))
}

// late reports whether a row that was appended before then is still to be read.
func (w *Worker) late(read dataflow.Positions, then time.Time) bool {
	for at, pos := range read {
		if t := w.cfg.Shards[at.Shard].Log.AppendTime(at.Stream, pos); t != 0 && t < then.UnixMicro() {
			return true
		}
	}
	return false
}

// Run publishes, merges and drops until ctx ends, then stops all runs.
func (w *Worker) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.publisher.run(ctx) })
	g.Go(func() error { return w.retentionLoop(ctx) })
	g.Go(func() error { return w.dismissLoop(ctx) })
	for _, s := range w.cfg.Shards {
		g.Go(func() error { return w.listen(ctx, s) })
	}
	err := g.Wait()
	w.StopAll()
	return err
}

// listen passes on that a shard's log has moved.
func (w *Worker) listen(ctx context.Context, s *Shard) error {
	rows := w.rows(s)
	for {
		changed := rows.Changed()
		w.mu.Lock()
		close(w.mu.appended)
		w.mu.appended = make(chan struct{})
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Appended returns a channel that is closed when something may have been appended after the call.
func (w *Worker) Appended() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.appended
}

// StopAll ends every run and waits for it.
func (w *Worker) StopAll() {
	w.mu.Lock()
	var runs []*Running
	for uid, r := range w.mu.runs {
		runs = append(runs, r)
		delete(w.mu.runs, uid)
	}
	w.mu.ended = true
	w.mu.Unlock()
	for _, r := range runs {
		r.stop()
	}
	w.dismiss(func(rested) bool { return true })
}

// committed tells the tables of a run that a cut of it can be read on a shard.
func (w *Worker) committed(shard dataflow.ShardID, c *dataflow.CheckpointCommit) {
	w.mu.Lock()
	r := w.mu.runs[c.Pipeline]
	w.mu.Unlock()
	if r != nil {
		r.committed(shard, c)
	}
}

// forget drops the fences of pipelines that the meta log has no more: what it does not have is not started.
func (w *Worker) forget(st *meta.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.mu.fences {
		if st.PipelineDeleted(uid) && w.mu.runs[uid] == nil {
			delete(w.mu.fences, uid)
			delete(w.mu.steps, uid)
			if w.cfg.Links != nil {
				w.cfg.Links.Forget(uid)
			}
		}
	}
}

// Ends returns where the streams end in the shards of this node, for the streams given.
func (w *Worker) Ends(streams []dataflow.StreamID) dataflow.Positions {
	p := make(dataflow.Positions)
	for _, s := range w.cfg.Shards {
		for _, id := range streams {
			k := dataflow.StreamShard{Stream: id, Shard: s.ID}
			if end := w.End(k); end > 0 {
				p[k] = end
			}
		}
	}
	return p
}

// End returns the offset that the next row of a stream's shard will get.
func (w *Worker) End(at dataflow.StreamShard) dataflow.Offset {
	return w.rows(w.cfg.Shards[at.Shard]).End(at.Stream)
}

// View returns a committed cut on a shard, as soon as it can be read there; the caller releases it. It is
// PIPELINE_NOT_FOUND once the meta log has the pipeline no more.
func (w *Worker) View(ctx context.Context, s dataflow.ShardID, uid dataflow.PipelineUID, cut dataflow.CheckpointID) (*state.View, error) {
	return w.cfg.Shards[s].Replica.Await(ctx, uid, cut, w.deleted(uid))
}

// deleted tells who waits for a replica whether the meta log has deleted the pipeline.
func (w *Worker) deleted(uid dataflow.PipelineUID) func() (bool, <-chan struct{}) {
	return func() (bool, <-chan struct{}) {
		changed := w.cfg.Meta.Changed()
		return w.cfg.Meta.State().PipelineDeleted(uid), changed
	}
}

// rows returns where the tasks of a shard read.
func (w *Worker) rows(s *Shard) Source {
	if w.cfg.Source != nil {
		return w.cfg.Source(s.ID)
	}
	return rowLog{s.Log}
}

// rowLog reads rows of a shard's log as tasks want them.
type rowLog struct{ *shard.Log }

var _ Source = rowLog{}

// End returns where the stream ends in the log.
func (l rowLog) End(stream dataflow.StreamID) dataflow.Offset {
	_, end, _ := l.Range(stream)
	return end
}

func (l rowLog) Read(stream dataflow.StreamID, from dataflow.Offset, maxRows int) ([]task.Rows, error) {
	rows, err := l.Log.Read(stream, from, maxRows)
	if err != nil {
		return nil, err
	}
	out := make([]task.Rows, len(rows))
	for i, r := range rows {
		out[i] = task.Rows(r)
	}
	return out, nil
}
