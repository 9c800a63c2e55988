package membership

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/founding"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// Log is a log of the group, as this node has it.
type Log interface {
	IsLeader() bool
	// Leader returns the node that is known to lead, or "".
	Leader() string
	// Servers returns the log's members, as this node knows them. Only the leader knows who has caught up.
	Servers() ([]Server, error)
	// AddNonvoter, AddVoter, DemoteVoter and RemoveServer change the log's members, on its leader.
	AddNonvoter(ctx context.Context, node string) error
	AddVoter(ctx context.Context, node string) error
	DemoteVoter(ctx context.Context, node string) error
	RemoveServer(ctx context.Context, node string) error
	// TransferLead hands the lead to another member, which has caught up.
	TransferLead(ctx context.Context, to string) error
	// WhileInReach returns a context that also ends when too few members are there for a majority; stop must be called.
	WhileInReach(ctx context.Context) (_ context.Context, stop func())
}

// Config describes a Membership. All fields are needed, unless said otherwise.
type Config struct {
	Self founding.Member // this node, where it is now
	Meta *meta.Log
	// MetaLog is the meta log's group, Shards are the shards', in order.
	MetaLog Log
	Shards  []Log
	// Ask returns what another node is asked by.
	Ask func(node string) (peerv1.NodeServiceClient, error)
	// Probe asks who is at an address.
	Probe func(ctx context.Context, addr string) (*founding.Report, error)
	// Local shows this node.
	Local  func() *weirv1.NodeStatus
	Digest Digest
	// Condemn has this node rebuild its replica of a shard.
	Condemn func(shard dataflow.ShardID, why error) error
	// Checkpoint has a pipeline commit a checkpoint and waits for it. With hold it keeps the sources from reading on for a moment.
	Checkpoint func(ctx context.Context, uid dataflow.PipelineUID, hold bool) error
	// RepairAfter is how long a node is silent before others vote in its place. Optional; default DefaultRepairAfter.
	RepairAfter time.Duration
	Logger      *slog.Logger
}

// Digest computes the digest of what this node holds of a pipeline on a shard at a cut.
type Digest func(ctx context.Context, uid dataflow.PipelineUID, shard dataflow.ShardID, cut dataflow.CheckpointID) (digest, keys uint64, err error)

// DefaultRepairAfter is how long a node is silent before others vote in its place. Why not shorter: a node that restarts comes back
// within it. Why not longer: meanwhile the group survives one failure less.
const DefaultRepairAfter = time.Minute

const (
	// lookEvery is how often the logs' members are compared with the group's.
	lookEvery = 500 * time.Millisecond
	// stepTime bounds one change of a log's members.
	stepTime = 10 * time.Second
	// askTime bounds a question to another node.
	askTime = 2 * time.Second
	// settleTime is how long nothing has moved before leads are spread by themselves. Why not shorter: each move ends an
	// incarnation, and a node that has just come back may go again.
	settleTime = 30 * time.Second
	// againAfter is how long a lead that must move stays after that has failed.
	againAfter = 5 * time.Second
	// cutTime bounds the checkpoint before a move. Why not longer: a node that is drained waits for it.
	cutTime = 10 * time.Second
	// holdCut bounds the one behind it, after which the sources are held. Why not longer: the first pipeline that has committed it stands
	// still until the last has.
	holdCut = 2 * time.Second
	// arriveTime bounds the wait until this node has heard who leads after a move, and arriveEvery is how often it looks.
	arriveTime  = 2 * time.Second
	arriveEvery = 5 * time.Millisecond
	// checkpointAgain is the pause before a checkpoint that could not be made is asked for again.
	checkpointAgain = 100 * time.Millisecond
)

// Membership drives the members of the logs that this node leads.
type Membership struct {
	cfg          Config
	verifier     Verifier
	moving       chan struct{} // holds one while leads are moved
	transferring atomic.Bool   // leads are on their way, behind the checkpoint
	mu           struct {
		sync.Mutex
		leaders  []string  // of the shards, when last looked at
		since    time.Time // when they last changed
		waits    moveWaits // after moves that have failed
		shunned  shunned
		presence *presence // nil while this node does not lead the meta log
	}
}

