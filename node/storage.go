package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/peer"
	"github.com/weirdb/weir/node/rebuild"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
	"github.com/weirdb/weir/raftlog/meta"
)

// storage is everything durable of a node, open: the data directory's lock, the shards' log store, the meta log, and per
// shard its log and the replica of its state.
//
//	LOCK          held while the node runs
//	node.json     which node and group the directory belongs to
//	meta/         the meta log: raft.db (BoltDB) and its snapshots
//	log/          segment files of all shards' logs; they are the streams' storage; and GROUP, the group's id
//	shards/0007/  per shard: the log's snapshots, and state/, the Pebble store of committed state; and GROUP
type storage struct {
	fs     vfs.FS
	lock   io.Closer
	id     identity
	bolt   *raftlog.Bolt // nil when the meta log is kept in the log store
	logs   *logstore.Store
	group  *raftlog.Group
	meta   *meta.Log
	cache  *state.Cache
	shards []*worker.Shard
	phases *phase.Recorder // nil unless asked for
	start  *startup

	// nil in a group of one node
	peers    *peers
	bulk     *peer.Peers // of source
	source   *rebuild.Source
	rebuilds *rebuild.Rebuilder
	due      chan *Restart // asks tend for one
}

// startTimeout bounds how long the logs may take to have a leader and to be applied after a start.
const startTimeout = 2 * time.Minute

// openStorage opens the directory and waits until the logs lead and everything committed is applied.
func openStorage(ctx context.Context, cfg *Config, phases *phase.Recorder, start *startup) (opened *storage, err error) {
	s := &storage{fs: cfg.FS, phases: phases, start: start}
	defer func() {
		if err != nil {
			opened, err = nil, errors.Join(explainFull(cfg, explain(cfg.DataDir, err)), s.close())
		}
	}()
	if !cfg.group() { // of several, a node waits for the others
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	if err := vfs.MkdirDurable(cfg.FS, cfg.DataDir); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	if s.lock, err = lockDataDir(cfg.FS, cfg.DataDir); err != nil {
		return nil, err
	}
	if err := s.identify(cfg); err != nil {
		return nil, err
	}
	if s.id.Group != "" {
		if err := s.checkMarks(cfg, s.id.Group, s.id.Shards, identityFile); err != nil {
			return nil, err
		}
	}
	if err := s.meet(ctx, cfg); err != nil {
		return nil, err
	}
	defer s.survey(ctx)()
	if s.logs, err = logstore.Open(cfg.FS, cfg.FS.PathJoin(cfg.DataDir, "log"), logstore.Options{SegmentBytes: cfg.Tuning.SegmentBytes, Logger: cfg.Logger}); err != nil {
		return nil, err
	}
	if err := s.checkShardLogs(cfg); err != nil {
		return nil, err
	}
	if err := s.checkMarked(cfg); err != nil {
		return nil, err
	}
	if err := s.openMeta(ctx, cfg); err != nil {
		return nil, err
	}
	if err := s.bootstrap(ctx, cfg); err != nil {
		return nil, err
	}
	if st := s.meta.State(); s.id.Group == "" {
		if err := s.checkMarks(cfg, st.ClusterID, st.Shards, "the meta log"); err != nil {
			return nil, err
		}
	}
	before := s.meta.State()
	if err := s.openShards(ctx, cfg); err != nil {
		return nil, err
	}
	if err := s.verify(ctx, cfg, before); err != nil {
		return nil, err
	}
	return s, s.remember(cfg)
}

// openMeta opens the meta log and waits until it leads and has applied what was committed.
func (s *storage) openMeta(ctx context.Context, cfg *Config) error {
	dir := cfg.FS.PathJoin(cfg.DataDir, "meta")
	if err := vfs.MkdirDurable(cfg.FS, dir); err != nil {
		return err
	}
	var log raftlog.LogStore
	if cfg.FS == vfs.Default {
		file := cfg.FS.PathJoin(dir, "raft.db")
		if info, err := cfg.FS.Stat(file); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
			if err := s.refuseLostMeta(cfg, file); err != nil {
				return err
			}
		}
		bolt, err := raftlog.OpenBolt(file)
		if err != nil {
			return err
		}
		s.bolt, log = bolt, bolt
	} else {
		g, err := s.logs.Group("meta")
		if err != nil {
			return err
		}
		g.Retain(^dataflow.LogIndex(0)) // nothing but Raft refers to the meta log's entries
		log = g
	}
	fsm := meta.NewFSM()
	rc := raftlog.Config{Group: "meta", NodeID: cfg.NodeID, FS: cfg.FS, Dir: dir, Log: log, FSM: fsm,
		SnapshotBytes: cfg.Tuning.SnapshotBytes, TrailingBytes: cfg.Tuning.TrailingBytes, ElectionTimeout: cfg.Tuning.ElectionTimeout, Phases: s.phases, Logger: cfg.Logger,
	}
	if err := s.peers.connect(&rc, s.id.Founding); err != nil {
		return err
	}
	group, err := raftlog.Open(rc)
	if err != nil {
		return err
	}
	s.group = group
	s.meta = meta.New(group, fsm, cfg.now)
	s.peers.setMeta(s.meta, group)
	return s.applied(ctx, "meta", group)
}

