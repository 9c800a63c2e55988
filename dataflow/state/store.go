package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// storeFormat is the format of the store's files. It is named, because Pebble's default for a new store is an old format
// that does not notice a damaged log; it may be raised, and then older binaries refuse the store.
const storeFormat = pebble.FormatValueSeparation

const (
	// memTableBytes is small because only headers and range deletions pass through the memtable: data is ingested.
	memTableBytes = 1 << 20
	bloomBits     = 10
	headerVersion = 1
)

// store is the Pebble store of a replica: the base of every pipeline, with its marker.
//
// Pebble has no way to return some errors: when it cannot write its log or manifest it calls Logger.Fatalf, with locks
// held, and does not expect that to return; elsewhere it panics (see parkFS). Here both report the failure and park the
// goroutine for good, instead of ending the process. Therefore everything that writes runs on a goroutine of its own
// (run), whose caller gets the failure, and such a store is abandoned by close: its goroutines stay until the process
// exits, which the owner must bring about.
type store struct {
	db      *pebble.DB
	opts    *pebble.Options
	fs      vfs.FS
	scratch string // directory of SSTs that are being written
	fail    *failure
	// writing is the token of the one writer; a channel, because its holder waits for I/O (S5).
	writing chan struct{}
}

// failure is the first reason why the store cannot go on.
type failure struct {
	log  *slog.Logger
	once sync.Once
	err  error
	done chan struct{} // closed when err is set
	// stuck is closed when a goroutine of the store has been parked: others may wait for its locks for ever.
	stuck     chan struct{}
	stuckOnce sync.Once
	// harmed is closed when the first damaged file was met, which is harm: the store goes on.
	harmed   chan struct{}
	harmOnce sync.Once
	harm     error
}

func newFailure(log *slog.Logger) *failure {
	return &failure{log: log, done: make(chan struct{}), stuck: make(chan struct{}), harmed: make(chan struct{})}
}

// met notes that a file is damaged.
func (f *failure) met(err error) {
	f.harmOnce.Do(func() {
		f.harm = err
		close(f.harmed)
	})
}

// set keeps and logs the first failure. Pebble goes on trying, and reports the same one many times a second.
func (f *failure) set(err error) {
	f.once.Do(func() {
		f.log.Error("the state store has failed", "error", err)
		f.err = err
		close(f.done)
	})
}

// get returns the failure, or nil.
func (f *failure) get() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// park reports a failure that its caller cannot return, and does not return.
func (f *failure) park(err error) {
	f.set(err)
	f.abandon()
	select {}
}

// abandon says that a goroutine is inside the store and may never come out.
func (f *failure) abandon() { f.stuckOnce.Do(func() { close(f.stuck) }) }

// isStuck reports whether the store must not be called any more.
func (f *failure) isStuck() bool {
	select {
	case <-f.stuck:
		return true
	default:
		return false
	}
}

// pebbleLogger passes Pebble's messages on.
type pebbleLogger struct {
	log  *slog.Logger
	fail *failure
}

var _ pebble.Logger = pebbleLogger{}

func (l pebbleLogger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l pebbleLogger) Errorf(format string, args ...any) {
	if l.fail.get() == nil { // after that it repeats itself
		l.log.Error(fmt.Sprintf(format, args...))
	}
}

// Fatalf does not return: see store.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.fail.park(fmt.Errorf(format, args...))
}

// markers is what a store says about pipelines.
type markers struct {
	bases   map[dataflow.PipelineUID]Base
	dropped map[dataflow.PipelineUID]struct{}
}

// openStore opens or makes the store of a shard, and returns the markers in it.
func openStore(cfg *Config) (s *store, m markers, err error) {
	s = &store{fs: cfg.FS, fail: newFailure(cfg.Logger), writing: make(chan struct{}, 1)}
	s.scratch = s.fs.PathJoin(cfg.Dir, "ingest")
	dir := s.fs.PathJoin(cfg.Dir, "db")
	made, err := s.isMade(cfg.Dir, dir)
	if err != nil {
		return nil, m, err
	}
	if err := s.prepare(cfg.Dir, dir); err != nil {
		return nil, m, err
	}
	s.opts = storeOptions(cfg, s.fail)
	s.opts.ErrorIfNotExists = made
	opened := s // the named result is cleared when opening is given up
	err = s.run(func() (err error) {
		opened.db, err = pebble.Open(dir, opened.opts)
		return err
	})
	if err != nil {
		return nil, m, openError(dir, err)
	}
	if err = s.loadHeader(cfg.Shard, made); err == nil && !made {
		err = s.markMade(cfg.Dir)
	}
	if err == nil {
		m, err = s.loadMarkers()
	}
	if err != nil {
		return nil, m, errors.Join(err, s.close())
	}
	return s, m, nil
}

