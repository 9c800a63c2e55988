package shard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
)

// Exporter is what a Replica must also be so that others can be made of it.
type Exporter interface {
	// CopyTo puts a consistent copy of the state store as it is now into dir, which is not there yet, and returns up to
	// which delta it holds each pipeline. Every delta that was settled before the call is in it. It takes the time of some
	// links, not of a copy of the bytes.
	CopyTo(ctx context.Context, dir string) (map[dataflow.PipelineUID]dataflow.DeltaRef, error)
}

// ExportOptions say who asks.
type ExportOptions struct {
	// Have is the last index of the log of the member that asks, 0 for none. What it has acknowledged must not be lost with
	// it, so the snapshot is at least as new.
	Have dataflow.LogIndex
	// Rebuild exports also when this log can still send what comes behind Have: the member is damaged and not late.
	Rebuild bool
}

var (
	// ErrNotNeeded: the log here goes back to where the member's ends, so the leader sends what it lacks.
	ErrNotNeeded = errors.New("shard: the member's log ends where this one still goes on")
	// ErrBehind: this member has applied less than the one that asks. Ask the leader.
	ErrBehind = errors.New("shard: this member is behind the one that asks")
	// ErrLeaseOver: the export is over: released, unused for too long, or the log was closed. Ask for another one.
	ErrLeaseOver = errors.New("shard: the export is over")
)

// Lease is an export of a shard (Log.Export): a Manifest and the way to what it names. While it lasts, this node keeps the
// files, the entries, and the log from the snapshot's end on. Its methods are safe for concurrent use.
type Lease struct {
	log    *Log
	m      Manifest
	refs   references
	dir    string // of the copied state
	snap   vfs.File
	begun  time.Time
	unhold func()
	ctx    context.Context // ends with the lease
	cancel context.CancelCauseFunc

	mu struct {
		sync.Mutex
		used    time.Time
		readers int
		over    bool
	}
}

// Export makes a Manifest of this member's present state and keeps what it names until the Lease is released, or not used
// for Config.LeaseIdle, or Config.LeaseMax old. The best member to ask is the leader: only there is what comes behind the
// snapshot kept for whom it is sent to. Errors: ErrNotNeeded, ErrBehind, OVERLOADED when there are Config.MaxLeases, those
// of Log.Snapshot and of the replica.
func (l *Log) Export(ctx context.Context, opts ExportOptions) (*Lease, error) {
	x := &Lease{log: l, begun: time.Now(), unhold: func() {}}
	x.mu.used = x.begun
	x.ctx, x.cancel = context.WithCancelCause(l.ctx)
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	x.m = Manifest{Version: manifestVersion, Lease: hex.EncodeToString(id[:]), Shard: l.cfg.Shard}
	if first, err := l.group.FirstIndex(); err != nil {
		return nil, err
	} else if !opts.Rebuild && opts.Have > 0 && first > 0 && first <= opts.Have {
		return nil, ErrNotNeeded
	}
	if err := l.leases.add(x, l.cfg.MaxLeases); err != nil {
		return nil, fmt.Errorf("shard %d: %w", l.cfg.Shard, err)
	}
	if err := x.make(ctx, opts); err != nil {
		x.end(err)
		return nil, fmt.Errorf("export shard %d: %w", l.cfg.Shard, err)
	}
	return x, nil
}

// make fixes what is exported: the snapshot first, the state after it, so that the state is not the older one.
func (x *Lease) make(ctx context.Context, opts ExportOptions) error {
	l := x.log
	exporter, ok := l.cfg.Replica.(Exporter)
	if !ok {
		return fmt.Errorf("the replica, a %T, cannot be copied", l.cfg.Replica)
	}
	if err := l.lockSnapshot(ctx); err != nil {
		return err
	}
	info, name, err := x.snapshot(ctx, opts)
	l.unlockSnapshot()
	if err != nil {
		return err
	}
	x.m.Index, x.m.Term = info.Index, info.Term
	fs := l.cfg.Raft.FS
	st, err := x.snap.Stat()
	if err != nil {
		return err
	}
	x.m.Files = append(x.m.Files, File{Name: raftlog.SnapshotDir + "/" + name, Size: st.Size()})
	dir := fs.PathJoin(l.cfg.Raft.Dir, exportDir)
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	x.dir = fs.PathJoin(dir, x.m.Lease)
	if x.m.State, err = exporter.CopyTo(ctx, x.dir); err != nil {
		return err
	}
	if x.m.Files, err = listFiles(fs, x.dir, stateDir, x.m.Files); err != nil {
		return err
	}
	for _, r := range x.refs.islands {
		x.m.Entries += int64(r.Last-r.First) + 1
	}
	x.m.Bytes = l.cfg.Store.Size(x.refs.islands...)
	return nil
}