// bootstrap names a new group and fixes its number of shards.
func (s *storage) bootstrap(ctx context.Context, cfg *Config) error {
	st := s.meta.State()
	if st.ClusterID == "" {
		if err := s.refuseLostMeta(cfg, cfg.FS.PathJoin(cfg.DataDir, "meta")); err != nil {
			return err
		}
	} else if err := s.checkGroup(cfg); err != nil {
		return err
	}
	if f := s.id.Founding; st.ClusterID == "" && f != nil {
		return s.found(ctx, f)
	}
	if st.ClusterID != "" {
		if cfg.Shards != 0 && cfg.Shards != st.Shards {
			return fmt.Errorf("shards: the group was made with %d shards and cannot be changed to %d", st.Shards, cfg.Shards)
		}
		return nil
	}
	var id dataflow.GroupID
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	shards := cfg.Shards
	if shards == 0 {
		shards = DefaultShards
	}
	return s.meta.Bootstrap(ctx, hex.EncodeToString(id[:]), shards)
}

// groupID returns the group's id as tokens carry it.
func (s *storage) groupID() (id dataflow.GroupID, err error) {
	b, err := hex.DecodeString(s.meta.State().ClusterID)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("the group's id %q is not %d bytes in hexadecimal", s.meta.State().ClusterID, len(id))
	}
	copy(id[:], b)
	return id, nil
}

// closeLogs closes the shards' logs, all at once: each waits for the answers to what is pending, which nobody may give any more.
func (s *storage) closeLogs() error {
	errs := make([]error, len(s.shards))
	var all sync.WaitGroup
	for i, sh := range s.shards {
		if sh != nil && sh.Log != nil {
			all.Go(func() { errs[i] = sh.Log.Close() })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// close closes in the reverse order of opening, after what others read here: a log before the replica that it feeds, and both before the store that
// they read from.
func (s *storage) close() error {
	var errs []error
	if s.bulk != nil {
		errs = append(errs, s.bulk.Close())
	}
	errs = append(errs, s.closeLogs())
	for _, sh := range s.shards {
		if sh != nil && sh.Replica != nil {
			errs = append(errs, sh.Replica.Close())
		}
	}
	if s.cache != nil {
		s.cache.Close()
	}
	if s.group != nil {
		errs = append(errs, s.group.Close())
	}
	if s.bolt != nil {
		errs = append(errs, s.bolt.Close())
	}
	if s.peers != nil {
		errs = append(errs, s.peers.close())
	}
	if s.logs != nil {
		errs = append(errs, s.logs.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// watch returns the first durable failure of the storage: the node must stop then, since what it would acknowledge might
// not be on disk. It returns ctx's error when ctx ends first.
func (s *storage) watch(ctx context.Context, cfg *Config) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case err := <-s.group.Failed():
			return fmt.Errorf("meta log: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	for _, sh := range s.shards {
		g.Go(func() error {
			var err error
			select {
			case err = <-sh.Log.Failed():
				err = fmt.Errorf("log of shard %d: %w", sh.ID, err)
			case <-sh.Replica.Failed():
				err = fmt.Errorf("state of shard %d: %w", sh.ID, sh.Replica.Err())
			case <-ctx.Done():
				return ctx.Err()
			}
			return s.shardFailed(cfg, sh.ID, err)
		})
	}
	return g.Wait()
}
