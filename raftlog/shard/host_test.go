package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/testkit/parallel"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
	"github.com/weirdb/weir/raftlog/shard"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	parallel.AtOnce(4) // elections are what most of them wait for
	goleak.VerifyTestMain(m)
}

// host is a node with one shard.
type host struct {
	t       testing.TB
	fs      vfs.FS
	store   *logstore.Store
	entries *watchedStore
	replica *recorder
	log     *shard.Log
	closed  bool
}

// open starts a host on a file system, and waits until it leads and has applied its log.
func open(t testing.TB, fs vfs.FS, mod func(*shard.Config)) *host {
	t.Helper()
	h := openRaw(t, fs, mod)
	ctx := testCtx(t)
	if err := h.log.WaitLeader(ctx); err != nil {
		t.Fatalf("wait for a leader: %v", err)
	}
	if err := h.log.Barrier(ctx); err != nil {
		t.Fatalf("barrier: %v", err)
	}
	return h
}

// openRaw starts a host and waits for nothing.
func openRaw(t testing.TB, fs vfs.FS, mod func(*shard.Config)) *host {
	t.Helper()
	h := &host{t: t, fs: fs, replica: newRecorder()}
	var err error
	h.store, err = logstore.Open(fs, "node/log", logstore.Options{SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	group, err := h.store.Group("shard-3")
	if err != nil {
		t.Fatalf("open group: %v", err)
	}
	h.entries = &watchedStore{Store: group, retained: make(chan dataflow.LogIndex, 1000), looked: make(chan struct{}, 1000)}
	cfg := shard.Config{
		Shard: 3, Store: h.entries, Replica: h.replica, SnapshotBytes: -1,
		Raft:   raftlog.Config{NodeID: "n1", FS: fs, Dir: "node/shard-3", ElectionTimeout: 20 * time.Millisecond, TrailingBytes: 1},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if mod != nil {
		mod(&cfg)
	}
	if r, ok := cfg.Replica.(*recorder); ok {
		h.replica = r
	}
	h.log, err = shard.Open(cfg)
	if err != nil {
		_ = h.store.Close()
		t.Fatalf("open shard: %v", err)
	}
	t.Cleanup(func() { h.close() })
	return h
}

func (h *host) close() {
	h.t.Helper()
	if h.closed {
		return
	}
	h.closed = true
	if err := h.log.Close(); err != nil {
		h.t.Errorf("close: %v", err)
	}
	if err := h.store.Close(); err != nil {
		h.t.Errorf("close store: %v", err)
	}
}

// reopen closes the host in order and starts it again.
func (h *host) reopen(mod func(*shard.Config)) *host {
	h.t.Helper()
	h.close()
	return open(h.t, h.fs, mod)
}

// crash starts another host on what would be left of the disk if the power failed now.
func (h *host) crash(mod func(*shard.Config)) *host {
	h.t.Helper()
	left := h.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	h.close()
	return open(h.t, left, mod)
}

func testCtx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// append appends one plain batch whose bytes are data.
func (h *host) append(stream dataflow.StreamID, data string, count int) shard.Appended {
	h.t.Helper()
	a, err := h.log.Append(testCtx(h.t), shard.Append{Stream: stream, Rows: []byte(data), Count: count})
	if err != nil {
		h.t.Fatalf("append %q: %v", data, err)
	}
	return a
}

// rows reads all of a stream from an offset on, as first+count:data.
func (h *host) rows(stream dataflow.StreamID, from dataflow.Offset) []string {
	h.t.Helper()
	var out []string
	for {
		rows, err := h.log.Read(stream, from, 3)
		if err != nil {
			h.t.Fatalf("read from %d: %v", from, err)
		}
		if len(rows) == 0 {
			return out
		}
		for _, r := range rows {
			if r.First > from || r.First+dataflow.Offset(r.Count) <= from {
				h.t.Fatalf("read from %d: rows %d+%d", from, r.First, r.Count)
			}
			out = append(out, fmt.Sprintf("%d+%d:%s", r.First, r.Count, r.Data))
			from = r.First + dataflow.Offset(r.Count)
		}
	}
}

func (h *host) wantRows(stream dataflow.StreamID, from dataflow.Offset, want ...string) {
	h.t.Helper()
	if got := h.rows(stream, from); !slices.Equal(got, want) {
		h.t.Fatalf("rows of stream %d from %d are %q, want %q", stream, from, got, want)
	}
}

// must fails the test on an error.
func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// delta writes a delta whole and returns where it ended.
func (h *host) delta(ref string, chunks ...string) dataflow.LogIndex {
	h.t.Helper()
	id := deltaID(ref)
	var digest dataflow.DeltaDigest
	for i, c := range chunks {
		digest = digest.Add([]byte(c))
		h.must(h.log.AppendDelta(testCtx(h.t), id, i, []byte(c)))
	}
	index, err := h.log.EndDelta(testCtx(h.t), id, len(chunks), uint64(digest))
	h.must(err)
	return index
}

// deltaID reads pipeline/incarnation.seq.
func deltaID(s string) (id dataflow.DeltaID) {
	if _, err := fmt.Sscanf(s, "%d/%d.%d", &id.Pipeline, &id.Incarnation, &id.Seq); err != nil {
		panic(err)
	}
	return id
}

// watchedStore tells of the lowest index of each Retain and of each look at what is needless, and may fail to read.
type watchedStore struct {
	shard.Store
	retained chan dataflow.LogIndex
	looked   chan struct{}

	mu      sync.Mutex
	onEntry func(dataflow.LogIndex) error // when set, called before an entry is read; an error is Entry's answer
	onLast  func() error                  // when set, called before the last index is read; an error is LastIndex's answer

	upToDate atomic.Bool // nothing is Behind
}

func (s *watchedStore) Needless(floor dataflow.LogIndex, islands ...dataflow.LogRange) int64 {
	s.looked <- struct{}{}
	return s.Store.Needless(floor, islands...)
}

func (s *watchedStore) Behind() int64 {
	if s.upToDate.Load() {
		return 0
	}
	return s.Store.Behind()
}

func (s *watchedStore) LastIndex() (uint64, error) {
	s.mu.Lock()
	f := s.onLast
	s.mu.Unlock()
	if f != nil {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return s.Store.LastIndex()
}

// beforeLast has f called before the last index is read.
func (s *watchedStore) beforeLast(f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onLast = f
}

func (s *watchedStore) Retain(floor dataflow.LogIndex, islands ...dataflow.LogRange) {
	s.Store.Retain(floor, islands...)
	if len(islands) > 0 {
		floor = islands[0].First
	}
	s.retained <- floor
}

func (s *watchedStore) Entry(i dataflow.LogIndex) ([]byte, error) {
	s.mu.Lock()
	f := s.onEntry
	s.mu.Unlock()
	if f != nil {
		if err := f(i); err != nil {
			return nil, err
		}
	}
	return s.Store.Entry(i)
}

func (s *watchedStore) before(f func(dataflow.LogIndex) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onEntry = f
}

// recorder is a replica that writes down what it is told, and checks what every replica may rely on.
type recorder struct {
	mu    sync.Mutex
	told  []string
	last  dataflow.LogIndex
	fail  error
	gate  chan struct{} // when set, chunks wait for it
	begun chan struct{} // gets one for each chunk that waits
}

var _ shard.Replica = (*recorder)(nil)

func newRecorder() *recorder { return &recorder{begun: make(chan struct{}, 1000)} }

func (r *recorder) tell(idx dataflow.LogIndex, format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if idx < r.last {
		return fmt.Errorf("told of entry %d after entry %d", idx, r.last)
	}
	r.last = idx
	r.told = append(r.told, fmt.Sprintf(format, args...))
	return r.fail
}

func (r *recorder) ApplyChunk(idx dataflow.LogIndex, d dataflow.DeltaID, chunk int, data []byte) error {
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	if gate != nil {
		r.begun <- struct{}{}
		<-gate
	}
	return r.tell(idx, "%s#%d=%s", d, chunk, data)
}

func (r *recorder) EndDelta(idx dataflow.LogIndex, d dataflow.DeltaID, chunks int, _ uint64) error {
	return r.tell(idx, "%s end %d", d, chunks)
}

func (r *recorder) BeginIncarnation(idx dataflow.LogIndex, p dataflow.PipelineUID, min dataflow.Incarnation, base dataflow.DeltaRef) error {
	return r.tell(idx, "%d begins %d from %s", p, min, base)
}

func (r *recorder) Settle(idx dataflow.LogIndex, p dataflow.PipelineUID, upTo dataflow.DeltaRef) error {
	return r.tell(idx, "%d settled to %s", p, upTo)
}

func (r *recorder) DropPipeline(idx dataflow.LogIndex, p dataflow.PipelineUID) error {
	return r.tell(idx, "%d dropped", p)
}

func (r *recorder) failWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *recorder) want(t testing.TB, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.told, want) {
		t.Fatalf("the replica was told\n%q, want\n%q", r.told, want)
	}
}

// errDisk is what a broken disk says.
var errDisk = errors.New("the disk is broken")
