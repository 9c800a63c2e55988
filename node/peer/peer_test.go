package peer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/peernet/peernettest"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/peer"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
	"github.com/weirdb/weir/raftlog/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is an FSM that remembers the commands, and answers with how many there are.
type journal struct {
	mu   sync.Mutex
	cmds []string
}

func (j *journal) Apply(_ dataflow.LogIndex, cmd []byte) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cmds = append(j.cmds, string(cmd))
	return len(j.cmds)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.cmds)
}

func (j *journal) Snapshot() (raftlog.Snapshot, error) { return nil, errors.New("none") }
func (j *journal) Restore(io.Reader) error             { return errors.New("none") }

// node is one of a group of three, with one log.
type node struct {
	net   *peernet.Net
	peers *peer.Peers
	store *logstore.Store
	group *raftlog.Group
	fsm   *journal
}

type group struct {
	t     *testing.T
	net   *peernettest.Network // nil: TCP
	mu    sync.Mutex
	addrs map[string]string
	nodes map[string]*node
}

var names = []string{"n1", "n2", "n3"}

func start(t *testing.T, w *peernettest.Network) *group {
	g := &group{t: t, net: w, addrs: map[string]string{}, nodes: map[string]*node{}}
	for _, name := range names {
		g.open(name)
	}
	return g
}

func (g *group) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *group) open(name string) {
	g.t.Helper()
	cfg := peernet.Config{Self: peernet.Identity{Node: name, Data: "d-" + name}, Resolve: func(node string) (string, bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		a, ok := g.addrs[node]
		return a, ok
	}}
	addr := "127.0.0.1:0"
	if g.net != nil {
		cfg.Network, addr = g.net.Host(name), name+":0"
	}
	n := &node{fsm: &journal{}}
	var err error
	n.net, err = peernet.Open(cfg)
	g.must(err)
	g.must(n.net.Listen(addr))
	g.mu.Lock()
	g.addrs[name] = n.net.Addr().String()
	g.mu.Unlock()
	n.peers, err = peer.Open(peer.Config{Net: n.net})
	g.must(err)
	trans, err := transport.Over(n.net, "shard-0")
	g.must(err)
	fs := vfs.NewCrashableMem()
	n.store, err = logstore.Open(fs, "log", logstore.Options{})
	g.must(err)
	log, err := n.store.Group("shard-0")
	g.must(err)
	n.group, err = raftlog.Open(raftlog.Config{
		Group: "shard-0", NodeID: name, FS: fs, Dir: "raft", Log: log, FSM: n.fsm, Transport: trans, Forward: n.peers,
		Members:         []raftlog.Member{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}},
		ElectionTimeout: time.Second, SnapshotBytes: -1,
		Logger: slog.New(slog.NewTextHandler(g.t.Output(), nil)),
	})
	g.must(err)
	n.peers.Serve("shard-0", n.group)
	g.nodes[name] = n
	g.t.Cleanup(func() { g.close(name) })
}

func (g *group) close(name string) {
	g.t.Helper()
	n := g.nodes[name]
	if n == nil {
		return
	}
	delete(g.nodes, name)
	if err := errors.Join(n.group.Close(), n.peers.Close(), n.store.Close(), n.net.Close()); err != nil {
		g.t.Error(err)
	}
}

func (g *group) until(what string, fact func() bool) {
	g.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !fact(); {
		select {
		case <-tick.C:
		case <-deadline:
			g.t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// leader waits until all nodes agree on who leads.
func (g *group) leader() (leader string) {
	g.t.Helper()
	g.until("one leads", func() bool {
		leader = ""
		for name, n := range g.nodes {
			if n.group.IsLeader() {
				leader = name
			}
		}
		for _, n := range g.nodes {
			if leader == "" || n.group.Leader() != leader {
				return false
			}
		}
		return g.nodes[leader].group.BarrierHere(g.ctx()) == nil
	})
	return leader
}

func (g *group) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	g.t.Cleanup(cancel)
	return ctx
}

func onBoth(t *testing.T, test func(*testing.T, *peernettest.Network)) {
	t.Run("tcp", func(t *testing.T) { test(t, nil) })
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, peernettest.New()) })
	})
}

