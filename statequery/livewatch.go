package statequery

import (
	"context"
	"maps"
	"slices"
	"strings"

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
			return dataflow.Errorf(dataflow.ReasonWatchLagged, "the watch of %s.%s takes its rows more slowly than they change", w.r.Pipeline, w.r.Table).
				WithHint("watch a prefix, or committed cuts")
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

// followLive sends sets until the watcher has fallen behind.
func (w *liveWatcher) followLive(ctx context.Context) error {
	f := w.live
	for {
		f.mu.Lock()
		behind := w.next < f.mu.first
		var set *liveSet
		if at := w.next - f.mu.first; !behind && at < uint64(len(f.mu.sets)) {
			set = f.mu.sets[at]
		}
		changed, err := f.mu.changed, f.mu.err
		f.mu.Unlock()
		switch {
		case behind:
			return nil
		case set != nil:
			if err := w.deliverLive(set); err != nil {
				return err
			}
			w.next++
			w.took = true
			continue
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return deadline(ctx)
		}
	}
}

func (w *liveWatcher) deliverLive(set *liveSet) error {
	if set.rolledBack {
		if err := w.send(&dataflow.WatchEvent{RolledBack: true, Cut: &set.cut}); err != nil {
			return err
		}
	}
	out := w.events(false)
	for _, part := range set.parts {
		if err := out.part(part); err != nil {
			return err
		}
	}
	if !out.any {
		return nil
	}
	return w.send(&dataflow.WatchEvent{Changes: out.pending, Cut: &set.cut})
}

// liveSnapshot brings the watcher to where the feed is: the rows of its cut, with what has been told of since in their place.
func (w *liveWatcher) liveSnapshot(ctx context.Context, rows bool) error {
	f := w.live
	f.mu.Lock()
	cut, sent, inc := f.mu.cut, maps.Clone(f.mu.sent), f.mu.incarnation
	w.next = f.mu.first + uint64(len(f.mu.sets))
	f.mu.Unlock()
	p, err := w.e.sameDeployment(w.p.Name, w.p.UID, w.p.Timeline)
	if err != nil {
		return err
	}
	w.p, w.at = p, cut
	out := w.events(true)
	if rows {
		r := w.e.committed(p, cut, true)
		keep := func(k []byte) bool { _, told := sent[string(k)]; return !told }
		if err := w.snapshotInto(ctx, r, out, keep); err != nil {
			return err
		}
		if err := w.sentInto(p, sent, out); err != nil {
			return err
		}
	}
	now := w.e.committed(p, cut, true).describe()
	now.Speculative, now.Incarnation = true, inc
	return w.send(&dataflow.WatchEvent{Changes: out.pending, Snapshot: rows, EndOfCut: true, Cut: &now})
}

// sentInto adds the rows of keys that have been told of since the cut.
func (w *liveWatcher) sentInto(p *Pipeline, sent map[string][]byte, out *watchEvents) error {
	var in []string
	for k := range maps.Keys(sent) {
		if strings.Compare(k, string(w.lo)) >= 0 && (w.hi == nil || k < string(w.hi)) {
			in = append(in, k)
		}
	}
	slices.Sort(in)
	for some := range slices.Chunk(in, walkRows) {
		keys, before, after := make([][]byte, len(some)), make([][]byte, len(some)), make([][]byte, len(some))
		for i, k := range some {
			keys[i], after[i] = []byte(k), sent[k]
		}
		part, err := w.t.newPart(keys, before, after, p.OnError, 0)
		if err != nil {
			return err
		}
		if part != nil {
			if err := out.part(part); err != nil {
				return err
			}
		}
	}
	return nil
}
