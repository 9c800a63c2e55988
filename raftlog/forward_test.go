package raftlog_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/peernet/peernettest"
	"github.com/weirdb/weir/raftlog"
)

func TestCommandsOfAllMembersAreAppliedInTheirOrderAndAnsweredWhereTheyCameFrom(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, c *cluster) {
		c.startAll()
		c.leader()
		var wg sync.WaitGroup
		var senders []*sender
		for name, p := range c.nodes {
			s := newSender(name)
			senders = append(senders, s)
			wg.Go(func() {
				for range 300 {
					s.submit(p.node.group)
				}
				s.settle(t)
			})
		}
		wg.Wait()
		applied := c.wantEqual()
		if len(applied) != 900 {
			t.Errorf("%d commands were applied", len(applied))
		}
		for _, s := range senders {
			if len(s.accepted) != 300 {
				t.Errorf("%s: %d accepted; refused %v, unknown %v", s.name, len(s.accepted), s.refused, s.unknown)
			}
			s.check(t, applied)
		}
	})
}

func TestABarrierOfAnyMemberShowsEverythingThatWasCommittedBefore(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		for i := range 20 {
			cmd := fmt.Sprint("c", i)
			if _, _, err := c.group(leader).ProposeHere(testCtx(t), []byte(cmd)); err != nil {
				t.Fatal(err)
			}
			for name, p := range c.nodes {
				if err := p.node.group.Barrier(testCtx(t)); err != nil {
					t.Fatal(err)
				}
				if got := p.node.fsm.all(); !slices.Contains(got, cmd) {
					t.Fatalf("%s does not show %s", name, cmd)
				}
			}
		}
		if got := c.wantEqual(); len(got) != 20 {
			t.Errorf("the state machine saw the barriers: %v", got)
		}
	})
}

func TestOnlyTheLeaderProposesHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, peernettest.New())
		c.startAll()
		leader := c.leader()
		g := c.group(c.followers(leader)[0])
		_, err := g.SubmitHere([]byte("x"))
		if e := wantReason(t, err, dataflow.ReasonNotLeader); e.Metadata["leader"] != leader {
			t.Errorf("%v does not name %s", err, leader)
		}
		_, _, err = g.ProposeHere(testCtx(t), []byte("x"))
		wantReason(t, err, dataflow.ReasonNotLeader)
		wantReason(t, g.BarrierHere(testCtx(t)), dataflow.ReasonNotLeader)
		wantReason(t, g.RemoveServer(testCtx(t), "n1"), dataflow.ReasonNotLeader)
		wantReason(t, g.Transfer(testCtx(t), leader), dataflow.ReasonNotLeader)
		_, err = g.Submit(make([]byte, raftlog.DefaultMaxEntryBytes+1))
		wantReason(t, err, dataflow.ReasonTooLarge)
	})
}

