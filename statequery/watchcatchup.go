package statequery

import (
	"context"
	"errors"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// What a watcher reads for itself, its snapshot and what the feed does not have, it reads page by page. Between the pages,
// while the consumer takes one, nothing is held but a lease on each cut, as between the pages of a scan (Q2): a consumer
// that stops taking pins no state for longer than that.

// snapshotPage is how many rows a page of a snapshot has at most; a page ends earlier after watchPageBytes of rows.
const (
	snapshotPage   = 4 * walkRows
	watchPageBytes = 1 << 20
	// releaseTime bounds giving a lease back; one that is not given back ends by itself.
	releaseTime = 2 * time.Second
)

// snapshot sends the rows of a reading's cut.
func (w *watcher) snapshot(ctx context.Context, r *reading) error {
	out := w.events(true)
	if err := w.snapshotInto(ctx, r, out, nil); err != nil {
		return err
	}
	out.any = true // also an empty table has a snapshot
	return w.reached(r.cut, out)
}

// snapshotInto adds the rows of a reading's cut. admit, which is called for each page, returns which keys to leave out by
// false; nil = none. It closes the reading.
func (w *watcher) snapshotInto(ctx context.Context, r *reading, out *watchEvents, admit func() (keep func(key []byte) bool, err error)) error {
	held := w.hold(r.cut)
	defer held.release(ctx)
	for lo := w.lo; ; {
		last, err := w.snapshotPage(ctx, r, lo, out, held, admit)
		if err != nil || last == nil {
			return err
		}
		lo, r = after(last), w.e.committed(w.p, r.cut, true)
	}
}

// snapshotPage reads a page of a reading's cut, closes the reading and sends the page, for as long as which it has room. last is the
// key after which to go on; nil when nothing is left.
func (w *watcher) snapshotPage(ctx context.Context, r *reading, lo []byte, out *watchEvents, held *holdCut, admit func() (keep func(key []byte) bool, err error)) (last []byte, err error) {
	room, err := w.e.watches.room.enter(ctx)
	if err != nil {
		r.close()
		return nil, err
	}
	defer func() { w.e.watches.room.leave(room) }()
	changes, size, last, err := w.snapshotRows(ctx, r, lo, int(room), admit)
	r.close()
	if err != nil {
		return nil, w.tooOld(err)
	}
	room = w.e.watches.room.shrink(room, int64(size))
	if last != nil {
		if err := held.keep(ctx); err != nil {
			return nil, err
		}
	}
	return last, out.add(changes)
}

// snapshotRows reads a page of about most bytes, and returns how many it has. last is the key after which to go on; nil when nothing
// is left.
func (w *watcher) snapshotRows(ctx context.Context, r *reading, lo []byte, most int, admit func() (keep func(key []byte) bool, err error)) (changes []dataflow.WatchChange, size int, last []byte, err error) {
	if err := w.e.watches.enterPage(ctx); err != nil {
		return nil, 0, nil, err
	}
	defer w.e.watches.leavePage()
	keep := func([]byte) bool { return true }
	if admit != nil {
		if keep, err = admit(); err != nil {
			return nil, 0, nil, err
		}
	}
	walk, err := r.walk(ctx, w.t, lo, w.hi, snapshotPage)
	if err != nil {
		return nil, 0, nil, err
	}
	defer func() { err = errors.Join(err, walk.close()) }()
	for {
		rows, keys, err := walk.next(ctx, walkRows)
		if err != nil || rows == nil {
			return changes, size, nil, err
		}
		keyRows, err := w.t.decodeKeys(keys)
		if err != nil {
			return nil, 0, nil, err
		}
		for i := range rows.N {
			if size >= most { // the row before is the page's last
				return changes, size, keys[i-1], nil
			}
			if !keep(keys[i]) {
				continue
			}
			c := dataflow.WatchChange{
				Key: appendRowJSON(nil, keyRows, i, w.r.NumbersAsText), Row: appendRowJSON(nil, rows, i, w.r.NumbersAsText), Checkpoint: r.cut.ID,
			}
			changes, size = append(changes, c), size+len(c.Key)+len(c.Row)+changeOverhead
		}
		if walk.ended() {
			return changes, size, nil, nil
		}
		if len(changes) >= snapshotPage || size >= most || r.overtime() {
			return changes, size, walk.last, nil
		}
	}
}

// catchUp sends what has changed from the watcher's cut to the newest one, by comparing the two.
func (w *watcher) catchUp(ctx context.Context) error {
	p, err := w.e.sameDeployment(w.p.Name, w.p.UID, w.p.Timeline)
	if err != nil {
		return err
	}
	older, err := w.e.cfg.Catalog.Cut(p, w.at.ID)
	if err != nil {
		return w.tooOld(err)
	}
	newest := p.Newest()
	c := w.e.compare(p, w.t, older, newest, w.lo, w.hi)
	defer c.pause()
	out := w.events(false)
	holdOlder, holdNewest := w.hold(older), w.hold(newest)
	defer holdOlder.release(ctx)
	defer holdNewest.release(ctx)
	for more := true; more; {
		if more, err = w.compareOn(ctx, c, out, holdOlder, holdNewest); err != nil {
			return err
		}
	}
	return w.reached(newest, out)
}

// compareOn compares a page and sends what it found, for as long as which it has room. more is false at the end.
func (w *watcher) compareOn(ctx context.Context, c *comparison, out *watchEvents, holds ...*holdCut) (more bool, err error) {
	room, err := w.e.watches.room.enter(ctx)
	if err != nil {
		return false, err
	}
	defer func() { w.e.watches.room.leave(room) }()
	c.most = int(room)
	part, err := w.comparePage(ctx, c)
	if err != nil {
		return false, w.tooOld(err)
	}
	if part == nil {
		return false, nil
	}
	room = w.e.watches.room.shrink(room, part.bytes)
	if !c.ended() {
		for _, h := range holds {
			err = errors.Join(err, h.keep(ctx))
		}
		if err != nil {
			return false, err
		}
	}
	return true, out.part(part)
}

func (w *watcher) comparePage(ctx context.Context, c *comparison) (*changePart, error) {
	if err := w.e.watches.enterPage(ctx); err != nil {
		return nil, err
	}
	defer w.e.watches.leavePage()
	defer c.pause()
	return c.next(ctx)
}

// tooOld says to the consumer that a cut which he needs is no longer kept.
func (w *watcher) tooOld(err error) error {
	switch dataflow.ReasonOf(err) {
	case dataflow.ReasonCheckpointExpired, dataflow.ReasonCheckpointNotFound:
	default:
		return err
	}
	if w.r.Resume != nil && w.at.ID == w.r.Resume.Checkpoint {
		return dataflow.Errorf(dataflow.ReasonCheckpointExpired, "the changes of %s.%s after cut %d are no longer kept", w.r.Pipeline, w.r.Table, w.at.ID).
			WithHint("watch again without the resume token, which begins with a snapshot")
	}
	return w.lagged()
}

// lagged says to the consumer that he was too slow.
func (w *watcher) lagged() error {
	return dataflow.Errorf(dataflow.ReasonWatchLagged, "the watch of %s.%s took its changes too slowly: those after cut %d are no longer kept", w.r.Pipeline, w.r.Table, w.at.ID).
		WithHint("watch again, which begins with a snapshot; a prefix, or a larger --watch-memory of the server, helps a slow consumer").
		WithMeta("checkpoint_id", w.at.ID.String())
}

// holdCut keeps a cut readable for a watcher, from the first keep on.
type holdCut struct {
	e  *Engine
	k  cutKey
	id string // of the lease; "" = none
}

func (w *watcher) hold(c *dataflow.CheckpointCommit) *holdCut {
	return &holdCut{e: w.e, k: cutKey{w.p.UID, c.ID}}
}

// keep makes the cut readable for pageLease at least. A lease that has ended is no error: the cut may be there all the same.
func (h *holdCut) keep(ctx context.Context) (err error) {
	if h.id == "" {
		h.id, err = h.e.leases.join(ctx, h.k)
		if r := dataflow.ReasonOf(err); r == dataflow.ReasonCheckpointExpired || r == dataflow.ReasonCheckpointNotFound {
			return nil
		}
		return err
	}
	h.id, err = h.e.leases.keep(ctx, h.k, h.id)
	return err
}

func (h *holdCut) release(ctx context.Context) {
	if h.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime) // also for a consumer that has gone
	defer cancel()
	h.e.leases.leave(ctx, h.k, h.id)
}

// enterPage waits for one of the places of those who read a page for themselves.
func (h *watchHub) enterPage(ctx context.Context) error {
	select {
	case h.pages <- struct{}{}:
		return nil
	case <-ctx.Done():
		return deadline(ctx)
	}
}

func (h *watchHub) leavePage() { <-h.pages }
