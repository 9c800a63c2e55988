package api

import (
	"context"
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

func raftMessage(l RaftLog) *weirv1.RaftLog {
	return &weirv1.RaftLog{Group: l.Group, Role: l.Role, Term: l.Term, Leader: l.Leader, AppliedIndex: uint64(l.Applied),
		LastIndex: uint64(l.Last), SnapshotIndex: uint64(l.Snapshot)}
}

// GetStatus implements weirv1.ClusterServiceServer.
func (s *clusterService) GetStatus(ctx context.Context, _ *weirv1.GetStatusRequest) (*weirv1.GetStatusResponse, error) {
	c, err := s.b.Cluster.Status(ctx)
	if err != nil {
		return nil, err
	}
	m := &weirv1.GetStatusResponse{ClusterId: s.group.String(), Node: c.Node, Shards: uint32(c.Shards), Meta: raftMessage(c.Meta),
		StartedAt: timestamp(c.StartedAt), Pipelines: uint32(c.Pipelines), Streams: uint32(c.Streams), Version: s.version.Version}
	for _, l := range c.Logs {
		m.ShardLogs = append(m.ShardLogs, raftMessage(l))
	}
	return m, nil
}

// GetVersion implements weirv1.ClusterServiceServer.
func (s *clusterService) GetVersion(context.Context, *weirv1.GetVersionRequest) (*weirv1.GetVersionResponse, error) {
	return &weirv1.GetVersionResponse{Version: s.version.Version, Commit: s.version.Commit, GoVersion: runtime.Version(), Api: "v1"}, nil
}
