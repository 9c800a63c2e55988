package nodetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/peernet/peernettest"
	"github.com/weirdb/weir/internal/vfs"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Peer is a node's place in a group of several.
type Peer struct {
	ID, Addr string
	Network  peernet.Network
	Join     []string
	Expect   int
}

// Group is several nodes in one process, with a network in memory between them. Its methods are for one goroutine at a time.
type Group struct {
	// Net is the network between the nodes; hosts have the nodes' names.
	Net *peernettest.Network

	t     testing.TB
	opts  Options
	nodes []*Node
}

// OpenGroup runs a new group of so many nodes, called n1, n2, …, until the test ends. opts apply to each; its FS and Dir are
// not used.
func OpenGroup(t testing.TB, nodes int, opts Options) *Group {
	t.Helper()
	if opts.Shards == 0 {
		opts.Shards = 2
	}
	g := &Group{Net: peernettest.New(), t: t, opts: opts}
	var join []string
	for i := range nodes {
		join = append(join, peerAddr(nodeName(i)))
	}
	for i := range nodes {
		g.nodes = append(g.nodes, g.add(nodeName(i), opts, join, nodes))
	}
	g.start(g.nodes...)
	t.Cleanup(g.Close)
	return g
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

func peerAddr(node string) string { return node + ":7712" }

func (g *Group) add(name string, opts Options, join []string, expect int) *Node {
	opts.FS = vfs.NewCrashableMem()
	opts.Peer = &Peer{ID: name, Addr: peerAddr(name), Network: g.Net.Host(name), Join: join, Expect: expect}
	if opts.Logger == nil {
		opts.Logger = testLogger(g.t)
	}
	opts.Logger = opts.Logger.With("node", name)
	return &Node{t: g.t, opts: opts, fs: opts.FS}
}

// Add returns one more node, which does not run yet: its Start waits until the group has taken it in (AddNode).
func (g *Group) Add() *Node {
	name := nodeName(len(g.nodes))
	n := g.add(name, g.opts, []string{peerAddr(nodeName(0)), peerAddr(nodeName(1))}, 0)
	g.nodes = append(g.nodes, n)
	return n
}

// start opens nodes, which may wait for each other.
func (g *Group) start(nodes ...*Node) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all errgroup.Group
	for _, n := range nodes {
		all.Go(func() error {
			if err := n.start(ctx); err != nil {
				return fmt.Errorf("node %s: %w", n.opts.Peer.ID, err)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		g.t.Fatal(err)
	}
}

// Join takes one node more into the group, through node via, and waits until it is active.
func (g *Group) Join(via int) *Node {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n := g.Add()
	started := make(chan error, 1)
	go func() { started <- n.start(ctx) }()
	for _, what := range []func() (bool, error){
		func() (bool, error) {
			_, err := g.Node(via).Cluster().AddNode(ctx, &weirv1.AddNodeRequest{PeerAddr: n.opts.Peer.Addr, Node: n.opts.Peer.ID})
			r := Reason(err) // it may not listen yet, or another node moves
			if r == dataflow.ReasonUnreachable || r == dataflow.ReasonNodeConflict {
				return false, nil
			}
			return true, err
		},
		func() (bool, error) { return g.is(ctx, via, n.opts.Peer.ID, "active") },
	} {
		g.until(ctx, what)
	}
	if err := <-started; err != nil {
		g.t.Fatal(err)
	}
	return n
}

// Remove takes a node out of the group, through node via, and waits until it has left.
func (g *Group) Remove(via, i int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := g.Node(i).opts.Peer.ID
	g.until(ctx, func() (bool, error) {
		_, err := g.Node(via).Cluster().RemoveNode(ctx, &weirv1.RemoveNodeRequest{Node: name})
		if k := Reason(err).Kind(); err != nil && (k == dataflow.KindUnavailable || k == dataflow.KindUnknown) {
			return false, nil // the meta log changes its leader
		}
		return true, err
	})
	g.until(ctx, func() (bool, error) { return g.is(ctx, via, name, "gone") })
}

// is reports whether a node is in a state, as node via says.
func (g *Group) is(ctx context.Context, via int, node, state string) (bool, error) {
	st, err := g.Node(via).Cluster().GetStatus(ctx, &weirv1.GetStatusRequest{})
	for _, s := range st.GetNodes() {
		if s.GetNode() == node {
			return s.GetState() == state, err
		}
	}
	return false, err
}

func (g *Group) until(ctx context.Context, ok func() (bool, error)) {
	g.t.Helper()
	for {
		done, err := ok()
		if err == nil && !done {
			err = pause.For(ctx, 4*lookEvery)
		}
		if err != nil {
			g.t.Fatal(err)
		}
		if done {
			return
		}
	}
}

// Node returns a node by its number, from 1.
func (g *Group) Node(i int) *Node { return g.nodes[i-1] }

// Nodes returns all nodes.
func (g *Group) Nodes() []*Node { return g.nodes }

// Runs reports whether a node runs.
func (g *Group) Runs(i int) bool { return g.Node(i).running() != nil }

// Stop stops nodes in order.
func (g *Group) Stop(numbers ...int) {
	g.t.Helper()
	for _, i := range numbers {
		g.Node(i).Close()
	}
}

// Start runs stopped nodes again.
func (g *Group) Start(numbers ...int) {
	g.t.Helper()
	var nodes []*Node
	for _, i := range numbers {
		nodes = append(nodes, g.Node(i))
	}
	g.start(nodes...)
}

// Move says where the group's nodes are to be, in their order: those that do not run are started there, and with all of these as --join.
func (g *Group) Move(addrs ...string) {
	g.t.Helper()
	for i, n := range g.nodes {
		if n.running() == nil {
			n.opts.Peer.Addr, n.opts.Peer.Join = addrs[i], addrs
		} else if n.opts.Peer.Addr != addrs[i] {
			g.t.Fatalf("move node %s while it runs", n.opts.Peer.ID)
		}
	}
}

// KnowOnly leaves one address of --join to a node that does not run.
func (g *Group) KnowOnly(i int, addr string) { g.Node(i).opts.Peer.Join = []string{addr} }

// Kill pulls the plug of nodes: what was not synced is lost. They do not run afterwards.
func (g *Group) Kill(cfg vfs.CrashCloneCfg, numbers ...int) {
	g.t.Helper()
	for _, i := range numbers {
		n := g.Node(i)
		// First nobody hears it any more: what it says from here on is not on the disk that it will have.
		others := g.others(n)
		g.Net.Isolate(n.opts.Peer.ID, others...)
		for _, o := range others {
			g.Net.Reset(n.opts.Peer.ID, o)
		}
		after := n.fs.CrashClone(cfg)
		if err := n.shut(); err != nil {
			g.t.Logf("the killed node %s ended with: %v", n.opts.Peer.ID, err)
		}
		n.fs = after
		for _, o := range others {
			g.Net.Mend(n.opts.Peer.ID, o)
		}
	}
}

// others returns the names of the nodes beside n.
func (g *Group) others(n *Node) []string {
	var names []string
	for _, o := range g.nodes {
		if o != n {
			names = append(names, o.opts.Peer.ID)
		}
	}
	return names
}

// Isolate cuts a node off from all others.
func (g *Group) Isolate(i int) { g.Net.Isolate(g.Node(i).opts.Peer.ID, g.others(g.Node(i))...) }

// Close stops all nodes that run, at the same time: the last ones would wait for a majority.
func (g *Group) Close() {
	g.t.Helper()
	var all errgroup.Group
	for _, n := range g.nodes {
		if n.running() == nil {
			continue
		}
		all.Go(func() error {
			if err := n.shut(); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("stop node %s: %w", n.opts.Peer.ID, err)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		g.t.Error(err)
	}
}
