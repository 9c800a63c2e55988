package raftlog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
)

func propose(t testing.TB, n *node, cmds ...string) {
	t.Helper()
	for _, c := range cmds {
		if _, _, err := n.group.Propose(testCtx(t), []byte(c)); err != nil {
			t.Fatal(err)
		}
	}
}

// numbered returns the commands from first to last, each of size bytes.
func numbered(first, last, size int) []string {
	var out []string
	for i := first; i <= last; i++ {
		out = append(out, fmt.Sprintf("%0*d", size, i))
	}
	return out
}

func barrier(t testing.TB, n *node) {
	t.Helper()
	if err := n.group.Barrier(testCtx(t)); err != nil {
		t.Fatal(err)
	}
}

func snapshotFiles(t testing.TB, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("raft/shard-0/snapshots")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestRestartReplaysTheLog(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := mustOpen(t, fs, nil)
	propose(t, n, "a", "b", "c")
	n.close(t)
	n = mustOpen(t, fs, nil)
	defer n.close(t)
	barrier(t, n)
	if got := n.fsm.all(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("after the restart: %v", got)
	}
}

func TestSnapshotCutsTheLogAndRestores(t *testing.T) {
	fs := vfs.NewCrashableMem()
	few := func(c *raftlog.Config) { c.TrailingBytes = 1 }
	n := mustOpen(t, fs, few)
	want := numbered(1, 200, 500)
	propose(t, n, want[:150]...)
	if err := n.group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if first, _ := n.log.FirstIndex(); first < 50 {
		t.Errorf("the log still begins at %d", first)
	}
	if st := n.group.Stats(); st.SnapshotIndex == 0 {
		t.Errorf("stats are %+v", st)
	}
	propose(t, n, want[150:]...)
	n.close(t)

	n = mustOpen(t, fs, few)
	defer n.close(t)
	if n.group.AppliedIndex() == 0 {
		t.Error("the restored snapshot's index is not applied")
	}
	barrier(t, n)
	if got := n.fsm.all(); !slices.Equal(got, want) {
		t.Errorf("after the restart: %d commands, want %d", len(got), len(want))
	}
	if len(n.fsm.indexes) > 51 {
		t.Errorf("%d commands were replayed, not restored", len(n.fsm.indexes))
	}
	n.log.Retain(^dataflow.LogIndex(0))
	propose(t, n, "more")
}

func TestFewLargeEntriesStayBehindASnapshot(t *testing.T) {
	n := mustOpen(t, vfs.NewCrashableMem(), func(c *raftlog.Config) { c.TrailingBytes = 80_000 })
	defer n.close(t)
	propose(t, n, numbered(1, 100, 10_000)...)
	if err := n.group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	first, err := n.log.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := n.log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	if kept := last - first + 1; kept < 4 || kept > 9 {
		t.Errorf("%d entries of 10 kB stay, for 80 kB", kept)
	}
}

func TestSnapshotsAreTakenByAppliedBytes(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := mustOpen(t, fs, func(c *raftlog.Config) { c.SnapshotBytes = 20_000; c.TrailingBytes = 1 })
	defer n.close(t)
	for i := 0; len(snapshotFiles(t, fs)) < 2; i++ {
		if i > 5000 {
			t.Fatal("no snapshots after 2.5 MB of commands")
		}
		propose(t, n, numbered(i, i, 500)...)
	}
	if i := snapshotFiles(t, fs); len(i) > 3 { // two, and one that is being written
		t.Errorf("snapshots %v are kept", i)
	}
}

func TestOnlyTheNewestSnapshotsAreKept(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := mustOpen(t, fs, nil)
	defer n.close(t)
	for i := range 5 {
		propose(t, n, fmt.Sprint(i))
		if err := n.group.Snapshot(testCtx(t)); err != nil {
			t.Fatal(err)
		}
	}
	if got := snapshotFiles(t, fs); len(got) != 2 {
		t.Errorf("kept %v", got)
	}
}

// damage flips a bit in the middle of the newest snapshots.
func damage(t testing.TB, fs vfs.FS, count int) {
	t.Helper()
	names := snapshotFiles(t, fs)
	for _, name := range names[len(names)-count:] {
		f, err := fs.OpenReadWrite("raft/shard-0/snapshots/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := f.ReadAt(b[:], 10); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 4
		if _, err := f.WriteAt(b[:], 10); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedNewestSnapshotIsReplacedByAnOlderOneAndTheLog(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := mustOpen(t, fs, nil) // keeps enough log
	want := numbered(1, 40, 20)
	propose(t, n, want[:20]...)
	if err := n.group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	propose(t, n, want[20:]...)
	if err := n.group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	n.close(t)
	damage(t, fs, 1)
	n = mustOpen(t, fs, nil)
	defer n.close(t)
	barrier(t, n)
	if got := n.fsm.all(); !slices.Equal(got, want) {
		t.Errorf("%d commands, want %d", len(got), len(want))
	}
}

func TestGapBetweenSnapshotAndLogIsRefused(t *testing.T) {
	fs := vfs.NewCrashableMem()
	few := func(c *raftlog.Config) { c.TrailingBytes = 1 }
	n := mustOpen(t, fs, few)
	propose(t, n, numbered(1, 200, 500)...)
	if err := n.group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	n.close(t)
	damage(t, fs, 1)
	_, err := openNode(t, fs, few)
	wantReason(t, err, dataflow.ReasonCorrupt)
	wantNamedOnce(t, err)
}

// onDisk is a journal that claims to keep its state itself.
type onDisk struct {
	journal
	applied dataflow.LogIndex
}

func (o *onDisk) AppliedIndex() dataflow.LogIndex { return o.applied }

func TestOnDiskStateMustNotBeOlderThanTheSnapshot(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := mustOpen(t, fs, nil)
	want := numbered(1, 10, 20)
	propose(t, n, want[:8]...)
	if err := n.group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	propose(t, n, want[8:]...)
	n.close(t)

	info, r, err := raftlog.NewestSnapshot(fs, "raft/shard-0")
	if err != nil || info == nil {
		t.Fatalf("%+v, %v", info, err)
	}
	fsm := &onDisk{applied: info.Index - 1}
	with := func(c *raftlog.Config) { c.OnDisk = true; c.FSM = fsm }
	if _, err := openNode(t, fs, with); err == nil || !strings.Contains(err.Error(), "before the newest snapshot") {
		t.Fatalf("an old state was accepted: %v", err)
	}

	if err := fsm.Restore(r); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	fsm.applied = info.Index
	n, err = openNode(t, fs, with)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close(t)
	if err := n.group.WaitLeader(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	barrier(t, n)
	if got := fsm.all(); !slices.Equal(got, want) {
		t.Errorf("state is %v", got)
	}
	if len(fsm.indexes) != 2 {
		t.Errorf("replayed %v, want the 2 entries behind the snapshot", fsm.indexes)
	}
}

func TestWithoutASnapshotThereIsNone(t *testing.T) {
	info, r, err := raftlog.NewestSnapshot(vfs.NewCrashableMem(), "d")
	if info != nil || r != nil || err != nil {
		t.Errorf("%v, %v, %v", info, r, err)
	}
}

func TestBadConfigIsNamed(t *testing.T) {
	_, err := raftlog.Open(raftlog.Config{MaxEntryBytes: 100, MaxPendingBytes: 10})
	for _, field := range []string{"Group", "NodeID", "FS", "Log", "FSM", "MaxPendingBytes"} {
		if err == nil || !strings.Contains(err.Error(), "raftlog.Config."+field+":") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}
