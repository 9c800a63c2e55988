package statequery

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirdb/weir/dataflow"
)

// watchHub holds the feeds of the tables that are watched, or were lately. It owns their followers.
type watchHub struct {
	e *Engine
	// ctx is the life of all watches: it ends with EndWatches.
	ctx  context.Context
	stop context.CancelFunc
	// pages lets a few watchers at a time read for themselves: snapshots, and comparisons of cuts.
	pages     chan struct{}
	room      *watchRoom // of what watchers hold of pages
	followers sync.WaitGroup
	lagged    atomic.Uint64 // watches that were cut off
	// pinned is about how many bytes sets take that feeds have dropped and slow watchers are still being told.
	pinned atomic.Int64
	mu     struct {
		sync.Mutex
		feeds    map[feedKey]*feed
		live     map[feedKey]*liveFeed
		watchers int
	}
}

const (
	// maxWatchers bounds the watches of a node: each holds a goroutine or two and a place in the network's buffers.
	maxWatchers = 10_000
	// watchPages is how many watchers read a page for themselves at once; each holds a page in memory meanwhile.
	watchPages = 4
)

func newWatchHub(e *Engine) *watchHub {
	h := &watchHub{e: e, pages: make(chan struct{}, watchPages), room: newWatchRoom(e.cfg.WatchBytes)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.mu.feeds, h.mu.live = make(map[feedKey]*feed), make(map[feedKey]*liveFeed)
	return h
}

// EndWatches ends all watches with SHUTTING_DOWN, lets none begin any more, and waits for their followers. The node calls it
// before it stops its servers, which wait for the calls under way.
func (e *Engine) EndWatches() {
	h := e.watches
	h.mu.Lock()
	h.stop()
	h.mu.Unlock()
	h.followers.Wait()
}

func errWatchesEnd() error {
	return dataflow.Errorf(dataflow.ReasonShuttingDown, "the node is stopping; watch again from the last cut")
}

// join adds a watcher to the feed of a table, and begins it when there is none. Who has joined leaves.
func (h *watchHub) join(p *Pipeline, table string, t *Table) (*feed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.admitLocked(); err != nil {
		return nil, err
	}
	k := feedKey{p.UID, table}
	f := h.mu.feeds[k]
	if f == nil {
		f = &feed{hub: h, key: k, pipeline: p.Name, table: t, ended: make(chan struct{}), idle: make(chan struct{}, 1)}
		f.mu.newest, f.mu.changed = p.Newest(), make(chan struct{})
		h.mu.feeds[k] = f
		h.followers.Go(func() { f.follow(h.ctx) }) // under the lock, so that EndWatches waits for it
	}
	f.watchers++
	h.mu.watchers++
	return f, nil
}

// admitLocked refuses a watcher for whom there is no place.
func (h *watchHub) admitLocked() error {
	if h.ctx.Err() != nil {
		return errWatchesEnd()
	}
	if h.mu.watchers >= maxWatchers {
		return dataflow.Errorf(dataflow.ReasonOverloaded, "%d watches are open, which is the limit of a node", maxWatchers).WithRetry(gateRetry)
	}
	return nil
}

// leave takes a watcher away. The feed stays for a while: he may come back for what he has missed.
func (h *watchHub) leave(f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.watchers--
	if f.watchers--; f.watchers == 0 {
		f.left = h.e.cfg.Now()
		select {
		case f.idle <- struct{}{}:
		default: // it has been told
		}
	}
}

// leaveIdle takes a feed away that nobody has watched for as long as sets are kept, and reports that it has.
func (h *watchHub) leaveIdle(f *feed) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.watchers > 0 || h.e.cfg.Now()-f.left < h.e.cfg.WatchRetained.Microseconds() {
		return false
	}
	delete(h.mu.feeds, f.key)
	return true
}

// forget takes a feed away whose follower ends.
func (h *watchHub) forget(f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.feeds[f.key] == f {
		delete(h.mu.feeds, f.key)
	}
}

// liveShares is how many parts a live feed keeps: sets, what it was told, and a copy of that in each base.
const liveShares = 2 + maxLiveBases

// share returns how many bytes a feed may keep: all have the same part of what watchers do not hold for themselves.
func (h *watchHub) share() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, h.e.cfg.WatchBytes-h.room.held.Load()-h.pinned.Load()) / int64(max(1, len(h.mu.feeds)+liveShares*len(h.mu.live)))
}

// pinTooMuch reports whether slow watchers pin more than their part of the memory.
func (h *watchHub) pinTooMuch() bool { return h.pinned.Load() > h.e.cfg.WatchBytes/pageShare }

// joinLive is join for a live watcher. Who has joined calls leftLive.
func (h *watchHub) joinLive(p *Pipeline, table string, t *Table) (*liveFeed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.admitLocked(); err != nil {
		return nil, err
	}
	k := feedKey{p.UID, table}
	f := h.mu.live[k]
	if f == nil {
		f = &liveFeed{hub: h, key: k, pipeline: p.Name, table: t, idle: make(chan struct{}, 1)}
		f.mu.cut, f.mu.incarnation, f.mu.changed = p.Newest(), p.Incarnation, make(chan struct{})
		f.mu.sent = make(map[string][]byte)
		h.mu.live[k] = f
		h.followers.Go(func() { f.follow(h.ctx) }) // under the lock, so that EndWatches waits for it
	}
	f.watchers++
	h.mu.watchers++
	return f, nil
}

// leftLive takes a live watcher away. The feed goes with the last one: nobody resumes a live watch.
func (h *watchHub) leftLive(f *liveFeed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.watchers--
	if f.watchers--; f.watchers == 0 {
		select {
		case f.idle <- struct{}{}:
		default: // it has been told
		}
	}
}

// leaveLive takes a live feed away that nobody watches, and reports that it has.
func (h *watchHub) leaveLive(f *liveFeed) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.watchers > 0 {
		return false
	}
	delete(h.mu.live, f.key)
	return true
}

// forgetLive takes a live feed away whose follower ends.
func (h *watchHub) forgetLive(f *liveFeed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.live[f.key] == f {
		delete(h.mu.live, f.key)
	}
}
