package statequery

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/weirdb/weir/dataflow"
)

// liveBase is a moment of a live feed, at which snapshots begin: a cut, and what had been told of since. It has the only
// copy of that, for all snapshots which begin there; they hold it while they read a page, and not while they send one. So
// a feed has maxLiveBases copies at most, however many watchers there are and however slow they are.
type liveBase struct {
	cut         *dataflow.CheckpointCommit
	incarnation dataflow.Incarnation
	next        uint64 // number of the set that follows
	bytes       int64  // of told, about

	// Guarded by the feed's lock.
	users int
	told  *toldRows // nil when the base was dropped
}

// toldRows is a copy of what a feed has told of. It is immutable but for its order, which the first user makes.
type toldRows struct {
	once sync.Once
	rows []toldRow
}

type toldRow struct {
	key   string
	value []byte // nil = deleted
}

// maxLiveBases bounds the bases of a feed. Two: one that some slow consumers still read, and a newer one for others.
const maxLiveBases = 2

// sorted returns the rows by key.
func (r *toldRows) sorted() []toldRow {
	r.once.Do(func() {
		slices.SortFunc(r.rows, func(a, b toldRow) int { return strings.Compare(a.key, b.key) })
	})
	return r.rows
}

// searchTold returns the place of the first row whose key is not less than k, and whether it is k's own.
func searchTold(rows []toldRow, k []byte) (int, bool) {
	return slices.BinarySearchFunc(rows, k, func(r toldRow, k []byte) int { return bytes.Compare([]byte(r.key), k) })
}

// joinBase returns a base to begin at, which the caller gives back with leaveBase. When slow consumers have all bases, and
// what follows them is nearly gone, it waits.
func (f *liveFeed) joinBase(ctx context.Context) (*liveBase, error) {
	for {
		f.mu.Lock()
		b := f.joinBaseLocked()
		changed, err := f.mu.changed, f.mu.err
		f.mu.waiting = f.mu.waiting || b == nil
		f.mu.Unlock()
		switch {
		case b != nil:
			return b, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, deadline(ctx)
		}
	}
}

// passed waits until the feed has moved on from a cut that is no longer kept.
func (f *liveFeed) passed(ctx context.Context, cut *dataflow.CheckpointCommit) error {
	for {
		f.mu.Lock()
		moved, changed, err := f.mu.cut != cut, f.mu.changed, f.mu.err
		f.mu.waiting = f.mu.waiting || !moved
		f.mu.Unlock()
		switch {
		case moved:
			return nil
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

func (f *liveFeed) joinBaseLocked() *liveBase {
	var newest *liveBase
	if n := len(f.mu.bases); n > 0 {
		newest = f.mu.bases[n-1]
	}
	next := f.nextLocked()
	switch {
	case newest != nil && newest.next == next && newest.cut.ID == f.mu.cut.ID:
	case len(f.mu.bases) < maxLiveBases:
		told := &toldRows{rows: make([]toldRow, 0, len(f.mu.sent))}
		for k, v := range f.mu.sent {
			told.rows = append(told.rows, toldRow{k, v})
		}
		newest = &liveBase{cut: f.mu.cut, incarnation: f.mu.incarnation, next: next, bytes: f.mu.sentBytes, told: told}
		f.mu.bases = append(f.mu.bases, newest)
	case !f.timeLeftLocked(newest.next):
		return nil
	}
	newest.users++
	return newest
}

// timeLeftLocked reports whether who begins at a set has time for a snapshot: as many sets again can come as have come since
// before it is dropped.
func (f *liveFeed) timeLeftLocked(next uint64) bool {
	var since int64
	behind := f.mu.sets[next-f.mu.first:]
	for _, s := range behind {
		since += s.bytes
	}
	return len(behind) <= maxLiveSets/2 && since <= f.mu.limit/2
}

// leaveBase gives a base back. The last one frees it.
func (f *liveFeed) leaveBase(b *liveBase) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.users--; b.users == 0 {
		f.dropBasesLocked(func(other *liveBase) bool { return other == b })
	}
}

// dropBase takes a base away whose cut cannot be read any more.
func (f *liveFeed) dropBase(b *liveBase) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropBasesLocked(func(other *liveBase) bool { return other == b })
}

// dropBasesLocked takes bases away, also from those who use them: their snapshots would lead nowhere.
func (f *liveFeed) dropBasesLocked(which func(*liveBase) bool) {
	before := len(f.mu.bases)
	f.mu.bases = slices.DeleteFunc(f.mu.bases, func(b *liveBase) bool {
		if !which(b) {
			return false
		}
		b.told = nil
		return true
	})
	if f.mu.waiting && len(f.mu.bases) < before {
		f.mu.waiting = false
		f.announceLocked()
	}
}

// toldAt returns what was told of at a base. The caller keeps it for a page. The error is WATCH_LAGGED when the base was
// dropped.
func (f *liveFeed) toldAt(b *liveBase) ([]toldRow, error) {
	f.mu.Lock()
	told := b.told
	f.mu.Unlock()
	if told == nil {
		return nil, errLiveLagged(f.pipeline, f.key.table)
	}
	return told.sorted(), nil
}

func errLiveLagged(pipeline, table string) error {
	return dataflow.Errorf(dataflow.ReasonWatchLagged, "the watch of %s.%s takes its rows more slowly than they change", pipeline, table).
		WithHint("watch a prefix, or committed cuts")
}
