package statequery

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// gate lets a bounded number of requests hold a budget of memory at once (Q5). Others wait in the order in which they
// came, as long as their callers do. It is safe for concurrent use.
type gate struct {
	slots   chan struct{} // one per request that is in
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

func newGate(what string, slots int64) *gate {
	return &gate{what: what, slots: make(chan struct{}, max(1, slots))}
}

// enter lets the caller in, at once or after a wait. Who is in calls leave. The error is OVERLOADED when too many wait
// already, DEADLINE when ctx ends first.
func (g *gate) enter(ctx context.Context) (waited bool, err error) {
	select {
	case g.slots <- struct{}{}:
		return false, nil
	default:
	}
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > maxWaiting {
		return true, dataflow.Errorf(dataflow.ReasonOverloaded, "%d %s hold all the memory there is for them, and %d wait", cap(g.slots), g.what, maxWaiting).
			WithHint("try again later, or give the server more with --query-memory").WithRetry(gateRetry)
	}
	select {
	case g.slots <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return true, deadline(ctx)
	}
}

func (g *gate) leave() { <-g.slots }

// admit opens a reading of p and lets it through a gate. A reading that had to wait there is opened anew: its cut may have
// been superseded. The caller closes the reading, then leaves the gate.
func (e *Engine) admit(ctx context.Context, g *gate, p *Pipeline, open func(p *Pipeline) (*reading, error)) (*reading, error) {
	r, err := open(p)
	if err != nil {
		return nil, err
	}
	waited, err := g.enter(ctx)
	if err == nil && !waited {
		return r, nil
	}
	r.close()
	if err != nil {
		return nil, err
	}
	if r, err = e.reopen(p, open); err != nil {
		g.leave()
	}
	return r, err
}

func (e *Engine) reopen(p *Pipeline, open func(p *Pipeline) (*reading, error)) (*reading, error) {
	now, err := e.cfg.Catalog.Pipeline(p.Name)
	switch {
	case err != nil:
		return nil, err
	case now.UID != p.UID:
		return nil, timelineChanged("pipeline %s was deleted and deployed again meanwhile", p.Name)
	}
	return open(now)
}
