package weir

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// leadingNode is a node of a fake group whose shards have leaders. All nodes share the logs.
type leadingNode struct {
	*fakeNode
	logs  *fakeServer
	group *leadingGroup
}

// leadingGroup is what its nodes agree on.
type leadingGroup struct {
	mu      sync.Mutex
	leaders []string            // by shard
	took    []map[string]int    // requests by shard and node
	refuse  map[string]error    // what a node ends calls with
	mute    map[string]struct{} // nodes that take rows and do not answer
}

func (n *leadingNode) OpenProducer(ctx context.Context, r *weirv1.OpenProducerRequest) (*weirv1.OpenProducerResponse, error) {
	return n.logs.OpenProducer(ctx, r)
}

func (n *leadingNode) AppendStream(call weirv1.IngestService_AppendStreamServer) error {
	var session *weirv1.ProducerSession
	pos := make(dataflow.Positions)
	for {
		m, err := call.Recv()
		if err != nil {
			return nil
		}
		r := m.GetAppend()
		if session == nil {
			session = r.GetProducer()
			if r.GetPreviousToken() != "" {
				t, err := dataflow.ParseToken(r.GetPreviousToken(), dataflow.GroupID{7})
				if err != nil {
					return err
				}
				pos = t.Positions
			}
		}
		shard := r.GetShards()[0].GetShard()
		n.group.mu.Lock()
		n.group.took[shard][n.name]++
		leader, refuse := n.group.leaders[shard], n.group.refuse[n.name]
		_, mute := n.group.mute[n.name]
		n.group.mu.Unlock()
		if refuse != nil {
			return refuse
		}
		if mute {
			<-call.Context().Done()
			return nil
		}
		a, err := n.logs.append(session, r.GetShards()[0])
		if err != nil {
			return err
		}
		pos.Advance(dataflow.Positions{{Stream: 1, Shard: dataflow.ShardID(shard)}: dataflow.Offset(a.GetShards()[0].GetNextOffset())})
		a.Token = dataflow.Token{Group: dataflow.GroupID{7}, Positions: pos}.String()
		answer := &weirv1.AppendStreamResponse{Appended: a, Leaders: []string{""}}
		if leader != n.name {
			answer.Leaders[0] = leader
		}
		if err := call.Send(answer); err != nil {
			return nil
		}
	}
}

// leading runs a test with a group of three nodes and a client that was given the first one's address. Shard i is led by node
// i mod 3.
func leading(t *testing.T, cfg Config, test func(t *testing.T, g *leadingGroup, logs *fakeServer, c *Client, w *fakeNet, nodes []*leadingNode)) {
	t.Helper()
	const shards = 6
	synctest.Test(t, func(t *testing.T) {
		w := &fakeNet{nodes: make(map[string]*bufconn.Listener)}
		logs := newFake(shards, "k")
		g := &leadingGroup{refuse: make(map[string]error), mute: make(map[string]struct{})}
		for i := range shards {
			g.leaders = append(g.leaders, fmt.Sprintf("n%d", i%3+1))
			g.took = append(g.took, make(map[string]int))
		}
		addrs := []string{"a:1", "b:1", "c:1"}
		var nodes []*leadingNode
		for i, a := range addrs {
			n := &leadingNode{fakeNode: &fakeNode{group: "g", name: fmt.Sprintf("n%d", i+1), told: told(addrs...)}, logs: logs, group: g}
			nodes = append(nodes, n)
			w.serve(t, a, n.fakeNode, n)
		}
		cfg.Addrs = addrs[:1]
		cfg.DialOptions = []grpc.DialOption{grpc.WithContextDialer(w.dial), grpc.WithTransportCredentials(insecure.NewCredentials())}
		c, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		test(t, g, logs, c, w, nodes)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			n.srv.Stop()
			<-n.done
		}
	})
}

// sentTo returns how many requests a shard's rows came in, by node, and forgets them.
func (g *leadingGroup) sentTo(shard int) map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	took := g.took[shard]
	g.took[shard] = make(map[string]int)
	return took
}