// keepSending submits on members that run, a little at a time, while something happens.
func (c *cluster) keepSending(senders []*sender, rounds int, during func(round int)) {
	for r := range rounds {
		during(r)
		for _, s := range senders {
			if p := c.nodes[s.name]; p != nil {
				for range 5 {
					s.submit(p.node.group)
				}
			}
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestTheLossOfTheLeaderLosesAndDoublesNothing(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, c *cluster) {
		c.startAll()
		old := c.leader()
		var senders []*sender
		for _, name := range c.followers(old) {
			senders = append(senders, newSender(name))
		}
		c.keepSending(senders, 150, func(r int) {
			switch r {
			case 30:
				c.stop(old)
			case 110:
				c.start(old, false) // at another address
			}
		})
		for _, s := range senders {
			s.settle(t)
		}
		applied := c.wantEqual()
		for _, s := range senders {
			s.check(t, applied)
			if len(s.accepted) < 200 {
				t.Errorf("%s: only %d accepted; %d refused, %d unknown", s.name, len(s.accepted), len(s.refused), len(s.unknown))
			}
			for cmd, err := range s.refused {
				if r := dataflow.ReasonOf(err); r != dataflow.ReasonNotLeader && r != dataflow.ReasonNodeUnreachable && r != dataflow.ReasonShuttingDown {
					t.Errorf("%s: %v", cmd, err)
				}
			}
			t.Logf("%s: %d accepted, %d refused, %d unknown", s.name, len(s.accepted), len(s.refused), len(s.unknown))
		}
	})
}

func TestAPartitionedLeaderIsReplacedAndItsCommandsAreUnknownOrRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, peernettest.New())
		c.startAll()
		old := c.leader()
		rest := c.followers(old)
		all := []*sender{newSender(old), newSender(rest[0]), newSender(rest[1])}
		c.keepSending(all, 200, func(r int) {
			switch r {
			case 20:
				c.net.Isolate(old, rest...)
			case 150:
				c.net.Heal()
			}
		})
		for _, s := range all {
			s.settle(t)
			t.Logf("%s: %d accepted, %d refused, %d unknown", s.name, len(s.accepted), len(s.refused), len(s.unknown))
		}
		applied := c.wantEqual()
		for _, s := range all {
			s.check(t, applied)
		}
		if len(all[0].unknown) == 0 || len(all[0].refused) == 0 {
			t.Errorf("the partitioned leader's commands: %d unknown, %d refused", len(all[0].unknown), len(all[0].refused))
		}
		for _, s := range all[1:] {
			if len(s.accepted) < 500 {
				t.Errorf("%s: only %d of 1000 were accepted", s.name, len(s.accepted))
			}
		}
	})
}

func TestAFollowerWhoseWayToTheLeaderIsCutRefusesAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, peernettest.New())
		c.startAll()
		leader := c.leader()
		cut := c.followers(leader)[0]
		s := newSender(cut)
		c.keepSending([]*sender{s}, 300, func(r int) {
			switch r {
			case 20:
				c.net.Cut(cut, leader) // it hears the leader, and cannot answer
			case 200:
				c.net.Heal()
			}
		})
		s.settle(t)
		s.check(t, c.wantEqual())
		if len(s.unknown) == 0 || len(s.accepted) < 500 {
			t.Errorf("%d accepted, %d refused, %d unknown", len(s.accepted), len(s.refused), len(s.unknown))
		}
	})
}

func TestAFollowerFarBehindGetsASnapshot(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, c *cluster) {
		c.mod = func(cfg *raftlog.Config) { cfg.TrailingBytes = 1 }
		c.startAll()
		leader := c.leader()
		away := c.followers(leader)[0]
		c.propose(away, "first")
		c.stop(away)
		for i := range 200 {
			c.propose(leader, fmt.Sprint("c", i))
		}
		if err := c.group(leader).Snapshot(testCtx(t)); err != nil {
			t.Fatal(err)
		}
		c.start(away, false)
		if got := c.wantEqual(); len(got) != 201 {
			t.Errorf("%d commands", len(got))
		}
		if n := len(c.nodes[away].node.fsm.indexes); n > 100 {
			t.Errorf("%d commands were replayed", n)
		}
		// Raft says that it has a snapshot a moment after the state machine has it, and before it applies anything else.
		c.propose(away, "last")
		if st := c.group(away).Stats(); st.SnapshotIndex == 0 {
			t.Errorf("it has no snapshot: %+v", st)
		}
	})
}

func TestTransferHandsOverWithoutAnUnknownOutcome(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, c *cluster) {
		c.startAll()
		var senders []*sender
		for _, name := range c.names {
			senders = append(senders, newSender(name))
		}
		old := c.leader()
		to := c.followers(old)[1]
		var wg sync.WaitGroup
		c.keepSending(senders, 100, func(r int) {
			if r == 20 {
				wg.Go(func() {
					if err := c.group(old).Transfer(testCtx(t), to); err != nil {
						t.Error(err)
					}
				})
			}
		})
		wg.Wait()
		if got := c.leader(); got != to {
			t.Errorf("%s leads", got)
		}
		for _, s := range senders {
			s.settle(t)
		}
		applied := c.wantEqual()
		for _, s := range senders {
			s.check(t, applied)
			if len(s.unknown) > 0 {
				t.Errorf("%s: unknown: %v", s.name, s.unknown)
			}
			if len(s.accepted) < 300 {
				t.Errorf("%s: %d of 500 accepted", s.name, len(s.accepted))
			}
		}
	})
}

