package logstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/frame"
	"github.com/weirdb/weir/raftlog/logstore"
)

// segments returns the names of the segment files.
func segments(t testing.TB, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return len(n) < 4 || n[len(n)-4:] != ".seg" })
	slices.Sort(names)
	return names
}

// trim lets Raft delete a prefix and retains what is said, then writes until the store has cleaned up.
func trim(t testing.TB, g *logstore.GroupLog, to uint64, islands ...dataflow.LogRange) {
	t.Helper()
	if err := g.DeleteRange(1, to); err != nil {
		t.Fatal(err)
	}
	g.Retain(dataflow.LogIndex(to+1), islands...)
	for range 3 {
		last, _ := g.LastIndex()
		store(t, g, last+1, last+1, 10)
	}
}

func TestNeedlessFilesHoldNothingThatIsWanted(t *testing.T) {
	s := open(t, vfs.NewCrashableMem())
	a, b := group(t, s, "a"), group(t, s, "b")
	store(t, b, 1, 1, 500)
	store(t, a, 1, 1000, 1000)
	store(t, b, 2, 2, 500)
	const most = 1 << 62
	all := a.Needless(most)
	if files := all / (32 << 10); files < 30 {
		t.Fatalf("%d bytes are needless when nothing is wanted", all)
	}
	for _, c := range []struct {
		name    string
		floor   dataflow.LogIndex
		islands []dataflow.LogRange
		least   int64
		most    int64
	}{
		{"all is wanted", 1, nil, 0, 0},
		{"the second half is wanted", 501, nil, all * 4 / 10, all * 6 / 10},
		{"an entry is wanted", most, []dataflow.LogRange{{First: 500, Last: 500}}, all - 64<<10, all - 1},
	} {
		if got := a.Needless(c.floor, c.islands...); got < c.least || got > c.most {
			t.Errorf("%s: %d bytes of %d are needless", c.name, got, all)
		}
	}
	if got := b.Needless(most); got == 0 || got > 64<<10 {
		t.Errorf("the file of one entry has %d bytes", got)
	}
	a.Retain(most)
	if err := a.DeleteRange(1, 1000); err != nil {
		t.Fatal(err)
	}
	if got := a.Needless(most); got != 0 {
		t.Errorf("%d bytes are needless of what was let go", got)
	}
	closeStore(t, s)
}

// An idle pipeline's few entries, and one old row of another group, once kept all files after them.
func TestAnOldEntryKeepsItsOwnFileOnly(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	busy, idle := group(t, s, "busy"), group(t, s, "idle")
	store(t, busy, 1, 100, 1000)
	store(t, idle, 1, 3, 500)
	store(t, busy, 101, 105, 900) // of the pipeline that is idle from now on
	store(t, busy, 106, 2000, 1000)
	before := len(segments(t, fs))
	trim(t, idle, 2, dataflow.LogRange{First: 1, Last: 1})
	trim(t, busy, 1999, dataflow.LogRange{First: 101, Last: 105})
	after := len(segments(t, fs))
	if before < 50 || after > 4 {
		t.Fatalf("%d files before, %d after", before, after)
	}
	for round := range 3 {
		wantEntries(t, busy, 101, 105, 900)
		wantEntries(t, idle, 1, 1, 500)
		if _, err := busy.Entry(1000); !errors.Is(err, logstore.ErrNotFound) {
			t.Errorf("round %d: entry 1000: %v", round, err)
		}
		closeStore(t, s)
		s = open(t, fs)
		busy, idle = group(t, s, "busy"), group(t, s, "idle")
		if n := len(segments(t, fs)); n > after {
			t.Errorf("round %d: %d files after reopening", round, n)
		}
		last, _ := busy.LastIndex()
		store(t, busy, last+1, last+2, 1000)
	}
	last, _ := busy.LastIndex()
	trim(t, busy, last)
	trim(t, idle, 3)
	if n := len(segments(t, fs)); n > 3 {
		t.Errorf("%d files when nothing is retained", n)
	}
	closeStore(t, s)
}

func TestALostFileIsToldFromOneThatWasLetGo(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	g := group(t, s, "a")
	store(t, g, 1, 600, 1000)
	trim(t, g, 599, dataflow.LogRange{First: 1, Last: 1}, dataflow.LogRange{First: 300, Last: 300})
	closeStore(t, s)
	names := segments(t, fs)
	if len(names) < 3 || len(names) > 5 {
		t.Fatalf("files: %v", names)
	}
	for _, lost := range names[:len(names)-1] {
		left := fs.CrashClone(vfs.CrashCloneCfg{})
		if err := left.Remove("log/" + lost); err != nil {
			t.Fatal(err)
		}
		s, err := logstore.Open(left, "log", small)
		if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Errorf("without %s: %v", lost, err)
		}
		if err == nil {
			closeStore(t, s)
		}
	}
}

