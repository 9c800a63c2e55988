package weir

import (
	"context"
	"fmt"
	"net"
	"strings"
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

// fakeNode is one node of a fake group: it says who is in the group, and answers reads and appends, or refuses them.
type fakeNode struct {
	weirv1.UnimplementedClusterServiceServer
	weirv1.UnimplementedQueryServiceServer
	weirv1.UnimplementedIngestServiceServer
	group, name string
	told        []*weirv1.NodeAddress
	srv         *grpc.Server
	done        chan struct{}

	mu     sync.Mutex
	refuse error // what reads are refused with
	reads  int
	asked  int // calls of ListNodes
}

func (f *fakeNode) ListNodes(context.Context, *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return &weirv1.ListNodesResponse{ClusterId: f.group, Node: f.name, Nodes: f.told}, nil
}

func (f *fakeNode) Get(context.Context, *weirv1.GetRequest) (*weirv1.GetResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.refuse != nil {
		return nil, f.refuse
	}
	return &weirv1.GetResponse{Row: []byte(fmt.Sprintf(`{"from":%q}`, f.name)), Cut: &weirv1.Cut{Pipeline: "p", Node: f.name}}, nil
}

func (f *fakeNode) Append(context.Context, *weirv1.AppendRequest) (*weirv1.AppendResponse, error) {
	return &weirv1.AppendResponse{Rows: 1, Token: f.name}, nil
}

func (f *fakeNode) setRefuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

func (f *fakeNode) counts() (reads, asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads, f.asked
}

// fakeNet is a network of fake nodes, by address. Where none is, nobody answers.
type fakeNet struct {
	mu    sync.Mutex
	nodes map[string]*bufconn.Listener
}

func (n *fakeNet) run(t *testing.T, addr string, f *fakeNode) *fakeNode {
	t.Helper()
	n.serve(t, addr, f, f)
	return f
}

// serve is run with another service for rows.
func (n *fakeNet) serve(t *testing.T, addr string, f *fakeNode, rows weirv1.IngestServiceServer) {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	f.srv, f.done = grpc.NewServer(grpc.WaitForHandlers(true), pings()), make(chan struct{})
	weirv1.RegisterClusterServiceServer(f.srv, f)
	weirv1.RegisterQueryServiceServer(f.srv, f)
	weirv1.RegisterIngestServiceServer(f.srv, rows)
	go func() {
		defer close(f.done)
		if err := f.srv.Serve(lis); err != nil {
			t.Errorf("serve %s: %v", addr, err)
		}
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[addr] = lis
}

func (n *fakeNet) stop(addr string, f *fakeNode) {
	n.mu.Lock()
	delete(n.nodes, addr)
	n.mu.Unlock()
	f.srv.Stop()
	<-f.done
}

func (n *fakeNet) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	lis := n.nodes[addr]
	n.mu.Unlock()
	if lis == nil {
		return nil, fmt.Errorf("connect %s: refused", addr)
	}
	return lis.DialContext(ctx)
}

func told(addrs ...string) (out []*weirv1.NodeAddress) {
	for i, a := range addrs {
		out = append(out, &weirv1.NodeAddress{Node: fmt.Sprintf("n%d", i+1), State: "active", GrpcAddr: a})
	}
	return out
}

// group runs a test with a client and three nodes at a:1, b:1 and c:1, of which the client is told of those in addrs.
func group(t *testing.T, cfg Config, test func(t *testing.T, w *fakeNet, c *Client, nodes []*fakeNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fakeNet{nodes: make(map[string]*bufconn.Listener)}
		addrs := []string{"a:1", "b:1", "c:1"}
		var nodes []*fakeNode
		for i, a := range addrs {
			nodes = append(nodes, w.run(t, a, &fakeNode{group: "g", name: fmt.Sprintf("n%d", i+1), told: told(addrs...)}))
		}
		cfg.DialOptions = []grpc.DialOption{grpc.WithContextDialer(w.dial), grpc.WithTransportCredentials(insecure.NewCredentials())}
		c, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		test(t, w, c, nodes)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, f := range nodes {
			f.srv.Stop()
			<-f.done
		}
	})
}

