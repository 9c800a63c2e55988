package statequery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// watchEventBytes is about how much an event of a watch holds. Small beside what a connection buffers, so that a slow reader
// holds little; large enough that an event's own cost does not matter.
const watchEventBytes = 128 << 10

// Watch follows a table: it calls fn with what a watcher is to know, one call after the other, until ctx ends, fn fails, or
// nothing more can come. fn may wait for its consumer; a consumer that falls behind by more than is kept is cut off.
//
// Errors: CHECKPOINT_EXPIRED when Resume is too old; WATCH_LAGGED when the consumer was too slow; PIPELINE_NOT_FOUND and
// TIMELINE_CHANGED when the pipeline was deleted, replaced or rewound; CUT_TOO_OLD; SHUTTING_DOWN; OVERLOADED; DEADLINE when ctx ends;
// those of a read.
func (e *Engine) Watch(ctx context.Context, r dataflow.Watch, fn func(*dataflow.WatchEvent) error) error {
	p, t, err := e.tableFor(ctx, r.Pipeline, r.Table, beginning(&r))
	if err != nil {
		return err
	}
	w := &watcher{e: e, p: p, t: t, r: r, send: fn}
	if w.lo, w.hi, err = keyRange(t.stage, r.Range); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.watches.ctx, cancel)()
	if r.Isolation == dataflow.ReadUncommitted {
		l := &liveWatcher{watcher: *w}
		if err := l.await(ctx); err != nil {
			return err
		}
		if l.live, err = e.watches.joinLive(p, r.Table, t); err != nil {
			return err
		}
		defer e.watches.leftLive(l.live)
		err = l.runLive(ctx)
	} else {
		if w.f, err = e.watches.join(p, r.Table, t); err != nil {
			return err
		}
		defer e.watches.leave(w.f)
		err = w.run(ctx)
	}
	if e.watches.ctx.Err() != nil {
		return errWatchesEnd()
	}
	if dataflow.ReasonOf(err) == dataflow.ReasonWatchLagged {
		e.watches.lagged.Add(1)
	}
	return err
}

// beginning is what a watch asks of the cut that it begins with.
func beginning(r *dataflow.Watch) dataflow.ReadOptions {
	o := dataflow.ReadOptions{Session: r.Resume, Min: r.Min, MaxWait: r.MaxWait, MaxStaleness: r.MaxStaleness}
	if o.Session == nil {
		o.Session = r.Session
	}
	return o
}

// idle waits until there may be more to say. Of a watch that says how stale it may be, it looks from time to time whether
// what has been said is fresh enough.
func (w *watcher) idle(ctx context.Context, changed <-chan struct{}) error {
	most := w.r.MaxStaleness
	if most == 0 {
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return deadline(ctx)
		}
	}
	timer := time.NewTimer(max(most/2, watchFreshEvery))
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		if w.r.Isolation == dataflow.ReadUncommitted {
			return w.e.checkLiveWatch(ctx, w.p, most)
		}
		return w.e.checkWatch(ctx, w.p, w.at, most)
	case <-ctx.Done():
		return deadline(ctx)
	}
}

// WatchStats are the figures of the watches of a node.
type WatchStats struct {
	Open   int    // watches
	Bytes  int64  // that are kept of changes, or held for slow consumers, about: what Config.WatchBytes bounds
	Lagged uint64 // watches that have ended with WATCH_LAGGED, ever
}

// WatchStats returns the figures of now.
func (e *Engine) WatchStats() WatchStats {
	h := e.watches
	h.mu.Lock()
	s := WatchStats{Open: h.mu.watchers, Lagged: h.lagged.Load(), Bytes: h.room.held.Load() + h.pinned.Load()}
	feeds, live := slices.Collect(maps.Values(h.mu.feeds)), slices.Collect(maps.Values(h.mu.live))
	h.mu.Unlock()
	for _, f := range feeds {
		s.Bytes += f.kept()
	}
	for _, f := range live {
		s.Bytes += f.kept()
	}
	return s
}

// watcher is one watch of committed cuts. One goroutine uses it.
type watcher struct {
	e      *Engine
	p      *Pipeline
	t      *Table
	f      *feed
	r      dataflow.Watch
	lo, hi []byte // of the keys that are watched
	send   func(*dataflow.WatchEvent) error

	at     *dataflow.CheckpointCommit // the cut up to which everything has been sent
	marked dataflow.CheckpointID      // the last cut that an EndOfCut was sent for
	began  bool                       // an EndOfCut was sent
}

