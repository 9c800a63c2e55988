package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow/link"
	"github.com/weirdb/weir/internal/pace"
	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/node/founding"
	"github.com/weirdb/weir/node/peer"
	"github.com/weirdb/weir/node/rebuild"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/transport"
)

// Services between nodes, each with connections of its own. The logs' are named by raftlog/transport.
const (
	serviceFounding = "founding" // founding.Report as JSON, one per connection
	serviceTasks    = "tasks"    // gRPC: coordinators, live reads, what one node asks another
	serviceExchange = "exchange" // rows, barriers and markers between tasks
	serviceRebuild  = "rebuild"  // gRPC: replicas, in bulk; served as soon as the node listens
)

// peerGroupName stands for the group's id while it has none.
const peerGroupName = "weir"

// peers is the node's side of the network between the nodes of its group.
type peers struct {
	cfg    *Config
	net    *peernet.Net
	calls  *peer.Peers
	limit  *pace.Limiter // of what is read and sent to rebuild replicas
	start  *startup
	logger *slog.Logger
	serve  sync.WaitGroup

	mu struct {
		sync.Mutex
		seen map[string]sighting // of other nodes, by name
		self founding.Report     // what this node says to those that look for their group
		meta *meta.Log           // nil until it is open
		book []founding.Member   // who was in the group when this node ran last
	}
}

// openPeers listens for other nodes.
func openPeers(cfg *Config, id *identity, start *startup) (*peers, error) {
	p := &peers{cfg: cfg, logger: cfg.Logger, limit: pace.NewLimiter(cfg.Tuning.rebuildRate()), start: start}
	p.mu.seen = make(map[string]sighting)
	p.readBook()
	var err error
	p.net, err = peernet.Open(peernet.Config{
		Self:    peernet.Identity{Node: cfg.NodeID, Data: id.Data, Group: id.Group, GroupName: peerGroupName},
		Network: mapped(cfg.PeerNetwork, cfg.Tuning.PeerMap), Resolve: p.resolve, Met: p.met, Missed: p.missed, Admit: p.admit, Stranger: p.stranger,
		ServerTLS: cfg.PeerServerTLS, ClientTLS: cfg.PeerClientTLS, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	p.mu.self = founding.Report{
		Member: founding.Member{Node: cfg.NodeID, Data: id.Data, GRPCAddr: cfg.advertised(cfg.GRPCAddr), HTTPAddr: cfg.advertised(cfg.HTTPAddr)},
		Expect: cfg.BootstrapExpect, Join: slices.Sorted(slices.Values(cfg.Join)), Shards: cfg.Shards, Founding: id.Founding, Group: id.Group, GroupShards: id.Shards,
	}
	l, err := p.net.Listener(serviceFounding)
	if err != nil {
		return nil, errors.Join(err, p.net.Close())
	}
	if p.calls, err = peer.Open(peer.Config{Net: p.net}); err != nil {
		return nil, errors.Join(err, p.net.Close())
	}
	if err := p.net.Listen(cfg.PeerAddr); err != nil {
		return nil, errors.Join(err, p.calls.Close(), p.net.Close())
	}
	p.mu.self.PeerAddr = cfg.advertised(p.net.Addr().String())
	p.net.SetAddr(p.mu.self.PeerAddr)
	p.serve.Go(func() { p.answer(l) })
	return p, nil
}

// mapped returns network, or, with addresses to dial instead of others, a network that does.
func mapped(network peernet.Network, instead map[string]string) peernet.Network {
	if len(instead) == 0 {
		return network
	}
	return detour{network, instead}
}

type detour struct {
	peernet.Network
	instead map[string]string
}

// Dial implements peernet.Network.
func (d detour) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if to, ok := d.instead[addr]; ok {
		addr = to
	}
	return d.Network.Dial(ctx, addr)
}

func (p *peers) close() error {
	err := errors.Join(p.calls.Close(), p.net.Close())
	p.serve.Wait()
	return err
}

// pace holds the rebuilding of replicas to a rate.
func (p *peers) pace() *pace.Limiter {
	if p == nil {
		return nil
	}
	return p.limit
}

// admit decides whether to speak with a node. While this node looks for its group, and with one that does, only that is
// spoken about.
func (p *peers) admit(who peernet.Peer) error {
	if who.Service == serviceFounding {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, want, gone := p.recordedLocked(who.Node)
	switch {
	case gone:
		return peernet.Deny(peernet.ReasonUnknownNode, who, "it has left the group")
	case want == "" && p.mu.self.Founding != nil && len(p.mu.self.Founding.Members) == 0:
		return nil // this node is being taken into the group, and learns from its members who they are
	case want == "":
		return peernet.Deny(peernet.ReasonUnknownNode, who, "the group does not have it; weir cluster add")
	case want != who.Data:
		return peernet.Deny(peernet.ReasonData, who, "the group knows it with another data directory; start it with another --node-id")
	}
	return nil
}

// setFounding tells those that look for their group what this one's is.
func (p *peers) setFounding(f *founding.Founding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.self.Founding = f
	p.net.SetGroup(f.Group)
}

// setMeta lets the meta log say who is in the group.
func (p *peers) setMeta(m *meta.Log, g *raftlog.Group) {
	if p == nil {
		return
	}
	m.Spread()
	p.calls.Serve(g.Name(), g)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.meta = m
}

// connect lets a log's members find each other. In a group of one node it does nothing.
func (p *peers) connect(rc *raftlog.Config, f *founding.Founding) error {
	if p == nil {
		return nil
	}
	t, err := transport.Over(p.net, rc.Group)
	if err != nil {
		return err
	}
	rc.Transport, rc.Forward = t, p.calls
	rc.Join = len(f.Members) == 0
	for _, m := range f.Members {
		rc.Members = append(rc.Members, raftlog.Member{ID: m.Node})
	}
	return nil
}

// serveLog takes commands for a log that this node may lead from other nodes.
func (p *peers) serveLog(g *raftlog.Group) {
	if p != nil {
		p.calls.Serve(g.Name(), g)
	}
}

// report is what this node says of itself.
func (p *peers) report() founding.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.mu.self
	if r.Founding != nil && len(r.Founding.Members) == 0 {
		r.Founding = nil // it founded nothing
	}
	if p.mu.meta != nil {
		st := p.mu.meta.State()
		r.Group, r.GroupShards = st.ClusterID, st.Shards
		for _, m := range st.Members {
			switch {
			case m.In():
				r.In = append(r.In, founding.Member{Node: m.ID, Data: m.DataID, PeerAddr: m.PeerAddr})
			case m.State == meta.MemberGone:
				r.Left = append(r.Left, founding.Member{Node: m.ID, Data: m.DataID})
			}
		}
	}
	return r
}

// answer tells nodes that look for their group what this one knows.
func (p *peers) answer(l net.Listener) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		calls.Go(func() {
			defer func() { _ = c.Close() }() // nothing hangs on it
			b, err := json.Marshal(p.report())
			if err != nil {
				p.logger.Error("say what this node's group is", "error", err)
				return
			}
			if err := c.SetDeadline(time.Now().Add(askTime)); err == nil {
				_, _ = c.Write(b) // who asked asks again
			}
		})
	}
}

