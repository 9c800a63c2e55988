package shard

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog"
)

// Log is the log of one shard: the driver of its machine. All methods are safe for concurrent use.
//
// Methods that write propose an entry and return when it has been applied here. Their errors are those of
// raftlog.Group.Propose (NOT_LEADER, OVERLOADED, TOO_LARGE, OUTCOME_UNKNOWN, …) and those that each names.
type Log struct {
	cfg   Config
	group *raftlog.Group
	cache *rowCache
	bufs  sync.Pool // of *[]byte: entries being encoded

	ctx     context.Context // ends with Close; the lifetime of the loops
	cancel  context.CancelFunc
	loops   sync.WaitGroup
	due     chan struct{} // asks maintain for a snapshot; holds one request
	snapMu  chan struct{} // held by the one who takes a snapshot; a channel, because it is held across I/O
	kept    references    // of the newest durable snapshot; the holder of snapMu's
	failure chan error    // Failed; holds one error, then is closed

	applied atomic.Uint64 // the last index that machine and replica have
	since   atomic.Int64  // log bytes applied since the last snapshot was asked for
	taken   atomic.Int64  // log bytes applied since the log was opened
	dropped atomic.Bool   // something that the store holds was dropped since reclaim looked last
	frozen  error         // why nothing is applied any more; only the apply goroutine touches it

	leases leases

	mu struct {
		sync.RWMutex
		m        *machine          // changed by the apply goroutine only, which therefore reads it without the lock
		err      error             // the first failure
		told     dataflow.LogIndex // the floor that the store was told last
		snapshot persisted         // the last one written, which need not have become durable
	}
	watch struct {
		sync.Mutex
		changed chan struct{} // closed and replaced when something was applied
		taken   bool          // somebody has asked for changed
	}
}

// persisted describes a snapshot that was written.
type persisted struct {
	refs references
	size int64 // bytes
}

// Close stops the log and waits for its loops and for what is being applied. Whoever waits on Changed is not woken.
func (l *Log) Close() error {
	l.cancel()
	l.endLeases(true)
	err := l.group.Close()
	l.loops.Wait()
	if err != nil {
		return fmt.Errorf("close log of shard %d: %w", l.cfg.Shard, err)
	}
	return nil
}

// propose writes a command to the log and returns what it came to.
func (l *Log) propose(ctx context.Context, c command) (outcome, error) {
	if ctx.Err() != nil {
		return outcome{}, dataflow.Errorf(dataflow.ReasonDeadline, "log of shard %d: nothing was proposed: %w", l.cfg.Shard, context.Cause(ctx))
	}
	p, err := l.submit(c, l.group.Submit)
	if err != nil {
		return outcome{}, err
	}
	return settled(p.Wait(ctx))
}

// proposeHere is propose for what only the leader decides (P1): elsewhere it is NOT_LEADER.
func (l *Log) proposeHere(ctx context.Context, c command) (outcome, error) {
	if ctx.Err() != nil {
		return outcome{}, dataflow.Errorf(dataflow.ReasonDeadline, "log of shard %d: nothing was proposed: %w", l.cfg.Shard, context.Cause(ctx))
	}
	p, err := l.submit(c, l.group.SubmitHere)
	if err != nil {
		return outcome{}, err
	}
	return settled(p.Wait(ctx))
}

// submit hands a command to the log without waiting. Commands enter the log in the order they are submitted in.
func (l *Log) submit(c command, to func([]byte) (*raftlog.Pending, error)) (*raftlog.Pending, error) {
	buf, _ := l.bufs.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer l.bufs.Put(buf)
	*buf = appendEntry((*buf)[:0], c)
	if _, err := decode(*buf); err != nil {
		// An entry that nobody can apply would stop every replica for good.
		return nil, dataflow.Errorf(dataflow.ReasonInternal, "log of shard %d: a %T that does not decode: %w", l.cfg.Shard, c, err)
	}
	return to(*buf) // copies it
}

// settled takes apart what a proposal came to.
func settled(_ dataflow.LogIndex, v any, err error) (outcome, error) {
	if err != nil {
		return outcome{}, err
	}
	out, ok := v.(outcome)
	if !ok {
		return outcome{}, dataflow.Errorf(dataflow.ReasonInternal, "an entry of a shard came to a %T", v)
	}
	return out, out.err
}

// fsm is the log as its Raft group sees it. Only the apply goroutine calls its methods.
type fsm struct{ *Log }

var _ raftlog.OnDiskFSM = fsm{}

// Apply implements raftlog.FSM.
func (l fsm) Apply(index dataflow.LogIndex, cmd []byte) any {
	if uint64(index) <= l.applied.Load() {
		return refused(fmt.Errorf("entry %d had been applied", index)) // A replay; nobody waits for it.
	}
	if l.frozen != nil {
		return refused(l.frozen)
	}
	c, err := decode(cmd)
	if err != nil {
		// It is committed, so the other replicas may have applied it: to go on without it would be to diverge.
		return refused(l.freeze(fmt.Errorf("entry %d: %w", index, err)))
	}
	l.mu.Lock()
	out := l.mu.m.step(index, c)
	l.mu.Unlock()
	if out.fresh {
		if err := l.act(index, c); err != nil {
			return refused(l.freeze(err))
		}
	}
	switch c.(type) {
	case *trimStream, *dropStream:
		l.cache.forget(l.mu.m.oldestRows())
	}
	if drops(c) {
		l.dropped.Store(true)
	}
	l.advance(index)
	l.taken.Add(int64(len(cmd)))
	if n := l.since.Add(int64(len(cmd))); l.cfg.SnapshotBytes > 0 && n >= l.snapshotAfter() {
		select {
		case l.due <- struct{}{}:
		default: // one is due already
		}
	}
	return out
}

