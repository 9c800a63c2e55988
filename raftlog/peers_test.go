package raftlog_test

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/peernet/peernettest"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/transport"
)

// cluster is a group of members on nodes of their own, over TCP or over a network in memory.
type cluster struct {
	t     *testing.T
	net   *peernettest.Network // nil: TCP
	names []string
	mu    sync.Mutex
	addrs map[string]string
	nodes map[string]*peerNode
	fs    map[string]vfs.FS
	mod   func(*raftlog.Config) // of every member
}

// peerNode is a node with one member.
type peerNode struct {
	name  string
	net   *peernet.Net
	node  *node
	conns *gobForwards
}

// onBothNetworks runs a test over TCP, and over the network in memory in a bubble.
func onBothNetworks(t *testing.T, test func(*testing.T, *cluster)) {
	t.Run("tcp", func(t *testing.T) { test(t, newCluster(t, nil)) })
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newCluster(t, peernettest.New())) })
	})
}

func newCluster(t *testing.T, w *peernettest.Network) *cluster {
	return &cluster{t: t, net: w, names: []string{"n1", "n2", "n3"}, addrs: map[string]string{}, nodes: map[string]*peerNode{}, fs: map[string]vfs.FS{}}
}

func (c *cluster) resolve(node string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.addrs[node]
	return a, ok
}

// startAll starts the members that the group is made with.
func (c *cluster) startAll() {
	c.t.Helper()
	for _, name := range c.names {
		c.start(name, false)
	}
}

