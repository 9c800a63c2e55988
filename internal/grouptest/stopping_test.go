package grouptest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// poll is how often a condition is looked at.
const poll = 10 * time.Millisecond

// voter is a producer of votes of its own.
type voter struct {
	*weir.Producer
	want tally
}

// vote sends n votes and waits until they are acknowledged.
func (v *voter) vote(ctx context.Context, n int) error {
	for range n {
		if err := v.AppendRow(ctx, dataflow.Row{dataflow.BigInt(v.want.Who), dataflow.BigInt(v.want.Rows)}); err != nil {
			return err
		}
		v.want.Total += v.want.Rows
		v.want.Rows++
	}
	return v.Flush(ctx)
}

// idleCall opens an AppendStream call at a node that stays open and sends nothing after its first row.
func idleCall(ctx context.Context, t *testing.T, addr string) weirv1.IngestService_AppendStreamClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	call, err := weirv1.NewIngestServiceClient(conn).AppendStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "votes", JsonRows: []byte(`{"who":-1,"n":0}`)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := call.Recv(); err != nil {
		t.Fatal(err)
	}
	return call
}

// TestProducersOutliveARollingRestart stops one node after the other, each with producers that were told of it alone: some in the
// middle of their rows, others with none. Each vote counts once, and nobody's open call is waited for until the drain is over.
func TestProducersOutliveARollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	const nodes = 3
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g := nodetest.OpenGroup(t, nodes, nodetest.Options{Shards: 3})
	g.Node(1).Deploy("p", tallySQL)
	var clients []*weir.Client
	var busy, idle []*voter
	for i := 1; i <= nodes; i++ {
		c := openClient(t, g.Node(i).GRPCAddr())
		knows(ctx, t, c, nodes)
		clients = append(clients, c)
		for kind, list := range map[string]*[]*voter{"busy": &busy, "idle": &idle} {
			p, err := c.OpenProducer(ctx, "votes", weir.ProducerConfig{Name: fmt.Sprint(kind, i), BatchBytes: 1 << 10, RetryFor: patience})
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, &voter{Producer: p, want: tally{Who: int64(len(busy) + len(idle))}})
		}
	}

	var voting sync.WaitGroup
	ended := make(chan struct{})
	for _, v := range busy {
		voting.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if err := v.vote(ctx, 300); err != nil {
					t.Errorf("voter %d: %v", v.want.Who, err)
					return
				}
			}
		})
	}
	// Whatever ends the test, the producers are not left behind.
	endVoting := sync.OnceFunc(func() { close(ended); voting.Wait() })
	defer endVoting()

	for i := 1; i <= nodes; i++ {
		for _, v := range idle {
			if err := v.vote(ctx, 3); err != nil {
				t.Fatal(err)
			}
		}
		for _, v := range busy {
			wantVotes(ctx, t, v.Producer, v.Stats().Appended+1)
		}
		call := idleCall(ctx, t, g.Node(i).GRPCAddr())
		g.Stop(i)
		if _, err := call.Recv(); nodetest.Reason(err) != dataflow.ReasonShuttingDown {
			t.Errorf("node %d ended an open call with %v", i, err)
		}
		for _, v := range idle {
			if err := v.vote(ctx, 3); err != nil { // goes on elsewhere
				t.Fatal(err)
			}
		}
		g.Start(i)
		for _, c := range clients {
			finds(ctx, t, c, g)
		}
	}
	endVoting()
	for _, v := range append(busy, idle...) {
		if err := v.Close(ctx); err != nil {
			t.Fatal(err)
		}
		a, err := clients[0].Get(ctx, "p.tally", weir.Key(v.want.Who), weir.ReadOptions{MinToken: v.Token()})
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(t, a.Row); got != v.want {
			t.Errorf("%+v, want %+v", got, v.want)
		}
	}
}

// finds waits until a client has been told where all nodes are: one that was started again is somewhere else.
func finds(ctx context.Context, t *testing.T, c *weir.Client, g *nodetest.Group) {
	t.Helper()
	there := make(map[string]bool)
	for _, n := range g.Nodes() {
		there[n.GRPCAddr()] = true
	}
	for {
		list, err := c.ListNodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		known := 0
		for _, n := range list {
			if there[n.GetGrpcAddr()] {
				known++
			}
		}
		if known == len(there) {
			return
		}
		if err := pause.For(ctx, poll); err != nil {
			t.Fatalf("the client knows %v: %v", list, err)
		}
	}
}

// wantVotes waits until n rows of a producer have been appended.
func wantVotes(ctx context.Context, t *testing.T, p *weir.Producer, n uint64) {
	t.Helper()
	for p.Stats().Appended < n {
		if err := pause.For(ctx, poll); err != nil {
			t.Fatal(err)
		}
	}
}
