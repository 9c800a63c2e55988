package raftlog

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// A snapshot is one file, Dir/snapshots/<index>-<term>.snap, which appears whole by rename or not at all:
//
//	magic (8) | state | meta (JSON) | length of meta (4) | length of state (8) | CRC32C of all before (4)
//
// Numbers are little-endian. The tail comes last because the state's length is known only then.
const (
	snapshotDir     = "snapshots"
	snapshotMagic   = "WEIRSNP1"
	snapshotSuffix  = ".snap"
	snapshotTemp    = "tmp-"
	snapshotTail    = 4 + 8 + 4
	snapshotsKept   = 2 // R5
	snapshotMaxMeta = 1 << 20
)

// ErrSnapshotDamaged says that a snapshot's file is not what was written.
var ErrSnapshotDamaged = errors.New("raftlog: snapshot is damaged")

// SnapshotInfo says what a snapshot contains.
type SnapshotInfo struct {
	Index dataflow.LogIndex // every entry up to this one
	Term  uint64
	Size  int64 // bytes of state
}

// NewestSnapshot opens the newest undamaged snapshot of the group whose Config.Dir is dir. Without one the info is nil and
// the error too. It is for the FSMs of Config.OnDisk, before Open. The caller closes the reader.
func NewestSnapshot(fs vfs.FS, dir string) (*SnapshotInfo, io.ReadCloser, error) {
	s, err := openSnapshots(fs, dir)
	if err != nil {
		return nil, nil, err
	}
	metas, err := s.List()
	if err != nil || len(metas) == 0 {
		return nil, nil, err
	}
	m, r, err := s.Open(metas[0].ID)
	if err != nil {
		return nil, nil, err
	}
	return &SnapshotInfo{Index: dataflow.LogIndex(m.Index), Term: m.Term, Size: m.Size}, r, nil
}

// snapshotStore is a raft.SnapshotStore over a vfs.FS.
type snapshotStore struct {
	fs  vfs.FS
	dir string

	mu struct {
		sync.Mutex
		sound map[string]bool // ids whose checksum this process has verified, or written itself
	}
}

var _ raft.SnapshotStore = (*snapshotStore)(nil)

// openSnapshots creates the directory where needed and removes what interrupted snapshots left.
func openSnapshots(fs vfs.FS, parent string) (*snapshotStore, error) {
	s := &snapshotStore{fs: fs, dir: fs.PathJoin(parent, snapshotDir)}
	s.mu.sound = make(map[string]bool)
	if err := vfs.MkdirDurable(fs, s.dir); err != nil {
		return nil, err
	}
	names, err := fs.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, snapshotTemp) {
			if err := fs.Remove(fs.PathJoin(s.dir, n)); err != nil {
				return nil, fmt.Errorf("remove interrupted snapshot: %w", err)
			}
		}
	}
	return s, nil
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("snapshot version %d is not supported", version)
	}
	id := fmt.Sprintf("%016x-%016x", index, term)
	k := &snapshotSink{
		store: s,
		temp:  s.fs.PathJoin(s.dir, snapshotTemp+id),
		meta:  raft.SnapshotMeta{Version: version, ID: id, Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex},
		table: crc32.MakeTable(crc32.Castagnoli),
	}
	f, err := s.fs.Create(k.temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	k.file, k.w = f, bufio.NewWriterSize(f, 64<<10)
	if err := k.write([]byte(snapshotMagic)); err != nil {
		return nil, errors.Join(err, k.Cancel())
	}
	return k, nil
}

// List implements raft.SnapshotStore: undamaged snapshots, the newest first.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	var metas []*raft.SnapshotMeta
	for _, id := range ids {
		m, f, err := s.open(id)
		if errors.Is(err, ErrSnapshotDamaged) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("list snapshots: %w", err)
		}
		metas = append(metas, m)
	}
	return metas, nil
}

// Open implements raft.SnapshotStore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, f, err := s.open(id)
	if err != nil {
		return nil, nil, err
	}
	return m, &snapshotReader{io.NewSectionReader(f, int64(len(snapshotMagic)), m.Size), f, m.Index}, nil
}

// snapshotReader reads a snapshot's state.
type snapshotReader struct {
	io.Reader
	io.Closer
	index uint64
}

// ids returns the ids of all finished snapshots, the newest first. An id's order is that of (index, term).
func (s *snapshotStore) ids() ([]string, error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var ids []string
	for _, n := range names {
		if id, ok := strings.CutSuffix(n, snapshotSuffix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, nil
}

// open opens and verifies a snapshot's file. The caller closes it.
func (s *snapshotStore) open(id string) (_ *raft.SnapshotMeta, _ vfs.File, err error) {
	f, err := s.fs.Open(s.fs.PathJoin(s.dir, id+snapshotSuffix))
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot %s: %w", id, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot %s: %w", id, err)
	}
	m, err := readSnapshotMeta(f, st.Size())
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot %s: %w", id, err)
	}
	if m.ID != id {
		return nil, nil, fmt.Errorf("open snapshot %s: %w: it says it is %s", id, ErrSnapshotDamaged, m.ID)
	}
	if s.isSound(id) {
		return m, f, nil
	}
	if err := verifySnapshot(f, st.Size()); err != nil {
		return nil, nil, fmt.Errorf("open snapshot %s: %w", id, err)
	}
	s.setSound(id, true)
	return m, f, nil
}