func storeOptions(cfg *Config, fail *failure) *pebble.Options {
	log := fail.log
	damaged := newDamage(log, fail.met)
	opts := &pebble.Options{
		FS:                 parkFS{cfg.FS, fail},
		FormatMajorVersion: storeFormat,
		MemTableSize:       memTableBytes,
		Logger:             pebbleLogger{log: log, fail: fail},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if pebble.IsCorruptionError(err) {
					damaged.stopCompactions(err)
					return
				}
				fail.set(err)
			},
			DataCorruption: damaged.found,
			DiskSlow:       func(info pebble.DiskSlowInfo) { log.Warn("slow disk", "operation", info.String()) },
		},
	}
	if cfg.Cache != nil {
		opts.Cache, opts.FileCache = cfg.Cache.blocks, cfg.Cache.files
	}
	// An ingest is durable in the manifest when it returns; the other way leads through the log, where it would be so only
	// by another sync.
	opts.Experimental.DisableIngestAsFlushable = func() bool { return true }
	opts.Experimental.CompactionScheduler = damaged.scheduler()
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
	}
	opts.EnsureDefaults()
	return opts
}

// madeFile says that the store's making came to its end. Pebble does not survive a power loss while it makes a store: what
// there is without this file has never been used, and is made anew.
const madeFile = "MADE"

// isMade reports whether the store in dir is whole, and removes it when it is not.
func (s *store) isMade(parent, dir string) (bool, error) {
	_, err := s.fs.Stat(s.fs.PathJoin(parent, madeFile))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for %s: %w", madeFile, err)
	}
	if err := s.fs.RemoveAll(dir); err != nil {
		return false, fmt.Errorf("remove a store that was not finished: %w", err)
	}
	return false, nil
}

func (s *store) markMade(parent string) error {
	f, err := s.fs.Create(s.fs.PathJoin(parent, madeFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("make %s: %w", madeFile, err)
	}
	if err := errors.Join(f.Sync(), f.Close(), vfs.SyncDir(s.fs, parent)); err != nil {
		return fmt.Errorf("make %s: %w", madeFile, err)
	}
	return nil
}

// prepare makes the directories durable and removes what an interrupted merge has left.
func (s *store) prepare(dirs ...string) error {
	for _, dir := range append(dirs, s.scratch) {
		if err := vfs.MkdirDurable(s.fs, dir); err != nil {
			return err
		}
	}
	left, err := s.fs.List(s.scratch)
	if err != nil {
		return fmt.Errorf("list %s: %w", s.scratch, err)
	}
	for _, name := range left {
		if err := s.fs.Remove(s.fs.PathJoin(s.scratch, name)); err != nil {
			return fmt.Errorf("remove what a merge has left: %w", err)
		}
	}
	return nil
}

// loadHeader checks that the store belongs to the shard. A new store gets its header, one that was made has it.
func (s *store) loadHeader(shard dataflow.ShardID, made bool) error {
	header := binary.LittleEndian.AppendUint32([]byte{headerVersion}, uint32(shard))
	have, closer, err := s.db.Get(headerKey)
	switch {
	case made && errors.Is(err, pebble.ErrNotFound):
		return dataflow.Errorf(dataflow.ReasonCorrupt, "the state store of shard %d has lost its header, and what else was in it", shard)
	case errors.Is(err, pebble.ErrNotFound):
		// The first log file of a store is written in the oldest format, whatever the options say, and damage in it would
		// pass for its end. Flush begins another one.
		err := s.write(context.Background(), func() error {
			return errors.Join(s.db.Set(headerKey, header, pebble.Sync), s.db.Flush())
		})
		if err != nil {
			return fmt.Errorf("write the store's header: %w", err)
		}
	case err != nil:
		return fmt.Errorf("read the store's header: %w", corrupt(err))
	default:
		same := bytes.Equal(have, header)
		have = bytes.Clone(have)
		if err := closer.Close(); err != nil {
			return fmt.Errorf("read the store's header: %w", err)
		}
		if !same {
			return fmt.Errorf("the store's header is %x, that of shard %d is %x: the directory belongs to another shard or version", have, shard, header)
		}
	}
	return nil
}

func (s *store) loadMarkers() (m markers, err error) {
	m = markers{bases: make(map[dataflow.PipelineUID]Base), dropped: make(map[dataflow.PipelineUID]struct{})}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return m, fmt.Errorf("read the markers: %w", corrupt(err))
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("read the markers: %w", corrupt(cerr))
		}
	}()
	for ok := it.SeekGE(appendPipeline(nil, 0)); ok; {
		key := it.Key()
		if len(key) != 8 {
			return m, dataflow.Errorf(dataflow.ReasonCorrupt, "the state store has a key %x without a marker before it", key)
		}
		uid := dataflow.PipelineUID(binary.BigEndian.Uint64(key))
		if bytes.Equal(it.Value(), droppedMarker) {
			m.dropped[uid] = struct{}{}
		} else if m.bases[uid], err = decodeBase(it.Value()); err != nil {
			return m, dataflow.Errorf(dataflow.ReasonCorrupt, "pipeline %d: %w", uid, err)
		}
		next := prefixEnd(appendPipeline(nil, uid))
		if next == nil {
			break
		}
		ok = it.SeekGE(next)
	}
	return m, nil
}

// run runs fn on a goroutine of its own and returns its error, or the failure that keeps it from returning.
func (s *store) run(fn func() error) error {
	if s.fail.isStuck() {
		return s.fail.err
	}
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-s.fail.stuck:
		return s.fail.err
	}
}