// meet brings the node together with its group, if it is to be one of several: it listens for the others and, the first time,
// looks for them.
func (s *storage) meet(ctx context.Context, cfg *Config) error {
	if !cfg.group() {
		return nil
	}
	var err error
	if s.peers, err = openPeers(cfg, &s.id, s.start); err != nil {
		return err
	}
	s.source, s.due = rebuild.NewSource(), make(chan *Restart, 1)
	// Handlers read files of the shards, so they must have ended before these are closed.
	if s.bulk, err = peer.Open(peer.Config{Net: s.peers.net, Service: serviceRebuild, Register: s.source.Register}); err != nil {
		return err
	}
	s.rebuilds = rebuild.New(rebuild.Config{Node: cfg.NodeID, Conn: connOf(s.bulk), Members: s.otherMembers, Logger: cfg.Logger})
	if s.id.Founding != nil {
		s.peers.setFounding(s.id.Founding)
		return nil
	}
	f, err := s.peers.find(ctx)
	if err != nil {
		return err
	}
	s.id.Founding = f
	if err := s.writeIdentity(cfg); err != nil {
		return err
	}
	s.peers.setFounding(f)
	cfg.Logger.Info("the node has a group", "group", f.Group, "founders", len(f.Members))
	return nil
}

// otherMembers returns the nodes of the group beside this one.
func (s *storage) otherMembers() []string {
	var nodes []string
	for _, m := range s.meta.State().InMembers() {
		if m.ID != s.peers.cfg.NodeID {
			nodes = append(nodes, m.ID)
		}
	}
	return nodes
}

// found names a new group, as its founders have agreed. Whoever leads does it; the others wait.
func (s *storage) found(ctx context.Context, f *founding.Founding) error {
	members := make([]meta.Member, 0, len(f.Members))
	for _, m := range f.Members {
		members = append(members, meta.Member{ID: m.Node, DataID: m.Data, PeerAddr: m.PeerAddr, GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr})
	}
	for {
		changed := s.meta.Changed()
		if s.meta.State().ClusterID != "" {
			return nil
		}
		if s.group.IsLeader() {
			if err := s.meta.Found(ctx, f.Group, f.Shards, members); err != nil {
				s.peers.logger.Warn("found the group", "error", err)
			}
		}
		select {
		case <-changed:
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// links returns what connects the runs of this node with their parts on others; nil in a group of one node.
func (p *peers) links() *link.Hub {
	if p == nil {
		return nil
	}
	return link.Open(link.Config{Node: p.cfg.NodeID, Logger: p.logger, Dial: func(ctx context.Context, node string) (net.Conn, error) {
		return p.net.Dial(ctx, node, serviceExchange)
	}})
}

// serveLinks hands the connections of other nodes' runs to h.
func (p *peers) serveLinks(h *link.Hub) error {
	l, err := p.net.Listener(serviceExchange)
	if err != nil {
		return err
	}
	p.serve.Go(func() {
		var handlers sync.WaitGroup
		defer handlers.Wait()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() {
				if err := h.Handle(c); err != nil {
					p.logger.Debug("a link of another node", "error", err)
				}
			})
		}
	})
	return nil
}

// connOf returns p's connections as those want them who call services.
func connOf(p *peer.Peers) func(node string) (grpc.ClientConnInterface, error) {
	return func(node string) (grpc.ClientConnInterface, error) { return p.Conn(node) }
}
