package worker

import (
	"context"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// coverWait is how long a live read waits to learn what the tables cover, when the sources have read all there is: then a
// marker takes well below a millisecond. Under load it would queue behind the rows, so nobody waits for it there.
const coverWait = 2 * time.Millisecond

// coverage is what a run's tables are known to cover: positions, and the one marker (P9) that is on its way to learn more.
type coverage struct {
	mu struct {
		sync.Mutex
		known   dataflow.Positions // never changed, only replaced by larger ones
		arrived chan struct{}      // closed when the marker on its way has arrived; nil = there is none
		stopped bool
	}
	markers sync.WaitGroup // the goroutines that wait for one
}

// get returns what is known.
func (c *coverage) get() dataflow.Positions {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.known
}

// raise adds to what is known.
func (c *coverage) raise(p dataflow.Positions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.known.Covers(p) {
		known := c.mu.known.Clone()
		known.Advance(p)
		c.mu.known = known
	}
}

// probe sends a marker unless one is on its way, and returns a channel that is closed when it has arrived.
func (c *coverage) probe(send func() (dataflow.Positions, error)) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.arrived != nil || c.mu.stopped {
		return c.mu.arrived
	}
	arrived := make(chan struct{})
	c.mu.arrived = arrived
	c.markers.Go(func() {
		p, err := send()
		if err == nil { // otherwise the run has ended: nothing more is learned
			c.raise(p)
		}
		c.mu.Lock()
		c.mu.arrived = nil
		c.mu.Unlock()
		close(arrived)
	})
	return arrived
}

// stop waits for the marker on its way, whose run has been stopped.
func (c *coverage) stop() {
	c.mu.Lock()
	c.mu.stopped = true
	c.mu.Unlock()
	c.markers.Wait()
}

// Covered returns positions of which every table of the run holds all effects. It is a lower bound: rows that are being
// read may be in the tables already. The result is not to be changed.
func (r *Running) Covered(ctx context.Context) dataflow.Positions {
	known := r.covered.get()
	if !r.Run.ReadBeyond(known) {
		return known
	}
	arrived := r.covered.probe(func() (dataflow.Positions, error) { return r.Run.Processed(context.Background(), nil) })
	if !r.idle() {
		return known
	}
	timer := time.NewTimer(coverWait)
	defer timer.Stop()
	select {
	case <-arrived:
	case <-timer.C:
	case <-ctx.Done():
	}
	return r.covered.get()
}

// idle reports whether the sources have read all there is.
func (r *Running) idle() bool {
	for at, pos := range r.Run.Positions() {
		if pos < r.end(at) {
			return false
		}
	}
	return true
}

// Processed waits until every table of the run holds the effect of all rows below want (P9), and returns positions, at
// least want, that they cover then. The error is ctx's, or task.ErrStopped.
func (r *Running) Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	if known := r.covered.get(); known.Covers(want) {
		return known, nil
	}
	p, err := r.Run.Processed(ctx, want)
	if err != nil {
		return nil, err
	}
	r.covered.raise(p)
	return p, nil
}

// stop ends the run and waits for it.
func (r *Running) stop() {
	r.Run.Stop()
	r.covered.stop()
}