// The segment that tells of a deletion may go before the one whose end was deleted.
func TestADeletedEndStaysDeletedWhenItsRecordIsGone(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			s := open(t, fs)
			g := group(t, s, "a")
			store(t, g, 1, 20, 1000)
			store(t, group(t, s, "other"), 1, 1, 100) // keeps the file
			store(t, g, 21, 60, 1000)
			next, islands := uint64(11), []dataflow.LogRange{{First: 1, Last: 1}}
			if whole {
				next, islands = 100, nil
				if err := g.DeleteRange(1, 60); err != nil {
					t.Fatal(err)
				}
			} else if err := g.DeleteRange(11, 60); err != nil {
				t.Fatal(err)
			}
			var l []*raft.Log
			for i := next; i < next+200; i++ {
				l = append(l, &raft.Log{Index: i, Term: 2, Type: raft.LogCommand, Data: frame.Append(nil, command(i+5000, 1000))})
			}
			if err := g.StoreLogs(l); err != nil {
				t.Fatal(err)
			}
			if err := g.DeleteRange(1, next+198); err != nil {
				t.Fatal(err)
			}
			g.Retain(dataflow.LogIndex(next+199), islands...)
			for i := range uint64(3) {
				store(t, g, next+200+i, next+200+i, 10)
			}
			closeStore(t, s)
			s = open(t, fs)
			defer closeStore(t, s)
			g = group(t, s, "a")
			for i := uint64(11); i < 60; i++ {
				if cmd, err := g.Entry(dataflow.LogIndex(i)); !errors.Is(err, logstore.ErrNotFound) {
					t.Fatalf("entry %d: %d bytes, %v", i, len(cmd), err)
				}
			}
		})
	}
}

func TestEntriesFollowTheModelOverRetainFreeAndReopen(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 2))
	copied := int64(0)
	for round := range 20 {
		fs := vfs.NewCrashableMem()
		s := open(t, fs)
		models := map[string]*groupModel{}
		for i, st := range scenario(rng, 400) {
			if err := st.do(s); err != nil {
				t.Fatal(err)
			}
			m := models[st.group]
			if m == nil {
				m = &groupModel{data: map[uint64][]byte{}, term: map[uint64]uint64{}}
				models[st.group] = m
			}
			m.apply(st)
			if rng.IntN(60) > 0 {
				continue
			}
			copied += s.Stats().Copied
			closeStore(t, s)
			s = open(t, fs)
			for name, m := range models {
				if err := check(s, name, m, nil); err != nil {
					t.Fatalf("seed %d, round %d, step %d: %v", seed, round, i, err)
				}
			}
		}
		copied += s.Stats().Copied
		closeStore(t, s)
	}
	t.Logf("seed %d; %d entries were copied", seed, copied)
}

// forever makes the steps of two groups that fill the same files, of which one is trimmed and the other keeps every
// entry, and has few.
func forever(steps int) []step {
	var out []step
	rare, busy := uint64(0), uint64(0)
	for i := range steps {
		out = append(out, step{group: "busy", logs: logs(busy+1, busy+28, 1000)})
		busy += 28
		out = append(out, step{group: "busy", delLo: 1, del: busy - 1}, step{group: "busy", retain: busy})
		out = append(out, step{group: "rare", logs: logs(rare+1, rare+1, 100)})
		if rare++; i%4 == 3 {
			out = append(out, step{group: "rare", delLo: 1, del: rare - 1})
			out = append(out, step{group: "rare", retain: rare, islands: []dataflow.LogRange{{First: 1, Last: dataflow.LogIndex(rare - 1)}}})
		}
	}
	return out
}

// A stream that keeps a row now and then for ever once kept all that was written between the rows.
func TestRareEntriesThatStayKeepFewFiles(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	models, _, err := run(s, forever(400))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(60) { // requests that the committer takes between what it does in the background
		store(t, group(t, s, "other"), i+1, i+1, 1)
	}
	if st := s.Stats(); st.Segments > 25 || st.Copied < 300 {
		t.Errorf("after 400 files: %+v", st)
	}
	for range 2 {
		for name, m := range models {
			if err := check(s, name, m, nil); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
		s = open(t, fs)
	}
	closeStore(t, s)
}

func TestCrashWhileEntriesAreCopiedLosesNone(t *testing.T) {
	todo := forever(28)
	play := func(fs *crashfs.FS) (map[string]*groupModel, *step, int64) {
		s, err := logstore.Open(fs, "log", small)
		if err != nil {
			if !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatal(err)
			}
			return nil, nil, 0
		}
		defer s.Close() // its error is the crash's
		models, under, err := run(s, todo)
		if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatal(err)
		}
		return models, under, s.Stats().Copied
	}
	fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
	_, _, copied := play(fs)
	if t.Logf("%d operations, %d copies", fs.Ops(), copied); copied == 0 {
		t.Fatal("nothing was copied")
	}
	for k := fs.Ops() / 3; k <= fs.Ops(); k++ {
		crash := crashfs.Crash{At: k, UnsyncedPercent: k % 3 * 50, Torn: true, Seed: uint64(k)}
		fs := crashfs.New(vfs.NewCrashableMem(), crash)
		models, under, _ := play(fs)
		if err := reopenAndCheck(fs.AfterCrash(), models, under); err != nil {
			t.Fatalf("crash %+v at %v: %v", crash, fs.CrashedAt(), err)
		}
	}
}
