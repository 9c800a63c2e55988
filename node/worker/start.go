package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/dataflow/link"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/dataflow/task"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// fence keeps incarnations of a pipeline from being started when it is too late, also when a deposed leader still asks for
// it: each is started once, none after a newer one, and none that was told to stop, also not one that is being started at
// that moment.
type fence struct{ started, stopped dataflow.Incarnation }

// Start starts the tasks of an incarnation whose shards this node owns in it, from its base (P4). step is called with what the
// tasks report, until another coordinator attaches; it must not block. Start returns when the tasks run.
func (w *Worker) Start(ctx context.Context, uid dataflow.PipelineUID, inc dataflow.Incarnation, base *dataflow.CheckpointCommit, step func(coordinator.Event)) error {
	w.cfg.Phases.Enter(phase.Recover)
	defer w.cfg.Phases.Leave(phase.Recover)
	st := w.cfg.Meta.State()
	p := st.Pipelines[uid]
	if p == nil || p.Incarnation != inc || !w.begin(uid, inc, step) {
		return Stale(uid, inc)
	}
	old := w.predecessor(uid, inc)
	defer old.closeTables() // those that this incarnation does not take
	prog, err := w.cfg.Catalog.Program(st, p)
	if err != nil {
		return err
	}
	run := &Running{Incarnation: inc, Plan: prog.Plan, onError: p.Options.OnError, end: w.End,
		tables: make(map[tableRef]*state.Table), kept: make(map[tableRef]struct{}),
		view: func(shard dataflow.ShardID, cut dataflow.CheckpointID) (*state.View, error) {
			return w.cfg.Shards[shard].Replica.View(uid, cut)
		}}
	run.covered = NewCoverage(run, base.Positions)
	run.led = w.owned(p)
	for _, stage := range prog.Plan.Stages {
		for _, s := range run.led {
			ref := tableRef{stage.ID, s.ID}
			table, whole := old.succeed(ref, prog.Plan, base)
			if table == nil {
				table = state.NewTable(task.Shape(stage), w.cfg.Memory)
				if merge := task.Merge(prog.Plan, stage); merge != nil {
					table.BeginAsPartials(merge)
				}
			}
			run.tables[ref] = table
			if whole {
				run.kept[ref] = struct{}{}
			}
		}
	}
	began := time.Now()
	keys, large, err := w.load(ctx, uid, inc, base, run)
	if err != nil {
		run.closeTables()
		return err
	}
	cfg := task.Config{
		Pipeline: uid, Name: p.Name, Plan: prog.Plan, Incarnation: inc,
		Shards: len(w.cfg.Shards), Streams: prog.Streams,
		Start: w.startOf(base, prog.Streams), Bases: make(map[dataflow.ShardID]checkpoint.Base), Skipped: make(map[dataflow.ShardID]uint64),
		SkipRows: make(map[dataflow.SourceRow]struct{}), OnError: p.Options.OnError,
		Table:  run.Table,
		View:   run.view,
		Memory: w.cfg.Memory,
		// An attempt that waited for long would be given up.
		FillPatience: min(fillPatience, p.Options.Timeout/4),
		Rows:         func(s dataflow.ShardID) task.RowLog { return w.rows(w.cfg.Shards[s]) },
		Deltas:       func(s dataflow.ShardID) checkpoint.Log { return w.cfg.Shards[s].Log },
		Ack: func(a checkpoint.Ack) {
			w.report(uid, coordinator.Ack{Incarnation: a.Incarnation, Checkpoint: a.ID, Shard: a.Shard, Seq: a.Seq, Digest: a.Digest,
				Index: a.Index, Skipped: a.Skipped, Positions: a.Positions})
		},
		Failed: func(err error) { w.failed(uid, run, err) },
		Phases: w.cfg.Phases,
		Logger: w.cfg.Logger,
	}
	for _, s := range run.led {
		cfg.Local = append(cfg.Local, s.ID)
		c := base.Shard(s.ID)
		cfg.Bases[s.ID] = checkpoint.Base{Index: c.Index}
		cfg.Skipped[s.ID] = c.Skipped
	}
	for _, row := range p.Skip {
		cfg.SkipRows[row] = struct{}{}
	}
	if w.cfg.Links != nil && len(run.led) < len(w.cfg.Shards) {
		cfg.Links = w.cfg.Links.Links(linked(p, prog.Plan))
	}
	run.fillOn(large, w.cfg.Logger.With("pipeline", p.Name))
	if err = awaitFilling(ctx, large); err == nil {
		run.Run, err = task.Start(cfg)
	}
	if err == nil {
		if err = run.Run.Linked(ctx); err != nil {
			run.Run.Stop()
		}
	}
	if err != nil {
		run.stopFilling()
		run.closeTables()
		return err
	}
	if !w.register(uid, run) {
		run.stop()
		return Stale(uid, inc)
	}
	run.watch.Go(func() { w.watchLead(uid, run) })
	w.cfg.Logger.Info("pipeline runs", "pipeline", p.Name, "incarnation", inc, "base", base.ID, "keys", keys, "kept_tables", len(run.kept), "took", time.Since(began))
	return nil
}

