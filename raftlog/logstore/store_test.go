package logstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/frame"
	"github.com/weirdb/weir/raftlog/logstore"
)

func open(t testing.TB, fs vfs.FS) *logstore.Store {
	t.Helper()
	s, err := logstore.Open(fs, "log", small)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func group(t testing.TB, s *logstore.Store, name string) *logstore.GroupLog {
	t.Helper()
	g, err := s.Group(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// command is the command of the entry at index: size bytes.
func command(index uint64, size int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d.", index), size)[:size]
}

// logs makes the entries from first to last.
func logs(first, last uint64, size int) []*raft.Log {
	var out []*raft.Log
	for i := first; i <= last; i++ {
		out = append(out, &raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: frame.Append(nil, command(i, size))})
	}
	return out
}

func store(t testing.TB, g *logstore.GroupLog, first, last uint64, size int) {
	t.Helper()
	if err := g.StoreLogs(logs(first, last, size)); err != nil {
		t.Fatal(err)
	}
}

func closeStore(t testing.TB, s *logstore.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantEntries(t testing.TB, g *logstore.GroupLog, first, last uint64, size int) {
	t.Helper()
	for i := first; i <= last; i++ {
		cmd, err := g.Entry(dataflow.LogIndex(i))
		if err != nil || !bytes.Equal(cmd, command(i, size)) {
			t.Fatalf("entry %d: %d bytes, %v", i, len(cmd), err)
		}
	}
}

func TestEntriesBelowRaftsRangeStayReadableDownToTheFloor(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	g := group(t, s, "a")
	store(t, g, 1, 100, 1000)
	if err := g.DeleteRange(1, 90); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, g, 1, 100, 1000)
	var l raft.Log
	if err := g.GetLog(90, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("Raft still sees entry 90: %v", err)
	}
	before := s.Stats().Segments
	g.Retain(60)
	wantEntries(t, g, 60, 100, 1000)
	store(t, g, 101, 101, 1000) // one more write, and the space is free
	store(t, g, 102, 102, 1000)
	if st := s.Stats(); st.Segments >= before {
		t.Errorf("%d segments before Retain, %+v after", before, st)
	}
	if _, err := g.Entry(1); !errors.Is(err, logstore.ErrNotFound) {
		t.Errorf("entry 1: %v", err)
	}
	g.Retain(10) // sinks not
	closeStore(t, s)

	s = open(t, fs)
	defer closeStore(t, s)
	g = group(t, s, "a")
	wantEntries(t, g, 60, 102, 1000)
	if first, _ := g.FirstIndex(); first != 91 {
		t.Errorf("first index after reopening is %d, want 91", first)
	}
}

func TestSpaceIsReusedWithRetentionOfNothing(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	defer closeStore(t, s)
	g, slow := group(t, s, "a"), group(t, s, "slow")
	g.Retain(^dataflow.LogIndex(0))
	store(t, slow, 1, 1, 100) // holds the first segment
	for i := uint64(1); i <= 500; i++ {
		store(t, g, i, i, 2000)
		if i > 10 && i%10 == 0 {
			if err := g.DeleteRange(1, i-5); err != nil {
				t.Fatal(err)
			}
		}
	}
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Segments > 5 || len(names) > 9 {
		t.Errorf("1 MB written through 32 KiB segments left %+v, files %v", st, names)
	}
	wantEntries(t, slow, 1, 1, 100)
}

func TestStoringWithAGapIsRefused(t *testing.T) {
	s := open(t, vfs.NewCrashableMem())
	defer closeStore(t, s)
	g := group(t, s, "a")
	store(t, g, 5, 7, 10) // an empty log begins anywhere
	for _, first := range []uint64{1, 7, 9} {
		if err := g.StoreLogs(logs(first, first, 10)); err == nil || s.Err() != nil {
			t.Errorf("entry %d was stored behind 7 (%v); store: %v", first, err, s.Err())
		}
	}
	if err := g.StoreLogs([]*raft.Log{{Index: 8}, {Index: 10}}); err == nil {
		t.Error("8, 10 was stored")
	}
	if err := g.DeleteRange(6, 6); err == nil {
		t.Error("the middle was deleted")
	}
	store(t, g, 8, 8, 10)
}

func TestSuffixIsReplacedAfterDeletion(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	g := group(t, s, "a")
	store(t, g, 1, 50, 1500)
	if err := g.DeleteRange(31, 50); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Entry(40); !errors.Is(err, logstore.ErrNotFound) {
		t.Errorf("deleted entry 40: %v", err)
	}
	for i := uint64(31); i <= 40; i++ {
		l := &raft.Log{Index: i, Term: 2, Type: raft.LogCommand, Data: frame.Append(nil, []byte("new"))}
		if err := g.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		wantEntries(t, g, 1, 30, 1500)
		if cmd, err := g.Entry(35); err != nil || string(cmd) != "new" {
			t.Errorf("entry 35: %.20q, %v", cmd, err)
		}
		if last, _ := g.LastIndex(); last != 40 {
			t.Errorf("last index is %d", last)
		}
		closeStore(t, s)
		s = open(t, fs)
		g = group(t, s, "a")
	}
	closeStore(t, s)
}

func TestDeletingTheWholeLogForgetsRetainedEntriesToo(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	g, other := group(t, s, "a"), group(t, s, "b")
	store(t, other, 1, 1, 10) // holds the first segment
	store(t, g, 1, 60, 1500)
	if err := g.DeleteRange(1, 60); err != nil {
		t.Fatal(err)
	}
	store(t, g, 1000, 1060, 1500)
	for range 2 {
		if _, err := g.Entry(60); !errors.Is(err, logstore.ErrNotFound) {
			t.Errorf("entry 60: %v", err)
		}
		wantEntries(t, g, 1000, 1060, 1500)
		closeStore(t, s)
		s = open(t, fs)
		g = group(t, s, "a")
	}
	closeStore(t, s)
}

func TestEntryLargerThanASegmentIsStored(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	g := group(t, s, "a")
	store(t, g, 1, 3, 100<<10)
	store(t, g, 4, 4, 10)
	closeStore(t, s)
	s = open(t, fs)
	defer closeStore(t, s)
	g = group(t, s, "a")
	wantEntries(t, g, 1, 3, 100<<10)
	wantEntries(t, g, 4, 4, 10)
}

func TestEntriesOfOtherTypesKeepTheirFields(t *testing.T) {
	s := open(t, vfs.NewCrashableMem())
	defer closeStore(t, s)
	g := group(t, s, "a")
	in := raft.Log{Index: 1, Term: 9, Type: raft.LogConfiguration, Data: []byte("conf"), Extensions: []byte("ext")}
	if err := g.StoreLog(&in); err != nil {
		t.Fatal(err)
	}
	var out raft.Log
	if err := g.GetLog(1, &out); err != nil {
		t.Fatal(err)
	}
	if out.Index != 1 || out.Term != 9 || out.Type != raft.LogConfiguration || string(out.Data) != "conf" || string(out.Extensions) != "ext" || !out.AppendedAt.IsZero() {
		t.Errorf("got %+v", out)
	}
	if _, err := g.Entry(1); !errors.Is(err, logstore.ErrNotFound) {
		t.Errorf("a configuration is no command: %v", err)
	}
}

func TestConcurrentGroupsShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
		hold := make(chan struct{})
		var armed atomic.Bool
		fs.OnOp(func(crashfs.Op) error {
			if armed.Load() {
				<-hold
			}
			return nil
		})
		s := open(t, fs)
		defer closeStore(t, s)
		const groups = 8
		var gs []*logstore.GroupLog
		for i := range groups {
			gs = append(gs, group(t, s, fmt.Sprint("shard-", i)))
		}
		before := s.Stats()
		armed.Store(true)
		var wg sync.WaitGroup
		for _, g := range gs {
			wg.Go(func() { store(t, g, 1, 5, 50) })
		}
		synctest.Wait() // the disk hangs in somebody's write; everybody else waits for the next
		close(hold)
		wg.Wait()
		after := s.Stats()
		if r, b := after.Requests-before.Requests, after.Batches-before.Batches; r != groups || b > 2 {
			t.Errorf("%d requests in %d writes, want %d in 2 at most", r, b, groups)
		}
		for _, g := range gs {
			wantEntries(t, g, 1, 5, 50)
		}
	})
}

