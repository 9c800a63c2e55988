package raftlog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
)

// three is a group of three members in one process over an in-memory network.
type three struct {
	fs    [3]vfs.FS
	nodes [3]*node
	trans [3]*raft.InmemTransport
	pull  bool // Config.PullSnapshots
	hold  bool
}

func (c *three) start(t *testing.T, i int) {
	t.Helper()
	members := []raftlog.Member{{ID: "n0", Addr: "a0"}, {ID: "n1", Addr: "a1"}, {ID: "n2", Addr: "a2"}}
	_, c.trans[i] = raft.NewInmemTransportWithTimeout(raft.ServerAddress(members[i].Addr), 500*time.Millisecond)
	for j, other := range c.trans {
		if other != nil && j != i {
			c.trans[i].Connect(other.LocalAddr(), other)
			other.Connect(c.trans[i].LocalAddr(), c.trans[i])
		}
	}
	n, err := openNode(t, c.fs[i], func(cfg *raftlog.Config) {
		cfg.NodeID, cfg.Members, cfg.Transport = members[i].ID, members, c.trans[i]
		cfg.ElectionTimeout = 200 * time.Millisecond
		cfg.TrailingBytes, cfg.PullSnapshots = 1, c.pull
	})
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[i] = n
}

func (c *three) stop(t *testing.T, i int) {
	t.Helper()
	for j, other := range c.trans {
		if other != nil && j != i {
			other.Disconnect(c.trans[i].LocalAddr())
		}
	}
	c.nodes[i].close(t)
	c.nodes[i], c.trans[i] = nil, nil
}

// leader waits until one of the running members leads and returns its number.
func (c *three) leader(t *testing.T) int {
	t.Helper()
	ctx := testCtx(t)
	for {
		var first *raftlog.Group
		var changed []<-chan struct{}
		for i, n := range c.nodes {
			if n == nil {
				continue
			}
			if first == nil {
				first = n.group
			}
			changed = append(changed, n.group.Changed())
			if n.group.IsLeader() {
				return i
			}
		}
		for len(changed) < 3 {
			changed = append(changed, nil)
		}
		select {
		case <-changed[0]:
		case <-changed[1]:
		case <-changed[2]:
		case <-ctx.Done():
			t.Fatal("nobody leads")
		}
	}
}

// propose proposes a command to whoever leads until it is taken.
func (c *three) propose(t *testing.T, cmd string) dataflow.LogIndex {
	t.Helper()
	for {
		idx, _, err := c.nodes[c.leader(t)].group.Propose(testCtx(t), []byte(cmd))
		if err == nil {
			return idx
		}
		if r := dataflow.ReasonOf(err); r != dataflow.ReasonNotLeader {
			t.Fatal(err)
		}
	}
}

func (c *three) waitApplied(t *testing.T, i int, idx dataflow.LogIndex) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.nodes[i].group.AppliedIndex() < idx {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("member %d has applied %d, not %d", i, c.nodes[i].group.AppliedIndex(), idx)
		}
	}
}

func TestGroupOfThreeSurvivesTheLossOfItsLeader(t *testing.T) {
	var c three
	for i := range c.fs {
		c.fs[i] = vfs.NewCrashableMem()
		c.start(t, i)
	}
	want := []string{"a", "b"}
	for _, cmd := range want {
		c.propose(t, cmd)
	}
	old := c.leader(t)
	follower := c.nodes[(old+1)%3]
	if err := follower.group.WaitLeader(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	_, _, err := follower.group.Propose(testCtx(t), []byte("x"))
	if e := wantReason(t, err, dataflow.ReasonNotLeader); e.Metadata["leader"] != fmt.Sprint("n", old) {
		t.Errorf("%v does not name the leader n%d: %v", err, old, e.Metadata)
	}

	c.stop(t, old)
	for i := range 150 { // enough that the log is cut and the lost member needs a snapshot
		want = append(want, fmt.Sprint("c", i))
		c.propose(t, want[len(want)-1])
	}
	if err := c.nodes[c.leader(t)].group.Snapshot(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	want = append(want, "last")
	last := c.propose(t, "last")

	c.start(t, old)
	for i := range c.nodes {
		c.waitApplied(t, i, last)
		if got := c.nodes[i].fsm.all(); !slices.Equal(got, want) {
			t.Errorf("member %d applied %d commands, want %d", i, len(got), len(want))
		}
	}
	for i := range c.nodes {
		c.stop(t, i)
	}
}
