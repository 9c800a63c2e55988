package raftlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/transport"
)

// Group is one member of a Raft group. Its methods are safe for concurrent use.
type Group struct {
	cfg   Config
	raft  *raft.Raft
	trans *transport.Transport
	hush  atomic.Bool               // while the group stops, the library's complaints are of no interest
	fwd   *forwarding               // nil without Config.Forward
	heirs *succeeding               // nil where the transport does not notice that a leader is gone
	alive atomic.Pointer[raft.Raft] // raft, for the FSM's goroutine, which begins before raft is set
	told  uint64                    // what the others were told is committed last; only the FSM's goroutine touches it
	log   *guard
	fsm   *fsmAdapter
	snaps *snapshotStore

	queue    chan *Pending // commands that Raft has not seen; closed by Close
	inflight chan *Pending // commands whose outcome is awaited; closed by runQueue
	idle     chan struct{} // closed when the group is closed and nothing is pending

	needs     chan Need     // Needs; holds one
	failure   chan error    // Failed; holds one error, then is closed
	failed    chan struct{} // closed on failure
	snapshots chan struct{} // asks runSnapshots for one; holds one request
	sinceSnap atomic.Int64  // bytes applied since the last snapshot
	avgEntry  atomic.Int64  // bytes of an average entry, a moving average
	snapMu    chan struct{} // held by the one who takes a snapshot; a channel, because it is held across I/O

	done      chan struct{} // closed by Close, ends the loops
	loops     sync.WaitGroup
	proposals sync.WaitGroup // runQueue and runInflight
	closeOnce sync.Once
	closeErr  error

	// turn is held by who waits for Raft's main goroutine, and for good by who tells it to stop: what is sent to it afterwards
	// is never answered.
	turn           chan struct{}
	shutdownOnce   sync.Once
	shutdownFuture raft.Future

	mu struct {
		sync.Mutex
		closed       bool
		pending      int
		pendingBytes int64
		transferring bool // leadership is being handed over: no new commands
		holds        map[*hold]struct{}
		err          error         // why the group failed
		changed      chan struct{} // closed and replaced when leadership changes
	}
}

// Open starts the member. An empty log is bootstrapped with cfg.Members. The group applies what its log holds in the
// background; call WaitLeader and Barrier to wait for that.
func Open(cfg Config) (*Group, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	g := &Group{
		cfg:       cfg,
		queue:     make(chan *Pending, cfg.MaxPending),
		inflight:  make(chan *Pending, cfg.MaxPending),
		idle:      make(chan struct{}),
		needs:     make(chan Need, 1),
		failure:   make(chan error, 1),
		failed:    make(chan struct{}),
		snapshots: make(chan struct{}, 1),
		snapMu:    make(chan struct{}, 1),
		turn:      make(chan struct{}, 1),
		done:      make(chan struct{}),
	}
	g.mu.changed = make(chan struct{})
	if cfg.Forward != nil {
		g.fwd = newForwarding(g)
	}
	g.mu.holds = make(map[*hold]struct{})
	g.fsm = &fsmAdapter{fsm: cfg.FSM, fail: g.fail, onApply: g.onApply, fwd: g.fwd}
	g.log = &guard{LogStore: cfg.Log, deadline: cfg.WriteDeadline, fail: g.fail, leads: g.storesAsLeader}
	t := cfg.Transport
	if t == nil {
		t = transport.NewLocal(cfg.NodeID)
	}
	g.trans = transport.Wrap(t)
	if err := g.start(); err != nil {
		_ = g.trans.Close() // what failed before says more
		if cause := g.Err(); cause != nil {
			err = errors.Unwrap(cause) // what came after a failed write only says that there was one; without the log's name
		}
		return nil, fmt.Errorf("open log %s: %w", cfg.Group, err)
	}
	return g, nil
}

// start brings the log, the snapshots and the FSM together and starts Raft.
func (g *Group) start() error {
	var err error
	if g.snaps, err = openSnapshots(g.cfg.FS, g.cfg.Dir); err != nil {
		return err
	}
	rc := g.raftConfig()
	if err := g.bootstrap(rc); err != nil {
		return err
	}
	if err := g.checkLog(); err != nil {
		return err
	}
	events := make(chan raft.Observation, 64)
	deliver := g.receive()
	g.heirs = g.watchLeader()
	if g.raft, err = raft.NewRaft(rc, g.fsm, g.log, g.log, g.snaps, g.trans); err != nil {
		return err
	}
	g.alive.Store(g.raft)
	deliver()
	g.raft.RegisterObserver(raft.NewObserver(events, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation, raft.FailedHeartbeatObservation, raft.ResumedHeartbeatObservation:
			return true
		}
		return false
	}))
	g.proposals.Go(g.runQueue)
	g.proposals.Go(g.runInflight)
	if g.fwd != nil {
		g.fwd.start()
	}
	g.loops.Go(func() { g.runEvents(events) })
	g.loops.Go(g.runSnapshots)
	g.loops.Go(g.runFailure)
	if g.heirs != nil {
		g.loops.Go(g.heirs.run)
	}
	return nil
}

