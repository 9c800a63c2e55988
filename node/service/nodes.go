package service

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/membership"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// LocalStatus shows this node as others see it.
func (s *Service) LocalStatus() *weirv1.NodeStatus {
	out := &weirv1.NodeStatus{Node: s.cfg.Node, Version: s.cfg.Version, StartedAt: api.Timestamp(s.cfg.StartedAt), Meta: api.RaftMessage(s.cfg.MetaStatus())}
	for _, l := range s.logs() {
		out.ShardLogs = append(out.ShardLogs, api.RaftMessage(l))
	}
	for _, p := range s.cfg.Meta.State().PipelineList() {
		if cut, ok := s.served(p); ok {
			out.Cuts = append(out.Cuts, &weirv1.NodeCut{Pipeline: p.Name, Checkpoint: uint64(cut)})
		}
	}
	if s.cfg.Disk != nil {
		out.DiskFreeBytes, out.DiskNeededBytes = s.cfg.Disk()
	}
	if s.cfg.Rebuilds != nil {
		for _, x := range s.cfg.Rebuilds() {
			out.Rebuilds = append(out.Rebuilds, &weirv1.Rebuild{
				Shard: uint32(x.Shard), Node: x.Node, DoneBytes: uint64(x.Done), TotalBytes: uint64(x.Total), StartedAt: api.Timestamp(x.Since.UnixMicro()),
			})
		}
	}
	return out
}

// served returns the newest cut of a pipeline that this node can serve of all shards.
func (s *Service) served(p *meta.Pipeline) (dataflow.CheckpointID, bool) {
	least := p.Newest().ID
	for _, sh := range s.cfg.Shards {
		cut, ok := sh.Replica.Newest(p.UID)
		if !ok {
			return 0, false
		}
		least = min(least, cut)
	}
	return least, true
}

// Nodes shows all nodes of the group.
func (s *Service) Nodes(ctx context.Context) []*weirv1.NodeStatus {
	if s.cfg.Members == nil {
		return nil
	}
	return s.cfg.Members.Nodes(ctx)
}

// Addresses says where the nodes of the group are.
func (s *Service) Addresses() []*weirv1.NodeAddress {
	var out []*weirv1.NodeAddress
	for _, m := range s.cfg.Meta.State().InMembers() {
		out = append(out, &weirv1.NodeAddress{Node: m.ID, State: m.State.String(), GrpcAddr: m.GRPCAddr, HttpAddr: m.HTTPAddr})
	}
	return out
}

// members returns the membership, or says that there is none.
func (s *Service) members() (*membership.Membership, error) {
	if s.cfg.Members == nil {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "this group has one node, and was made so that no other can join").
			WithHint("a group of several nodes is made by starting each of them with --peer-addr, --join and --bootstrap-expect")
	}
	return s.cfg.Members, nil
}

// AddNode takes the node at an address into the group.
func (s *Service) AddNode(ctx context.Context, peerAddr, name string) (*weirv1.NodeStatus, error) {
	m, err := s.members()
	if err != nil {
		return nil, err
	}
	return m.Add(ctx, peerAddr, name)
}

// RemoveNode takes a node out of the group, or takes that back.
func (s *Service) RemoveNode(ctx context.Context, node string, undo bool) (*weirv1.NodeStatus, error) {
	m, err := s.members()
	if err != nil {
		return nil, err
	}
	if undo {
		return m.Set(ctx, node, meta.MemberJoining)
	}
	return m.Set(ctx, node, meta.MemberLeaving)
}

// DrainNode keeps the lead of all logs away from a node, or lets it lead again.
func (s *Service) DrainNode(ctx context.Context, node string, undo bool) (*weirv1.NodeStatus, error) {
	m, err := s.members()
	if err != nil {
		return nil, err
	}
	if undo {
		return m.Set(ctx, node, meta.MemberActive)
	}
	return m.Set(ctx, node, meta.MemberDrained)
}

// Rebalance spreads the shards' leads evenly.
func (s *Service) Rebalance(ctx context.Context) ([]*weirv1.Move, error) {
	m, err := s.members()
	if err != nil {
		return nil, err
	}
	moves, err := m.Rebalance(ctx)
	out := make([]*weirv1.Move, 0, len(moves))
	for _, v := range moves {
		out = append(out, v.Message())
	}
	return out, err
}

// Replicas returns how many nodes are to vote in each shard's log; 0 in a group of one.
func (s *Service) Replicas() int {
	if s.cfg.Members == nil {
		return 0
	}
	return s.cfg.Meta.State().Replicas()
}

// SetReplicas says how many nodes vote in each shard's log.
func (s *Service) SetReplicas(ctx context.Context, n int) (int, error) {
	m, err := s.members()
	if err != nil {
		return 0, err
	}
	return m.SetReplicas(ctx, n)
}

// Verify compares what the nodes hold.
func (s *Service) Verify(ctx context.Context, pipelines []string) ([]*weirv1.Verified, error) {
	return s.cfg.Verify(ctx, pipelines)
}
