package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// Nodes shows all nodes of the group, those that do not answer too.
func (m *Membership) Nodes(ctx context.Context) []*weirv1.NodeStatus {
	members := m.cfg.Meta.State().Members
	out := make([]*weirv1.NodeStatus, len(members))
	var g sync.WaitGroup
	for i := range members {
		g.Go(func() { out[i] = m.node(ctx, &members[i]) })
	}
	g.Wait()
	return out
}

// node shows one node.
func (m *Membership) node(ctx context.Context, member *meta.Member) *weirv1.NodeStatus {
	s := &weirv1.NodeStatus{}
	switch {
	case member.ID == m.cfg.Self.Node:
		s = m.local()
		s.Reachable = true
	case member.State != meta.MemberGone:
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		c, err := m.cfg.Ask(member.ID)
		if err == nil {
			var res *peerv1.GetNodeStatusResponse
			if res, err = c.GetNodeStatus(ctx, &peerv1.GetNodeStatusRequest{}); err == nil {
				s = res.Node
				s.Reachable = true
			}
		}
		if err != nil {
			s.Problem = status.Convert(err).Message()
		}
	}
	s.Node, s.State, s.PeerAddr, s.GrpcAddr, s.HttpAddr = member.ID, member.State.String(), member.PeerAddr, member.GRPCAddr, member.HTTPAddr
	return s
}

// Add takes the node at an address into the group, which joins then.
func (m *Membership) Add(ctx context.Context, addr, name string) (*weirv1.NodeStatus, error) {
	r, err := m.cfg.Probe(ctx, addr)
	switch {
	case dataflow.ReasonOf(err) == dataflow.ReasonRequestInvalid:
		return nil, err // another port
	case err != nil:
		return nil, dataflow.Errorf(dataflow.ReasonUnreachable, "no node answers at %s: %w", addr, err).
			WithHint("start it with --peer-addr, --join and an empty data directory first")
	case r == nil:
		return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "at %s is the node that answers, which is in the group", addr)
	case name != "" && r.Node != name:
		return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "at %s is node %s, not %s", addr, r.Node, name)
	}
	st := m.cfg.Meta.State()
	if r.Group != "" && r.Group != st.ClusterID {
		return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s at %s belongs to another group, %s", r.Node, addr, r.Group).
			WithHint("a node joins with an empty data directory")
	}
	member, err := m.cfg.Meta.PutMember(ctx, meta.Member{ID: r.Node, DataID: r.Data, PeerAddr: r.PeerAddr, GRPCAddr: r.GRPCAddr, HTTPAddr: r.HTTPAddr})
	if err != nil {
		return nil, err
	}
	return m.node(ctx, &member), nil
}

// Set moves a node to a state: leaving, joining again, drained, or active again.
func (m *Membership) Set(ctx context.Context, node string, to meta.MemberState) (*weirv1.NodeStatus, error) {
	member, err := m.cfg.Meta.SetMemberState(ctx, node, to)
	if err != nil {
		return nil, err
	}
	return m.node(ctx, &member), nil
}

// SetReplicas says how many nodes vote in each shard's log, and returns how many it is to be.
func (m *Membership) SetReplicas(ctx context.Context, n int) (int, error) {
	return m.cfg.Meta.SetReplicas(ctx, n)
}

// Rebalance spreads the shards' leads now: the leader of the meta log does.
func (m *Membership) Rebalance(ctx context.Context) ([]Move, error) {
	leader := m.cfg.MetaLog.Leader()
	if leader == "" || leader == m.cfg.Self.Node {
		return m.rebalance(ctx)
	}
	c, err := m.cfg.Ask(leader)
	if err != nil {
		return nil, err
	}
	res, err := c.Rebalance(ctx, &peerv1.RebalanceRequest{})
	if err != nil {
		return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s, which leads the meta log, has not spread the leads: %s", leader, status.Convert(err).Message()).
			WithHint("weir cluster status shows where they are; try again")
	}
	var moves []Move
	for _, v := range res.Moves {
		moves = append(moves, Move{Shard: int(v.Shard), From: v.From, To: v.To})
	}
	return moves, nil
}