func (w *watcher) run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	for {
		set, newest, changed, err := w.f.after(w.at.ID)
		switch {
		case set != nil:
			err = w.deliver(set)
		case err != nil:
			err = w.mark(err)
		case w.at.ID < newest.ID:
			err = w.catchUp(ctx)
		default:
			if err = w.mark(nil); err != nil {
				break
			}
			err = w.idle(ctx, changed)
		}
		if err != nil {
			return err
		}
	}
}

// begin brings the watcher to its first cut: that of its snapshot, or the one after which it resumes.
func (w *watcher) begin(ctx context.Context) error {
	r, err := w.e.open(ctx, w.p, beginning(&w.r))
	if err != nil {
		return err
	}
	defer r.close()
	w.p, w.at = r.pipeline, r.cut
	switch {
	case w.r.Resume != nil:
		id := w.r.Resume.Checkpoint
		w.at, w.marked, w.began = &dataflow.CheckpointCommit{ID: id, Timeline: w.r.Resume.Timeline}, id, true
		return nil
	case w.r.ChangesOnly:
		return w.sendMark(false)
	}
	return w.snapshot(ctx, r)
}

// deliver sends what a set says of the keys that are watched.
func (w *watcher) deliver(set *changeSet) error {
	defer w.f.told(set)
	out := w.events(false)
	for _, part := range set.parts {
		if w.f.pinsTooMuch(set) {
			return w.lagged()
		}
		if err := out.part(part); err != nil {
			return err
		}
	}
	return w.reached(set.cut, out)
}

// reached moves on to a cut of which everything is in out. Where nothing has changed, the mark waits for a moment without
// other things to send.
func (w *watcher) reached(cut *dataflow.CheckpointCommit, out *watchEvents) error {
	w.at = cut
	if !out.any {
		return nil
	}
	ev, err := w.markEvent(out.snapshot)
	if err != nil {
		return err
	}
	ev.Changes, out.pending = out.pending, nil
	w.marked, w.began = cut.ID, true
	return w.send(ev)
}

// mark sends the mark of the cut that has been reached, if it has not been sent, and returns err, or what went wrong.
func (w *watcher) mark(err error) error {
	if w.marked == w.at.ID && w.began || dataflow.ReasonOf(err) == dataflow.ReasonPipelineNotFound {
		return err
	}
	if serr := w.sendMark(false); serr != nil {
		return serr
	}
	return err
}

func (w *watcher) sendMark(snapshot bool) error {
	ev, err := w.markEvent(snapshot)
	if err != nil {
		return err
	}
	w.marked, w.began = w.at.ID, true
	return w.send(ev)
}

// markEvent is the event that closes the cut that has been reached.
func (w *watcher) markEvent(snapshot bool) (*dataflow.WatchEvent, error) {
	p, err := w.e.sameDeployment(w.p.Name, w.p.UID, w.p.Timeline)
	if err != nil {
		return nil, err
	}
	cut := w.e.committed(p, w.at, true).describe()
	return &dataflow.WatchEvent{Snapshot: snapshot, EndOfCut: true, Cut: &cut}, nil
}

// watchEvents gathers changes into events of a good size, and sends all but the last one, which the mark goes into.
type watchEvents struct {
	w        *watcher
	snapshot bool
	any      bool // there was a change
	pending  []dataflow.WatchChange
	bytes    int
}

func (w *watcher) events(snapshot bool) *watchEvents { return &watchEvents{w: w, snapshot: snapshot} }

// part sends the changes of a part that are watched.
func (o *watchEvents) part(part *changePart) error {
	from, to := part.within(o.w.lo, o.w.hi)
	if from == to {
		return nil
	}
	changes, err := part.changesOf(o.w.t, from, to, o.w.r.NumbersAsText)
	if err != nil {
		return err
	}
	return o.add(changes)
}

// add sends changes, which it keeps. A whole part goes out as it is, without being copied, if it fits.
func (o *watchEvents) add(changes []dataflow.WatchChange) error {
	o.any = true
	for len(changes) > 0 {
		n := 0
		for n < len(changes) && o.bytes < watchEventBytes {
			o.bytes += len(changes[n].Key) + len(changes[n].Row) + 16
			n++
		}
		if len(o.pending) == 0 {
			o.pending = changes[:n:n]
		} else {
			o.pending = append(o.pending, changes[:n]...)
		}
		if changes = changes[n:]; o.bytes >= watchEventBytes && len(changes) > 0 {
			if err := o.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *watchEvents) flush() error {
	ev := &dataflow.WatchEvent{Changes: o.pending, Snapshot: o.snapshot}
	o.pending, o.bytes = nil, 0
	return o.w.send(ev)
}
