package state

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pace"
)

// Held says up to which delta a store holds each pipeline: the positions of its base markers.
type Held = map[dataflow.PipelineUID]dataflow.DeltaRef

// CopyTo puts a copy of the store as it is now into dir, which must not be there: a directory that OpenReplica opens as it
// opens this replica's own. Files are linked where the file system can, so it takes milliseconds, and the space of those
// that the store lets go of until dir is removed. It returns what the copy holds.
//
// Layers are not in it: the shard's log has their deltas until they are settled, and by then the store has them.
func (r *Replica) CopyTo(ctx context.Context, dir string) (Held, error) {
	r.mu.Lock()
	if r.closed.Load() {
		r.mu.Unlock()
		return nil, errShuttingDown()
	}
	r.using.Add(1)
	r.mu.Unlock()
	defer r.using.Done()
	s := r.store
	fs := r.cfg.FS
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("copy the state of shard %d: %w", r.cfg.Shard, err)
	}
	err := s.write(ctx, func() error { return s.db.Checkpoint(fs.PathJoin(dir, "db"), pebble.WithFlushedWAL()) })
	if err == nil {
		err = s.markMade(dir)
	}
	var held Held
	if err == nil {
		held, err = CheckCopy(ctx, Config{FS: fs, Dir: dir, Shard: r.cfg.Shard, Logger: r.cfg.Logger}, false, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("copy the state of shard %d: %w", r.cfg.Shard, err)
	}
	return held, nil
}

// CheckCopy opens the store in cfg.Dir, which nobody has open, without changing anything, checks that it belongs to the
// shard, and returns what it holds. With blocks it also reads every block of every table, at the limiter's pace, and
// checks its checksum. Damage is CORRUPT.
func CheckCopy(ctx context.Context, cfg Config, blocks bool, limit *pace.Limiter) (Held, error) {
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dir := cfg.FS.PathJoin(cfg.Dir, "db")
	s := &store{fs: cfg.FS, fail: newFailure(cfg.Logger), writing: make(chan struct{}, 1)}
	s.opts = storeOptions(&cfg, s.fail)
	s.opts.ErrorIfNotExists, s.opts.ReadOnly = true, true
	err := s.run(func() (err error) {
		s.db, err = pebble.Open(dir, s.opts)
		return err
	})
	if err != nil {
		return nil, openError(dir, err)
	}
	held, err := s.check(ctx, dir, cfg.Shard, blocks, limit)
	return held, errors.Join(err, s.close())
}

func (s *store) check(ctx context.Context, dir string, shard dataflow.ShardID, blocks bool, limit *pace.Limiter) (Held, error) {
	if err := s.loadHeader(shard, true); err != nil {
		return nil, err
	}
	m, err := s.loadMarkers()
	if err != nil {
		return nil, err
	}
	if blocks {
		if err := s.checkBlocks(ctx, dir, limit); err != nil {
			return nil, err
		}
	}
	held := make(Held, len(m.bases))
	for uid, base := range m.bases {
		held[uid] = base.Ref
	}
	return held, nil
}

// checkBlocks reads every block of every table.
func (s *store) checkBlocks(ctx context.Context, dir string, limit *pace.Limiter) error {
	levels, err := s.db.SSTables()
	if err != nil {
		return fmt.Errorf("list the tables of %s: %w", dir, corrupt(err))
	}
	seen := make(map[string]bool)
	for _, tables := range levels {
		for _, t := range tables {
			num := t.BackingSSTNum
			name := fmt.Sprintf("%s.sst", num)
			if seen[name] {
				continue
			}
			seen[name] = true
			if err := limit.Wait(ctx, int(t.Size)); err != nil {
				return err
			}
			if err := s.checkTable(ctx, s.fs.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *store) checkTable(ctx context.Context, path string) error {
	f, err := s.fs.Open(path)
	if err != nil {
		return openError(path, err)
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(ctx, readable, s.opts.MakeReaderOptions())
	if err != nil {
		return errors.Join(corrupt(err), readable.Close())
	}
	return errors.Join(corrupt(r.ValidateBlockChecksums()), r.Close())
}