func TestATransferThatFailsLeavesTheLeaderAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, peernettest.New())
		c.startAll()
		leader := c.leader()
		lost, other := c.followers(leader)[0], c.followers(leader)[1]
		c.net.Isolate(lost, leader, other)
		c.propose(leader, "a")
		for range 3 {
			if err := c.group(leader).Transfer(testCtx(t), lost); !errors.Is(err, raftlog.ErrNotTransferred) {
				t.Errorf("to a member that is cut off: %v", err)
			}
			c.propose(leader, "b")
		}
		if err := c.group(leader).Transfer(testCtx(t), "n9"); !errors.Is(err, raftlog.ErrNotTransferred) {
			t.Errorf("to nobody: %v", err)
		}
		if err := c.group(leader).Transfer(testCtx(t), other); err != nil {
			t.Error(err)
		}
		if got := c.leader(leader, other); got != other {
			t.Errorf("%s leads", got)
		}
		c.net.Heal()
		if got := c.wantEqual(); !slices.Equal(got, []string{"a", "b", "b", "b"}) {
			t.Errorf("applied %v", got)
		}
	})
}

func TestMembersComeAndGo(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		for i := range 50 {
			c.propose(leader, fmt.Sprint("c", i))
		}
		c.start("n4", true)
		if err := c.group(leader).AddNonvoter(testCtx(t), raftlog.Member{ID: "n4"}); err != nil {
			t.Fatal(err)
		}
		find := func(id string) (raftlog.MemberStatus, bool) {
			ms, err := c.group(leader).Members()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range ms {
				if m.ID == id {
					return m, true
				}
			}
			return raftlog.MemberStatus{}, false
		}
		c.until("the new member has caught up", func() bool {
			m, ok := find("n4")
			return ok && !m.Voter && !m.LastContact.IsZero() && m.Match >= c.group(leader).Stats().LastIndex
		})
		if err := c.group(leader).AddVoter(testCtx(t), raftlog.Member{ID: "n4"}); err != nil {
			t.Fatal(err)
		}
		if m, ok := find("n4"); !ok || !m.Voter {
			t.Errorf("n4 is %+v", m)
		}
		gone := c.followers(leader)[0]
		if err := c.group(leader).RemoveServer(testCtx(t), gone); err != nil {
			t.Fatal(err)
		}
		c.stop(gone)
		if _, ok := find(gone); ok {
			t.Errorf("%s is a member", gone)
		}
		c.propose("n4", "by the new one")
		if got := c.wantEqual(); len(got) != 51 {
			t.Errorf("%d commands", len(got))
		}
		// The new one can be left alone with one other.
		if err := c.group(leader).Transfer(testCtx(t), "n4"); err != nil {
			t.Fatal(err)
		}
		if got := c.leader(); got != "n4" {
			t.Fatalf("%s leads", got)
		}
		if since := time.Since(c.group(leader).LastContact()); since > 10*time.Second {
			t.Errorf("the leader was heard %v ago", since)
		}
		c.stop(leader)
		c.propose(c.followers("n4")[0], "two of three")
		c.wantEqual()
	})
}

func TestCloseOfAFollowerAnswersWhatItHasForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, peernettest.New())
		c.startAll()
		leader := c.leader()
		name := c.followers(leader)[0]
		s := newSender(name)
		s.submit(c.group(name))
		s.settle(t)
		c.net.Isolate(name, "n1", "n2", "n3")
		for range 20 {
			s.submit(c.group(name))
		}
		p := c.nodes[name]
		if err := p.node.group.Close(); err != nil {
			t.Error(err)
		}
		s.settle(t)
		if len(s.accepted) != 1 || len(s.unknown)+len(s.refused) != 20 {
			t.Errorf("%d accepted, %d refused, %d unknown", len(s.accepted), len(s.refused), len(s.unknown))
		}
		c.net.Heal()
		c.stop(name)
		s.check(t, c.wantEqual())
	})
}
