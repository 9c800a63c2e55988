package leader

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/raftlog/meta"
)

// pipeline drives one machine. Its goroutine is the only one that steps it.
type pipeline struct {
	d    *Driver
	uid  dataflow.PipelineUID
	name string

	mail struct {
		sync.Mutex
		events []coordinator.Event // reported by tasks and callers; bounded by the tasks and waiters there are
		closed bool
	}
	wake chan struct{} // capacity 1

	waiters struct {
		sync.Mutex
		next uint64
		open map[uint64]chan waited
	}

	machine *coordinator.Machine
	dirty   bool           // Dirty has been stepped since the last barrier
	flying  bool           // a barrier is on its way: what is behind it shows when its cut is committed
	seen    *meta.Pipeline // what the machine has been told of
}

type waited struct {
	id  dataflow.CheckpointID
	err error
}

func newPipeline(d *Driver, uid dataflow.PipelineUID, name string) *pipeline {
	p := &pipeline{d: d, uid: uid, name: name, wake: make(chan struct{}, 1), machine: coordinator.New()}
	p.waiters.open = make(map[uint64]chan waited)
	return p
}

// step hands the machine an event. It never blocks; after the end of the pipeline's run the event is dropped.
func (p *pipeline) step(ev coordinator.Event) {
	p.mail.Lock()
	if !p.mail.closed {
		p.mail.events = append(p.mail.events, ev)
	}
	p.mail.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pipeline) take() []coordinator.Event {
	p.mail.Lock()
	defer p.mail.Unlock()
	evs := p.mail.events
	p.mail.events = nil
	return evs
}

func (p *pipeline) trigger(ctx context.Context) (dataflow.CheckpointID, error) {
	ch := make(chan waited, 1)
	p.waiters.Lock()
	p.waiters.next++
	id := p.waiters.next
	p.waiters.open[id] = ch
	p.waiters.Unlock()
	defer func() {
		p.waiters.Lock()
		delete(p.waiters.open, id)
		p.waiters.Unlock()
	}()
	p.mail.Lock()
	closed := p.mail.closed
	p.mail.Unlock()
	if closed { // end has answered those who waited then; nobody would answer this one
		return 0, p.stopped()
	}
	p.step(coordinator.TriggerRequested{Waiter: id})
	select {
	case w := <-ch:
		return w.id, w.err
	case <-ctx.Done():
		return 0, dataflow.Errorf(dataflow.ReasonDeadline, "the checkpoint was not committed in time: %w", context.Cause(ctx))
	}
}

func (p *pipeline) answer(waiter uint64, w waited) {
	p.waiters.Lock()
	ch := p.waiters.open[waiter]
	p.waiters.Unlock()
	if ch != nil {
		ch <- w // capacity 1, answered once
	}
}

// run steps the machine until ctx ends or the pipeline is deleted.
func (p *pipeline) run(ctx context.Context) error {
	defer p.end()
	if err := p.feed(ctx, coordinator.Elected{}); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed, appended := p.d.cfg.Meta.Changed(), p.d.cfg.Worker.Appended()
		for _, ev := range p.take() {
			if err := p.feed(ctx, ev); err != nil {
				return err
			}
		}
		if deleted, err := p.observe(ctx); deleted || err != nil {
			return err
		}
		var due <-chan time.Time
		if at := p.machine.Deadline(); at != 0 {
			timer.Reset(time.Until(time.UnixMicro(at)))
			due = timer.C
		}
		if p.dirty || p.flying {
			appended = nil // it knows, or will look
		}
		select {
		case <-ctx.Done():
			p.perform(context.WithoutCancel(ctx), p.machine.Step(now(), coordinator.Deposed{}))
			return ctx.Err()
		case <-due:
			if err := p.feed(ctx, coordinator.Tick{}); err != nil {
				return err
			}
		case <-p.wake:
		case <-changed:
		case <-appended:
		}
	}
}

func (p *pipeline) stopped() error {
	return dataflow.Errorf(dataflow.ReasonShuttingDown, "the coordinator of pipeline %s has stopped", p.name)
}

// end answers who still waits.
func (p *pipeline) end() {
	p.mail.Lock()
	p.mail.closed = true
	p.mail.events = nil
	p.mail.Unlock()
	p.waiters.Lock()
	defer p.waiters.Unlock()
	for id, ch := range p.waiters.open {
		select {
		case ch <- waited{err: p.stopped()}:
		default:
		}
		delete(p.waiters.open, id)
	}
}

// observe tells the machine what is new in the meta log and in the streams.
func (p *pipeline) observe(ctx context.Context) (deleted bool, err error) {
	pl := p.d.cfg.Meta.State().Pipelines[p.uid]
	if pl == nil {
		return true, p.feed(ctx, coordinator.Deleted{})
	}
	old := p.seen
	p.seen = pl
	if old == nil {
		return false, nil
	}
	if pl.Options != old.Options {
		if err := p.feed(ctx, coordinator.OptionsChanged{Options: pl.Options}); err != nil {
			return false, err
		}
	}
	switch {
	case pl.State == old.State:
	case pl.State == dataflow.PipelineStopping:
		if !old.State.Active() { // resumed and stopped again since we looked
			err = p.feed(ctx, coordinator.Resumed{})
		}
		if err == nil {
			err = p.feed(ctx, coordinator.StopRequested{})
		}
	case pl.State == dataflow.PipelineRecovering && !old.State.Active():
		err = p.feed(ctx, coordinator.Resumed{})
	}
	if err != nil {
		return false, err
	}
	if !p.dirty && !p.flying && pl.State.Active() && !pl.Newest().Positions.Covers(p.d.cfg.Worker.Ends(pl.Reads)) {
		p.dirty = true
		return false, p.feed(ctx, coordinator.Dirty{})
	}
	return false, nil
}

