package statequery

import (
	"context"

	"github.com/weirdb/weir/dataflow"
)

// liveWatcher is one watch of a live table. One goroutine uses it.
type liveWatcher struct {
	watcher
	live *liveFeed
	next uint64 // the set to send next
	took bool   // a set was sent since the snapshot
}

// runLive sends a snapshot and then what the feed says. A consumer that has fallen behind is brought up to date by another
// snapshot, if he has taken anything at all meanwhile.
func (w *liveWatcher) runLive(ctx context.Context) error {
	first := true
	for {
		if !first && !w.took {
			return errLiveLagged(w.r.Pipeline, w.r.Table)
		}
		if err := w.liveSnapshot(ctx, !(first && w.r.ChangesOnly)); err != nil {
			return err
		}
		first, w.took = false, false
		if err := w.followLive(ctx); err != nil {
			return err
		}
	}
}

// await waits for what the watch asks of its beginning.
func (w *liveWatcher) await(ctx context.Context) error {
	o := beginning(&w.r)
	if o.Session == nil && len(o.Min) == 0 && o.MaxStaleness == 0 {
		return nil
	}
	o.Isolation = dataflow.ReadUncommitted
	r, err := w.e.open(ctx, w.p, o)
	if err != nil {
		return err
	}
	r.close()
	return nil
}

// followLive sends sets until the watcher has fallen behind.
func (w *liveWatcher) followLive(ctx context.Context) error {
	f := w.live
	for {
		f.mu.Lock()
		behind := w.next < f.mu.first
		var set *liveSet
		if at := w.next - f.mu.first; !behind && at < uint64(len(f.mu.sets)) {
			set = f.mu.sets[at]
			set.users++
		}
		changed, err := f.mu.changed, f.mu.err
		f.mu.Unlock()
		switch {
		case behind:
			return nil
		case set != nil:
			err := w.deliverLive(set)
			f.told(set)
			if err != nil {
				return err
			}
			w.next++
			w.took = true
			continue
		case err != nil:
			return err
		}
		if err := w.idle(ctx, changed); err != nil {
			return err
		}
	}
}

func (w *liveWatcher) deliverLive(set *liveSet) error {
	if set.rolledBack {
		if err := w.send(&dataflow.WatchEvent{RolledBack: true, Cut: &set.cut}); err != nil {
			return err
		}
	}
	for _, parts := range [][]*changePart{set.parts[:set.corrections], set.parts[set.corrections:]} { // each has a key once
		out := w.events(false)
		for _, part := range parts {
			if w.live.pinsTooMuch(set) {
				return errLiveLagged(w.r.Pipeline, w.r.Table)
			}
			if err := out.part(part); err != nil {
				return err
			}
		}
		if !out.any {
			continue
		}
		if err := w.send(&dataflow.WatchEvent{Changes: out.pending, Cut: &set.cut}); err != nil {
			return err
		}
	}
	return nil
}

// liveSnapshot brings the watcher to where the feed is, or was when another snapshot began that is still under way: the rows
// of that cut, with what has been told of since in their place.
func (w *liveWatcher) liveSnapshot(ctx context.Context, rows bool) error {
	out := w.events(true)
	if !rows {
		out.snapshot = false
		cut, inc := w.beginNow()
		return w.liveMark(out, cut, inc)
	}
	b, err := w.joinBase(ctx)
	if err != nil {
		return err
	}
	defer w.live.leaveBase(b)
	w.next, w.at = b.next, b.cut
	admit := func() (func([]byte) bool, error) {
		told, err := w.live.toldAt(b)
		return func(k []byte) bool { _, found := searchTold(told, k); return !found }, err
	}
	if err := w.snapshotInto(ctx, w.e.committed(w.p, b.cut, true), out, admit); err != nil {
		return err
	}
	if err := w.toldInto(ctx, b, out); err != nil {
		return err
	}
	return w.liveMark(out, b.cut, b.incarnation)
}

