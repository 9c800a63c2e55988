package statequery

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// liveFeed tells the watchers of a live table what changes, before it is committed. One goroutine, its follower, looks at
// what the tasks have changed since the last barrier, some times a second, and at what each cut has committed.
//
// What a watcher has of a key is what the feed says last: the value in sent, or without one that of the cut. So nothing that
// a watcher was told is forgotten when it is taken back, and a new watcher begins with that cut and what is in sent.
type liveFeed struct {
	hub      *watchHub
	key      feedKey
	pipeline string
	table    *Table
	watchers int           // guarded by the hub's lock
	idle     chan struct{} // 1: tells the follower that the last watcher has left

	mu struct {
		sync.Mutex
		cut         *dataflow.CheckpointCommit
		incarnation dataflow.Incarnation
		sent        map[string][]byte // by canonical key; nil = deleted
		sentBytes   int64
		first       uint64 // number of sets[0]
		sets        []*liveSet
		bytes       int64       // of sets
		limit       int64       // of bytes, and of sentBytes
		bases       []*liveBase // oldest first; at most maxLiveBases
		waiting     bool        // somebody waits for a base or a cut
		changed     chan struct{}
		err         error // why the follower has ended
	}
}

// liveSet is what the follower says at one moment. But for who uses it, it is immutable.
type liveSet struct {
	parts []*changePart
	// corrections is how many of the parts are of what was committed or taken back. The others, of what the tasks have changed
	// since, may have the same keys once more.
	corrections int
	bytes       int64
	cut         dataflow.Cut // as a live read would say
	rolledBack  bool         // the incarnation before has ended; parts correct what it had not committed
	// users is how many watchers are being told of it, and dropped says that the feed has let go of it. Both are guarded by the
	// feed's lock.
	users   int
	dropped bool
}

// maxLiveSets bounds how far a watcher may be behind, about a minute and a half, before it is brought up to date by a
// snapshot.
const maxLiveSets = 1024

// follow is the follower. It ends with ctx, the last watcher or the pipeline.
func (f *liveFeed) follow(ctx context.Context) {
	err := f.run(ctx)
	if ctx.Err() != nil {
		err = errWatchesEnd()
	}
	f.hub.forgetLive(f)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.err = err
	f.announceLocked()
}

func (f *liveFeed) announceLocked() {
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
}

