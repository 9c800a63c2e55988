package statequery

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// feed keeps what the newest cuts changed in one table, decoded once for all watchers. One goroutine, its follower, adds a
// set per cut; watchers read the sets at their own pace, so that nobody waits for a slow one: who falls behind the oldest
// set has to compare cuts, or is cut off.
type feed struct {
	hub      *watchHub
	key      feedKey
	pipeline string
	table    *Table
	ended    chan struct{} // closed when the follower has ended
	watchers int           // guarded by the hub's lock
	left     int64         // when the last one left, in µs since 1970; guarded by the hub's lock
	idle     chan struct{} // 1: tells the follower that the last watcher has left

	mu struct {
		sync.Mutex
		newest  *dataflow.CheckpointCommit // the cut that the sets reach
		sets    []*changeSet               // oldest first; each begins where the one before ends
		bytes   int64                      // of sets
		changed chan struct{}              // closed and replaced with every set, and at the end
		err     error                      // why the follower has ended
	}
}

// feedKey names a table of one deployment.
type feedKey struct {
	pipeline dataflow.PipelineUID
	table    string
}

// changeSet is what changed from one cut to a later one. But for who uses it, it is immutable.
type changeSet struct {
	from  dataflow.CheckpointID
	cut   *dataflow.CheckpointCommit
	parts []*changePart
	bytes int64
	made  int64 // µs since 1970
	// users is how many watchers are being told of it, and dropped says that the feed has let go of it. Both are guarded by the
	// feed's lock.
	users   int
	dropped bool
	// partial says that the changes were too many to be kept: watchers compare the cuts themselves.
	partial bool
}

// setOverhead is what a set takes beside its parts, about: most of it is the commit that it keeps.
const setOverhead = 1 << 10

// after returns the set that begins at a cut, if there is one: told must follow. Otherwise newest is the cut that the feed has reached: when
// that is the watcher's own, or an older one, changed tells when to look again.
func (f *feed) after(at dataflow.CheckpointID) (set *changeSet, newest *dataflow.CheckpointCommit, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, found := slices.BinarySearchFunc(f.mu.sets, at, func(s *changeSet, id dataflow.CheckpointID) int { return cmp.Compare(s.from, id) })
	if found && !f.mu.sets[i].partial {
		f.mu.sets[i].users++
		return f.mu.sets[i], nil, nil, nil
	}
	if at >= f.mu.newest.ID && f.mu.err != nil {
		return nil, nil, nil, f.mu.err
	}
	return nil, f.mu.newest, f.mu.changed, nil
}

// add appends a set and drops the oldest ones that are over the limits.
func (f *feed) add(s *changeSet, now, maxAge, maxBytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.sets, f.mu.bytes, f.mu.newest = append(f.mu.sets, s), f.mu.bytes+s.bytes, s.cut
	drop := 0
	for ; drop < len(f.mu.sets); drop++ {
		if old := f.mu.sets[drop]; f.mu.bytes > maxBytes || now-old.made > maxAge {
			f.mu.bytes -= old.bytes
			if old.dropped = true; old.users > 0 {
				f.hub.pinned.Add(old.bytes)
			}
			continue
		}
		break
	}
	if drop > 0 {
		f.mu.sets = slices.Clone(f.mu.sets[drop:]) // so that the dropped ones are free
	}
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
}

// told ends what after has begun.
func (f *feed) told(s *changeSet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.users--; s.users == 0 && s.dropped {
		f.hub.pinned.Add(-s.bytes)
	}
}

// pinsTooMuch reports whether a watcher that is being told of a set is to be cut off: the feed has dropped it, and what is held so
// takes more than its part of the memory.
func (f *feed) pinsTooMuch(s *changeSet) bool {
	if !f.hub.pinTooMuch() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.dropped
}

// kept returns how many bytes the feed keeps, about.
func (f *feed) kept() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.bytes
}

// end tells the watchers why there will be nothing more.
func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.err = err
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
}

// follow is the follower: it adds a set for each cut, until ctx ends, nobody has watched for as long as sets are kept, or
// the pipeline is no more.
func (f *feed) follow(ctx context.Context) {
	defer close(f.ended)
	err := f.run(ctx)
	if ctx.Err() != nil {
		err = errWatchesEnd()
	}
	f.hub.forget(f)
	f.end(err)
}

func (f *feed) run(ctx context.Context) error {
	e := f.hub.e
	at := f.mu.newest // nobody else writes it
	var held *reading // of at, when it was opened for the cut before
	defer func() {
		if held != nil {
			held.close()
		}
	}()
	for {
		changed := e.cfg.Catalog.Changed()
		p, err := e.sameDeployment(f.pipeline, f.key.pipeline, at.Timeline)
		if err != nil {
			return err
		}
		for _, c := range p.Cuts {
			if c.ID <= at.ID {
				continue
			}
			if held, err = f.advance(ctx, p, at, c, held); err != nil {
				return err
			}
			at = c
		}
		if held != nil && p.Newest().ID == at.ID { // the next cut finds this one readable
			held.close()
			held = nil
		}
		if f.hub.leaveIdle(f) {
			return nil
		}
		timer := time.NewTimer(e.cfg.WatchRetained)
		select {
		case <-changed:
		case <-f.idle:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// advance adds the set from one cut to the next, and returns the reading of the next one. held is a reading of at, or nil.
func (f *feed) advance(ctx context.Context, p *Pipeline, at, next *dataflow.CheckpointCommit, held *reading) (*reading, error) {
	e := f.hub.e
	c := e.compare(p, f.table, at, next, nil, nil)
	if held != nil {
		c.older = held
	}
	defer c.older.close()
	limit := f.hub.share()
	set := &changeSet{from: at.ID, cut: next, bytes: setOverhead}
	for {
		part, err := c.next(ctx)
		switch reason := dataflow.ReasonOf(err); {
		case reason == dataflow.ReasonCheckpointExpired, reason == dataflow.ReasonNoCommittedCheckpoint:
			// It came too late for one of the cuts, or too early: who watches has to compare, and is told what he can have.
			set.partial = true
		case err != nil:
			c.newer.close()
			return nil, err
		}
		if part == nil {
			break
		}
		set.parts, set.bytes = append(set.parts, part), set.bytes+part.bytes
		if set.bytes > limit {
			set.partial = true
			break
		}
	}
	if set.partial {
		set.parts, set.bytes = nil, setOverhead
	}
	set.made = e.cfg.Now()
	f.add(set, set.made, e.cfg.WatchRetained.Microseconds(), limit)
	return c.newer, nil
}

// sameDeployment returns the pipeline as it is now, if it is still the one that was watched.
func (e *Engine) sameDeployment(name string, uid dataflow.PipelineUID, timeline dataflow.Timeline) (*Pipeline, error) {
	p, err := e.cfg.Catalog.Pipeline(name)
	switch {
	case err != nil:
		return nil, err
	case p.UID != uid:
		return nil, timelineChanged("pipeline %s was deleted and deployed again during the watch", name)
	case p.Timeline != timeline:
		return nil, timelineChanged("pipeline %s was rewound during the watch", name)
	}
	return p, nil
}