func TestReadersKeepTheirSegmentWhileItIsFreed(t *testing.T) {
	s := open(t, vfs.NewCrashableMem())
	defer closeStore(t, s)
	g := group(t, s, "a")
	store(t, g, 1, 20, 1000)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				first, last, _ := g.Retained()
				for i := first; i <= last; i++ {
					cmd, err := g.Entry(i)
					if err == nil && !bytes.Equal(cmd, command(uint64(i), 1000)) {
						t.Errorf("entry %d has the wrong bytes", i)
					}
					if err != nil && !errors.Is(err, logstore.ErrNotFound) {
						t.Errorf("entry %d: %v", i, err)
					}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for i := uint64(21); i <= 400; i++ {
		store(t, g, i, i, 1000)
		if i%10 == 0 {
			if err := g.DeleteRange(1, i-15); err != nil {
				t.Error(err)
			}
			g.Retain(dataflow.LogIndex(i - 20))
		}
	}
	close(stop)
	wg.Wait()
}

func TestFailedSyncIsFinal(t *testing.T) {
	for _, what := range []string{"write-at", "sync"} {
		fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
		boom := errors.New("disk on fire")
		var mu sync.Mutex
		broken, failed := false, 0
		fs.OnOp(func(op crashfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if broken && op.Name == what {
				failed++
				if failed == 1 {
					return boom
				}
			}
			return nil
		})
		s := open(t, fs)
		g := group(t, s, "a")
		store(t, g, 1, 1, 10)
		mu.Lock()
		broken = true
		mu.Unlock()
		if err := g.StoreLogs(logs(2, 2, 10)); !errors.Is(err, boom) {
			t.Errorf("%s: %v", what, err)
		}
		// The disk is well again, but what it holds is unknown.
		if err := g.StoreLogs(logs(2, 2, 10)); !errors.Is(err, logstore.ErrFailed) {
			t.Errorf("%s: a write after the failure: %v", what, err)
		}
		wantEntries(t, g, 1, 1, 10)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := g.StoreLogs(logs(2, 2, 10)); !errors.Is(err, logstore.ErrClosed) {
			t.Errorf("%s: a write after Close: %v", what, err)
		}
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	defer closeStore(t, s)
	if _, err := logstore.Open(fs, "log", small); err == nil {
		t.Error("the store was opened twice")
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	_, err := logstore.Open(vfs.NewCrashableMem(), "log", logstore.Options{SegmentBytes: 1, BatchBytes: -1})
	if err == nil || !strings.Contains(err.Error(), "SegmentBytes") || !strings.Contains(err.Error(), "BatchBytes") {
		t.Errorf("got %v", err)
	}
}

// flip inverts one bit of a file.
func flip(t testing.TB, fs vfs.FS, path string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	b[0] ^= 1 << (at % 8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func TestAnyFlippedBitIsNoticedOrHarmless(t *testing.T) {
	// A store of several sealed segments, closed in order, whose every entry is known.
	mem := vfs.NewCrashableMem()
	s := open(t, mem)
	g := group(t, s, "a")
	for i := uint64(1); i <= 60; i++ {
		store(t, g, i, i, 1500)
	}
	closeStore(t, s)
	names, err := mem.List("log")
	if err != nil {
		t.Fatal(err)
	}
	refused, found, harmless := 0, 0, 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".seg") {
			continue
		}
		st, err := mem.Stat("log/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < st.Size(); at += 97 {
			fs := mem.CrashClone(vfs.CrashCloneCfg{})
			flip(t, fs, "log/"+name, at)
			s, err := logstore.Open(fs, "log", small)
			if err != nil {
				if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
					t.Fatalf("%s at %d: %v", name, at, err)
				}
				refused++
				continue
			}
			g := group(t, s, "a")
			if last, _ := g.LastIndex(); last != 60 {
				t.Fatalf("%s at %d: the log ends at %d, silently", name, at, last)
			}
			damaged := false
			for i := uint64(1); i <= 60; i++ {
				cmd, err := g.Entry(dataflow.LogIndex(i))
				if err != nil {
					if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
						t.Fatalf("%s at %d: entry %d: %v", name, at, i, err)
					}
					damaged = true
				} else if !bytes.Equal(cmd, command(i, 1500)) {
					t.Fatalf("%s at %d: entry %d has wrong bytes", name, at, i)
				}
			}
			if damaged {
				found++
			} else {
				harmless++
			}
			closeStore(t, s)
		}
	}
	t.Logf("refused at Open %d, found on reading %d, harmless %d", refused, found, harmless)
	if refused == 0 || found == 0 {
		t.Error("the test flips nothing that matters")
	}
}