// from says which node answers a read.
func from(t *testing.T, c *Client) string {
	t.Helper()
	a, err := c.Get(t.Context(), "p.t", Key("x"), ReadOptions{})
	if err != nil {
		return string(dataflow.ReasonOf(err))
	}
	return a.Cut.GetNode()
}

func TestAClientFindsTheNodesThatItWasNotToldOf(t *testing.T) {
	group(t, Config{Addrs: []string{"a:1"}}, func(t *testing.T, w *fakeNet, c *Client, nodes []*fakeNode) {
		if n := from(t, c); n != "n1" {
			t.Fatalf("the first answer is %s's", n)
		}
		synctest.Wait() // it has asked meanwhile
		w.stop("a:1", nodes[0])
		if n := from(t, c); n != "n2" {
			t.Errorf("without n1 it is %s", n)
		}
		w.stop("b:1", nodes[1])
		if n := from(t, c); n != "n3" {
			t.Errorf("without n2 it is %s", n)
		}
		nodes[0] = w.run(t, "a:1", nodes[0])
		if n := from(t, c); n != "n3" {
			t.Errorf("it does not stay with n3, which answers: %s", n)
		}
		nodes[1] = w.run(t, "b:1", nodes[1])
		time.Sleep(learnEvery)
		from(t, c)
		synctest.Wait()
		if _, asked := nodes[2].counts(); asked < 2 {
			t.Errorf("n3 was asked %d times who is there", asked)
		}
	})
}

func TestANodeThatLagsOrLeadsNothingIsLeft(t *testing.T) {
	for name, err := range map[string]error{
		"not the leader":     refused(dataflow.Errorf(dataflow.ReasonNotLeader, "no")),
		"too old":            refused(dataflow.Errorf(dataflow.ReasonCutTooOld, "no").WithMeta("nodes", "n2")),
		"behind the session": refused(dataflow.Errorf(dataflow.ReasonTokenNotReached, "no").WithMeta("behind", "n1")),
		"stopping":           refused(dataflow.Errorf(dataflow.ReasonShuttingDown, "no")),
	} {
		t.Run(name, func(t *testing.T) {
			// It has not answered anything yet when it fails: it is asked then where the others are.
			group(t, Config{Addrs: []string{"a:1"}}, func(t *testing.T, _ *fakeNet, c *Client, nodes []*fakeNode) {
				nodes[0].setRefuse(err)
				if n := from(t, c); n != "n2" {
					t.Errorf("the answer is %s's", n)
				}
			})
		})
	}
	// One that starts speaks of itself when it says when to ask again.
	group(t, Config{Addrs: []string{"a:1", "b:1"}, RetryFor: time.Minute}, func(t *testing.T, _ *fakeNet, c *Client, nodes []*fakeNode) {
		nodes[0].setRefuse(refused(dataflow.Errorf(dataflow.ReasonNodeNotReady, "no").WithRetry(time.Hour)))
		began := time.Now()
		if n := from(t, c); n != "n2" || time.Since(began) > firstPause {
			t.Errorf("the answer is %s's, after %s", n, time.Since(began))
		}
	})
	// A pipeline that is slow is slow on every node.
	group(t, Config{Addrs: []string{"a:1"}}, func(t *testing.T, _ *fakeNet, c *Client, nodes []*fakeNode) {
		nodes[0].setRefuse(refused(dataflow.Errorf(dataflow.ReasonTokenNotReached, "not yet")))
		if n := from(t, c); n != string(dataflow.ReasonTokenNotReached) {
			t.Errorf("got %s", n)
		}
	})
}