func (g *Group) raftConfig() *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(g.cfg.NodeID)
	rc.HeartbeatTimeout = g.cfg.ElectionTimeout
	rc.ElectionTimeout = g.cfg.ElectionTimeout
	rc.LeaderLeaseTimeout = g.cfg.ElectionTimeout
	rc.CommitTimeout = min(rc.CommitTimeout, g.cfg.ElectionTimeout)
	rc.PreVoteDisabled = !g.trans.PreVote()
	rc.NoSnapshotRestoreOnStart = g.cfg.OnDisk
	rc.NoLegacyTelemetry = true
	rc.BatchApplyCh = true // otherwise hardly any two commands share a write
	if g.cfg.alone() {
		rc.MaxAppendEntries = 512 // only batches this member's own writes
	}
	// Snapshots are taken by bytes (R5).
	rc.SnapshotThreshold = math.MaxUint64
	rc.SnapshotInterval = 24 * time.Hour
	rc.TrailingLogs = maxTrailingEntries
	rc.ShutdownOnRemove = false // a member that was removed is closed by who removed it
	rc.Logger = newRaftLogger(g.cfg.Logger.With("log", g.cfg.Group), g.cfg.alone(), &g.hush)
	return rc
}

// bootstrap writes the first configuration into an empty log.
func (g *Group) bootstrap(rc *raft.Config) error {
	if g.cfg.Join {
		return nil
	}
	last, err := g.log.LastIndex()
	if err != nil {
		return err
	}
	metas, err := g.snaps.List()
	if err != nil {
		return err
	}
	if last > 0 || len(metas) > 0 {
		return nil
	}
	// A crash in the middle of BootstrapCluster leaves term 1 and nothing else, which it would refuse to touch again.
	// Nobody can have voted in term 1, since only the bootstrap makes it.
	term, err := g.log.GetUint64([]byte(currentTermKey))
	if err != nil {
		return err
	}
	if term == 1 {
		if err := g.log.LogStore.SetUint64([]byte(currentTermKey), 0); err != nil {
			return err
		}
	}
	members := g.cfg.Members
	if len(members) == 0 {
		members = []Member{{ID: g.cfg.NodeID, Addr: string(g.trans.LocalAddr())}}
	}
	var conf raft.Configuration
	for _, m := range members {
		conf.Servers = append(conf.Servers, m.server())
	}
	if err := raft.BootstrapCluster(rc, g.log, g.log, g.snaps, g.trans, conf); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// Name returns the group's name.
func (g *Group) Name() string { return g.cfg.Group }

// IsLeader says whether this member leads. It may have been deposed without knowing; what it then proposes fails.
func (g *Group) IsLeader() bool { return g.raft.State() == raft.Leader }

// storesAsLeader says whether entries that are being stored are this member's own, as those of a leader are. Raft's main
// goroutine stores entries and decides who leads, so it has no doubt.
func (g *Group) storesAsLeader() bool {
	r := g.alive.Load()
	return r != nil && r.State() == raft.Leader
}

// Term returns the current term.
func (g *Group) Term() uint64 { return g.raft.CurrentTerm() }

// Leader returns the id of the member that is known to lead, or "".
func (g *Group) Leader() string {
	_, id := g.raft.LeaderWithID()
	return string(id)
}

// Changed returns a channel that is closed at the next change of IsLeader, Leader or the member's state. Fetch it before
// looking at those, so that no change is missed.
func (g *Group) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.changed
}

// WaitLeader returns when a leader is known, or ctx has ended, or the group is closed or has failed.
func (g *Group) WaitLeader(ctx context.Context) error {
	for {
		changed := g.Changed()
		if g.isClosed() {
			return g.errClosed()
		}
		if g.Leader() != "" {
			return nil
		}
		select {
		case <-changed:
		case <-g.done:
			return g.errClosed()
		case <-g.failed:
			return g.Err()
		case <-ctx.Done():
			return dataflow.Errorf(dataflow.ReasonDeadline, "log %s has no leader: %w", g.cfg.Group, context.Cause(ctx))
		}
	}
}

// AppliedIndex is the index of the last command that the FSM has applied or restored.
func (g *Group) AppliedIndex() dataflow.LogIndex { return dataflow.LogIndex(g.fsm.applied.Load()) }

// Failed delivers the error that made the group stop (R3) and is then closed. The node must stop: after a restart it
// finds out what the disk holds.
func (g *Group) Failed() <-chan error { return g.failure }

