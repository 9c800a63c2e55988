// Package leader drives the coordinators while this node leads the meta log: one pure machine per pipeline
// (dataflow/coordinator), fed by one goroutine that carries out its actions.
//
// The driver decides nothing. It turns what the meta log says and what the tasks report into events, in the order they
// come, and the machine's actions into proposals and calls of the worker.
package leader

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/raftlog/meta"
)

// Worker is what the coordinators need of the nodes that run tasks. *fleet.Fleet implements it.
type Worker interface {
	// Start starts all tasks of the incarnation from its base and returns when they run. step takes their reports.
	Start(ctx context.Context, uid dataflow.PipelineUID, inc dataflow.Incarnation, base *dataflow.CheckpointCommit, step func(coordinator.Event)) error
	// Stop ends the pipeline's tasks of incarnation inc and older ones, and waits for them.
	Stop(uid dataflow.PipelineUID, inc dataflow.Incarnation)
	// Inject puts a barrier into the sources of the incarnation. With hold they read nothing behind it for a while.
	Inject(uid dataflow.PipelineUID, inc dataflow.Incarnation, n dataflow.CheckpointID, hold bool)
	// Attach lets step take the reports of the pipeline's tasks from now on, and returns the incarnation whose tasks all
	// run; 0 = none.
	Attach(ctx context.Context, uid dataflow.PipelineUID, step func(coordinator.Event)) dataflow.Incarnation
	// Owners returns which node runs the tasks of each shard of an incarnation that is to begin. It waits until all can be
	// run; the error is ctx's.
	Owners(ctx context.Context) ([]meta.Owner, error)
	// Ends returns where the streams end.
	Ends(streams []dataflow.StreamID) dataflow.Positions
	// Appended returns a channel that is closed when rows may have been appended after the call.
	Appended() <-chan struct{}
}

// Config describes a Driver.
type Config struct {
	Meta    *meta.Log
	Worker  Worker
	Metrics Metrics
	// Now is the wall clock, µs since 1970; default time.Now.
	Now    func() int64
	Phases *phase.Recorder // records commits and recoveries; optional
	Logger *slog.Logger
}

// Metrics is told what the coordinators did. Durations are from trigger to commit.
type Metrics interface {
	CheckpointCommitted(pipeline string, took time.Duration)
	CheckpointFailed(pipeline string, cause string)
	IncarnationBegun(pipeline string)
}

// Driver runs the coordinators.
type Driver struct {
	cfg   Config
	began time.Time // when the driver was made; see now
	mu    struct {
		sync.Mutex
		pipelines map[dataflow.PipelineUID]*pipeline
		begun     chan struct{} // closed and replaced when a pipeline's coordinator has begun
	}
}

// New returns a driver. Run must be called for it to do anything.
func New(cfg Config) *Driver {
	if cfg.Now == nil {
		cfg.Now = func() int64 { return time.Now().UnixMicro() }
	}
	d := &Driver{cfg: cfg, began: time.Now()}
	d.mu.pipelines = make(map[dataflow.PipelineUID]*pipeline)
	d.mu.begun = make(chan struct{})
	return d
}

// expireEvery is how often the meta log is asked to let go of what time has ended.
const expireEvery = 500 * time.Millisecond

// Run drives every pipeline of the meta log until ctx ends. The node calls it while it leads.
func (d *Driver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.expireLoop(ctx) })
	g.Go(func() error {
		for {
			changed := d.cfg.Meta.Changed()
			st := d.cfg.Meta.State()
			d.mu.Lock()
			before := len(d.mu.pipelines)
			for uid, p := range st.Pipelines {
				if d.mu.pipelines[uid] == nil {
					pl := newPipeline(d, uid, p.Name)
					d.mu.pipelines[uid] = pl
					g.Go(func() error {
						defer d.forget(uid)
						return pl.run(ctx)
					})
				}
			}
			if len(d.mu.pipelines) > before {
				close(d.mu.begun)
				d.mu.begun = make(chan struct{})
			}
			d.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return g.Wait()
}

func (d *Driver) forget(uid dataflow.PipelineUID) {
	d.mu.Lock()
	delete(d.mu.pipelines, uid)
	d.mu.Unlock()
}

func (d *Driver) pipeline(uid dataflow.PipelineUID) *pipeline {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.pipelines[uid]
}

// beginWait is how long a call waits for the coordinator of a pipeline that has just been deployed, or of a node that has
// just started: that takes milliseconds where this node leads and has little else to do, and never happens where it does not.
const beginWait = 5 * time.Second

// await returns the pipeline's coordinator, soon after its deployment too.
func (d *Driver) await(ctx context.Context, uid dataflow.PipelineUID) (*pipeline, error) {
	timer := time.NewTimer(beginWait)
	defer timer.Stop()
	for {
		d.mu.Lock()
		p, begun := d.mu.pipelines[uid], d.mu.begun
		d.mu.Unlock()
		if p != nil {
			return p, nil
		}
		if d.cfg.Meta.State().Pipelines[uid] == nil {
			return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "the pipeline was deleted")
		}
		select {
		case <-begun:
			continue
		case <-ctx.Done():
		case <-timer.C:
		}
		return nil, dataflow.Errorf(dataflow.ReasonNotLeader, "this node does not coordinate the pipeline yet").WithRetry(100 * time.Millisecond)
	}
}

// Trigger asks for a checkpoint that covers what the tasks have read before the call, and waits for its commit.
func (d *Driver) Trigger(ctx context.Context, uid dataflow.PipelineUID) (dataflow.CheckpointID, error) {
	p, err := d.await(ctx, uid)
	if err != nil {
		return 0, err
	}
	return p.trigger(ctx, false)
}

// Hold is Trigger for somebody who then moves the leads of shards: the sources read nothing behind the barrier for
// dataflow.HoldTime, or until the next one. An incarnation that ends meanwhile has read nothing that its last cut lacks.
func (d *Driver) Hold(ctx context.Context, uid dataflow.PipelineUID) error {
	p, err := d.await(ctx, uid)
	if err == nil {
		_, err = p.trigger(ctx, true)
	}
	return err
}

// Request asks for a checkpoint and does not wait for it.
func (d *Driver) Request(ctx context.Context, uid dataflow.PipelineUID) error {
	p, err := d.await(ctx, uid)
	if err == nil {
		p.step(coordinator.TriggerRequested{})
	}
	return err
}

// WantRoom says that a stream which the pipeline reads refuses rows until the pipeline's next checkpoint: it comes soon, also
// with a long checkpoint.interval. It does not wait.
func (d *Driver) WantRoom(uid dataflow.PipelineUID) {
	if p := d.pipeline(uid); p != nil {
		p.wantRoom()
	}
}

// Fail ends the tasks of an incarnation as if one of them had failed, for demonstrations and tests. It does nothing when
// another one is current by then.
func (d *Driver) Fail(uid dataflow.PipelineUID, inc dataflow.Incarnation, cause string) {
	if p := d.pipeline(uid); p != nil {
		p.step(coordinator.TaskFailed{Incarnation: inc, Failure: dataflow.PipelineFailure{
			Reason: dataflow.ReasonPipelineRecovering, Message: cause, Incarnation: inc}})
	}
}

// expireLoop lets the meta log expire leases and superseded cuts.
func (d *Driver) expireLoop(ctx context.Context) error {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if d.cfg.Meta.State().ExpireDue(d.cfg.Now()) {
				if err := d.cfg.Meta.Expire(ctx); err != nil && ctx.Err() == nil {
					d.cfg.Logger.Warn("expire leases and cuts", "error", err)
				}
			}
		}
	}
}
