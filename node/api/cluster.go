package api

import (
	"context"
	"net"
	"runtime"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Version says what a server was built from.
type Version struct {
	Version string // of the release, or devel
	Commit  string
}

// clusterService implements weirv1.ClusterServiceServer.
type clusterService struct {
	weirv1.UnimplementedClusterServiceServer
	b       Backends
	group   dataflow.GroupID
	version Version
}

// RaftMessage shows a log.
func RaftMessage(l RaftLog) *weirv1.RaftLog {
	return &weirv1.RaftLog{Group: l.Group, Role: l.Role, Term: l.Term, Leader: l.Leader, AppliedIndex: uint64(l.Applied),
		LastIndex: uint64(l.Last), SnapshotIndex: uint64(l.Snapshot), Voters: l.Voters, Readers: l.Readers}
}

// GetStatus implements weirv1.ClusterServiceServer.
func (s *clusterService) GetStatus(ctx context.Context, _ *weirv1.GetStatusRequest) (*weirv1.GetStatusResponse, error) {
	c, err := s.b.Cluster.Status(ctx)
	if err != nil {
		return nil, err
	}
	m := &weirv1.GetStatusResponse{ClusterId: s.group.String(), Node: c.Node, Shards: uint32(c.Shards), Meta: RaftMessage(c.Meta),
		StartedAt: Timestamp(c.StartedAt), Pipelines: uint32(c.Pipelines), Streams: uint32(c.Streams), Version: s.version.Version}
	for _, l := range c.Logs {
		m.ShardLogs = append(m.ShardLogs, RaftMessage(l))
	}
	m.Nodes, m.Replicas = s.b.Cluster.Nodes(ctx), uint32(s.b.Cluster.Replicas())
	return m, nil
}

// ListNodes implements weirv1.ClusterServiceServer.
func (s *clusterService) ListNodes(ctx context.Context, _ *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	c, err := s.b.Cluster.Status(ctx)
	if err != nil {
		return nil, err
	}
	return &weirv1.ListNodesResponse{ClusterId: s.group.String(), Node: c.Node, Nodes: s.b.Cluster.Addresses()}, nil
}

// AddNode implements weirv1.ClusterServiceServer.
func (s *clusterService) AddNode(ctx context.Context, req *weirv1.AddNodeRequest) (*weirv1.AddNodeResponse, error) {
	if req.GetPeerAddr() == "" {
		return nil, invalid("peer_addr", "is empty; where does the node listen for others?")
	}
	if _, port, err := net.SplitHostPort(req.GetPeerAddr()); err != nil || port == "" {
		return nil, invalid("peer_addr", "%q is not host:port", req.GetPeerAddr())
	}
	if name := req.GetNode(); name != "" && !dataflow.ValidName(name) {
		return nil, invalid("node", "%q is not [a-z_][a-z0-9_]{0,62}, as names of nodes are", name)
	}
	n, err := s.b.Cluster.AddNode(ctx, req.GetPeerAddr(), req.GetNode())
	if err != nil {
		return nil, err
	}
	return &weirv1.AddNodeResponse{Node: n}, nil
}

// RemoveNode implements weirv1.ClusterServiceServer.
func (s *clusterService) RemoveNode(ctx context.Context, req *weirv1.RemoveNodeRequest) (*weirv1.RemoveNodeResponse, error) {
	n, err := s.b.Cluster.RemoveNode(ctx, req.GetNode(), req.GetUndo())
	if err != nil {
		return nil, err
	}
	return &weirv1.RemoveNodeResponse{Node: n}, nil
}

// DrainNode implements weirv1.ClusterServiceServer.
func (s *clusterService) DrainNode(ctx context.Context, req *weirv1.DrainNodeRequest) (*weirv1.DrainNodeResponse, error) {
	n, err := s.b.Cluster.DrainNode(ctx, req.GetNode(), req.GetUndo())
	if err != nil {
		return nil, err
	}
	return &weirv1.DrainNodeResponse{Node: n}, nil
}

// Rebalance implements weirv1.ClusterServiceServer.
func (s *clusterService) Rebalance(ctx context.Context, _ *weirv1.RebalanceRequest) (*weirv1.RebalanceResponse, error) {
	moves, err := s.b.Cluster.Rebalance(ctx)
	if err != nil {
		return nil, err
	}
	return &weirv1.RebalanceResponse{Moves: moves}, nil
}

// SetReplicas implements weirv1.ClusterServiceServer.
func (s *clusterService) SetReplicas(ctx context.Context, req *weirv1.SetReplicasRequest) (*weirv1.SetReplicasResponse, error) {
	n, err := s.b.Cluster.SetReplicas(ctx, int(req.GetReplicas()))
	if err != nil {
		return nil, err
	}
	return &weirv1.SetReplicasResponse{Replicas: uint32(n)}, nil
}

// VerifyCluster implements weirv1.ClusterServiceServer.
func (s *clusterService) VerifyCluster(ctx context.Context, req *weirv1.VerifyClusterRequest) (*weirv1.VerifyClusterResponse, error) {
	v, err := s.b.Cluster.Verify(ctx, req.GetPipelines())
	if err != nil {
		return nil, err
	}
	return &weirv1.VerifyClusterResponse{Verified: v}, nil
}

// GetVersion implements weirv1.ClusterServiceServer.
func (s *clusterService) GetVersion(context.Context, *weirv1.GetVersionRequest) (*weirv1.GetVersionResponse, error) {
	return &weirv1.GetVersionResponse{Version: s.version.Version, Commit: s.version.Commit, GoVersion: runtime.Version(), Api: "v1"}, nil
}