// Err returns why the group has failed, or nil.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.err
}

// fail stops the group for good. It is called on Raft's goroutines and does not block.
func (g *Group) fail(err error) {
	g.trans.Cut()
	g.fsm.frozen.Store(true)
	g.log.failed.Store(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.err != nil {
		return
	}
	g.mu.err = fmt.Errorf("log %s: %w", g.cfg.Group, err)
	g.failure <- g.mu.err
	close(g.failure)
	close(g.failed)
}

// runFailure stops Raft after a failure, so that it does not campaign any more. Raft answers what is in flight first.
func (g *Group) runFailure() {
	select {
	case <-g.done:
	case <-g.failed:
		g.cfg.Logger.Error("log failed; the node must stop", "log", g.cfg.Group, "err", g.Err())
		g.drain()
		g.shutdown() // Close waits for it
	}
}

// shutdown tells Raft to stop and returns what its end can be waited for with. The library gives that once only.
func (g *Group) shutdown() raft.Future {
	g.shutdownOnce.Do(func() {
		g.turn <- struct{}{}
		g.shutdownFuture = g.raft.Shutdown()
	})
	return g.shutdownFuture
}

// takeTurn waits until Raft's main goroutine has taken one thing that it was asked. It reports false when the group ends.
func (g *Group) takeTurn() bool {
	select {
	case g.turn <- struct{}{}:
		_ = g.raft.VerifyLeader().Error() // whether it leads is no news; the library answers as long as it runs
		<-g.turn
		return true
	case <-g.done:
		return false
	}
}

// runEvents tells Changed's waiters, and people when a member is not to be reached, once.
func (g *Group) runEvents(events <-chan raft.Observation) {
	silent := map[raft.ServerID]bool{}
	for {
		select {
		case e := <-events:
			switch o := e.Data.(type) {
			case raft.FailedHeartbeatObservation:
				if !silent[o.PeerID] && !g.isClosed() {
					silent[o.PeerID] = true
					g.cfg.Logger.Warn("a member does not answer", "log", g.cfg.Group, "member", o.PeerID)
				}
				continue
			case raft.ResumedHeartbeatObservation:
				delete(silent, o.PeerID)
				g.cfg.Logger.Info("a member answers again", "log", g.cfg.Group, "member", o.PeerID)
				continue
			}
			g.mu.Lock()
			close(g.mu.changed)
			g.mu.changed = make(chan struct{})
			g.mu.Unlock()
		case <-g.done:
			return
		}
	}
}

func (g *Group) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.closed
}

// drain refuses new commands and waits until those pending are answered. Raft answers all of them while it runs, at the
// latest when it steps down; those that it has not when it is shut down, it would never answer. Drain says whether
// it came to an end in time.
func (g *Group) drain() bool {
	g.mu.Lock()
	if !g.mu.closed {
		g.mu.closed = true
		if g.mu.pending == 0 {
			close(g.idle)
		}
	}
	g.mu.Unlock()
	if g.fwd != nil {
		g.awaitOthers()
		g.fwd.stop()
	}
	_, answered := within(g.cfg.WriteDeadline+2*g.cfg.ElectionTimeout, g.idle, time.After)
	return answered
}

// awaitOthers waits a while for the answers to what is pending. What other members carry may never be answered: they need not be
// there any more. When all of them are gone that a majority needs, as where a whole group stops, nothing is waited for.
func (g *Group) awaitOthers() {
	for range withinTicks {
		if _, idle := within(g.cfg.ElectionTimeout/withinTicks, g.idle, time.After); idle {
			return
		}
		if g.heirs != nil && g.heirs.alone() {
			g.heirs.resign()
			return
		}
	}
}

// Close stops the member: it refuses new commands, waits for the answers to those pending, at most a write deadline and
// four election timeouts, then for the FSM, the loops and the writes under way. The error is nil when all ended, whether
// or not the group had failed before.
func (g *Group) Close() error {
	g.closeOnce.Do(func() { g.closeErr = g.close() })
	return g.closeErr
}

func (g *Group) close() error {
	answered := g.drain()
	g.hush.Store(true)
	_ = g.trans.Close()         // now, or calls under way hold Raft up, and those who wait for a turn of it
	err := g.shutdown().Error() // also closes the transport
	close(g.queue)
	close(g.done)
	g.loops.Wait()
	if !answered {
		return errors.Join(err, fmt.Errorf("close log %s: the state machine did not answer in time", g.cfg.Group))
	}
	g.proposals.Wait()
	if !g.log.wait(g.cfg.WriteDeadline) {
		return errors.Join(err, fmt.Errorf("close log %s: a write is still under way: %w", g.cfg.Group, ErrWriteDeadline))
	}
	return err
}