func (g *leadingGroup) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// feed appends rows, a piece at a time, until all have been acknowledged.
func feed(t *testing.T, p *Producer, first, n int) {
	t.Helper()
	for at := first; at < first+n; at += 100 {
		mustAppend(t, p, at, min(100, first+n-at))
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
}

// wantSent checks that all rows of each shard have gone to one node.
func (g *leadingGroup) wantSent(t *testing.T, want ...string) {
	t.Helper()
	for i, node := range want {
		if took := g.sentTo(i); len(took) != 1 || took[node] == 0 {
			t.Errorf("rows of shard %d went to %v, want %s", i, took, node)
		}
	}
}

func TestRowsGoToTheNodesThatLeadTheirShards(t *testing.T) {
	leading(t, Config{}, func(t *testing.T, g *leadingGroup, logs *fakeServer, c *Client, _ *fakeNet, _ []*leadingNode) {
		p := openProducer(t, c, ProducerConfig{BatchBytes: 200})
		feed(t, p, 0, 1000) // it finds out
		for i := range g.leaders {
			g.sentTo(i)
		}
		feed(t, p, 1000, 1000)
		g.wantSent(t, "n1", "n2", "n3", "n1", "n2", "n3")

		g.set(func() { g.leaders[0], g.leaders[1] = "n2", "n1" }) // leads move: the answers say so
		feed(t, p, 2000, 300)
		for i := range g.leaders {
			g.sentTo(i)
		}
		feed(t, p, 2300, 700)
		g.wantSent(t, "n2", "n1", "n3", "n1", "n2", "n3")

		token, err := dataflow.ParseToken(p.Token(), dataflow.GroupID{7})
		if err != nil {
			t.Fatal(err)
		}
		for i, rows := range logs.rows() {
			if at := token.Positions[dataflow.StreamShard{Stream: 1, Shard: dataflow.ShardID(i)}]; int(at) != len(rows) {
				t.Errorf("the token covers %d rows of shard %d, of %d", at, i, len(rows))
			}
		}
		mustClose(t, p)
		checkOnce(t, logs, 3000)
	})
}

func TestWithoutDiscoveryRowsGoToTheGivenNode(t *testing.T) {
	leading(t, Config{NoDiscovery: true}, func(t *testing.T, g *leadingGroup, logs *fakeServer, c *Client, _ *fakeNet, _ []*leadingNode) {
		p := openProducer(t, c, ProducerConfig{BatchBytes: 200})
		feed(t, p, 0, 1000)
		g.wantSent(t, "n1", "n1", "n1", "n1", "n1", "n1")
		mustClose(t, p)
		checkOnce(t, logs, 1000)
	})
}

func TestRowsGoAnotherWayWhenTheLeadersNodeDoesNotTakeThem(t *testing.T) {
	for name, breaks := range map[string]func(t *testing.T, g *leadingGroup, w *fakeNet, nodes []*leadingNode){
		// What would be final anywhere else: the node has not heard of the stream yet.
		"refuses": func(_ *testing.T, g *leadingGroup, _ *fakeNet, _ []*leadingNode) {
			g.set(func() { g.refuse["n2"] = refused(dataflow.Errorf(dataflow.ReasonStreamNotFound, "no such stream")) })
		},
		// The disk is the node's that is asked; and who has too much to do says so to the other nodes as well.
		"has little disk": func(_ *testing.T, g *leadingGroup, _ *fakeNet, _ []*leadingNode) {
			g.set(func() { g.refuse["n2"] = refused(dataflow.Errorf(dataflow.ReasonDiskLow, "little disk")) })
		},
		"is overloaded": func(_ *testing.T, g *leadingGroup, _ *fakeNet, _ []*leadingNode) {
			g.set(func() {
				g.refuse["n2"] = refused(dataflow.Errorf(dataflow.ReasonOverloaded, "much to do").WithRetry(time.Second))
			})
		},
		"is gone": func(_ *testing.T, _ *leadingGroup, w *fakeNet, nodes []*leadingNode) {
			w.stop("b:1", nodes[1].fakeNode)
		},
		"is silent": func(_ *testing.T, g *leadingGroup, _ *fakeNet, _ []*leadingNode) {
			g.set(func() { g.mute["n2"] = struct{}{} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			leading(t, Config{}, func(t *testing.T, g *leadingGroup, logs *fakeServer, c *Client, w *fakeNet, nodes []*leadingNode) {
				p := openProducer(t, c, ProducerConfig{BatchBytes: 200})
				feed(t, p, 0, 1000)
				breaks(t, g, w, nodes)
				began := time.Now()
				feed(t, p, 1000, 500)
				if d := time.Since(began); d > answerTime+2*answerTime/5 {
					t.Errorf("it took %v", d)
				}
				if s := p.Stats(); s.Appended+s.Duplicates != 1500 {
					t.Errorf("stats: %+v", s)
				}
				for i := range g.leaders {
					g.sentTo(i)
				}
				feed(t, p, 1500, 500)
				g.wantSent(t, "n1", "n1", "n3", "n1", "n1", "n3")

				if name == "is gone" {
					mustClose(t, p)
					checkOnce(t, logs, 2000)
					return
				}
				g.set(func() { clear(g.refuse); clear(g.mute) })
				time.Sleep(avoidFor)
				feed(t, p, 2000, 500)
				for i := range g.leaders {
					g.sentTo(i)
				}
				feed(t, p, 2500, 500)
				g.wantSent(t, "n1", "n2", "n3", "n1", "n2", "n3")
				mustClose(t, p)
				checkOnce(t, logs, 3000)
			})
		})
	}
}

func TestAFencedProducerIsFencedOnEveryWay(t *testing.T) {
	leading(t, Config{}, func(t *testing.T, _ *leadingGroup, _ *fakeServer, c *Client, _ *fakeNet, _ []*leadingNode) {
		p := openProducer(t, c, ProducerConfig{Name: "p", BatchBytes: 200})
		feed(t, p, 0, 1000)
		q := openProducer(t, c, ProducerConfig{Name: "p"})
		mustAppend(t, p, 1000, 100)
		if err := p.Flush(t.Context()); dataflow.ReasonOf(err) != dataflow.ReasonProducerFenced {
			t.Errorf("flush: %v", err)
		}
		kill(p)
		kill(q)
	})
}

func TestAShardsRowsMoveToAnotherNodeWhenNoneIsUnderWay(t *testing.T) {
	b := numbered(0, 100)
	w := newWindow("p", b.Schema, []int{0}, make([]dataflow.Seq, 1), 50)
	w.add(b, 0, b.N, time.Time{})
	w.sealAll()
	ack := &weirv1.AppendResponse{Shards: []*weirv1.ShardAppended{{}}}
	next := func() string {
		c, node := w.next(10, time.Time{})
		if c == nil {
			return "none"
		}
		return "to " + node
	}
	step := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%s: %s, want %s", what, got, want)
		}
	}
	step("first", next(), "to ")
	step("second", next(), "to ")
	w.lead(0, "n2")
	step("two are under way", next(), "none")
	for range 2 {
		if _, err := w.acknowledge(anyNode, ack); err != nil {
			t.Fatal(err)
		}
	}
	step("none is under way", next(), "to n2")
	if _, err := w.acknowledge(anyNode, ack); err == nil {
		t.Error("a node has acknowledged what was sent to another")
	}
	w.avoid("n2")
	step("n2 is avoided", next(), "none")
	w.rewind()
	step("after that", next(), "to ")
}