// beginNow lets the watcher begin where the feed is.
func (w *liveWatcher) beginNow() (*dataflow.CheckpointCommit, dataflow.Incarnation) {
	f := w.live
	f.mu.Lock()
	defer f.mu.Unlock()
	w.next = f.nextLocked()
	return f.mu.cut, f.mu.incarnation
}

// joinBase returns a base whose cut is kept.
func (w *liveWatcher) joinBase(ctx context.Context) (*liveBase, error) {
	for {
		b, err := w.live.joinBase(ctx)
		if err != nil {
			return nil, err
		}
		p, err := w.e.sameDeployment(w.p.Name, w.p.UID, w.p.Timeline)
		if err == nil {
			w.p = p
			if _, err = w.e.cfg.Catalog.Cut(p, b.cut.ID); err == nil {
				return b, nil
			}
		}
		r := dataflow.ReasonOf(err)
		if r == dataflow.ReasonCheckpointExpired || r == dataflow.ReasonCheckpointNotFound {
			w.live.dropBase(b) // who uses it was too slow for the lease
			err = w.live.passed(ctx, b.cut)
		}
		w.live.leaveBase(b)
		if err != nil {
			return nil, err
		}
	}
}

// liveMark closes a snapshot.
func (w *liveWatcher) liveMark(out *watchEvents, cut *dataflow.CheckpointCommit, inc dataflow.Incarnation) error {
	p, err := w.e.sameDeployment(w.p.Name, w.p.UID, w.p.Timeline)
	if err != nil {
		return err
	}
	w.p, w.at = p, cut
	now := w.e.committed(p, cut, true).describe()
	now.Speculative, now.Incarnation = true, inc
	return w.send(&dataflow.WatchEvent{Changes: out.pending, Snapshot: out.snapshot, EndOfCut: true, Cut: &now})
}

// toldInto adds the rows of keys that had been told of at a base.
func (w *liveWatcher) toldInto(ctx context.Context, b *liveBase, out *watchEvents) error {
	for lo, more := w.lo, true; more; {
		var err error
		if lo, more, err = w.toldOn(ctx, b, lo, out); err != nil {
			return err
		}
	}
	return nil
}

// toldOn sends a page of them, for as long as which it has room, and says with which key to go on.
func (w *liveWatcher) toldOn(ctx context.Context, b *liveBase, lo []byte, out *watchEvents) (next []byte, more bool, err error) {
	room, err := w.e.watches.room.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() { w.e.watches.room.leave(room) }()
	part, next, more, err := w.toldPage(ctx, b, lo, int(room))
	if err != nil || part == nil {
		return next, more, err
	}
	room = w.e.watches.room.shrink(room, part.bytes)
	return next, more, out.part(part)
}

// toldPage makes the part of some keys from lo on, of about most bytes, and says with which key to go on.
func (w *liveWatcher) toldPage(ctx context.Context, b *liveBase, lo []byte, most int) (part *changePart, next []byte, more bool, err error) {
	if err := w.e.watches.enterPage(ctx); err != nil {
		return nil, nil, false, err
	}
	defer w.e.watches.leavePage()
	told, err := w.live.toldAt(b)
	if err != nil {
		return nil, nil, false, err
	}
	from, _ := searchTold(told, lo)
	to := len(told)
	if w.hi != nil {
		to, _ = searchTold(told, w.hi)
	}
	var keys, before, after [][]byte
	for size := 0; from < to && len(keys) < walkRows && size < most; from++ {
		row := &told[from]
		keys, before, after = append(keys, []byte(row.key)), append(before, nil), append(after, row.value)
		size += len(row.key) + len(row.value)
	}
	if more = from < to; more {
		next = []byte(told[from].key)
	}
	if len(keys) > 0 {
		part, err = w.t.newPart(keys, before, after, w.p.OnError, 0)
	}
	return part, next, more, err
}
