package node

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/shard"
)

// maxShardEntry lets one append be one entry of a shard's log: that makes it atomic there.
const maxShardEntry = dataflow.MaxBatchBytes + dataflow.MaxEntryBytes

// openShards opens every shard's replica and log, and waits until the logs have applied what was committed. In a group of
// several, replicas that are damaged or lag too far behind are rebuilt first.
func (s *storage) openShards(ctx context.Context, cfg *Config) error {
	n := s.meta.State().Shards
	s.cache = state.NewCache(cfg.StateCacheBytes)
	s.shards = make([]*worker.Shard, n)
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			sh, err := s.bringUp(ctx, cfg, dataflow.ShardID(i))
			s.shards[i] = sh
			return err
		})
	}
	return g.Wait()
}

// bringUp opens a shard and waits until it is up to date. What it returns beside an error is to be closed too.
func (s *storage) bringUp(ctx context.Context, cfg *Config, id dataflow.ShardID) (*worker.Shard, error) {
	if err := vfs.MkdirDurable(cfg.FS, s.shardDir(cfg, id)); err != nil {
		return nil, err
	}
	if s.peers != nil {
		m, err := s.newMender(cfg, id)
		if err != nil {
			return nil, err
		}
		return m.bringUp(ctx)
	}
	sh, err := s.openShard(cfg, id)
	if err != nil {
		return sh, err
	}
	return sh, s.applied(ctx, shardGroup(id), sh.Log)
}

// openShard opens a shard's replica and log. What it returns beside an error is to be closed too.
func (s *storage) openShard(cfg *Config, id dataflow.ShardID) (*worker.Shard, error) {
	dir := s.shardDir(cfg, id)
	sh := &worker.Shard{ID: id}
	logger := cfg.Logger.With(slog.Uint64("shard", uint64(id)))
	var err error
	if sh.Replica, err = state.OpenReplica(state.Config{FS: cfg.FS, Dir: cfg.FS.PathJoin(dir, "state"), Shard: id, Cache: s.cache, Logger: cfg.Logger}); err != nil {
		return sh, errOpenShard(id, err)
	}
	store, err := s.logs.Group(shardGroup(id))
	if err != nil {
		return sh, err
	}
	rc := raftlog.Config{
		Group: shardGroup(id), NodeID: cfg.NodeID, FS: cfg.FS, Dir: dir, Logger: logger, MaxEntryBytes: maxShardEntry,
		TrailingBytes: cfg.shardTrailing(), ElectionTimeout: cfg.Tuning.ElectionTimeout, Phases: s.phases,
	}
	if err := s.peers.connect(&rc, s.id.Founding); err != nil {
		return sh, err
	}
	if sh.Log, err = shard.Open(shard.Config{
		Shard: id, Store: store, Replica: sh.Replica, Logger: cfg.Logger, SnapshotBytes: cfg.Tuning.SnapshotBytes, Raft: rc, Now: cfg.now, ExportLimit: s.peers.pace(),
	}); err != nil {
		sh.Log = nil
		if c, ok := rc.Transport.(io.Closer); ok {
			err = errors.Join(err, c.Close()) // again, when the log has closed it
		}
		return sh, err
	}
	s.peers.serveLog(sh.Log.Group())
	return sh, nil
}

// closeShard closes what is open of a shard: the log before the replica that it feeds.
func closeShard(sh *worker.Shard) error {
	var errs []error
	if sh != nil && sh.Log != nil {
		errs = append(errs, sh.Log.Close())
	}
	if sh != nil && sh.Replica != nil {
		errs = append(errs, sh.Replica.Close())
	}
	return errors.Join(errs...)
}
