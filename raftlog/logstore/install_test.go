package logstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/frame"
	"github.com/weirdb/weir/raftlog/logstore"
)

func openStore(t *testing.T, fs vfs.FS) *logstore.Store {
	t.Helper()
	s, err := logstore.Open(fs, "log", small)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func textEntry(index uint64, text string) *raft.Log {
	return &raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: frame.Append(nil, []byte(text))}
}

// readable lists what Entry reads of the first indexes.
func readable(t *testing.T, g *logstore.GroupLog, to dataflow.LogIndex) []string {
	t.Helper()
	var out []string
	for i := dataflow.LogIndex(1); i <= to; i++ {
		cmd, err := g.Entry(i)
		if errors.Is(err, logstore.ErrNotFound) {
			continue
		}
		must(t, err)
		out = append(out, fmt.Sprintf("%d=%s", i, cmd))
	}
	return out
}

func wantReadable(t *testing.T, g *logstore.GroupLog, want ...string) {
	t.Helper()
	if got := readable(t, g, 30); !slices.Equal(got, want) {
		t.Fatalf("%s holds %q, want %q", g.Name(), got, want)
	}
}

// TestAnotherNodesLogTakesTheOldOnesPlace: entries read from one store are placed into another, with holes, while the old
// log there goes on; the two change names; Raft goes on behind the snapshot; and what the old log held is gone for good,
// also when its group takes in the next one.
func TestAnotherNodesLogTakesTheOldOnesPlace(t *testing.T) {
	from := openStore(t, vfs.NewCrashableMem())
	defer from.Close()
	src := group(t, from, "shard-1")
	for i := uint64(1); i <= 12; i++ {
		must(t, src.StoreLog(textEntry(i, fmt.Sprint("new", i))))
	}
	var entries []logstore.Stored
	for _, i := range []dataflow.LogIndex{2, 3, 7, 10} {
		e, err := src.Stored(i)
		must(t, err)
		entries = append(entries, e)
	}

	mem := vfs.NewCrashableMem()
	s := openStore(t, mem)
	old := group(t, s, "shard-1")
	must(t, old.StoreLogs([]*raft.Log{textEntry(1, "old1"), textEntry(2, "old2"), textEntry(3, "old3")}))
	must(t, old.Set([]byte("LastVoteCand"), []byte("me")))
	staged := group(t, s, "shard-1.incoming")
	must(t, staged.Reset(12))
	must(t, staged.Place(entries[:2]))
	must(t, old.StoreLog(textEntry(4, "old4"))) // it goes on meanwhile
	if err := staged.Place([]logstore.Stored{{Index: 13, Data: frame.Append(nil, nil)}}); err == nil {
		t.Fatal("an entry behind the snapshot was placed")
	}
	bad := entries[2]
	bad.Data = append(slices.Clone(bad.Data), 1)
	if err := staged.Place([]logstore.Stored{bad}); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
		t.Fatalf("a damaged entry was placed: %v", err)
	}

	// A restart finds what was placed.
	must(t, s.Close())
	s = openStore(t, mem)
	staged = group(t, s, "shard-1.incoming")
	wantReadable(t, staged, "2=new2", "3=new3")
	if got := staged.Begins(); got != 12 {
		t.Fatalf("the staged log begins behind %d", got)
	}
	must(t, staged.Place(entries[1:])) // one again
	must(t, staged.SetUint64([]byte("CurrentTerm"), 9))
	must(t, s.Adopt("shard-1.incoming", "shard-1"))

	want := []string{"2=new2", "3=new3", "7=new7", "10=new10"}
	for range 3 {
		g := group(t, s, "shard-1")
		wantReadable(t, g, want...)
		wantReadable(t, group(t, s, "shard-1.incoming"))
		if first, _ := g.FirstIndex(); first != 0 {
			t.Fatalf("Raft's range begins at %d", first)
		}
		if term, err := g.GetUint64([]byte("CurrentTerm")); err != nil || term != 9 {
			t.Fatalf("term %d, %v", term, err)
		}
		must(t, s.Close())
		s = openStore(t, mem)
	}
	g := group(t, s, "shard-1")
	must(t, g.StoreLogs([]*raft.Log{textEntry(13, "raft13"), textEntry(14, "raft14")}))
	wantReadable(t, g, append(slices.Clone(want), "13=raft13", "14=raft14")...)
	must(t, g.DeleteRange(13, 14)) // a new leader has other ones
	wantReadable(t, g, want...)
	must(t, g.StoreLog(textEntry(13, "other13")))
	g.Retain(14, dataflow.LogRange{First: 7, Last: 7})

	// The old log's group takes in the next one.
	staged = group(t, s, "shard-1.incoming")
	must(t, staged.Reset(5))
	must(t, staged.Place(entries[:1]))
	must(t, staged.Reset(20))
	must(t, staged.Place(entries[3:]))
	for i := range 60 { // through several segments
		must(t, g.StoreLog(textEntry(uint64(14+i), string(make([]byte, 3000)))))
	}
	must(t, s.Close())
	s = openStore(t, mem)
	wantReadable(t, group(t, s, "shard-1.incoming"), "10=new10")
	must(t, s.Adopt("shard-1.incoming", "shard-1"))
	must(t, s.Close())
	s = openStore(t, mem)
	wantReadable(t, group(t, s, "shard-1"), "10=new10")
	must(t, group(t, s, "shard-1").StoreLog(textEntry(21, "raft21")))
	if got := s.Stats().Entries; got != 2 {
		t.Errorf("%d entries are kept, want 2", got)
	}
	must(t, s.Close())
}

func TestAStagedLogIsDiscarded(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := openStore(t, mem)
	staged := group(t, s, "x.incoming")
	must(t, staged.Reset(9))
	must(t, staged.Place([]logstore.Stored{{Index: 3, Term: 1, Data: frame.Append(nil, []byte("a"))}}))
	if got := staged.Size(dataflow.LogRange{First: 1, Last: 2}, dataflow.LogRange{First: 3, Last: 9}); got == 0 {
		t.Error("the entry has no size")
	}
	must(t, staged.Reset(0))
	wantReadable(t, staged)
	must(t, s.Close())
	s = openStore(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	defer s.Close()
	wantReadable(t, group(t, s, "x.incoming"))
	if got := group(t, s, "x.incoming").Begins(); got != 0 {
		t.Errorf("it begins behind %d", got)
	}
	if err := s.Adopt("nobody", "x"); err == nil {
		t.Error("a log that is not there was adopted")
	}
}
