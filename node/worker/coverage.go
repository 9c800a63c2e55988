package worker

import (
	"context"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

const (
	// followEvery is how often a marker learns what the tables cover while live reads ask for it. Why not more often: a
	// marker is a message on every edge of the run. Why not less often: reads look behind by that much.
	followEvery = 25 * time.Millisecond
	// followRounds without a read end the markers.
	followRounds = 40
	// coverWait is how long the read waits that finds no markers under way, when the sources have read all there is: then a
	// marker takes well below a millisecond. Under load it would queue behind the rows, so nobody waits for it there.
	coverWait = 2 * time.Millisecond
)

// coverage is what a run's tables are known to cover, by markers (P9) that follow each other while live reads want to know.
type coverage struct {
	mu struct {
		sync.Mutex
		known     dataflow.Positions // never changed, only replaced by larger ones
		following bool               // markers are under way
		wanted    bool               // somebody has asked since the last one
		ended     bool               // the run has ended
	}
	followers sync.WaitGroup // the goroutine that sends markers
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

// want lets markers go on, and reports whether the caller is to start them.
func (c *coverage) want() (start bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.wanted = true
	if c.mu.following || c.mu.ended {
		return false
	}
	c.mu.following = true
	c.followers.Add(1) // under the lock, so that stop waits for it
	return true
}

// end lets no more markers follow.
func (c *coverage) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ended = true
}

// stop waits for the end of the markers of a run that has been stopped.
func (c *coverage) stop() {
	c.end()
	c.followers.Wait()
}

// goOn is asked after each marker, and reports whether another is to follow: somebody has asked in the last rounds.
func (c *coverage) goOn(rounds *int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *rounds++; c.mu.wanted {
		*rounds, c.mu.wanted = 0, false
	}
	if *rounds >= followRounds || c.mu.ended {
		c.mu.following = false
	}
	return c.mu.following
}

// follow sends markers as long as they are wanted and the run runs. first is closed when the first has arrived.
func (r *Running) follow(first chan struct{}) {
	c := &r.covered
	defer c.followers.Done()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for rounds := 0; ; {
		if r.Run.ReadBeyond(c.get()) {
			if p, err := r.Run.Processed(context.Background(), nil); err == nil { // it ends with the run
				c.raise(p)
			}
		}
		if first != nil {
			close(first)
			first = nil
		}
		select {
		case <-tick.C:
		case <-r.Run.Done():
			c.end()
		}
		if !c.goOn(&rounds) {
			return
		}
	}
}

// Covered returns positions of which every table of the run holds all effects. It is a lower bound: rows that are being
// read may be in the tables already. The result is not to be changed.
func (r *Running) Covered(ctx context.Context) dataflow.Positions {
	known := r.covered.get()
	if !r.Run.ReadBeyond(known) || !r.covered.want() {
		return known
	}
	first := make(chan struct{})
	go r.follow(first)
	if !r.idle() {
		return known
	}
	timer := time.NewTimer(coverWait)
	defer timer.Stop()
	select {
	case <-first:
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
	r.stopFilling()
	r.closeTables()
}