// New returns a Membership. Run must be called for it to do anything.
func New(cfg Config) *Membership {
	if cfg.RepairAfter == 0 {
		cfg.RepairAfter = DefaultRepairAfter
	}
	v := Verifier{Node: cfg.Self.Node, Meta: cfg.Meta, Digest: cfg.Digest, Ask: cfg.Ask, Condemn: cfg.Condemn}
	m := &Membership{cfg: cfg, verifier: v, moving: make(chan struct{}, 1)}
	m.mu.shunned = make(shunned)
	return m
}

// Run keeps the logs' members in agreement with the group's until ctx ends.
func (m *Membership) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return m.each(ctx, func() {
			m.step(ctx, metaLog, m.cfg.MetaLog, m.cfg.Meta.State().Placement.Meta)
		})
	})
	for i, log := range m.cfg.Shards {
		g.Go(func() error {
			return m.each(ctx, func() { m.step(ctx, shardLog(i), log, m.cfg.Meta.State().Placement.Voters(i)) })
		})
	}
	g.Go(func() error { return m.each(ctx, func() { m.announce(ctx) }) })
	g.Go(func() error { return m.each(ctx, func() { m.lead(ctx) }) })
	return g.Wait()
}

// each calls f every lookEvery.
func (m *Membership) each(ctx context.Context, f func()) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		f()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *Membership) logs() map[string]Log {
	logs := map[string]Log{metaLog: m.cfg.MetaLog}
	for i, l := range m.cfg.Shards {
		logs[shardLog(i)] = l
	}
	return logs
}

// metaLog names the meta log among the logs.
const metaLog = "meta"

func shardLog(shard int) string { return fmt.Sprintf("shard-%d", shard) }

// step makes the next change of a log's members, if this node leads it. The lead of a shard is left to spread, which moves it at a
// cut; that of the meta log is handed over here. A node leaves the meta log last: until its leads have moved, its tasks must
// hear of commits.
func (m *Membership) step(ctx context.Context, name string, log Log, want []string) {
	if !log.IsLeader() {
		return
	}
	servers, err := log.Servers()
	if err != nil {
		m.cfg.Logger.Debug("members of a log", "log", name, "error", err)
		return
	}
	s := Next(m.cfg.Meta.State().Members, want, servers, m.cfg.Self.Node)
	if s.Do == HandOver && name != metaLog || s.Do == Remove && name == metaLog && m.inShards(s.Node) {
		return
	}
	if takesVote(s, servers) && !m.confirmed(ctx, servers, s.Node) {
		m.cfg.Logger.Info("a vote stays: too few of the other voters answer now", "log", name, "node", s.Node)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	switch s.Do {
	case Nothing:
		return
	case Add:
		err = log.AddNonvoter(ctx, s.Node)
	case Promote:
		err = log.AddVoter(ctx, s.Node)
	case Demote:
		err = log.DemoteVoter(ctx, s.Node)
	case Remove:
		err = log.RemoveServer(ctx, s.Node)
	case HandOver:
		// Not while leads of shards move: who leads the meta log coordinates the checkpoint before.
		select {
		case m.moving <- struct{}{}:
		default:
			return
		}
		err = log.TransferLead(ctx, s.Node)
		<-m.moving
	}
	if err != nil {
		m.cfg.Logger.Warn("change a log's members", "log", name, "do", s.Do.String(), "node", s.Node, "error", err)
		return
	}
	m.cfg.Logger.Info("a log's members have changed", "log", name, "do", s.Do.String(), "node", s.Node)
}

// inShards reports whether a node is in the log of a shard, as this node knows them.
func (m *Membership) inShards(node string) bool {
	return slices.ContainsFunc(m.cfg.Shards, func(l Log) bool {
		s, err := member(l, node)
		return err != nil || s != nil
	})
}

// announce tells the group where this node is, when that has changed.
func (m *Membership) announce(ctx context.Context) {
	self := m.cfg.Self
	have := m.cfg.Meta.State().Member(self.Node)
	if have == nil || !have.In() || have.PeerAddr == self.PeerAddr && have.GRPCAddr == self.GRPCAddr && have.HTTPAddr == self.HTTPAddr {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if _, err := m.cfg.Meta.PutMember(ctx, meta.Member{ID: self.Node, DataID: self.Data, PeerAddr: self.PeerAddr, GRPCAddr: self.GRPCAddr, HTTPAddr: self.HTTPAddr}); err != nil {
		m.cfg.Logger.Warn("tell the group where this node is", "error", err)
	}
}