func TestCommandsGoToTheLeaderInOrderAndAreAnsweredByTheOwnReplica(t *testing.T) {
	onBoth(t, func(t *testing.T, w *peernettest.Network) {
		g := start(t, w)
		leader := g.leader()
		var wg sync.WaitGroup
		for name, n := range g.nodes {
			wg.Go(func() {
				var pending []*raftlog.Pending
				for i := range 200 {
					p, err := n.group.Submit(fmt.Appendf(nil, "%s-%03d", name, i))
					if err != nil {
						t.Error(err)
						return
					}
					pending = append(pending, p)
				}
				last := 0
				for i, p := range pending {
					_, v, err := p.Wait(g.ctx())
					if err != nil {
						t.Error(err)
						return
					}
					at := v.(int)
					if cmd := n.fsm.all()[at-1]; cmd != fmt.Sprintf("%s-%03d", name, i) || at <= last {
						t.Errorf("%s: command %d was answered %d, where %s is", name, i, at, cmd)
					}
					last = at
				}
			})
		}
		wg.Wait()
		for name, n := range g.nodes {
			if err := n.group.Barrier(g.ctx()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got, want := n.fsm.all(), g.nodes[leader].fsm.all(); len(want) != 600 || !slices.Equal(got, want) {
				t.Errorf("%s has %d commands, the leader %d", name, len(got), len(want))
			}
		}
	})
}

func TestAfterTheLossOfTheLeaderCommandsGoToTheNextOne(t *testing.T) {
	onBoth(t, func(t *testing.T, w *peernettest.Network) {
		g := start(t, w)
		old := g.leader()
		var other *node
		for name, n := range g.nodes {
			if name != old {
				other = n
			}
		}
		if _, _, err := other.group.Propose(g.ctx(), []byte("before")); err != nil {
			t.Fatal(err)
		}
		g.close(old)
		attempts, taken := 0, ""
		g.until("a command is taken", func() bool {
			attempts++
			cmd := fmt.Sprint("after-", attempts)
			_, _, err := other.group.Propose(g.ctx(), []byte(cmd))
			switch r := dataflow.ReasonOf(err); r {
			case "":
				taken = cmd
				return true
			case dataflow.ReasonNotLeader, dataflow.ReasonNodeUnreachable, dataflow.ReasonShuttingDown:
			case dataflow.ReasonOutcomeUnknown:
				// It was sent before this node noticed that the other had stopped, which can happen once.
				if attempts > 1 {
					t.Errorf("%s: %v", cmd, err)
				}
			default:
				t.Fatal(err)
			}
			return false
		})
		if got := other.fsm.all(); !slices.Equal(got, []string{"before", taken}) {
			t.Errorf("applied %v", got)
		}
	})
}

func TestWhoDoesNotLeadTakesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, w *peernettest.Network) {
		g := start(t, w)
		leader := g.leader()
		term := g.nodes[leader].group.Term()
		var from, third string
		for _, name := range names {
			if name != leader {
				from, third = third, name
			}
		}
		want := func(what, node, log string, term uint64, reason dataflow.Reason) {
			t.Helper()
			s, err := g.nodes[from].peers.Forward(g.ctx(), node, log, term)
			if s != nil && err == nil || dataflow.ReasonOf(err) != reason {
				t.Errorf("%s: %v, want %s", what, err, reason)
			}
		}
		want("a follower", third, "shard-0", term, dataflow.ReasonNotLeader)
		want("an old term", leader, "shard-0", term-1, dataflow.ReasonNotLeader)
		want("another log", leader, "shard-9", term, dataflow.ReasonNotLeader)
		want("nobody", "n9", "shard-0", term, dataflow.ReasonInternal) // which the group makes NODE_UNREACHABLE

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s, err := g.nodes[from].peers.Forward(ctx, leader, "shard-0", term)
		if err != nil {
			t.Fatal(err)
		}
		// After a refused command, those behind it are refused too, although there is nothing wrong with them.
		for _, b := range []string{"no frame", "\x01\x00\x00\x00\x00"} {
			if err := s.Send([]byte(b)); err != nil {
				t.Fatal(err)
			}
			r, err := s.Receive()
			if err != nil || !r.Stopped || dataflow.ReasonOf(r.Err) != dataflow.ReasonRequestInvalid {
				t.Errorf("got %+v, %v", r, err)
			}
		}
		cancel()
		if _, err := s.Receive(); err == nil {
			t.Error("the stream goes on after its context")
		}
	})
}