// linked describes a run to the other nodes that it is spread over.
func linked(p *meta.Pipeline, pl *plan.Plan) link.Run {
	r := link.Run{Pipeline: p.UID, Incarnation: p.Incarnation, Owners: make([]string, len(p.Owners)), Program: fmt.Sprint(plan.Fingerprint(pl), " ", p.Options.OnError)}
	for _, o := range p.Owners {
		r.Owners[o.Shard] = o.Node
	}
	return r
}

// owned returns the shards whose tasks run here in the pipeline's incarnation. One that names no owners runs on the only
// node there is.
func (w *Worker) owned(p *meta.Pipeline) []*Shard {
	if len(p.Owners) == 0 {
		return w.cfg.Shards
	}
	var led []*Shard
	for _, o := range p.Owners {
		if o.Node == w.cfg.Node {
			led = append(led, w.cfg.Shards[o.Shard])
		}
	}
	return led
}

// leads reports whether this node still leads the logs of all shards of the run.
func (r *Running) leads() bool {
	for _, s := range r.led {
		if !s.Log.IsLeader() {
			return false
		}
	}
	return true
}

// watchLead reports the run as failed when this node ceases to lead one of its shards: nothing that the run does there counts
// any more (P2). It returns when the run has ended.
func (w *Worker) watchLead(uid dataflow.PipelineUID, r *Running) {
	var g errgroup.Group
	for _, s := range r.led {
		g.Go(func() error {
			for {
				changed := s.Log.LeaderChanged()
				if !s.Log.IsLeader() {
					w.report(uid, coordinator.TaskFailed{Incarnation: r.Incarnation, Failure: dataflow.PipelineFailure{
						Reason: dataflow.ReasonNotLeader, Incarnation: r.Incarnation,
						Message: fmt.Sprintf("node %s does not lead shard %d any more", w.cfg.Node, s.ID)}})
					return nil
				}
				select {
				case <-changed:
				case <-r.Run.Done():
					return nil
				}
			}
		})
	}
	_ = g.Wait() // its functions return nil
}

// Stale says that an incarnation is not the pipeline's any more.
func Stale(uid dataflow.PipelineUID, inc dataflow.Incarnation) error {
	return fmt.Errorf("start incarnation %d of pipeline %d: %w", inc, uid, meta.ErrStaleIncarnation)
}

// begin passes the fence, once per incarnation, for the coordinator that step belongs to.
func (w *Worker) begin(uid dataflow.PipelineUID, inc dataflow.Incarnation, step func(coordinator.Event)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.mu.fences[uid]
	if inc <= f.started || inc <= f.stopped {
		return false
	}
	f.started = inc
	w.mu.fences[uid] = f
	w.mu.steps[uid] = step
	return true
}

// report tells the pipeline's coordinator something.
func (w *Worker) report(uid dataflow.PipelineUID, ev coordinator.Event) {
	w.mu.Lock()
	step := w.mu.steps[uid]
	w.mu.Unlock()
	if step != nil {
		step(ev)
	}
}

// Attach lets step take the reports of the pipeline's tasks from now on, and returns the incarnation whose tasks all run, with
// the last barrier that was put in; 0 = none, or they were started with another on_error than the pipeline has now.
func (w *Worker) Attach(uid dataflow.PipelineUID, step func(coordinator.Event)) (dataflow.Incarnation, dataflow.CheckpointID) {
	w.mu.Lock()
	w.mu.steps[uid] = step
	w.mu.Unlock()
	r, p := w.Live(uid), w.cfg.Meta.State().Pipelines[uid]
	if r == nil || p == nil || p.Options.OnError != r.onError || !r.leads() {
		return 0, 0
	}
	return r.Incarnation, dataflow.CheckpointID(r.injected.Load())
}

