package shard

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog"
)

// snapshotGrowth is how many times its own size a snapshot waits for: a shard with a large index of rows writes it the
// more rarely, so that snapshots stay below a quarter of what is written.
const snapshotGrowth = 4

// behindFactor is how many times the bytes between snapshots the whole store may take before a shard that has little to
// snapshot does so all the same. With the default, 1 GiB: not less, because eight shards that are equally busy have taken
// half of that when each makes its own snapshot; not more, because that much stays on the disk whatever is retained.
const behindFactor = 16

// lagging says whether the shard keeps much of the store's log because it has made no snapshot for long, and one helps.
func (l *Log) lagging() bool {
	if l.cfg.SnapshotBytes < 0 || l.exporting() || l.cfg.Store.Behind() < behindFactor*l.cfg.SnapshotBytes {
		return false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.m.applied >= l.mu.told
}

// snapshotAfter returns the log bytes after which a snapshot is due.
func (l *Log) snapshotAfter() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return max(l.cfg.SnapshotBytes, snapshotGrowth*l.mu.snapshot.size)
}

// maintain takes the snapshots that are due, and while this node leads proposes that old senders be forgotten.
func (l *Log) maintain() {
	tick := time.NewTicker(l.cfg.ExpireEvery)
	defer tick.Stop()
	look := time.NewTicker(l.cfg.LookEvery)
	defer look.Stop()
	var spare spare
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.due:
			if l.since.Load() < l.snapshotAfter() {
				continue // somebody else took one
			}
			l.snapshotNow()
		case <-look.C:
			l.endLeases(false)
			if l.lagging() {
				l.snapshotNow()
			} else if spare.look(l) {
				if err := l.reclaim(); err != nil && l.ctx.Err() == nil {
					l.dropped.Store(true)
					l.cfg.Logger.Warn("disk space not given back; tried again later", "err", err)
				}
			}
		case <-tick.C:
			if err := l.expire(); err != nil && l.ctx.Err() == nil {
				l.cfg.Logger.Warn("old senders not forgotten; tried again later", "err", err)
			}
		}
	}
}

func (l *Log) snapshotNow() {
	if err := l.Snapshot(l.ctx); err != nil && l.ctx.Err() == nil {
		l.cfg.Logger.Warn("snapshot not taken; tried again later", "err", err)
	}
}

// Snapshot persists the machine, cuts the log behind it, and lets go of the entries that nothing refers to any more. It
// returns when that is durable.
func (l *Log) Snapshot(ctx context.Context) error {
	if err := l.lockSnapshot(ctx); err != nil {
		return err
	}
	defer l.unlockSnapshot()
	return l.snapshot(ctx)
}

// lockSnapshot makes the caller the one who takes a snapshot.
func (l *Log) lockSnapshot(ctx context.Context) error {
	select {
	case l.snapMu <- struct{}{}:
		return nil
	case <-ctx.Done():
		return dataflow.Errorf(dataflow.ReasonDeadline, "shard %d: a snapshot is under way: %w", l.cfg.Shard, context.Cause(ctx))
	}
}

func (l *Log) unlockSnapshot() { <-l.snapMu }

func (l *Log) snapshot(ctx context.Context) error {
	l.since.Store(0)
	if err := l.group.Snapshot(ctx); err != nil {
		return err
	}
	// Snapshots are written one after another, and the last one written is the one that is durable now.
	last, err := l.group.SnapshotIndex()
	if err != nil {
		return err
	}
	l.mu.RLock()
	refs := l.mu.snapshot.refs
	l.mu.RUnlock()
	refs.floor = max(refs.floor, last+1) // what lies between is the library's own
	if refs.floor == l.kept.floor {
		return nil // nothing new: it has taken the place of the last one, and the older one is still there
	}
	// Two snapshots are kept on the disk, and a start from the older one must find what that one refers to. The newer
	// one refers to nothing more that the older one had seen.
	l.retain(l.kept)
	l.kept = refs
	return nil
}

// snapshot is a machine that is being persisted.
type snapshot struct {
	log *Log
	m   *machine // frozen
}

var _ raftlog.Snapshot = (*snapshot)(nil)

// Persist implements raftlog.Snapshot.
func (s *snapshot) Persist(w io.Writer) error {
	counted := &countingWriter{w: w}
	if err := s.m.write(counted); err != nil {
		return err
	}
	written := persisted{refs: s.m.references(), size: counted.n}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.mu.snapshot = written
	return nil
}

// Release implements raftlog.Snapshot.
func (s *snapshot) Release() { s.m = nil }

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// expire proposes to forget what is older than its time, when there is something and this node leads.
func (l *Log) expire() error {
	if !l.IsLeader() {
		return nil
	}
	now := l.cfg.Now()
	c := &expire{
		now:             now,
		producersBefore: now - l.cfg.ProducerTTL.Microseconds(),
		keysBefore:      now - l.cfg.KeyTTL.Microseconds(),
	}
	anon := &expireAnonymous{now: now, before: now - l.cfg.AnonymousTTL.Microseconds()}
	l.mu.RLock()
	due, anonDue := l.mu.m.expirable(c), l.mu.m.anonymousExpirable(anon)
	l.mu.RUnlock()
	var err error
	if due {
		_, err = l.proposeHere(l.ctx, c)
	}
	if anonDue {
		_, anonErr := l.proposeHere(l.ctx, anon)
		err = errors.Join(err, anonErr)
	}
	return err
}

// expirable reports whether an entry would make the machine forget something.
func (m *machine) expirable(c *expire) bool {
	if k := m.keys.entries; len(k) > 0 && k[0].time < c.keysBefore {
		return true
	}
	for _, p := range m.producers {
		if p.used < c.producersBefore {
			return true
		}
	}
	return false
}

func (m *machine) anonymousExpirable(c *expireAnonymous) bool {
	for k, p := range m.producers {
		if dataflow.IsAnonymousProducer(k.name) && p.used < c.before {
			return true
		}
	}
	return false
}