// start starts a member, at a new address each time.
func (c *cluster) start(name string, join bool) {
	c.t.Helper()
	cfg := peernet.Config{Self: peernet.Identity{Node: name, Data: "d-" + name}, Resolve: c.resolve}
	addr := "127.0.0.1:0"
	if c.net != nil {
		cfg.Network, addr = c.net.Host(name), name+":0"
	}
	n, err := peernet.Open(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := n.Listen(addr); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.addrs[name] = n.Addr().String()
	c.mu.Unlock()
	peers, err := transport.Over(n, "shard-0")
	if err != nil {
		c.t.Fatal(err)
	}
	if c.fs[name] == nil {
		c.fs[name] = vfs.NewCrashableMem()
	}
	p := &peerNode{name: name, net: n, conns: &gobForwards{net: n}}
	p.node, err = openNode(c.t, c.fs[name], func(cfg *raftlog.Config) {
		cfg.NodeID, cfg.Transport, cfg.Forward, cfg.Join = name, peers, p.conns, join
		cfg.ElectionTimeout = 300 * time.Millisecond
		if !join {
			for _, id := range c.names {
				cfg.Members = append(cfg.Members, raftlog.Member{ID: id})
			}
		}
		if c.mod != nil {
			c.mod(cfg)
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := p.conns.serve(p.node.group); err != nil {
		c.t.Fatal(err)
	}
	c.nodes[name] = p
	c.t.Cleanup(func() { c.stop(name) })
}

func (c *cluster) stop(name string) {
	c.t.Helper()
	p := c.nodes[name]
	if p == nil {
		return
	}
	delete(c.nodes, name)
	p.node.close(c.t)
	if err := p.net.Close(); err != nil {
		c.t.Error(err)
	}
	p.conns.wg.Wait()
}

func (c *cluster) group(name string) *raftlog.Group { return c.nodes[name].node.group }

// until waits for a fact that no channel tells.
func (c *cluster) until(what string, fact func() bool) {
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !fact(); {
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// leader waits until one of the named members leads, all of them know it, and it can commit.
func (c *cluster) leader(among ...string) string {
	c.t.Helper()
	if len(among) == 0 {
		for name := range c.nodes {
			among = append(among, name)
		}
	}
	var leader string
	c.until("one leads", func() bool {
		leader = ""
		for _, name := range among {
			if c.group(name).IsLeader() && slices.Contains(among, name) {
				leader = name
			}
		}
		for _, name := range among {
			if leader == "" || c.group(name).Leader() != leader {
				return false
			}
		}
		return c.group(leader).BarrierHere(testCtx(c.t)) == nil
	})
	return leader
}

// followers returns the running members that do not lead, in order.
func (c *cluster) followers(leader string) []string {
	var out []string
	for name := range c.nodes {
		if name != leader {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// wantEqual waits until all running members have applied the same commands, which it returns.
func (c *cluster) wantEqual() []string {
	c.t.Helper()
	leader := c.leader()
	if err := c.group(leader).BarrierHere(testCtx(c.t)); err != nil {
		c.t.Fatal(err)
	}
	want := c.nodes[leader].node.fsm.all()
	c.until("all members are equal", func() bool {
		for _, p := range c.nodes {
			if !slices.Equal(p.node.fsm.all(), want) {
				return false
			}
		}
		return true
	})
	return want
}

// propose proposes on a member until it is taken.
func (c *cluster) propose(on, cmd string) {
	c.t.Helper()
	c.until("a command is taken", func() bool {
		_, _, err := c.group(on).Propose(testCtx(c.t), []byte(cmd))
		if err == nil {
			return true
		}
		switch dataflow.ReasonOf(err) {
		case dataflow.ReasonNotLeader, dataflow.ReasonNodeUnreachable:
			return false
		}
		c.t.Fatal(err)
		return false
	})
}

// gobForwards is a Forwarder over the network between nodes: each stream is a connection.
type gobForwards struct {
	net *peernet.Net
	wg  sync.WaitGroup
}

const forwardService = "forward"

type gobReply struct {
	Index           dataflow.LogIndex
	Reason, Message string
	Stopped         bool
}

func replyOf(r gobReply) raftlog.ForwardReply {
	out := raftlog.ForwardReply{Index: r.Index, Stopped: r.Stopped}
	if r.Reason != "" {
		out.Err = &dataflow.Error{Reason: dataflow.Reason(r.Reason), Message: r.Message}
	}
	return out
}

func gobOf(r raftlog.ForwardReply) gobReply {
	out := gobReply{Index: r.Index, Stopped: r.Stopped}
	if r.Err != nil {
		out.Reason, out.Message = string(dataflow.ReasonOf(r.Err)), r.Err.Error()
	}
	return out
}

// gobStream is either end.
type gobStream struct {
	conn net.Conn
	enc  *gob.Encoder
	dec  *gob.Decoder
}

// Forward implements raftlog.Forwarder.
func (f *gobForwards) Forward(ctx context.Context, node, _ string, term uint64) (raftlog.ForwardStream, error) {
	c, err := f.net.Dial(ctx, node, forwardService)
	if err != nil {
		return nil, err
	}
	s := &gobClient{gobStream{c, gob.NewEncoder(c), gob.NewDecoder(c)}}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	var first gobReply
	if err := errors.Join(s.enc.Encode(term), s.dec.Decode(&first)); err != nil {
		return nil, err
	}
	return s, replyOf(first).Err
}

type gobClient struct{ gobStream }

func (s *gobClient) Send(b []byte) error { return s.enc.Encode(b) }
func (s *gobClient) Receive() (raftlog.ForwardReply, error) {
	var r gobReply
	err := s.dec.Decode(&r)
	return replyOf(r), err
}

type gobServer struct{ gobStream }

func (s *gobServer) Send(r raftlog.ForwardReply) error { return s.enc.Encode(gobOf(r)) }
func (s *gobServer) Receive() ([]byte, error) {
	var b []byte
	err := s.dec.Decode(&b)
	if err == nil && len(b) == 0 {
		return nil, io.EOF
	}
	return b, err
}

// serve answers streams until the Net is closed.
func (f *gobForwards) serve(g *raftlog.Group) error {
	lis, err := f.net.Listener(forwardService)
	if err != nil {
		return err
	}
	f.wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			f.wg.Go(func() {
				defer c.Close()
				s := &gobServer{gobStream{c, gob.NewEncoder(c), gob.NewDecoder(c)}}
				var term uint64
				if s.dec.Decode(&term) != nil {
					return
				}
				err := g.CheckForwards(term)
				if s.Send(raftlog.ForwardReply{Err: err}) == nil && err == nil {
					_ = g.ServeForwards(context.Background(), term, s)
				}
			})
		}
	})
	return nil
}

// sender submits numbered commands on one member, and knows what became of each.
type sender struct {
	name     string
	next     int
	pending  []*raftlog.Pending
	cmds     []string
	refused  map[string]error // for sure not applied
	unknown  map[string]error
	accepted map[string]int // applied, with the answer
}

func newSender(name string) *sender {
	return &sender{name: name, refused: map[string]error{}, unknown: map[string]error{}, accepted: map[string]int{}}
}

func (s *sender) submit(g *raftlog.Group) {
	s.next++
	cmd := fmt.Sprintf("%s-%05d", s.name, s.next)
	p, err := g.Submit([]byte(cmd))
	if err != nil {
		s.refused[cmd] = err
		return
	}
	s.pending, s.cmds = append(s.pending, p), append(s.cmds, cmd)
}

// settle waits for the outcomes of everything.
func (s *sender) settle(t *testing.T) {
	t.Helper()
	for i, p := range s.pending {
		select {
		case <-p.Done():
		case <-time.After(time.Minute):
			t.Fatalf("%s has no outcome", s.cmds[i])
		}
		_, v, err := p.Wait(testCtx(t))
		switch {
		case err == nil:
			s.accepted[s.cmds[i]] = v.(int)
		case dataflow.ReasonOf(err) == dataflow.ReasonOutcomeUnknown:
			s.unknown[s.cmds[i]] = err
		default:
			s.refused[s.cmds[i]] = err
		}
	}
	s.pending, s.cmds = nil, nil
}

// check compares what the sender knows with what the members applied.
func (s *sender) check(t *testing.T, applied []string) {
	t.Helper()
	at, last := map[string]int{}, ""
	for i, cmd := range applied {
		if at[cmd] != 0 {
			t.Errorf("%s is doubled", cmd)
		}
		at[cmd] = i + 1
		if cmd[:2] == s.name {
			if cmd < last {
				t.Errorf("%s comes after %s", cmd, last)
			}
			last = cmd
		}
	}
	for cmd, err := range s.refused {
		if at[cmd] != 0 {
			t.Errorf("%s was refused and applied: %v", cmd, err)
		}
	}
	for cmd, v := range s.accepted {
		if at[cmd] != v {
			t.Errorf("%s was answered %d, and is command %d", cmd, v, at[cmd])
		}
	}
}
