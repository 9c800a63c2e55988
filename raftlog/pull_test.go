package raftlog_test

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
)

// lagBehind makes member i miss so much that the others' logs do not reach back to it.
func (c *three) lagBehind(t *testing.T, i int) (want []string) {
	t.Helper()
	want = append(want, "before")
	c.waitApplied(t, i, c.propose(t, "before"))
	c.stop(t, i)
	for n := range 150 {
		want = append(want, fmt.Sprint("c", n))
		c.propose(t, want[len(want)-1])
	}
	if c.hold { // so that the snapshot's last entry stays too
		c.nodes[c.leader(t)].group.Hold(140)
	}
	c.snapshot(t)
	return want
}

// snapshot makes the leader cut its log.
func (c *three) snapshot(t *testing.T) {
	t.Helper()
	if err := c.nodes[c.leader(t)].group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
}

// TestAMemberIsBroughtForwardFromOutside: where snapshots are pulled, a lagging member takes none through Raft and says
// that it needs one; brought to it by hand, it goes on behind it, though the leader has taken further snapshots meanwhile,
// because what comes behind was held; and its vote is not forgotten.
func TestAMemberIsBroughtForwardFromOutside(t *testing.T) {
	c := three{pull: true}
	for i := range c.fs {
		c.fs[i] = vfs.NewCrashableMem()
		c.start(t, i)
	}
	lead := c.leader(t)
	lag := (lead + 1) % 3
	c.hold = true
	want := c.lagBehind(t, lag)
	c.start(t, lag)
	g := c.nodes[lag].group
	need := <-g.Needs()
	if need.Leader != fmt.Sprint("n", c.leader(t)) || need.Index == 0 {
		t.Fatalf("it needs %+v", need)
	}
	if got := c.nodes[lag].fsm.all(); len(got) > 1 {
		t.Fatalf("it has %d commands: a snapshot came through Raft", len(got))
	}

	leader := c.nodes[c.leader(t)].group
	info, name, file, err := leader.SnapshotFile()
	if err != nil {
		t.Fatal(err)
	}
	release := leader.Hold(info.Index)
	data, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range 150 { // more than stays behind a snapshot
		want = append(want, fmt.Sprint("d", n))
		c.propose(t, want[len(want)-1])
	}
	c.snapshot(t)

	c.stop(t, lag)
	dir := c.fs[lag].PathJoin("raft/shard-0", raftlog.SnapshotDir)
	if err := vfs.WriteFile(c.fs[lag], c.fs[lag].PathJoin(dir, name), data); err != nil {
		t.Fatal(err)
	}
	s, err := logstore.Open(c.fs[lag], "log", logstore.Options{SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	old, staged := groupOf(t, s, "shard-0"), groupOf(t, s, "incoming")
	term, err := old.GetUint64([]byte("CurrentTerm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Reset(info.Index); err != nil {
		t.Fatal(err)
	}
	if err := raftlog.CarryVote(old, staged, info.Term); err != nil {
		t.Fatal(err)
	}
	if err := s.Adopt("incoming", "shard-0"); err != nil {
		t.Fatal(err)
	}
	if got, err := groupOf(t, s, "shard-0").GetUint64([]byte("CurrentTerm")); err != nil || got < max(term, info.Term) {
		t.Fatalf("term %d after %d, %v", got, term, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	c.start(t, lag)
	want = append(want, "last")
	c.waitApplied(t, lag, c.propose(t, "last"))
	release()
	if got := c.nodes[lag].fsm.all(); !slices.Equal(got, want) {
		t.Fatalf("it has %d commands, want %d", len(got), len(want))
	}
	for i := range c.nodes {
		c.stop(t, i)
	}
}

// TestAMemberLetsGoOfWhatItsLeaderNeverHad: a leader has entries behind its snapshot that nobody else has, and nothing before them in its
// log, when it goes away. Its successor has others in their place (T9).
func TestAMemberLetsGoOfWhatItsLeaderNeverHad(t *testing.T) {
	c := three{pull: true}
	for i := range c.fs {
		c.fs[i] = vfs.NewCrashableMem()
		c.start(t, i)
	}
	var want []string
	for n := range 5 {
		want = append(want, fmt.Sprint("c", n))
		idx := c.propose(t, want[n])
		for i := range c.nodes {
			c.waitApplied(t, i, idx)
		}
	}
	old := c.leader(t)
	g := c.nodes[old].group
	for i, t := range c.trans {
		if i != old {
			t.Disconnect(c.trans[old].LocalAddr())
			c.trans[old].Disconnect(t.LocalAddr())
		}
	}
	var sent sync.WaitGroup
	for range 3 {
		sent.Go(func() {
			if _, _, err := g.Propose(testCtx(t), []byte("nobody has it")); err == nil {
				t.Error("a command was applied by one of three members")
			}
		})
	}
	sent.Wait() // until it leads no more
	last := g.LastIndex()
	if err := g.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if snap, err := g.SnapshotIndex(); err != nil || snap+3 != last {
		t.Fatalf("the snapshot is at %d, the log ends at %d: %v", snap, last, err)
	}
	if first, err := g.FirstIndex(); err != nil || first+2 != last {
		t.Fatalf("the log has %d to %d: %v", first, last, err)
	}
	c.stop(t, old)

	for n := range 5 {
		want = append(want, fmt.Sprint("d", n))
		c.propose(t, want[len(want)-1])
	}
	c.start(t, old)
	want = append(want, "last")
	idx := c.propose(t, "last")
	for i := range c.nodes {
		c.waitApplied(t, i, idx)
		if got := c.nodes[i].fsm.all(); !slices.Equal(got, want) {
			t.Errorf("member %d has %v, want %v", i, got, want)
		}
	}
	for i := range c.nodes {
		c.stop(t, i)
	}
}

func groupOf(t *testing.T, s *logstore.Store, name string) *logstore.GroupLog {
	t.Helper()
	g, err := s.Group(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestWhatIsHeldStaysInTheLog: also when only this member is there.
func TestWhatIsHeldStaysInTheLog(t *testing.T) {
	n := mustOpen(t, vfs.NewCrashableMem(), func(c *raftlog.Config) { c.TrailingBytes = 1 })
	defer n.close(t)
	for i := range 20 {
		proposeTo(t, n, fmt.Sprint(i))
	}
	release := n.group.Hold(5)
	for range 2 {
		if err := n.group.Snapshot(testCtx(t)); err != nil {
			t.Fatal(err)
		}
		if first, err := n.group.FirstIndex(); err != nil || first > 5 {
			t.Fatalf("the log begins at %d, %v", first, err)
		}
		proposeTo(t, n, "more")
	}
	release()
	if err := n.group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if first, err := n.group.FirstIndex(); err != nil || first <= 5 || first > dataflow.LogIndex(n.group.LastIndex()) {
		t.Fatalf("the log begins at %d, %v", first, err)
	}
}

func proposeTo(t *testing.T, n *node, cmd string) {
	t.Helper()
	if _, _, err := n.group.Propose(testCtx(t), []byte(cmd)); err != nil {
		t.Fatal(err)
	}
}