func TestAnAddressThatLeadsElsewhereIsPassedOver(t *testing.T) {
	group(t, Config{Addrs: []string{"a:1"}}, func(t *testing.T, _ *fakeNet, c *Client, nodes []*fakeNode) {
		nodes[1].group = "another"                           // what n1 calls n2 is, from here, somebody else
		nodes[0].told = told("a:1", "b:1", "nowhere:1")      // and n3 nobody
		nodes[0].told = append(nodes[0].told, told(":1")...) // and what listens everywhere tells nobody where
		nodes[0].setRefuse(refused(dataflow.Errorf(dataflow.ReasonNotLeader, "no")))
		go func() {
			time.Sleep(time.Second)
			nodes[0].setRefuse(nil)
		}()
		if n := from(t, c); n != "n1" {
			t.Errorf("the answer is %s's", n)
		}
		if reads, asked := nodes[1].counts(); reads != 0 || asked == 0 {
			t.Errorf("the other group's node was asked who it is %d times, and for rows %d times", asked, reads)
		}
	})
}

func TestWithoutDiscoveryAClientKeepsToItsAddresses(t *testing.T) {
	group(t, Config{Addrs: []string{"a:1", "c:1"}, NoDiscovery: true}, func(t *testing.T, w *fakeNet, c *Client, nodes []*fakeNode) {
		if n := from(t, c); n != "n1" {
			t.Errorf("the first answer is %s's", n)
		}
		w.stop("a:1", nodes[0])
		if n := from(t, c); n != "n3" {
			t.Errorf("without n1 it is %s", n)
		}
		nodes[2].setRefuse(refused(dataflow.Errorf(dataflow.ReasonNotLeader, "no")))
		if n := from(t, c); n != string(dataflow.ReasonNotLeader) && n != string(dataflow.ReasonUnreachable) {
			t.Errorf("got %s", n)
		}
		for i, f := range nodes {
			if reads, asked := f.counts(); asked != 0 || i == 1 && reads != 0 {
				t.Errorf("node %d: %d reads, asked %d times", i+1, reads, asked)
			}
		}
	})
}

func TestACallThatMustNotBeMadeTwiceGoesToANodeThatIsThere(t *testing.T) {
	group(t, Config{Addrs: []string{"nowhere:1", "b:1"}, RetryFor: -1}, func(t *testing.T, _ *fakeNet, c *Client, _ []*fakeNode) {
		a, err := c.Append(t.Context(), Append{Stream: "s", JSON: []byte(`{}`)})
		if err != nil || a.GetToken() != "n2" {
			t.Errorf("%v, %v", a, err)
		}
	})
	group(t, Config{Addrs: []string{"nowhere:1", "nobody:1"}, RetryFor: -1}, func(t *testing.T, _ *fakeNet, c *Client, _ []*fakeNode) {
		_, err := c.Append(t.Context(), Append{Stream: "s", JSON: []byte(`{}`)})
		if dataflow.ReasonOf(err) != dataflow.ReasonUnreachable || !strings.Contains(err.Error(), "at nowhere:1: connect nowhere:1: refused; at nobody:1: connect nobody:1: refused") {
			t.Errorf("got %v", err)
		}
	})
}

func TestASessionIsTheLaterOfWhatTheClientAndOthersHaveSeen(t *testing.T) {
	token := func(uid, timeline, cut uint64) string {
		return dataflow.SessionToken{Pipeline: dataflow.PipelineUID(uid), Timeline: dataflow.Timeline(timeline), Checkpoint: dataflow.CheckpointID(cut)}.String()
	}
	for _, c := range []struct{ a, b, want string }{
		{"", token(1, 1, 1), token(1, 1, 1)},
		{token(1, 1, 9), token(1, 1, 10), token(1, 1, 10)},
		{token(1, 2, 1), token(1, 1, 10), token(1, 2, 1)},
		{token(2, 1, 0), token(1, 5, 10), token(2, 1, 0)},
	} {
		if newer(c.a, c.b) != c.want || newer(c.b, c.a) != c.want {
			t.Errorf("of %q and %q: %q", c.a, c.b, newer(c.a, c.b))
		}
	}
	var s sessions
	s.saw(cutOf("p", 2, 1, "second"))
	s.saw(cutOf("p", 1, 9, "first")) // a node that has not heard of the second deployment
	if got := s.token("p"); got != "second" {
		t.Errorf("the session goes back to %q", got)
	}
}
