package shard

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pace"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
)

// alone opens a shard with one member and a real replica.
func alone(t *testing.T, fs vfs.FS, mod func(*Config)) (*Log, func()) {
	t.Helper()
	store, err := openTrioStore(fs)
	if err != nil {
		t.Fatal(err)
	}
	r, err := openTrioState(fs)
	if err != nil {
		t.Fatal(err)
	}
	g, err := store.Group(trioGroup)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Shard: trioShard, Store: g, Replica: r, SnapshotBytes: -1, CacheBytes: -1, LookEvery: time.Millisecond,
		Raft: raftlog.Config{NodeID: "n1", FS: fs, Dir: trioDir, TrailingBytes: 1}}
	mod(&cfg)
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l, func() {
		t.Helper()
		if err := errors.Join(l.Close(), r.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}
}

func appendSome(t *testing.T, l *Log, n int) {
	t.Helper()
	for i := range n {
		if _, err := l.Append(t.Context(), Append{Stream: 1, Rows: []byte(strings.Repeat(fmt.Sprint(i%10), 1000)), Count: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

func readAll(t *testing.T, x *Lease, name string, offset int64) (bytes int) {
	t.Helper()
	r, err := x.Open(name, offset)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := newPieces(r)
	for {
		b, _, err := p.next()
		if errors.Is(err, io.EOF) {
			return bytes
		}
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(b)
	}
}

// TestAnExportKeepsWhatItNames: trims and snapshots go on, and the entries, the files and the log stay until the end of the
// lease; then they go, also from the disk.
func TestAnExportKeepsWhatItNames(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	l, done := alone(t, mem, func(*Config) {})
	defer done()
	appendSome(t, l, 200)
	x, err := l.Export(t.Context(), ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := x.Manifest()
	if m.Entries != 200 || m.Bytes < 200_000 || m.Total() <= m.Bytes {
		t.Fatalf("%d entries, %d bytes, %d in all", m.Entries, m.Bytes, m.Total())
	}
	whole := readAll(t, x, EntriesName, 0)
	for range 4 {
		appendSome(t, l, 50)
		_, end, _ := l.Range(1)
		if err := l.TrimStream(t.Context(), 1, end, TrimAge, 1<<32); err != nil {
			t.Fatal(err)
		}
		if err := l.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := readAll(t, x, EntriesName, 0); got != whole {
		t.Fatalf("%d bytes of entries are left of %d", got, whole)
	}
	for _, f := range m.Files {
		if got := readAll(t, x, f.Name, f.Size/2); int64(got) != f.Size-f.Size/2 {
			t.Fatalf("%s: %d bytes from %d on, of %d", f.Name, got, f.Size/2, f.Size)
		}
	}
	if first, err := l.group.FirstIndex(); err != nil || first > m.Index {
		t.Fatalf("the log begins at %d, the snapshot is at %d, %v", first, m.Index, err)
	}
	if same, err := l.Leased(m.Lease); err != nil || same != x {
		t.Fatalf("the lease is not found by its id: %v", err)
	}
	for _, name := range []string{"state/db/../../x", "snapshots/none", "state", ""} {
		if _, err := x.Open(name, 0); dataflow.ReasonOf(err) != dataflow.ReasonRequestInvalid {
			t.Errorf("open %q: %v", name, err)
		}
	}
	r, err := x.Open(m.Files[0].Name, 0)
	if err != nil {
		t.Fatal(err)
	}
	x.Release()
	x.Release()
	if _, err := io.ReadAll(r); !errors.Is(err, ErrLeaseOver) {
		t.Errorf("a reader after the lease's end: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if left, err := mem.List(trioDir + "/" + exportDir); err != nil || len(left) > 0 {
		t.Errorf("of the exports is left %v, %v", left, err)
	}
	if _, err := l.Leased(m.Lease); !errors.Is(err, ErrLeaseOver) {
		t.Errorf("the lease is found after its end: %v", err)
	}
	if first, _, _ := l.cfg.Store.(interface {
		Retained() (first, last dataflow.LogIndex, bytes int64)
	}).Retained(); first <= 10 {
		t.Errorf("entries from %d on are kept after the lease", first)
	}
}

func TestExportsAreBoundedInNumberAndTime(t *testing.T) {
	t.Parallel()
	l, done := alone(t, vfs.NewCrashableMem(), func(c *Config) { c.LeaseIdle, c.MaxLeases = 20*time.Millisecond, 1 })
	defer done()
	appendSome(t, l, 3)
	x, err := l.Export(t.Context(), ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := x.Open(EntriesName, 0) // while somebody reads it is not idle
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Export(t.Context(), ExportOptions{}); dataflow.ReasonOf(err) != dataflow.ReasonOverloaded {
		t.Fatalf("one more than there may be: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-x.ctx.Done()
	if _, err := x.Open(EntriesName, 0); !errors.Is(err, ErrLeaseOver) {
		t.Fatalf("after it was idle: %v", err)
	}
	for x, err = l.Export(t.Context(), ExportOptions{}); err != nil; x, err = l.Export(t.Context(), ExportOptions{}) {
		if dataflow.ReasonOf(err) != dataflow.ReasonOverloaded { // it ends first, and gives its room back when its files are gone
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	x.Release()
}

func TestAnExportAfterACrashIsRemoved(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	if err := vfs.MkdirDurable(mem, trioDir+"/"+exportDir+"/0011223344556677/db"); err != nil {
		t.Fatal(err)
	}
	_, done := alone(t, mem, func(*Config) {})
	defer done()
	if left, err := exists(mem, trioDir+"/"+exportDir); err != nil || left {
		t.Fatalf("it is still there, %v", err)
	}
}

// TestAnExportKeepsToItsPace reads at a rate at which it would take a minute, and is cut off.
func TestAnExportKeepsToItsPace(t *testing.T) {
	t.Parallel()
	l, done := alone(t, vfs.NewCrashableMem(), func(c *Config) { c.ExportLimit = pace.NewLimiter(10_000) })
	defer done()
	appendSome(t, l, 600)
	x, err := l.Export(t.Context(), ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := x.Open(EntriesName, 0)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1000)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	go x.Release()
	rest, err := io.ReadAll(r)
	if !errors.Is(err, ErrLeaseOver) || len(rest) > 300_000 {
		t.Fatalf("%d bytes came, %v", len(rest), err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
