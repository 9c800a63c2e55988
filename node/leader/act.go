package leader

import (
	"context"
	"errors"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/raftlog/meta"
)

// feed steps the machine with one event, carries its actions out, and goes on with the events that these give at once.
func (p *pipeline) feed(ctx context.Context, ev coordinator.Event) error {
	p.d.cfg.Logger.Debug("coordinate", "pipeline", p.name, "event", ev)
	for _, next := range p.perform(ctx, p.machine.Step(p.d.now(), ev)) {
		if err := p.feed(ctx, next); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// now is the machines' time, in µs since 1970: the wall clock of the driver's beginning, and what has passed since. A clock
// that jumps forward and is set right afterwards would stop the machines until it has caught up with itself.
func (d *Driver) now() int64 { return d.began.Add(time.Since(d.began)).UnixMicro() }

// perform carries out actions in order and returns the events that answer them.
func (p *pipeline) perform(ctx context.Context, acts []coordinator.Action) []coordinator.Event {
	var evs []coordinator.Event
	for _, a := range acts {
		p.d.cfg.Logger.Debug("coordinate", "pipeline", p.name, "action", a)
		if ev := p.act(ctx, a); ev != nil {
			evs = append(evs, ev)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return evs
}

// act carries out one action. It returns the event that answers it, or nil.
func (p *pipeline) act(ctx context.Context, a coordinator.Action) coordinator.Event {
	m, w := p.d.cfg.Meta, p.d.cfg.Worker
	switch a := a.(type) {
	case coordinator.PassBarrier:
		if err := p.retry(ctx, "pass a barrier", func() error { return m.Barrier(ctx) }); err != nil {
			return nil
		}
		pl := m.State().Pipelines[p.uid]
		if pl == nil {
			return coordinator.Deleted{}
		}
		p.told.known, p.told.state, p.told.options = true, pl.State, pl.Options
		return coordinator.BarrierPassed{View: p.view(pl), Running: w.Attach(ctx, p.uid, p.step)}
	case coordinator.CancelAttempts:
		// Barriers that are under way go through all the same: their deltas count for the next attempt (P2).
		p.d.cfg.Metrics.CheckpointFailed(p.name, a.Cause)
		p.dirty, p.flying = false, false
	case coordinator.ReserveAttempts:
		var ev coordinator.AttemptsReserved
		if err := p.retry(ctx, "reserve attempts", func() (err error) {
			ev.First, ev.End, err = m.ReserveAttempts(ctx, p.uid, a.Count, a.Fence)
			return err
		}); err != nil {
			return nil
		}
		return ev
	case coordinator.InjectBarrier:
		p.dirty, p.flying = false, true
		w.Inject(p.uid, a.Incarnation, a.Checkpoint, a.Hold)
	case coordinator.ProposeCommit:
		return p.commit(ctx, a.Commit)
	case coordinator.ProposeBegin:
		return p.begin(ctx, a)
	case coordinator.StartTasks:
		p.dirty, p.flying = false, false
		p.starting.begin(ctx, func(ctx context.Context) { p.step(p.start(ctx, a)) })
	case coordinator.StopTasks:
		p.starting.cancel()
		w.Stop(p.uid, a.Incarnation)
		return coordinator.TasksStopped(a)
	case coordinator.MarkRunning:
		p.mark(ctx, dataflow.PipelineRunning, func() (*meta.Pipeline, error) { return m.MarkRunning(ctx, p.uid, a.Incarnation) })
	case coordinator.MarkStopped:
		p.mark(ctx, dataflow.PipelineStopped, func() (*meta.Pipeline, error) { return m.MarkStopped(ctx, p.uid, a.Incarnation) })
	case coordinator.MarkFailed:
		p.d.cfg.Logger.Error("pipeline failed", "pipeline", p.name, "failure", a.Failure.String())
		p.mark(ctx, dataflow.PipelineFailed, func() (*meta.Pipeline, error) { return m.MarkFailed(ctx, p.uid, a.Failure) })
	case coordinator.AnswerWaiter:
		p.waiters.answer(a.Waiter, waited{id: a.Checkpoint})
	case coordinator.FailWaiter:
		p.waiters.answer(a.Waiter, waited{err: a.Err})
	}
	return nil
}

// start starts the tasks of an incarnation and returns the event that says how it went.
func (p *pipeline) start(ctx context.Context, a coordinator.StartTasks) coordinator.Event {
	err := p.d.cfg.Worker.Start(ctx, p.uid, a.Incarnation, a.Base, p.step)
	if err == nil {
		return coordinator.TasksStarted{Incarnation: a.Incarnation}
	}
	if ctx.Err() == nil {
		p.d.cfg.Logger.Warn("start tasks", "pipeline", p.name, "incarnation", a.Incarnation, "error", err)
	}
	reason := dataflow.ReasonOf(err)
	return coordinator.TaskFailed{Incarnation: a.Incarnation, Permanent: reason == dataflow.ReasonPositionsExpired || reason == dataflow.ReasonCorrupt,
		Failure: dataflow.PipelineFailure{Reason: reason, Message: err.Error(), Incarnation: a.Incarnation}}
}

// starting is the start of tasks that is under way. It can take long, and the machine must hear meanwhile that the pipeline
// is to stop or is deleted.
type starting struct {
	stop func()
	done chan struct{}
}

// begin runs start, of which one is under way at most, in a goroutine that cancel waits for.
func (s *starting) begin(ctx context.Context, start func(context.Context)) {
	s.cancel()
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	s.stop, s.done = stop, done
	go func() {
		defer close(done)
		defer stop()
		start(ctx)
	}()
}

// cancel ends the start under way, if there is one, and waits for it.
func (s *starting) cancel() {
	if s.done != nil {
		s.stop()
		<-s.done
		s.done = nil
	}
}

func (p *pipeline) view(pl *meta.Pipeline) coordinator.View {
	return coordinator.View{
		State: pl.State, Incarnation: pl.Incarnation, Base: pl.Base, Committed: pl.Newest().ID,
		Options: pl.Options, Shards: p.d.cfg.Meta.State().Shards, Fresh: pl.AttemptsTo == 1,
	}
}

func (p *pipeline) commit(ctx context.Context, c *dataflow.CheckpointCommit) coordinator.Event {
	p.d.cfg.Phases.Enter(phase.Commit)
	defer p.d.cfg.Phases.Leave(phase.Commit)
	c.Pipeline = p.uid
	p.flying = false
	var applied *dataflow.CheckpointCommit
	err := p.retry(ctx, "commit checkpoint", func() (err error) {
		applied, err = p.d.cfg.Meta.CommitCheckpoint(ctx, c)
		return err
	})
	switch {
	case err == nil:
		p.d.cfg.Metrics.CheckpointCommitted(p.name, time.Duration(applied.CommittedAt-applied.TriggeredAt)*time.Microsecond)
		return coordinator.CommitApplied{Commit: applied}
	case ctx.Err() != nil:
		return nil
	}
	if dataflow.ReasonOf(err) == dataflow.ReasonPipelineNotFound {
		return coordinator.Deleted{} // the meta log has it before observe does
	}
	p.d.cfg.Metrics.CheckpointFailed(p.name, "refused")
	p.d.cfg.Logger.Warn("commit refused", "pipeline", p.name, "checkpoint", c.ID, "error", err)
	return coordinator.CommitRefused{Checkpoint: c.ID, Err: err}
}

func (p *pipeline) begin(ctx context.Context, a coordinator.ProposeBegin) coordinator.Event {
	p.d.cfg.Phases.Enter(phase.Recover)
	defer p.d.cfg.Phases.Leave(phase.Recover)
	var pl *meta.Pipeline
	owners, err := p.d.cfg.Worker.Owners(ctx)
	if err != nil {
		return nil // ctx has ended
	}
	err = p.retry(ctx, "begin incarnation", func() (err error) {
		pl, err = p.d.cfg.Meta.BeginIncarnation(ctx, p.uid, a.After, owners, a.Cause)
		return err
	})
	switch {
	case err == nil:
		p.told.state = pl.State
		p.d.cfg.Metrics.IncarnationBegun(p.name)
		p.d.cfg.Logger.Info("incarnation begins", "pipeline", p.name, "incarnation", pl.Incarnation, "base", pl.Base.ID, "cause", a.Cause)
		return coordinator.IncarnationBegun{Incarnation: pl.Incarnation, Base: pl.Base}
	case ctx.Err() != nil:
		return nil
	}
	if pl = p.d.cfg.Meta.State().Pipelines[p.uid]; pl == nil {
		return coordinator.Deleted{}
	}
	p.told.state = pl.State
	return coordinator.BeginRefused{Err: err, View: p.view(pl)}
}

// mark records a state in the meta log. A refusal means that something newer has happened, which observe finds.
func (p *pipeline) mark(ctx context.Context, state dataflow.PipelineState, propose func() (*meta.Pipeline, error)) {
	what := "mark " + state.String()
	err := p.retry(ctx, what, func() error {
		pl, err := propose()
		if err == nil && pl.State == state { // not overtaken: a change from here on is news
			p.told.state = state
		}
		return err
	})
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, meta.ErrStaleIncarnation) || dataflow.ReasonOf(err) == dataflow.ReasonPipelineState || dataflow.ReasonOf(err) == dataflow.ReasonPipelineNotFound:
		p.d.cfg.Logger.Debug(what, "pipeline", p.name, "error", err) // overtaken by something newer
	default:
		p.d.cfg.Logger.Error(what, "pipeline", p.name, "error", err)
	}
}

// retryPause is the pause before a proposal whose outcome is unknown, or that the log had no room for, is made again.
const retryPause = 20 * time.Millisecond

// retry makes a proposal until it has an answer: the meta log recognises a repeated one. A refusal is returned.
func (p *pipeline) retry(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		var e *dataflow.Error
		if !errors.As(err, &e) {
			return err
		}
		switch e.Reason.Kind() {
		case dataflow.KindUnknown, dataflow.KindOverloaded, dataflow.KindUnavailable, dataflow.KindDeadline:
		default:
			return err
		}
		p.d.cfg.Logger.Debug(what, "pipeline", p.name, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryPause):
		}
	}
}
