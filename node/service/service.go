package service

import (
	"log/slog"
	"sync/atomic"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/catalog"
	"github.com/weirdb/weir/node/leader"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/statequery"
)

// Service is the node as its API sees it.
type Service struct {
	cfg Config
	// spread counts the keyless appends, so that they take the shards in turn.
	spread atomic.Uint64
}

// Config names the parts of the node that the services stand on.
type Config struct {
	Node    string
	Group   dataflow.GroupID
	Meta    *meta.Log
	Catalog *catalog.Catalog
	Worker  *worker.Worker
	Shards  []*worker.Shard
	Leader  *leader.Driver
	Queries *statequery.Engine
	// MetaStatus describes the meta log's Raft group.
	MetaStatus func() api.RaftLog
	// DiskRoom refuses rows while the disk has too little room for them; nil = there is always room.
	DiskRoom  func() error
	StartedAt int64 // µs since 1970
	// AllowFaults permits FailPipeline.
	AllowFaults bool
	Phases      *phase.Recorder // records appends; optional
	Logger      *slog.Logger
}

// New returns the service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Backends returns the service as the API wants it.
func (s *Service) Backends() api.Backends {
	return api.Backends{
		Streams: s, Ingest: s, Reader: s, Queries: s.cfg.Queries, Pipelines: s, Control: s, Tables: s,
		Checkpoints: s, Tokens: s, Cluster: s,
	}
}