func (s *snapshotStore) isSound(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.sound[id]
}

func (s *snapshotStore) setSound(id string, sound bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sound {
		s.mu.sound[id] = true
	} else {
		delete(s.mu.sound, id)
	}
}

// reap removes all but the newest snapshots. Damaged ones count as the files they are: they are removed when they get
// old, and never instead of a sound one that is newer.
func (s *snapshotStore) reap() error {
	ids, err := s.ids()
	if err != nil {
		return err
	}
	for _, id := range ids[min(snapshotsKept, len(ids)):] {
		if err := s.fs.Remove(s.fs.PathJoin(s.dir, id+snapshotSuffix)); err != nil {
			return fmt.Errorf("remove old snapshot: %w", err)
		}
		s.setSound(id, false)
	}
	return nil
}

// readSnapshotMeta decodes the tail and the meta of a snapshot of the given size. It does not check the checksum.
func readSnapshotMeta(r io.ReaderAt, size int64) (*raft.SnapshotMeta, error) {
	var tail [snapshotTail]byte
	if size < int64(len(snapshotMagic)+snapshotTail) {
		return nil, fmt.Errorf("%w: %d bytes", ErrSnapshotDamaged, size)
	}
	if _, err := r.ReadAt(tail[:], size-snapshotTail); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	metaLen, stateLen := int64(binary.LittleEndian.Uint32(tail[:])), int64(binary.LittleEndian.Uint64(tail[4:]))
	if metaLen > snapshotMaxMeta || stateLen < 0 || stateLen > size || int64(len(snapshotMagic))+stateLen+metaLen+snapshotTail != size {
		return nil, fmt.Errorf("%w: its lengths do not add up", ErrSnapshotDamaged)
	}
	buf := make([]byte, metaLen)
	if _, err := r.ReadAt(buf, int64(len(snapshotMagic))+stateLen); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	m := new(raft.SnapshotMeta)
	if err := json.Unmarshal(buf, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshotDamaged, err)
	}
	m.Size = stateLen
	return m, nil
}

// verifySnapshot checks magic and checksum.
func verifySnapshot(r io.ReaderAt, size int64) error {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(h, io.NewSectionReader(r, 0, size-4)); err != nil {
		return err
	}
	var head [len(snapshotMagic)]byte
	var sum [4]byte
	if _, err := r.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := r.ReadAt(sum[:], size-4); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if string(head[:]) != snapshotMagic || h.Sum32() != binary.LittleEndian.Uint32(sum[:]) {
		return fmt.Errorf("%w: its checksum is wrong", ErrSnapshotDamaged)
	}
	return nil
}

// snapshotSink writes one snapshot. One goroutine uses it.
type snapshotSink struct {
	store *snapshotStore
	temp  string
	meta  raft.SnapshotMeta
	file  vfs.File
	w     *bufio.Writer
	table *crc32.Table
	crc   uint32
	err   error // of the first failed write
	done  bool
}

var _ raft.SnapshotSink = (*snapshotSink)(nil)

// ID implements raft.SnapshotSink.
func (k *snapshotSink) ID() string { return k.meta.ID }

// Write implements io.Writer.
func (k *snapshotSink) Write(p []byte) (int, error) {
	if k.done {
		return 0, os.ErrClosed
	}
	if err := k.write(p); err != nil {
		return 0, err
	}
	k.meta.Size += int64(len(p))
	return len(p), nil
}

func (k *snapshotSink) write(p []byte) error {
	if k.err == nil {
		k.crc = crc32.Update(k.crc, k.table, p)
		_, k.err = k.w.Write(p)
	}
	return k.err
}

// Close makes the snapshot durable and visible. A second call does nothing.
func (k *snapshotSink) Close() error {
	if k.done {
		return nil
	}
	if err := k.finish(); err != nil {
		return fmt.Errorf("write snapshot %s: %w", k.meta.ID, errors.Join(err, k.Cancel()))
	}
	k.done = true
	k.store.setSound(k.meta.ID, true)
	return k.store.reap()
}

func (k *snapshotSink) finish() error {
	meta, err := json.Marshal(&k.meta)
	if err != nil {
		return err
	}
	tail := binary.LittleEndian.AppendUint32(meta, uint32(len(meta)))
	tail = binary.LittleEndian.AppendUint64(tail, uint64(k.meta.Size))
	if err := k.write(tail); err != nil {
		return err
	}
	if err := k.write(binary.LittleEndian.AppendUint32(nil, k.crc)); err != nil {
		return err
	}
	if err := k.w.Flush(); err != nil {
		return err
	}
	if err := k.file.Sync(); err != nil {
		return err
	}
	f := k.file
	k.file = nil
	if err := f.Close(); err != nil {
		return err
	}
	fs := k.store.fs
	if err := fs.Rename(k.temp, fs.PathJoin(k.store.dir, k.meta.ID+snapshotSuffix)); err != nil {
		return err
	}
	return vfs.SyncDir(fs, k.store.dir)
}

// Cancel gives the snapshot up. It does nothing after Close.
func (k *snapshotSink) Cancel() error {
	if k.done {
		return nil
	}
	k.done = true
	var err error
	if k.file != nil {
		err = k.file.Close()
	}
	if rerr := k.store.fs.Remove(k.temp); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}
