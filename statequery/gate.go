package statequery

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weirdb/weir/dataflow"
)

// gate gives parts of a budget of memory to requests (Q5). A request for which there is no room waits in the order in which
// requests came, for as long as its caller does: a large one is not passed by small ones for ever. It is safe for
// concurrent use.
type gate struct {
	room    *semaphore.Weighted
	bytes   int64 // in all
	waiting atomic.Int64
	what    string // that passes, for messages
}

const (
	// maxWaiting is how many requests wait for one gate. Each holds a goroutine and a request's text; more would wait for
	// minutes, of which their callers had better be told.
	maxWaiting = 256
	// gateRetry is when a request that found no room should be tried again.
	gateRetry = time.Second
)

func newGate(what string, bytes int64) *gate {
	return &gate{what: what, room: semaphore.NewWeighted(bytes), bytes: bytes}
}

// enter gives the caller n bytes of the budget, at once or after a wait. Who is in gives them back with leave. The error is
// OVERLOADED when too many wait already, DEADLINE when ctx ends first.
func (g *gate) enter(ctx context.Context, n int64) (waited bool, err error) {
	if g.room.TryAcquire(n) {
		return false, nil
	}
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > maxWaiting {
		return true, dataflow.Errorf(dataflow.ReasonOverloaded, "%s hold all of the %d bytes that there are for them, and %d wait", g.what, g.bytes, maxWaiting).
			WithHint("try again later, or give the server more with --query-memory").WithRetry(gateRetry)
	}
	if g.room.Acquire(ctx, n) != nil {
		return true, deadline(ctx)
	}
	return true, nil
}

func (g *gate) leave(n int64) { g.room.Release(n) }

// admit opens a reading of p and lets it through a gate with n bytes. A reading that had to wait there is opened anew: its
// cut may have been superseded. The caller closes the reading, then leaves the gate.
func (e *Engine) admit(ctx context.Context, g *gate, n int64, p *Pipeline, open func(p *Pipeline) (*reading, error)) (*reading, error) {
	r, err := open(p)
	if err != nil {
		return nil, err
	}
	waited, err := g.enter(ctx, n)
	if err == nil && !waited {
		return r, nil
	}
	r.close()
	if err != nil {
		return nil, err
	}
	if r, err = e.reopen(p, open); err != nil {
		g.leave(n)
	}
	return r, err
}

// reopen opens a reading of p as it is now.
func (e *Engine) reopen(p *Pipeline, open func(p *Pipeline) (*reading, error)) (*reading, error) {
	now, err := e.current(p)
	if err != nil {
		return nil, err
	}
	return open(now)
}

// current returns p as it is now, on whatever timeline. The error says that it is another pipeline, or none.
func (e *Engine) current(p *Pipeline) (*Pipeline, error) {
	now, err := e.cfg.Catalog.Pipeline(p.Name)
	switch {
	case err != nil:
		return nil, err
	case now.UID != p.UID:
		return nil, timelineChanged("pipeline %s was deleted and deployed again meanwhile", p.Name)
	}
	return now, nil
}