func (f *liveFeed) run(ctx context.Context) error {
	e := f.hub.e
	tick := time.NewTicker(e.cfg.LiveEvery)
	defer tick.Stop()
	for {
		p, err := e.sameDeployment(f.pipeline, f.key.pipeline, f.mu.cut.Timeline)
		if err != nil {
			return err
		}
		if err := f.look(ctx, p); err != nil {
			return err
		}
		if f.hub.leaveLive(f) {
			return nil
		}
		select {
		case <-tick.C:
		case <-f.idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look says what has happened since the last look: what was committed, what was taken back, and what the tasks have changed.
func (f *liveFeed) look(ctx context.Context, p *Pipeline) error {
	e := f.hub.e
	live := e.runs(p)
	if live != nil && live.Incarnation() != p.Incarnation {
		live = nil // it began after p was read: at the next look
	}
	l := &liveLook{f: f, e: e, p: p, live: live, changed: make(map[string]sentValue), bytes: f.mu.sentBytes, limit: f.hub.share()}
	l.base = e.committed(p, p.Newest(), true)
	defer l.base.close()
	rolledBack := p.Incarnation != f.mu.incarnation || !p.State.Active() && len(f.mu.sent) > 0
	err := l.correct(ctx, f.mu.cut, rolledBack)
	corrections := len(l.parts)
	if err == nil && live != nil {
		err = l.fresh(ctx)
	}
	if dataflow.ReasonOf(err) == dataflow.ReasonCheckpointExpired {
		f.reset(p) // it came too late for a cut: all watchers need a snapshot
		return nil
	}
	if err != nil {
		return err
	}
	f.say(ctx, l, corrections, rolledBack)
	return nil
}

// say makes the look known. It is called also when nothing has changed: the cut may have.
func (f *liveFeed) say(ctx context.Context, l *liveLook, corrections int, rolledBack bool) {
	set := &liveSet{parts: l.parts, corrections: corrections, rolledBack: rolledBack}
	for _, part := range l.parts {
		set.bytes += part.bytes
	}
	if len(set.parts) > 0 || rolledBack {
		r := &reading{e: l.e, pipeline: l.p, cut: l.p.Newest(), live: l.live}
		if l.live != nil {
			r.covered = covers(l.live.Covered(ctx), r.cut.Positions)
		}
		set.cut = r.describe()
		set.cut.Incarnation, set.cut.Speculative = l.p.Incarnation, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.cut, f.mu.incarnation, f.mu.sentBytes, f.mu.limit = l.p.Newest(), l.p.Incarnation, l.bytes, l.limit
	for k, v := range l.changed {
		if v.told {
			f.mu.sent[k] = v.value
		} else {
			delete(f.mu.sent, k)
		}
	}
	if len(set.parts) == 0 && !rolledBack {
		if f.mu.waiting {
			f.mu.waiting = false
			f.announceLocked()
		}
		return
	}
	f.mu.sets, f.mu.bytes = append(f.mu.sets, set), f.mu.bytes+set.bytes
	drop := 0
	for len(f.mu.sets)-drop > 1 && (f.mu.bytes > l.limit || len(f.mu.sets)-drop > maxLiveSets) {
		f.mu.bytes -= f.mu.sets[drop].bytes
		f.dropLocked(f.mu.sets[drop])
		drop++
	}
	f.mu.sets, f.mu.first = slices.Delete(f.mu.sets, 0, drop), f.mu.first+uint64(drop)
	f.dropBasesLocked(func(b *liveBase) bool { return b.next < f.mu.first })
	f.announceLocked()
}

// dropLocked lets go of a set, which watchers may still be told of.
func (f *liveFeed) dropLocked(s *liveSet) {
	if s.dropped = true; s.users > 0 {
		f.hub.pinned.Add(s.bytes)
	}
}

// told ends that a watcher is told of a set.
func (f *liveFeed) told(s *liveSet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.users--; s.users == 0 && s.dropped {
		f.hub.pinned.Add(-s.bytes)
	}
}

// pinsTooMuch is feed.pinsTooMuch.
func (f *liveFeed) pinsTooMuch(s *liveSet) bool {
	if !f.hub.pinTooMuch() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.dropped
}

// kept returns how many bytes the feed keeps, about.
func (f *liveFeed) kept() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.mu.bytes + f.mu.sentBytes
	for _, b := range f.mu.bases {
		n += b.bytes
	}
	return n
}

// nextLocked is the number of the set that is said next.
func (f *liveFeed) nextLocked() uint64 { return f.mu.first + uint64(len(f.mu.sets)) }

// reset lets all watchers begin anew.
func (f *liveFeed) reset(p *Pipeline) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.first += uint64(len(f.mu.sets)) + 1
	for _, s := range f.mu.sets {
		f.dropLocked(s)
	}
	f.mu.sets, f.mu.bytes = nil, 0
	f.dropBasesLocked(func(*liveBase) bool { return true })
	f.mu.sent, f.mu.sentBytes = make(map[string][]byte), 0
	f.mu.cut, f.mu.incarnation = p.Newest(), p.Incarnation
	f.announceLocked()
}

// liveLook is one look of a follower.
type liveLook struct {
	f     *liveFeed
	e     *Engine
	p     *Pipeline
	live  Live     // nil when no task runs
	base  *reading // of the newest cut
	parts []*changePart
	// changed is what the look changes in the feed's sent, which it reads, and bytes what that takes then.
	changed map[string]sentValue
	bytes   int64
	limit   int64 // of bytes
}

// sentValue is what watchers were told of a key; told is false when they have what the cut has.
type sentValue struct {
	value []byte
	told  bool
}

// sentOverhead is what an entry of sent takes beside its key and value, about.
const sentOverhead = 96

// sent returns what watchers were told of a key.
func (l *liveLook) sent(k []byte) (v []byte, told bool) {
	if c, ok := l.changed[string(k)]; ok {
		return c.value, c.told
	}
	v, told = l.f.mu.sent[string(k)] // only the follower, which this is, changes it
	return v, told
}

func (l *liveLook) note(k []byte, now sentValue) {
	if old, told := l.sent(k); told {
		l.bytes -= int64(len(k)+len(old)) + sentOverhead
	}
	if now.told {
		l.bytes += int64(len(k)+len(now.value)) + sentOverhead
	}
	l.changed[string(k)] = now
}

// same reports whether two states, nil = absent, are equal.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// tell adds what is visible of the change of keys.
func (l *liveLook) tell(keys, before, after [][]byte) error {
	if len(keys) == 0 {
		return nil
	}
	part, err := l.f.table.newPart(keys, before, after, l.p.OnError, 0)
	if part != nil {
		l.parts = append(l.parts, part)
	}
	return err
}

// correct tells what the newest cut says that watchers were not told, or otherwise.
func (l *liveLook) correct(ctx context.Context, from *dataflow.CheckpointCommit, rolledBack bool) error {
	moved := l.base.cut.ID > from.ID
	if moved {
		if err := l.advance(ctx, from); err != nil {
			return err
		}
	}
	switch {
	case rolledBack:
		return l.settle(ctx, nil)
	case moved:
		return l.settle(ctx, l.live)
	}
	return nil
}

// advance moves on from a cut to the newest: what that has changed and was not told before is told now.
func (l *liveLook) advance(ctx context.Context, from *dataflow.CheckpointCommit) error {
	c := l.e.compare(l.p, l.f.table, from, l.base.cut, nil, nil)
	defer c.pause()
	for !c.ended() {
		keys, before, after, err := c.gather(ctx)
		if err != nil {
			return err
		}
		n := 0
		for i, k := range keys {
			if _, told := l.sent(k); !told {
				keys[n], before[n], after[n] = k, before[i], after[i]
				n++
			}
		}
		if err := l.tell(keys[:n], before[:n], after[:n]); err != nil {
			return err
		}
	}
	return nil
}

// settle looks again at all keys that were told of and not committed: it tells their live value, or without tasks what the
// newest cut has, and forgets those of which both are the same.
func (l *liveLook) settle(ctx context.Context, live Live) error {
	t := l.f.table
	told := make([]string, 0, len(l.f.mu.sent))
	for k := range l.f.mu.sent {
		told = append(told, k)
	}
	slices.Sort(told)
	for some := range slices.Chunk(told, walkRows) {
		var keys, before, after [][]byte
		for _, s := range some {
			k := []byte(s)
			had, told := l.sent(k)
			if !told {
				continue // an advance before has seen to it
			}
			committed, err := l.base.get(ctx, t, k)
			if err != nil {
				return err
			}
			now := committed
			if live != nil {
				v, found, err := live.Get(t.stage.ID, l.e.shardOf(k), k, nil)
				switch {
				case err != nil: // the tasks have ended: what they had not committed is void
				case found:
					now = v
				default:
					now = t.unfed
				}
			}
			keys, before, after = append(keys, k), append(before, had), append(after, now)
			l.note(k, sentValue{now, !same(now, committed)})
		}
		if err := l.tell(keys, before, after); err != nil {
			return err
		}
	}
	return nil
}

// fresh tells what the tasks have changed since the last barrier. When more is told and not committed than may be
// remembered, what changes then waits for its cut, in which settle and advance find it: new keys, and those told already.
func (l *liveLook) fresh(ctx context.Context) error {
	t := l.f.table
	for s := range l.e.cfg.Shards {
		shard := dataflow.ShardID(s)
		most := max(0, l.limit-l.bytes)
		keys, values, err := l.live.Fresh(t.stage.ID, shard, most)
		if err != nil {
			return nil //nolint:nilerr // the tasks have ended: the next look sees what follows
		}
		for from := 0; from < len(keys); from += walkRows {
			to := min(from+walkRows, len(keys))
			if err := l.freshKeys(ctx, keys[from:to], values[from:to]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *liveLook) freshKeys(ctx context.Context, ks, vs [][]byte) error {
	t := l.f.table
	var keys, before, after [][]byte
	for i, k := range ks {
		now := vs[i]
		if now == nil {
			now = t.unfed
		}
		had, told := l.sent(k)
		if !told {
			var err error
			if had, err = l.base.get(ctx, t, k); err != nil {
				return err
			}
		}
		if same(had, now) {
			continue
		}
		keys, before, after = append(keys, k), append(before, had), append(after, now)
		l.note(k, sentValue{now, true})
	}
	return l.tell(keys, before, after)
}