func TestRowsGatherWhileNoMoreMayBeUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := numbered(0, 1000)
		p := &Producer{cfg: ProducerConfig{InFlight: 1, Linger: time.Millisecond}, wake: make(chan struct{}, 1)}
		p.mu.w = newWindow("p", b.Schema, []int{0}, make([]dataflow.Seq, 1), 1<<20)
		p.mu.w.add(b, 0, 10, time.Now())
		if c, _, linger := p.nextChunk(); c != nil || !linger.Stop() {
			t.Fatal("the rows do not wait for company")
		}
		time.Sleep(time.Millisecond)
		c, _, _ := p.nextChunk()
		if c == nil || c.rows.N != 10 {
			t.Fatalf("after the linger: %+v", c)
		}
		for at := 10; at < b.N; at += 10 { // 99 times the linger
			p.mu.w.add(b, at, at+10, time.Now())
			time.Sleep(time.Millisecond)
			if c, _, linger := p.nextChunk(); c != nil || !linger.Stop() {
				t.Fatal("a second batch is under way")
			}
		}
		if _, err := p.mu.w.acknowledge(anyNode, &weirv1.AppendResponse{Shards: []*weirv1.ShardAppended{{}}}); err != nil {
			t.Fatal(err)
		}
		if c, _, _ = p.nextChunk(); c == nil || c.rows.N != 990 {
			t.Errorf("the rows that have gathered do not go together: %+v", c)
		}
	})
}
