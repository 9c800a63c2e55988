package leader

import (
	"context"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
)

// pipeline drives one machine. Its goroutine is the only one that steps it.
type pipeline struct {
	d    *Driver
	uid  dataflow.PipelineUID
	name string

	mail struct {
		sync.Mutex
		events []coordinator.Event // reported by tasks and callers; bounded by the tasks and waiters there are
		room   bool                // somebody wants room; RoomWanted is due
		closed error               // why nothing is taken any more; nil while the machine runs
	}
	wake    chan struct{} // capacity 1
	waiters waiters

	// The rest is the goroutine's own.
	machine *coordinator.Machine
	dirty   bool // Dirty has been stepped since the last barrier
	flying  bool // a barrier is on its way: what is behind it shows when its cut is committed
	// told is what the machine knows of the meta log's record of the pipeline; known says that it does.
	told struct {
		known   bool
		state   dataflow.PipelineState
		options dataflow.PipelineOptions
	}
	starting starting
}

func newPipeline(d *Driver, uid dataflow.PipelineUID, name string) *pipeline {
	p := &pipeline{d: d, uid: uid, name: name, wake: make(chan struct{}, 1), machine: coordinator.New()}
	p.waiters.open = make(map[uint64]chan waited)
	return p
}

// step hands the machine an event. It never blocks; after the end of the pipeline's run the event is dropped.
func (p *pipeline) step(ev coordinator.Event) { _ = p.post(ev) } // who reports does not care who listens

// post is step for who must know when nobody takes the event.
func (p *pipeline) post(ev coordinator.Event) error {
	p.mail.Lock()
	defer p.mail.Unlock()
	if p.mail.closed != nil {
		return p.mail.closed
	}
	p.mail.events = append(p.mail.events, ev)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

func (p *pipeline) take() []coordinator.Event {
	p.mail.Lock()
	defer p.mail.Unlock()
	evs := p.mail.events
	if p.mail.room {
		evs = append(evs, coordinator.RoomWanted{})
	}
	p.mail.events, p.mail.room = nil, false
	return evs
}

// wantRoom steps RoomWanted soon, once for all who ask meanwhile.
func (p *pipeline) wantRoom() {
	p.mail.Lock()
	defer p.mail.Unlock()
	p.mail.room = true
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run steps the machine until ctx ends or the pipeline is deleted.
func (p *pipeline) run(ctx context.Context) error {
	deleted, err := p.drive(ctx)
	p.starting.cancel()
	why := dataflow.Errorf(dataflow.ReasonShuttingDown, "the coordinator of pipeline %s has stopped", p.name).WithRetry(retryLater)
	if deleted {
		why = dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %s was deleted", p.name)
	}
	// The machine answers the waiters that it knows, then those are answered who came too late for it.
	p.perform(context.WithoutCancel(ctx), p.machine.Step(p.d.now(), coordinator.Deposed{}))
	p.mail.Lock()
	p.mail.closed, p.mail.events = why, nil
	p.mail.Unlock()
	p.waiters.answerAll(waited{err: why})
	return err
}

// retryLater is when a request should be tried again that met the end of a coordinator.
const retryLater = 200 * time.Millisecond

func (p *pipeline) drive(ctx context.Context) (deleted bool, err error) {
	if err := p.feed(ctx, coordinator.Elected{}); err != nil {
		return false, err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed, appended := p.d.cfg.Meta.Changed(), p.d.cfg.Worker.Appended()
		for _, ev := range p.take() {
			if err := p.feed(ctx, ev); err != nil {
				return false, err
			}
		}
		if deleted, err := p.observe(ctx); deleted || err != nil {
			return deleted, err
		}
		var due <-chan time.Time
		if at := p.machine.Deadline(); at != 0 {
			timer.Reset(time.Duration(at-p.d.now()) * time.Microsecond)
			due = timer.C
		}
		if p.dirty || p.flying {
			appended = nil // it knows, or will look
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-due:
			if err := p.feed(ctx, coordinator.Tick{}); err != nil {
				return false, err
			}
		case <-p.wake:
		case <-changed:
		case <-appended:
		}
	}
}

// observe tells the machine what is new in the meta log and in the streams.
func (p *pipeline) observe(ctx context.Context) (deleted bool, err error) {
	pl := p.d.cfg.Meta.State().Pipelines[p.uid]
	if pl == nil {
		return true, p.feed(ctx, coordinator.Deleted{})
	}
	if !p.told.known {
		return false, nil
	}
	if pl.Options != p.told.options {
		p.told.options = pl.Options
		if err := p.feed(ctx, coordinator.OptionsChanged{Options: pl.Options}); err != nil {
			return false, err
		}
	}
	was := p.told.state
	p.told.state = pl.State
	switch {
	case pl.State == was:
	case pl.State == dataflow.PipelineStopping:
		if !was.Active() { // resumed and stopped again since we looked
			err = p.feed(ctx, coordinator.Resumed{})
		}
		if err == nil {
			err = p.feed(ctx, coordinator.StopRequested{})
		}
	case pl.State == dataflow.PipelineRecovering && !was.Active():
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
