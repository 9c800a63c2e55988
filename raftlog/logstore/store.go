package logstore

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

var (
	// ErrNotFound says that the log does not hold the entry, or no longer.
	ErrNotFound = errors.New("logstore: entry not found")
	// ErrClosed is returned by a store that was closed.
	ErrClosed = errors.New("logstore: store is closed")
	// ErrFailed is returned for every write after one that failed (L5); the chain also holds that one's error.
	ErrFailed = errors.New("logstore: an earlier write failed")
)

// Store is the log of a node. Its methods are safe for concurrent use.
type Store struct {
	fs   vfs.FS
	dir  string
	opts Options
	lock io.Closer

	requests chan *request
	nudge    chan struct{} // asks the committer to look for superfluous segments; holds one
	closing  chan struct{}
	done     chan struct{} // closed when the committer has ended
	once     sync.Once
	closeErr error

	// The committer's own.
	active  *segment
	nextSeq uint64
	free    []string // names of files to reuse
	ahead   ahead
	marked  chan error // answers for the mark that is being written; holds one
	marking bool       // an answer is to come
	w       batchWriter
	nextID  uint32
	sweep   int     // where the search for sparse segments goes on
	census  *census // the last one that recovery has read; nil afterwards

	mu struct {
		sync.RWMutex
		groups map[string]*GroupLog
		list   []*GroupLog // in the order of their ids
		segs   []*segment  // in the order of their sequence numbers
		err    error       // of the first failed write
		stats  Stats
	}
}

// Stats are figures of a store.
type Stats struct {
	Segments int   // segment files, the active one included
	Free     int   // files kept for reuse
	Ahead    int   // files made for the next segment: none, or one
	Entries  int64 // entries that can be read
	Batches  int64 // batches written since Open; each is one sync
	Requests int64 // requests that those batches carried: Requests / Batches is the gain of group commit
	Written  int64 // bytes of those batches
	Copied   int64 // entries that were copied so that the files they lay in could go
}

// Open opens the store in dir, creates it when it is not there, and recovers it from a crash. Damage is a CORRUPT
// *dataflow.Error.
func Open(fs vfs.FS, dir string, opts Options) (*Store, error) {
	opts.ensureDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		fs: fs, dir: dir, opts: opts,
		requests: make(chan *request, 64),
		nudge:    make(chan struct{}, 1),
		closing:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	s.mu.groups = make(map[string]*GroupLog)
	s.ahead.made, s.marked = make(chan madeAhead, 1), make(chan error, 1)
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open log store %s: %w", dir, errors.Join(err, s.closeFiles()))
	}
	go s.runCommits()
	return s, nil
}

func (s *Store) open() error {
	if err := vfs.MkdirDurable(s.fs, s.dir); err != nil {
		return err
	}
	lock, err := s.fs.Lock(s.path(lockName))
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	s.lock = lock
	if err := s.recover(); err != nil {
		return err
	}
	// A process that was killed may have left writes in the operating system's cache that recovery has read and takes for
	// durable from here on.
	if err := vfs.SyncDir(s.fs, s.dir); err != nil {
		return err
	}
	if n := len(s.mu.segs); n > 0 {
		if err := s.mu.segs[n-1].file.Sync(); err != nil {
			return err
		}
	}
	if s.active == nil {
		if s.active, err = s.createSegment(); err != nil {
			return err
		}
		s.mu.segs = append(s.mu.segs, s.active)
	}
	// Before anything is answered, and not before the newest is there.
	if err := s.markSuccessors(); err != nil {
		return err
	}
	s.mu.stats.Free = len(s.free)
	s.askForCleaning() // a crash may have kept superfluous segments
	return nil
}

// markSuccessors makes up for the marks (L2) that a crash, or an older version, has not written.
func (s *Store) markSuccessors() error {
	for i, seg := range s.mu.segs[1:] {
		sealed := s.mu.segs[i]
		if next, err := sealed.next(); err != nil {
			return err
		} else if next != 0 {
			continue
		}
		if err := sealed.markNext(seg); err != nil {
			return fmt.Errorf("mark segment %d: %w", sealed.seq, err)
		}
	}
	return nil
}

func (s *Store) path(name string) string { return s.fs.PathJoin(s.dir, name) }

// Group returns the log of the named group, created when it is new.
func (s *Store) Group(name string) (*GroupLog, error) {
	if name == "" {
		return nil, errors.New("logstore: a group needs a name")
	}
	s.mu.RLock()
	g := s.mu.groups[name]
	s.mu.RUnlock()
	if g != nil {
		return g, nil
	}
	r := &request{create: name, done: make(chan error, 1)}
	if err := s.do(r); err != nil {
		return nil, fmt.Errorf("create log of group %s: %w", name, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.groups[name], nil
}

// Names returns the names of all groups, in the order of their creation.
func (s *Store) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := make([]string, len(s.mu.list))
	for i, g := range s.mu.list {
		names[i] = g.name
	}
	return names
}

// Stats returns the store's figures.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := s.mu.stats
	st.Segments = len(s.mu.segs)
	for _, g := range s.mu.list {
		for i := range g.pub.entries.runs {
			st.Entries += int64(len(g.pub.entries.runs[i].locs))
		}
	}
	return st
}

// Err returns the error of the write that failed, or nil.
func (s *Store) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.err
}

// Close waits for the write under way and for the file that is made ahead of need, refuses what still waits, and closes the files. Readers must have ended.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closing)
		<-s.done
		s.closeErr = s.closeFiles()
	})
	return s.closeErr
}

func (s *Store) closeFiles() error {
	errs := []error{s.closeAhead()}
	for _, seg := range s.mu.segs {
		errs = append(errs, seg.file.Close())
	}
	s.mu.segs = nil
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// acquire finds the entry at index and keeps its segment's file until release.
func (s *Store) acquire(g *GroupLog, index uint64) (*segment, loc, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	seg, l, ok := g.pub.entries.find(index)
	if ok {
		seg.refs.Add(1)
	}
	return seg, l, ok
}

func (s *Store) release(seg *segment) {
	seg.refs.Add(-1)
	s.mu.RLock()
	superfluous := seg.isSuperfluous()
	s.mu.RUnlock()
	if superfluous {
		s.askForCleaning()
	}
}

// askForCleaning makes the committer look for superfluous segments.
func (s *Store) askForCleaning() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// read reads and checks the record of the entry at index.
func (s *Store) read(g *GroupLog, index uint64) (record, error) {
	seg, l, ok := s.acquire(g, index)
	if !ok {
		return record{}, ErrNotFound
	}
	defer s.release(seg)
	r, err := seg.readEntry(g, index, l)
	if err == nil {
		return r, nil
	}
	if !errors.Is(err, errInvalid) {
		return record{}, fmt.Errorf("read entry %d of %s: %w", index, g.name, err)
	}
	return record{}, dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d of log %s is damaged, in %s at %d",
		index, g.name, s.path(segmentName(seg.seq)), l.offset)
}

// groupByID returns the group with the id, or nil.
func groupByID(list []*GroupLog, id uint32) *GroupLog {
	i, ok := slices.BinarySearchFunc(list, id, func(g *GroupLog, id uint32) int {
		return int(int64(g.id) - int64(id))
	})
	if !ok {
		return nil
	}
	return list[i]
}