// snapshot takes a snapshot; the error is the store's failure. Like diskBytes it needs Pebble's lock.
func (s *store) snapshot() (*pebble.Snapshot, error) {
	var snap atomic.Pointer[pebble.Snapshot]
	err := s.run(func() error { snap.Store(s.db.NewSnapshot()); return nil })
	return snap.Load(), err
}

// diskBytes returns what the files take; 0 when the store has failed: Pebble counts them under a lock that a goroutine which was
// parked may hold.
func (s *store) diskBytes() uint64 {
	var n atomic.Uint64
	if err := s.run(func() error { n.Store(s.db.Metrics().DiskSpaceUsage()); return nil }); err != nil {
		return 0
	}
	return n.Load()
}

// write runs fn as the one writer, unless the store has failed. When it fails meanwhile fn is given up: Pebble tries a
// failed flush again for ever, and fn may be waiting for it.
func (s *store) write(ctx context.Context, fn func() error) error {
	if err := s.fail.get(); err != nil {
		return err
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.fail.done:
		return s.fail.err
	}
	defer func() { <-s.writing }()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-s.fail.done:
		s.fail.abandon()
		return s.fail.err
	}
}

// drop deletes all of a pipeline and leaves the marker that says so, durably. Open snapshots keep what they see.
func (s *store) drop(uid dataflow.PipelineUID) error {
	from := appendPipeline(nil, uid)
	to := prefixEnd(appendPipeline(nil, uid))
	if to == nil {
		to = bytes.Repeat([]byte{0xff}, storePrefix+dataflow.MaxKeyBytes)
	}
	err := s.write(context.Background(), func() error {
		b := s.db.NewBatch()
		return errors.Join(b.DeleteRange(from, to, nil), b.Set(from, droppedMarker, nil), b.Commit(pebble.Sync), b.Close())
	})
	if err != nil {
		s.fail.set(fmt.Errorf("drop pipeline %d: %w", uid, err))
	}
	return err
}

// fold writes the layers and the marker into the store by one ingest. It asks goOn now and then, and before the ingest,
// whether it is still wanted. An error before the ingest leaves the store as it was, and so does CORRUPT; another one of
// the ingest is a failure of the store.
func (s *store) fold(ctx context.Context, uid dataflow.PipelineUID, newestFirst []*layer, base Base, goOn func() error) error {
	path := s.fs.PathJoin(s.scratch, fmt.Sprintf("%d.sst", uid))
	if err := s.writeTable(ctx, path, uid, newestFirst, base, goOn); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), s.discard(path))
	}
	var begun atomic.Bool
	err := s.write(ctx, func() error {
		if err := goOn(); err != nil {
			return err
		}
		begun.Store(true)
		return s.db.Ingest(context.WithoutCancel(ctx), []string{path})
	})
	switch {
	case err == nil:
		return nil
	case pebble.IsCorruptionError(err): // of another file, met while looking where this one goes: nothing has changed
		err = corrupt(err)
	case begun.Load():
		s.fail.set(fmt.Errorf("ingest %s: %w", path, err))
	}
	return errors.Join(err, s.discard(path))
}

// discard removes a file that was not ingested, if it is there. What cannot be removed goes at the next open.
func (s *store) discard(path string) error {
	if err := s.fs.Remove(path); err != nil {
		if _, serr := s.fs.Stat(path); serr == nil {
			return err
		}
	}
	return nil
}

const (
	// checkEvery is how many entries are written between two questions whether to go on.
	checkEvery = 4096
	// writeWeight is how many times as much work it is to write an entry as to merge it.
	writeWeight = 32
)

// writeTable writes an SST, synced: the marker, which sorts first, and the layers' entries.
func (s *store) writeTable(ctx context.Context, path string, uid dataflow.PipelineUID, newestFirst []*layer, base Base, goOn func() error) (err error) {
	file, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(file), s.opts.MakeWriterOptions(0, s.db.TableFormat()))
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.Set(appendPipeline(nil, uid), base.encode()); err != nil {
		return err
	}
	newestFirst = foldTogether(newestFirst)
	var key []byte
	var p pacer
	n := 0
	for _, stage := range stages(newestFirst) {
		m := newMerger(newestFirst, stage, nil, nil)
		for c := m.peek(); c != nil; c = m.peek() {
			if n++; n%checkEvery == 0 {
				if err := errors.Join(ctx.Err(), goOn()); err != nil {
					return err
				}
			}
			e := c.cur
			key = appendStoreKey(key[:0], uid, stage, e.key)
			if e.val == nil {
				err = w.Delete(key)
			} else {
				err = w.Set(key, e.val)
			}
			if err != nil {
				return err
			}
			m.skip(e.key)
			p.did(writeWeight)
		}
	}
	return nil
}

// close closes the store, unless it is stuck: then it is abandoned. What is wrong with a store that has failed was said by
// then.
func (s *store) close() error {
	err := s.run(s.db.Close)
	if s.fail.get() != nil {
		return nil
	}
	return err
}
