package membership

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
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
	// AddNonvoter, AddVoter and RemoveServer change the log's members, on its leader.
	AddNonvoter(ctx context.Context, node string) error
	AddVoter(ctx context.Context, node string) error
	RemoveServer(ctx context.Context, node string) error
	// TransferLead hands the lead to another member, which has caught up.
	TransferLead(ctx context.Context, to string) error
}

// Config describes a Membership. All fields are needed.
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
	Local func() *weirv1.NodeStatus
	// Digest computes the digest of what this node holds of a pipeline on a shard at a cut.
	Digest func(ctx context.Context, uid dataflow.PipelineUID, shard dataflow.ShardID, cut dataflow.CheckpointID) (digest, keys uint64, err error)
	// Condemn has this node rebuild its replica of a shard.
	Condemn func(shard dataflow.ShardID, why error) error
	Logger  *slog.Logger
}

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
)

// Membership drives the members of the logs that this node leads.
type Membership struct {
	cfg Config
	mu  struct {
		sync.Mutex
		leaders []string  // of the shards, when last looked at
		since   time.Time // when they last changed
	}
}

// New returns a Membership. Run must be called for it to do anything.
func New(cfg Config) *Membership { return &Membership{cfg: cfg} }

// Run keeps the logs' members in agreement with the group's until ctx ends.
func (m *Membership) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for name, log := range m.logs() {
		g.Go(func() error { return m.each(ctx, func() { m.step(ctx, name, log) }) })
	}
	g.Go(func() error {
		return m.each(ctx, func() {
			m.announce(ctx)
			if m.cfg.MetaLog.IsLeader() {
				m.settle(ctx)
				m.spread(ctx)
			}
		})
	})
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
	logs := map[string]Log{"meta": m.cfg.MetaLog}
	for i, l := range m.cfg.Shards {
		logs[fmt.Sprintf("shard-%d", i)] = l
	}
	return logs
}

// step makes the next change of a log's members, if this node leads it.
func (m *Membership) step(ctx context.Context, name string, log Log) {
	if !log.IsLeader() {
		return
	}
	servers, err := log.Servers()
	if err != nil {
		m.cfg.Logger.Debug("members of a log", "log", name, "error", err)
		return
	}
	s := Next(m.cfg.Meta.State().Members, servers, m.cfg.Self.Node)
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	switch s.Do {
	case Nothing:
		return
	case Add:
		err = log.AddNonvoter(ctx, s.Node)
	case Promote:
		err = log.AddVoter(ctx, s.Node)
	case Remove:
		err = log.RemoveServer(ctx, s.Node)
	case HandOver:
		err = log.TransferLead(ctx, s.Node)
	}
	if err != nil {
		m.cfg.Logger.Warn("change a log's members", "log", name, "do", s.Do.String(), "node", s.Node, "error", err)
		return
	}
	m.cfg.Logger.Info("a log's members have changed", "log", name, "do", s.Do.String(), "node", s.Node)
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

// settle ends the move of the node that joins or leaves once all logs agree.
func (m *Membership) settle(ctx context.Context) {
	moving := m.cfg.Meta.State().Moving()
	if moving == nil {
		return
	}
	for _, log := range m.logs() {
		servers, err := log.Servers()
		if err != nil {
			return
		}
		i := slices.IndexFunc(servers, func(s Server) bool { return s.ID == moving.ID })
		if joined := i >= 0 && servers[i].Voter; moving.State == meta.MemberJoining && !joined || moving.State == meta.MemberLeaving && i >= 0 {
			return
		}
	}
	to := meta.MemberActive
	if moving.State == meta.MemberLeaving {
		to = meta.MemberGone
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if _, err := m.cfg.Meta.SetMemberState(ctx, moving.ID, to); err != nil {
		m.cfg.Logger.Warn("end a node's move", "node", moving.ID, "to", to.String(), "error", err)
		return
	}
	m.cfg.Logger.Info("a node's move has ended", "node", moving.ID, "is", to.String())
}

// leaders returns the nodes that lead the shards, and since when nothing has changed.
func (m *Membership) leaders() ([]string, time.Time) {
	now := make([]string, len(m.cfg.Shards))
	for i, l := range m.cfg.Shards {
		now[i] = l.Leader()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(now, m.mu.leaders) {
		m.mu.leaders, m.mu.since = now, time.Now()
	}
	return now, m.mu.since
}

// spread spreads the shards' leads by itself, when nothing has moved for a while, or at once while there is no pipeline that
// would have to recover.
func (m *Membership) spread(ctx context.Context) {
	leaders, since := m.leaders()
	st := m.cfg.Meta.State()
	if st.Moving() != nil || slices.Contains(leaders, "") || len(st.Pipelines) > 0 && time.Since(since) < settleTime {
		return
	}
	if moves := Balance(st.Members, leaders); len(moves) > 0 {
		_ = m.move(ctx, moves) // each was said; what did not move does later
	}
}

// move makes moves, all at once, so that pipelines recover once.
func (m *Membership) move(ctx context.Context, moves []Move) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	var g errgroup.Group
	for _, v := range moves {
		g.Go(func() error {
			err := m.transfer(ctx, v)
			if err != nil {
				m.cfg.Logger.Warn("move the lead of a shard", "shard", v.Shard, "from", v.From, "to", v.To, "error", err)
				return err
			}
			m.cfg.Logger.Info("the lead of a shard has moved", "shard", v.Shard, "from", v.From, "to", v.To)
			return nil
		})
	}
	return g.Wait()
}

func (m *Membership) transfer(ctx context.Context, v Move) error {
	if v.From == m.cfg.Self.Node {
		return m.cfg.Shards[v.Shard].TransferLead(ctx, v.To)
	}
	c, err := m.cfg.Ask(v.From)
	if err != nil {
		return err
	}
	_, err = c.TransferLead(ctx, &peerv1.TransferLeadRequest{Log: fmt.Sprintf("shard-%d", v.Shard), To: v.To})
	return err
}