// snapshot takes a snapshot, opens its file, and sees to it that what it refers to, and what comes behind it, stays: nothing
// was let go since, because the caller keeps others from taking one.
func (x *Lease) snapshot(ctx context.Context, opts ExportOptions) (info raftlog.SnapshotInfo, name string, err error) {
	l := x.log
	whole := l.group.Hold(1) // until it is known from where on
	defer whole()
	// A member that merely lags may be all that this leader lacks to commit anything, so what is applied here must do, if it
	// can: to wait for a barrier would be to wait for the member.
	if opts.Rebuild || l.AppliedIndex() < opts.Have || l.snapshot(ctx) != nil {
		// The log of the member that asks may end with entries of the library's own, which no snapshot counts; and a
		// change of members must have been applied before a snapshot is taken. Only a leader can add an entry behind them.
		for first := true; l.IsLeader() && (first || l.group.LastIndex() < opts.Have); first = false {
			if err := l.Barrier(ctx); err != nil {
				return info, "", err
			}
		}
		if err := l.snapshot(ctx); err != nil {
			return info, "", err
		}
	}
	if info, name, x.snap, err = l.group.SnapshotFile(); err != nil {
		return info, "", err
	}
	if x.snap == nil || info.Index < opts.Have {
		return info, "", fmt.Errorf("%w: its snapshot is at index %d, the other has %d", ErrBehind, info.Index, opts.Have)
	}
	if l.kept.floor != info.Index+1 {
		return info, "", dataflow.Errorf(dataflow.ReasonInternal, "the snapshot at index %d is not the one at %d that was taken", info.Index, l.kept.floor-1)
	}
	x.refs = l.kept
	x.unhold = l.group.Hold(info.Index)
	return info, name, nil
}

// listFiles appends the files below dir, with names below as.
func listFiles(fs vfs.FS, dir, as string, files []File) ([]File, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		path := fs.PathJoin(dir, n)
		st, err := fs.Stat(path)
		switch {
		case err != nil:
			return nil, err
		case st.IsDir():
			if files, err = listFiles(fs, path, as+"/"+n, files); err != nil {
				return nil, err
			}
		case n != "LOCK": // of who looked at the copy
			files = append(files, File{Name: as + "/" + n, Size: st.Size()})
		}
	}
	return files, nil
}

// Manifest returns what is exported. It must not be changed.
func (x *Lease) Manifest() Manifest { return x.m }

// Open returns a file of the manifest from an offset on, or the entries from an index on, in pieces as Installer.Pull
// takes them, at the pace of Config.ExportLimit. The caller closes it. Errors: ErrLeaseOver; a name that is not in the
// manifest is REQUEST_INVALID.
func (x *Lease) Open(name string, offset int64) (io.ReadCloser, error) {
	file := File{Size: -1}
	for _, f := range x.m.Files {
		if f.Name == name {
			file = f
		}
	}
	if file.Size < 0 && name != EntriesName || offset < 0 || name != EntriesName && offset > file.Size {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "shard %d exports no file %q with an offset %d", x.m.Shard, name, offset)
	}
	if err := x.enter(); err != nil {
		return nil, err
	}
	r := &pieceReader{x: x}
	switch name {
	case EntriesName:
		r.more = x.entries(dataflow.LogIndex(offset))
	case x.m.Files[0].Name:
		r.more = filePieces(io.NewSectionReader(x.snap, offset, file.Size-offset))
	default:
		fs := x.log.cfg.Raft.FS
		f, err := fs.Open(fs.PathJoin(x.dir, name[len(stateDir)+1:]))
		if err != nil {
			x.leave()
			return nil, err
		}
		r.file = f
		r.more = filePieces(io.NewSectionReader(f, offset, file.Size-offset))
	}
	return r, nil
}

// Release ends the lease. Again it does nothing.
func (x *Lease) Release() { x.end(ErrLeaseOver) }

// Touch keeps the lease from ending for want of use: whoever has fetched everything may need the log held until it has
// caught up.
func (x *Lease) Touch() error {
	if err := x.enter(); err != nil {
		return err
	}
	x.leave()
	return nil
}

func (x *Lease) enter() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.over {
		return ErrLeaseOver
	}
	x.mu.readers++
	x.mu.used = time.Now()
	return nil
}

func (x *Lease) leave() {
	x.mu.Lock()
	x.mu.readers--
	x.mu.used = time.Now()
	last := x.mu.over && x.mu.readers == 0
	x.mu.Unlock()
	if last {
		x.clean()
	}
}

// end makes readers fail, lets the log go on, and removes the files once nobody reads them.
func (x *Lease) end(why error) {
	x.mu.Lock()
	over := x.mu.over
	x.mu.over = true
	idle := x.mu.readers == 0
	x.mu.Unlock()
	if over {
		return
	}
	x.cancel(why)
	x.unhold()
	x.log.leases.remove(x)
	if idle {
		x.clean()
	}
}