// feed steps the machine with one event, carries its actions out, and goes on with the events that these give at once.
func (p *pipeline) feed(ctx context.Context, ev coordinator.Event) error {
	p.d.cfg.Logger.Debug("coordinate", "pipeline", p.name, "event", ev)
	for _, next := range p.perform(ctx, p.machine.Step(now(), ev)) {
		if err := p.feed(ctx, next); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func now() int64 { return time.Now().UnixMicro() }

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
		p.seen = pl
		return coordinator.BarrierPassed{View: p.view(pl), Running: w.Running(p.uid)}
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
		w.Inject(p.uid, a.Incarnation, a.Checkpoint)
	case coordinator.ProposeCommit:
		return p.commit(ctx, a.Commit)
	case coordinator.ProposeBegin:
		return p.begin(ctx, a)
	case coordinator.StartTasks:
		p.dirty, p.flying = false, false
		if err := w.Start(ctx, p.uid, a.Incarnation, a.Base, p.step); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			p.d.cfg.Logger.Warn("start tasks", "pipeline", p.name, "incarnation", a.Incarnation, "error", err)
			reason := dataflow.ReasonOf(err)
			return coordinator.TaskFailed{Incarnation: a.Incarnation, Permanent: reason == dataflow.ReasonPositionsExpired || reason == dataflow.ReasonCorrupt,
				Failure: dataflow.PipelineFailure{Reason: reason, Message: err.Error(), Incarnation: a.Incarnation}}
		}
		return coordinator.TasksStarted{Incarnation: a.Incarnation}
	case coordinator.StopTasks:
		w.Stop(p.uid, a.Incarnation)
		return coordinator.TasksStopped(a)
	case coordinator.MarkRunning:
		p.mark(ctx, "mark RUNNING", func() error { _, err := m.MarkRunning(ctx, p.uid, a.Incarnation); return err })
	case coordinator.MarkStopped:
		p.mark(ctx, "mark STOPPED", func() error { _, err := m.MarkStopped(ctx, p.uid, a.Incarnation); return err })
	case coordinator.MarkFailed:
		p.d.cfg.Logger.Error("pipeline failed", "pipeline", p.name, "failure", a.Failure.String())
		p.mark(ctx, "mark FAILED", func() error { _, err := m.MarkFailed(ctx, p.uid, a.Failure); return err })
	case coordinator.AnswerWaiter:
		p.answer(a.Waiter, waited{id: a.Checkpoint})
	case coordinator.FailWaiter:
		p.answer(a.Waiter, waited{err: a.Err})
	}
	return nil
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
	p.d.cfg.Metrics.CheckpointFailed(p.name, "refused")
	p.d.cfg.Logger.Warn("commit refused", "pipeline", p.name, "checkpoint", c.ID, "error", err)
	return coordinator.CommitRefused{Checkpoint: c.ID, Err: err}
}

func (p *pipeline) begin(ctx context.Context, a coordinator.ProposeBegin) coordinator.Event {
	p.d.cfg.Phases.Enter(phase.Recover)
	defer p.d.cfg.Phases.Leave(phase.Recover)
	var pl *meta.Pipeline
	err := p.retry(ctx, "begin incarnation", func() (err error) {
		pl, err = p.d.cfg.Meta.BeginIncarnation(ctx, p.uid, a.After, p.owners(), a.Cause)
		return err
	})
	switch {
	case err == nil:
		p.seen = pl
		p.d.cfg.Metrics.IncarnationBegun(p.name)
		p.d.cfg.Logger.Info("incarnation begins", "pipeline", p.name, "incarnation", pl.Incarnation, "base", pl.Base.ID, "cause", a.Cause)
		return coordinator.IncarnationBegun{Incarnation: pl.Incarnation, Base: pl.Base}
	case ctx.Err() != nil:
		return nil
	}
	if pl = p.d.cfg.Meta.State().Pipelines[p.uid]; pl == nil {
		return coordinator.Deleted{}
	}
	return coordinator.BeginRefused{Err: err, View: p.view(pl)}
}

func (p *pipeline) owners() []meta.Owner {
	owners := make([]meta.Owner, p.d.cfg.Meta.State().Shards)
	for i := range owners {
		owners[i] = meta.Owner{Shard: dataflow.ShardID(i), Node: p.d.cfg.Node}
	}
	return owners
}

func (p *pipeline) mark(ctx context.Context, what string, f func() error) {
	if err := p.retry(ctx, what, f); err != nil && ctx.Err() == nil {
		p.d.cfg.Logger.Debug(what, "pipeline", p.name, "error", err)
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