// act does what follows from an entry that changed the machine.
func (l fsm) act(index dataflow.LogIndex, c command) error {
	switch c := c.(type) {
	case *appendRows:
		l.cache.add(index, c.rows)
		return nil
	case *deltaChunk:
		return l.tell(index, &deltaChunk{delta: c.delta, chunk: c.chunk, data: slices.Clone(c.data)})
	default:
		return l.tell(index, c)
	}
}

// tell passes a delta command on to the replica.
func (l fsm) tell(index dataflow.LogIndex, c command) error { return tell(l.cfg.Replica, index, c) }

func tell(r Replica, index dataflow.LogIndex, c command) error {
	var err error
	switch c := c.(type) {
	case *deltaChunk:
		err = r.ApplyChunk(index, c.delta, c.chunk, c.data)
	case *endDelta:
		err = r.EndDelta(index, c.delta, c.chunks, c.digest)
	case *beginIncarnation:
		err = r.BeginIncarnation(index, c.pipeline, c.min, c.base)
	case *settle:
		err = r.Settle(index, c.pipeline, c.upTo)
	case *dropPipeline:
		err = r.DropPipeline(index, c.pipeline)
	}
	if err != nil {
		return fmt.Errorf("replica: entry %d: %w", index, err)
	}
	return nil
}

// freeze stops the apply goroutine from applying anything more, and reports why.
func (l fsm) freeze(err error) error {
	l.frozen = fmt.Errorf("shard %d: %w", l.cfg.Shard, err)
	l.fail(l.frozen)
	return l.frozen
}

// AppliedIndex implements raftlog.OnDiskFSM.
func (l fsm) AppliedIndex() dataflow.LogIndex { return l.Log.AppliedIndex() }

// Snapshot implements raftlog.FSM.
func (l fsm) Snapshot() (raftlog.Snapshot, error) {
	if l.frozen != nil {
		return nil, l.frozen
	}
	return &snapshot{log: l.Log, m: l.mu.m.freeze()}, nil
}

// Restore implements raftlog.FSM: a leader has sent its snapshot, because this member lagged too far behind. The entries
// that it refers to must have been brought into the store before (P7).
func (l fsm) Restore(r io.Reader) error {
	if l.frozen != nil {
		return l.frozen
	}
	m, _, err := readSnapshot(r)
	if err != nil {
		return err
	}
	if err := l.refeed(m); err != nil {
		return l.freeze(err)
	}
	l.cache.clear()
	l.mu.Lock()
	l.mu.m = m
	l.mu.Unlock()
	l.advance(m.applied)
	return nil
}

// advance publishes that everything up to index has been applied.
func (l *Log) advance(index dataflow.LogIndex) {
	l.applied.Store(uint64(index))
	l.watch.Lock()
	defer l.watch.Unlock()
	if l.watch.taken {
		close(l.watch.changed)
		l.watch.changed, l.watch.taken = make(chan struct{}), false
	}
}

// fail keeps the first failure and delivers it through Failed.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.err != nil {
		return
	}
	l.mu.err = err
	l.failure <- err // never blocks: it holds one
	close(l.failure)
}

// Changed returns a channel that is closed when something more has been applied. Fetch it before looking, so that
// nothing is missed.
func (l *Log) Changed() <-chan struct{} {
	l.watch.Lock()
	defer l.watch.Unlock()
	l.watch.taken = true
	return l.watch.changed
}

// AppliedIndex returns the last index that this node has applied, its replica included.
func (l *Log) AppliedIndex() dataflow.LogIndex { return dataflow.LogIndex(l.applied.Load()) }

// Barrier returns when everything committed before has been applied here. Only a leader can say.
func (l *Log) Barrier(ctx context.Context) error { return l.group.Barrier(ctx) }

// Group returns the log's Raft group.
func (l *Log) Group() *raftlog.Group { return l.group }

// IsLeader reports whether this node leads the shard's log. It may have been deposed without knowing; what it then
// proposes fails.
func (l *Log) IsLeader() bool { return l.group.IsLeader() }

// Leader returns the id of the node that is known to lead, or "".
func (l *Log) Leader() string { return l.group.Leader() }

// Term returns the log's current term.
func (l *Log) Term() uint64 { return l.group.Term() }

// Needs delivers that this member's log has fallen behind what its leader keeps: it must be brought forward by an Installer.
// See raftlog.Group.Needs.
func (l *Log) Needs() <-chan raftlog.Need { return l.group.Needs() }

// LeaderChanged returns a channel that is closed at the next change of IsLeader or Leader. Fetch it before looking.
func (l *Log) LeaderChanged() <-chan struct{} { return l.group.Changed() }

// WaitLeader returns when a leader is known, or ctx has ended, or the log is closed or has failed.
func (l *Log) WaitLeader(ctx context.Context) error { return l.group.WaitLeader(ctx) }

// Failed delivers the error that stopped the log and is then closed: a failed durable write, a damaged entry, or an error
// of the replica. The node must stop.
func (l *Log) Failed() <-chan error { return l.failure }

// runFailure passes the group's failure on.
func (l *Log) runFailure() {
	select {
	case <-l.ctx.Done():
	case err, ok := <-l.group.Failed():
		if !ok {
			err = fmt.Errorf("the log of shard %d has failed", l.cfg.Shard)
		}
		l.fail(err)
	}
}