func (x *Lease) clean() {
	var err error
	if x.snap != nil {
		err = x.snap.Close()
	}
	if x.dir != "" {
		err = errors.Join(err, x.log.cfg.Raft.FS.RemoveAll(x.dir))
	}
	if err != nil {
		x.log.cfg.Logger.Warn("what was exported is not removed; the next start does", "dir", x.dir, "err", err)
	}
}

// expired says whether the lease has been idle, or has lasted, for too long.
func (x *Lease) expired(now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.readers == 0 && now.Sub(x.mu.used) > x.log.cfg.LeaseIdle || now.Sub(x.begun) > x.log.cfg.LeaseMax
}

// entries returns the pieces of the entries from an index on.
func (x *Lease) entries(from dataflow.LogIndex) func(dst []byte) ([]byte, error) {
	ranges := x.refs.islands
	return func(dst []byte) ([]byte, error) {
		for len(ranges) > 0 && ranges[0].Last < from {
			ranges = ranges[1:]
		}
		if len(ranges) == 0 {
			return nil, io.EOF
		}
		from = max(from, ranges[0].First)
		e, err := x.log.cfg.Store.Stored(from)
		if err != nil {
			return nil, err
		}
		from++
		return appendStored(dst, &e), nil
	}
}

func filePieces(r io.Reader) func(dst []byte) ([]byte, error) {
	buf := make([]byte, pieceBytes)
	return func(dst []byte) ([]byte, error) {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			return appendPiece(dst, buf[:n]), nil
		}
		return nil, err
	}
}

// pieceReader reads pieces as a stream, at the limiter's pace.
type pieceReader struct {
	x    *Lease
	file vfs.File // nil when there is none to close
	more func(dst []byte) ([]byte, error)
	buf  []byte
	left []byte // of buf
	err  error
	once sync.Once
}

// Read implements io.Reader.
func (r *pieceReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.err = context.Cause(r.x.ctx); r.err != nil {
			continue
		}
		if r.buf, r.err = r.more(r.buf[:0]); r.err != nil {
			continue
		}
		r.left = r.buf
		r.err = r.x.log.cfg.ExportLimit.Wait(r.x.ctx, len(r.buf))
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *pieceReader) Close() (err error) {
	r.once.Do(func() {
		if r.file != nil {
			err = r.file.Close()
		}
		r.x.leave()
	})
	return err
}

// leases are a log's exports.
type leases struct {
	sync.Mutex
	all map[string]*Lease
	due *references // what the store is to be told when the last of them ends
}

func (s *leases) add(x *Lease, limit int) error {
	s.Lock()
	defer s.Unlock()
	if len(s.all) >= limit {
		return dataflow.Errorf(dataflow.ReasonOverloaded, "there are %d exports", len(s.all)).WithRetry(retryExport)
	}
	if s.all == nil {
		s.all = make(map[string]*Lease)
	}
	s.all[x.m.Lease] = x
	return nil
}

func (s *leases) remove(x *Lease) {
	s.Lock()
	delete(s.all, x.m.Lease)
	due := s.due
	if len(s.all) > 0 {
		due = nil
	} else {
		s.due = nil
	}
	s.Unlock()
	if due != nil {
		x.log.letGo(*due)
	}
}

// retryExport is how long it takes about until another export may have ended.
const retryExport = 10 * time.Second

// Leased returns the export with the id, or ErrLeaseOver.
func (l *Log) Leased(id string) (*Lease, error) {
	l.leases.Lock()
	defer l.leases.Unlock()
	if x := l.leases.all[id]; x != nil {
		return x, nil
	}
	return nil, ErrLeaseOver
}

// exporting says that there are exports: nothing is given back to the store meanwhile.
func (l *Log) exporting() bool {
	l.leases.Lock()
	defer l.leases.Unlock()
	return len(l.leases.all) > 0
}

// retain tells the store which entries a start needs; while something is exported, later.
func (l *Log) retain(r references) {
	l.leases.Lock()
	if len(l.leases.all) > 0 {
		l.leases.due = &r
		l.leases.Unlock()
		return
	}
	l.leases.Unlock()
	l.letGo(r)
}

func (l *Log) letGo(r references) {
	l.cfg.Store.Retain(r.floor, r.islands...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.told = max(l.mu.told, r.floor)
}

// endLeases ends the exports that now are too old; all of them when the log is closed.
func (l *Log) endLeases(all bool) {
	now := time.Now()
	l.leases.Lock()
	var over []*Lease
	for _, x := range l.leases.all {
		if all || x.expired(now) {
			over = append(over, x)
		}
	}
	l.leases.Unlock()
	for _, x := range over {
		x.Release()
	}
}
