package service

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/catalog"
	"github.com/weirdb/weir/node/fleet"
	"github.com/weirdb/weir/node/membership"
	"github.com/weirdb/weir/node/rebuild"
	"github.com/weirdb/weir/node/worker"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/statequery"
)

// Service is the node as its API sees it.
type Service struct {
	cfg Config
	// spread counts the keyless appends, so that they take the shards in turn.
	spread atomic.Uint64
	bufs   sync.Pool // of *[]byte: rows being encoded
}

// Config names the parts of the node that the services stand on.
type Config struct {
	Node    string
	Group   dataflow.GroupID
	Meta    *meta.Log
	Catalog *catalog.Catalog
	Worker  *worker.Worker
	Shards  []*worker.Shard
	Fleet   *fleet.Fleet
	Leader  Coordinators
	Members *membership.Membership // nil in a group of one node
	// Verify compares what the nodes hold of pipelines, or reads what the only one holds.
	Verify func(ctx context.Context, pipelines []string) ([]*weirv1.Verified, error)
	// Disk returns how many bytes of the node's disk are free, and how many must be for rows to be taken.
	Disk func() (free, needed uint64)
	// CatchUp returns when this node has applied what the group had acknowledged before the call, in all logs; nil in a group of one
	// node, which always has.
	CatchUp func(ctx context.Context) error
	// Rebuilds lists the replicas that other nodes bring from this one; nil in a group of one node.
	Rebuilds func() []rebuild.Export
	Version  string
	Queries  *statequery.Engine
	// MetaStatus describes the meta log's Raft group.
	MetaStatus func() api.RaftLog
	// DiskRoom refuses rows while the disk has too little room for them; nil = there is always room.
	DiskRoom  func() error
	StartedAt int64 // µs since 1970
	// Now is the wall clock, µs since 1970; default time.Now.
	Now func() int64
	// AllowFaults permits FailPipeline.
	AllowFaults bool
	Phases      *phase.Recorder // records appends; optional
	Logger      *slog.Logger
}

// catchUp has this node apply what others have acknowledged.
func (s *Service) catchUp(ctx context.Context) error {
	if s.cfg.CatchUp == nil {
		return nil
	}
	return s.cfg.CatchUp(ctx)
}

// Coordinators are asked for checkpoints. *leader.Driver implements it on the node that leads the meta log, *fleet.Coordinators
// on every node.
type Coordinators interface {
	// Trigger asks for a checkpoint that covers what the tasks have read before the call, and waits for its commit.
	Trigger(ctx context.Context, uid dataflow.PipelineUID) (dataflow.CheckpointID, error)
	// Request asks for a checkpoint and does not wait for it.
	Request(ctx context.Context, uid dataflow.PipelineUID) error
	// WantRoom says that a stream which the pipeline reads refuses rows until the pipeline's next checkpoint. It does not
	// wait.
	WantRoom(uid dataflow.PipelineUID)
	// Fail ends the tasks of an incarnation as if one of them had failed.
	Fail(uid dataflow.PipelineUID, inc dataflow.Incarnation, cause string)
}

// New returns the service.
func New(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = func() int64 { return time.Now().UnixMicro() }
	}
	return &Service{cfg: cfg}
}

// Backends returns the service as the API wants it.
func (s *Service) Backends() api.Backends {
	return api.Backends{
		Streams: s, Ingest: s, Reader: s, Queries: s.cfg.Queries, Pipelines: s, Control: s, Tables: s,
		Checkpoints: s, Tokens: s, Cluster: s,
	}
}
