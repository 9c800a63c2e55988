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

// Progress is what a Coverage follows: an incarnation, on this node or on several.
type Progress interface {
	// ReadBeyond reports whether rows may have been read that p does not cover.
	ReadBeyond(p dataflow.Positions) bool
	// Idle reports whether the sources have read all there is.
	Idle() bool
	// Pass sends a marker behind what the sources have read, at least want, and returns what the tables cover when it has
	// arrived (P9).
	Pass(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error)
	// Done is closed when the incarnation has ended.
	Done() <-chan struct{}
}

// Coverage is what an incarnation's tables are known to cover, by markers (P9) that follow each other while live reads want
// to know.
type Coverage struct {
	progress Progress
	mu       struct {
		sync.Mutex
		known     dataflow.Positions // never changed, only replaced by larger ones
		following bool               // markers are under way
		wanted    bool               // somebody has asked since the last one
		ended     bool               // the run has ended
	}
	followers sync.WaitGroup // the goroutine that sends markers
}

// get returns what is known.
func (c *Coverage) get() dataflow.Positions {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.known
}

// raise adds to what is known.
func (c *Coverage) raise(p dataflow.Positions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.known.Covers(p) {
		known := c.mu.known.Clone()
		known.Advance(p)
		c.mu.known = known
	}
}

// want lets markers go on, and reports whether the caller is to start them.
func (c *Coverage) want() (start bool) {
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
func (c *Coverage) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ended = true
}

// stop waits for the end of the markers of a run that has been stopped.
func (c *Coverage) stop() {
	c.end()
	c.followers.Wait()
}

// goOn is asked after each marker, and reports whether another is to follow: somebody has asked in the last rounds.
func (c *Coverage) goOn(rounds *int) bool {
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

// NewCoverage returns the coverage of an incarnation that began at known.
func NewCoverage(p Progress, known dataflow.Positions) *Coverage {
	c := &Coverage{progress: p}
	c.mu.known = known
	return c
}

// follow sends markers as long as they are wanted and the run runs. first is closed when the first has arrived.
func (c *Coverage) follow(first chan struct{}) {
	defer c.followers.Done()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for rounds := 0; ; {
		if c.progress.ReadBeyond(c.get()) {
			if p, err := c.progress.Pass(context.Background(), nil); err == nil { // it ends with the run
				c.raise(p)
			}
		}
		if first != nil {
			close(first)
			first = nil
		}
		select {
		case <-tick.C:
		case <-c.progress.Done():
			c.end()
		}
		if !c.goOn(&rounds) {
			return
		}
	}
}

// Covered returns positions of which every table of the incarnation holds all effects. It is a lower bound: rows that are
// being read may be in the tables already. The result is not to be changed.
func (c *Coverage) Covered(ctx context.Context) dataflow.Positions {
	known := c.get()
	if !c.progress.ReadBeyond(known) || !c.want() {
		return known
	}
	first := make(chan struct{})
	go c.follow(first)
	if !c.progress.Idle() {
		return known
	}
	timer := time.NewTimer(coverWait)
	defer timer.Stop()
	select {
	case <-first:
	case <-timer.C:
	case <-ctx.Done():
	}
	return c.get()
}

// Processed waits until every table holds the effect of all rows below want (P9), and returns positions, at least want, that
// they cover then. The error is ctx's, or says that the incarnation has ended.
func (c *Coverage) Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	if known := c.get(); known.Covers(want) {
		return known, nil
	}
	p, err := c.progress.Pass(ctx, want)
	if err != nil {
		return nil, err
	}
	c.raise(p)
	return p, nil
}

// Stop lets no more markers follow and waits for those that do. The incarnation has ended, or will without waiting.
func (c *Coverage) Stop() { c.stop() }

// ReadBeyond implements Progress.
func (r *Running) ReadBeyond(p dataflow.Positions) bool { return r.Run.ReadBeyond(p) }

// Pass implements Progress.
func (r *Running) Pass(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	return r.Run.Processed(ctx, want)
}

// Done implements Progress.
func (r *Running) Done() <-chan struct{} { return r.Run.Done() }

// Idle implements Progress.
func (r *Running) Idle() bool {
	for at, pos := range r.Run.Positions() {
		if pos < r.end(at) {
			return false
		}
	}
	return true
}

// Covered is Coverage.Covered of the run, which is wholly on this node.
func (r *Running) Covered(ctx context.Context) dataflow.Positions { return r.covered.Covered(ctx) }

// Processed is Coverage.Processed of the run, which is wholly on this node. The error is ctx's, or task.ErrStopped.
func (r *Running) Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	return r.covered.Processed(ctx, want)
}

// stop ends the run and waits for it.
func (r *Running) stop() {
	r.halt()
	r.closeTables()
}

// halt is stop, but leaves the tables to who may use them on.
func (r *Running) halt() {
	r.Run.Stop()
	r.watch.Wait()
	r.covered.stop()
	r.stopFilling()
}