// register makes a run the pipeline's, unless it has been told to stop or overtaken while it was being started.
func (w *Worker) register(uid dataflow.PipelineUID, run *Running) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.mu.fences[uid]; run.Incarnation <= f.stopped || run.Incarnation < f.started {
		return false
	}
	w.mu.runs[uid] = run
	return true
}

// startOf returns where the sources begin: at the base's positions. Retention may have dropped rows between the moment at
// which a deployment looked for the first row and the one at which it took effect, from where on the pipeline holds them: a
// pipeline that has committed nothing yet begins with the first row there is.
func (w *Worker) startOf(base *dataflow.CheckpointCommit, streams map[string]dataflow.StreamID) dataflow.Positions {
	start := base.Positions.Clone()
	if base.ID != 0 {
		return start
	}
	if start == nil {
		start = make(dataflow.Positions)
	}
	for _, id := range streams {
		for _, s := range w.cfg.Shards {
			k := dataflow.StreamShard{Stream: id, Shard: s.ID}
			first, _, _ := s.Log.Range(id)
			if first <= start[k] || s.Log.LastTrim(id).Reason == shard.TrimGrace {
				continue // what goes by the grace goes although it is held: the pipeline is to fail then
			}
			start[k] = first
		}
	}
	return start
}

// elsewhere is how long the report waits that a run ended because it did on another node: that node's own says why, and
// whether a restart helps, and is to come first.
const elsewhere = 250 * time.Millisecond

// failed reports the end of a run.
func (w *Worker) failed(uid dataflow.PipelineUID, r *Running, err error) {
	ev := w.failure(r.Incarnation, err)
	var lost *link.LostError
	if !errors.As(err, &lost) || !lost.Ended {
		w.report(uid, ev)
		return
	}
	r.watch.Go(func() {
		timer := time.NewTimer(elsewhere)
		defer timer.Stop()
		<-timer.C
		w.report(uid, ev)
	})
}

// failure turns the end of a run into the coordinator's event. What fails again at every try, such as a row that an
// expression cannot take, is permanent.
func (w *Worker) failure(inc dataflow.Incarnation, err error) coordinator.Event {
	ev := coordinator.TaskFailed{Incarnation: inc, Failure: dataflow.PipelineFailure{
		Reason: dataflow.ReasonOf(err), Message: err.Error(), Incarnation: inc,
	}}
	var row *task.RowFailure
	var panicked *task.PanicError
	switch {
	case errors.As(err, &panicked):
		ev.Permanent = true
		w.cfg.Logger.Error("a task panicked", "task", panicked.Task, "panic", panicked.Value, "stack", string(panicked.Stack))
	case errors.As(err, &row):
		ev.Permanent = true
		f := &ev.Failure
		f.Message, f.View, f.Line, f.Column = row.Error(), row.View, row.Line, row.Column
		f.HasRow, f.Row, f.Rendered = row.Stream != "", row.Row, row.Text
	case ev.Failure.Reason == dataflow.ReasonPositionsExpired, ev.Failure.Reason == dataflow.ReasonCorrupt:
		ev.Permanent = true
	}
	return ev
}

// Stop ends the pipeline's run of incarnation inc or an older one, if there is one, and waits for it. None of them is
// started afterwards, nor is one that is being started now.
func (w *Worker) Stop(uid dataflow.PipelineUID, inc dataflow.Incarnation) {
	if r := w.halt(uid, inc); r != nil {
		w.rest(uid, r)
	}
}

// halt is Stop, and returns the run, whose tables are still there; nil = there was none.
func (w *Worker) halt(uid dataflow.PipelineUID, inc dataflow.Incarnation) *Running {
	w.mu.Lock()
	r := w.mu.runs[uid]
	if r != nil && r.Incarnation > inc {
		r = nil
	} else {
		delete(w.mu.runs, uid)
	}
	f := w.mu.fences[uid]
	f.stopped = max(inc, f.stopped)
	w.mu.fences[uid] = f
	w.mu.Unlock()
	if r != nil {
		r.halt()
	}
	return r
}
