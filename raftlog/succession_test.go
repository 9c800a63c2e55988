package raftlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/internal/peernet/peernettest"
	"github.com/weirdb/weir/raftlog"
)

// inBubble runs a test over the network in memory, with an election timeout of Raft's that is long beside everything else.
func inBubble(t *testing.T, test func(*testing.T, *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, peernettest.New())
		c.mod = func(cfg *raftlog.Config) { cfg.ElectionTimeout = longElection }
		test(t, c)
	})
}

const longElection = 5 * time.Second

// The bubble's clock stands still while anybody works, so what is soon there does not depend on the machine.

func TestASurvivorLeadsBeforeAnyElectionTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.startAll()
		old := c.leader()
		c.propose(old, "before")
		killed := time.Now()
		c.stop(old)
		c.leader()
		if d := time.Since(killed); d >= longElection {
			t.Errorf("a member leads after %v", d)
		}
	})
}

func TestACutConnectionCausesNoElection(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		term := c.group(leader).Term()
		for range 20 {
			for _, f := range c.followers(leader) {
				c.net.Reset(leader, f)
			}
			c.propose(leader, "x")
		}
		c.wantEqual()
		for name, p := range c.nodes {
			if g := p.node.group; g.Leader() != leader || g.Term() != term {
				t.Errorf("%s follows %s in term %d, not %s in term %d", name, g.Leader(), g.Term(), leader, term)
			}
		}
	})
}

// TestAMemberThatCannotBeReachedIsNotGone cuts the leader off: nothing refuses its connections, so it is lost only when it was
// silent for an election timeout.
func TestAMemberThatCannotBeReachedIsNotGone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		term := c.group(leader).Term()
		followers := c.followers(leader)
		c.net.Isolate(leader, followers...)
		for _, f := range followers {
			c.net.Reset(leader, f)
		}
		cut := time.Now()
		c.until("half an election timeout has passed", func() bool { return time.Since(cut) > longElection/2 })
		for _, f := range followers {
			if c.group(f).Term() != term {
				t.Errorf("%s is in term %d", f, c.group(f).Term())
			}
		}
		c.leader(followers...)
		c.net.Heal()
		c.wantEqual()
	})
}

func TestFollowersAreToldAtOnceWhatIsCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		c.wantEqual()
		for _, f := range c.followers(leader) {
			began := time.Now()
			if _, _, err := c.group(f).Propose(testCtx(t), []byte("x")); err != nil {
				t.Fatal(err)
			}
			// Raft tells followers after 50 ms, when nothing else is committed.
			if d := time.Since(began); d > 10*time.Millisecond {
				t.Errorf("%s has applied its command after %v", f, d)
			}
		}
	})
}

func TestAMemberThatComesBackGetsItsEntriesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		away := c.followers(leader)[0]
		c.stop(away)
		<-time.After(3 * time.Minute) // Raft tries it every ten seconds by now
		c.propose(leader, "meanwhile")
		began := time.Now()
		c.start(away, false)
		c.wantEqual()
		if d := time.Since(began); d > time.Second {
			t.Errorf("the member has everything after %v", d)
		}
	})
}