// GiveLeads has the leads of the shards that this node leads moved to others, as every planned move right behind a checkpoint: it is
// about to stop. The leader of the meta log does it.
func (m *Membership) GiveLeads(ctx context.Context) error {
	self := m.cfg.Self.Node
	if leads, _ := m.leaders(); !slices.Contains(leads, self) {
		return nil
	}
	for {
		err := m.askToTakeLeads(ctx)
		if err == nil || errors.Is(err, errNobody) {
			return err
		}
		// Another node is about to lead the meta log, or leads are being moved already.
		if leads, _ := m.leaders(); !slices.Contains(leads, self) {
			return nil
		}
		if pause.For(ctx, checkpointAgain) != nil {
			return err
		}
	}
}

func (m *Membership) askToTakeLeads(ctx context.Context) error {
	leader := m.cfg.MetaLog.Leader()
	if leader == "" || leader == m.cfg.Self.Node {
		return m.takeLeads(ctx, m.cfg.Self.Node)
	}
	c, err := m.cfg.Ask(leader)
	if err == nil {
		_, err = c.TakeLeads(ctx, &peerv1.TakeLeadsRequest{Node: m.cfg.Self.Node})
	}
	if status.Code(err) == codes.FailedPrecondition {
		return fmt.Errorf("%w, says node %s", errNobody, leader)
	}
	return err
}

// Verify is Verifier's.
func (m *Membership) Verify(ctx context.Context, names []string) ([]*weirv1.Verified, error) {
	return m.verifier.Verify(ctx, names)
}

// Register adds the service that other nodes call.
func (m *Membership) Register(r grpc.ServiceRegistrar) {
	peerv1.RegisterNodeServiceServer(r, &server{m: m})
}

type server struct {
	peerv1.UnimplementedNodeServiceServer
	m *Membership
}

// GetNodeStatus implements peerv1.NodeServiceServer.
func (s *server) GetNodeStatus(context.Context, *peerv1.GetNodeStatusRequest) (*peerv1.GetNodeStatusResponse, error) {
	return &peerv1.GetNodeStatusResponse{Node: s.m.local()}, nil
}

// TransferLead implements peerv1.NodeServiceServer.
func (s *server) TransferLead(ctx context.Context, req *peerv1.TransferLeadRequest) (*peerv1.TransferLeadResponse, error) {
	log := s.m.logs()[req.Log]
	if log == nil {
		return nil, status.Errorf(codes.NotFound, "there is no log %q", req.Log)
	}
	if err := s.m.handOver(ctx, log, req.To); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &peerv1.TransferLeadResponse{}, nil
}

// TakeLeads implements peerv1.NodeServiceServer.
func (s *server) TakeLeads(ctx context.Context, req *peerv1.TakeLeadsRequest) (*peerv1.TakeLeadsResponse, error) {
	switch err := s.m.takeLeads(ctx, req.Node); {
	case errors.Is(err, errNobody):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &peerv1.TakeLeadsResponse{}, nil
}

// Rebalance implements peerv1.NodeServiceServer.
func (s *server) Rebalance(ctx context.Context, _ *peerv1.RebalanceRequest) (*peerv1.RebalanceResponse, error) {
	moves, err := s.m.rebalance(ctx)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	out := &peerv1.RebalanceResponse{}
	for _, v := range moves {
		out.Moves = append(out.Moves, v.Message())
	}
	return out, nil
}

// DigestReplica implements peerv1.NodeServiceServer.
func (s *server) DigestReplica(ctx context.Context, req *peerv1.DigestReplicaRequest) (*peerv1.DigestReplicaResponse, error) {
	if int(req.Shard) >= len(s.m.cfg.Shards) {
		return nil, status.Errorf(codes.NotFound, "there is no shard %d", req.Shard)
	}
	digest, keys, err := s.m.cfg.Digest(ctx, dataflow.PipelineUID(req.Pipeline), dataflow.ShardID(req.Shard), dataflow.CheckpointID(req.Checkpoint))
	if err != nil {
		return nil, refusal(err)
	}
	return &peerv1.DigestReplicaResponse{Digest: digest, Keys: keys}, nil
}

// DoubtReplica implements peerv1.NodeServiceServer.
func (s *server) DoubtReplica(ctx context.Context, req *peerv1.DoubtReplicaRequest) (*peerv1.DoubtReplicaResponse, error) {
	if int(req.Shard) >= len(s.m.cfg.Shards) {
		return nil, status.Errorf(codes.NotFound, "there is no shard %d", req.Shard)
	}
	rebuilds, err := s.m.verifier.doubt(ctx, dataflow.PipelineUID(req.Pipeline), dataflow.ShardID(req.Shard), dataflow.CheckpointID(req.Checkpoint))
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &peerv1.DoubtReplicaResponse{Rebuilds: rebuilds}, nil
}
