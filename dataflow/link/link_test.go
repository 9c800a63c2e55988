package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/exchange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// group is some nodes, a shard each, over connections in memory.
type group struct {
	t        *testing.T
	hubs     []*Hub
	handlers sync.WaitGroup
	// through, if set, may put something between the ends of a new connection, or refuse it.
	through func(from, to net.Conn) (net.Conn, net.Conn, error)
	check   func(exchange.Message) error // of the receivers; nil = none
}

func newGroup(t *testing.T, nodes int) *group {
	g := &group{t: t}
	for n := range nodes {
		g.hubs = append(g.hubs, Open(Config{Node: fmt.Sprint("n", n), Dial: g.dial}))
	}
	return g
}

func (g *group) close() {
	for _, h := range g.hubs {
		if err := h.Close(); err != nil {
			g.t.Error(err)
		}
	}
	g.handlers.Wait()
}

func (g *group) dial(_ context.Context, node string) (net.Conn, error) {
	a, b := net.Pipe()
	if g.through != nil {
		var err error
		if a, b, err = g.through(a, b); err != nil {
			return nil, err
		}
	}
	g.handlers.Go(func() { _ = g.hubs[int(node[1]-'0')].Handle(b) }) // the dialer is told
	return a, nil
}

var schema = dataflow.Schema{{Name: "k", Type: dataflow.TypeBigInt}}

// member is one node's part of a run of one stage with a number of inputs.
type member struct {
	t      *testing.T
	links  *Links
	inbox  *exchange.Inbox
	out    map[exchange.EdgeID]exchange.Sender
	linked chan struct{}
	cancel context.CancelCauseFunc
	ended  chan error
}

// start makes a node's part of an incarnation; the graph has every edge between the nodes' shards.
func (g *group) start(node int, inc dataflow.Incarnation, inputs int) *member {
	g.t.Helper()
	m := g.prepare(node, inc, inputs)
	m.run(g.t.Context())
	return m
}

func (g *group) prepare(node int, inc dataflow.Incarnation, inputs int) *member {
	r := Run{Pipeline: 1, Incarnation: inc, Program: "p"}
	for n := range g.hubs {
		r.Owners = append(r.Owners, fmt.Sprint("n", n))
	}
	m := &member{
		t: g.t, links: g.hubs[node].Links(r), inbox: exchange.NewInbox(inputs*len(g.hubs), exchange.Credits),
		out: make(map[exchange.EdgeID]exchange.Sender), linked: make(chan struct{}), ended: make(chan error, 1),
	}
	me := dataflow.ShardID(node)
	for in := range inputs {
		for n := range g.hubs {
			other := dataflow.ShardID(n)
			if n == node {
				continue
			}
			id := exchange.EdgeID{Input: in, From: me, To: other}
			var err error
			if m.out[id], err = m.links.Out(id, schema); err != nil {
				g.t.Fatal(err)
			}
			if err := m.links.In(exchange.EdgeID{Input: in, From: other, To: me}, schema, m.inbox.Edge(in*len(g.hubs)+n), g.check); err != nil {
				g.t.Fatal(err)
			}
		}
	}
	return m
}

func (m *member) run(ctx context.Context) {
	ctx, m.cancel = context.WithCancelCause(ctx)
	go func() { m.ended <- m.links.Run(ctx, func() { close(m.linked) }) }()
}

// stop ends the part and returns why it ended.
func (m *member) stop() error {
	m.cancel(nil)
	return <-m.ended
}

func (m *member) edge(input, from, to int) exchange.Sender {
	return m.out[exchange.EdgeID{Input: input, From: dataflow.ShardID(from), To: dataflow.ShardID(to)}]
}

func barrier(n int) exchange.Message {
	return exchange.Message{Kind: exchange.KindBarrier, Barrier: dataflow.CheckpointID(n)}
}

// TestABlockedEdgeHoldsUpItsSenderAlone is X1 to X4 between nodes: of an edge whose messages nobody deals with Credits are in
// flight, the sibling's barrier passes, and each credit that returns lets one more through.
func TestABlockedEdgeHoldsUpItsSenderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 2)
		a, b := g.start(0, 1, 2), g.start(1, 1, 2)
		sent := 0
		var sender sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		sender.Go(func() {
			for i := range 100 {
				if err := a.edge(0, 0, 1).Send(ctx, barrier(i+1)); err != nil {
					return
				}
				sent++
			}
		})
		synctest.Wait()
		if sent != exchange.Credits {
			t.Fatalf("%d messages were sent without an answer, want %d", sent, exchange.Credits)
		}
		if err := a.edge(1, 0, 1).Send(t.Context(), barrier(1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var order []string
		for range exchange.Credits + 1 {
			env := <-b.inbox.C()
			order = append(order, fmt.Sprintf("%d:%s", env.Edge, env.Message))
		}
		if got := strings.Join(order, " "); got != "0:barrier(1) 0:barrier(2) 0:barrier(3) 0:barrier(4) 2:barrier(1000)" {
			t.Errorf("came %s", got)
		}
		time.Sleep(time.Hour) // pings keep the stream alive; taking a message out of the inbox returns no credit (X3)
		if sent != exchange.Credits {
			t.Fatalf("%d messages were sent before any was dealt with", sent)
		}
		for i := range 10 {
			b.inbox.Release(0)
			synctest.Wait()
			if want := exchange.Credits + i + 1; sent != want {
				t.Fatalf("%d messages were sent after %d credits came back, want %d", sent, i+1, want)
			}
			<-b.inbox.C()
		}
		cancel()
		sender.Wait()
		if err := a.stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("a ended with %v", err)
		}
		var lost *LostError
		if err := <-b.ended; !errors.As(err, &lost) || !lost.Stopped {
			t.Errorf("b ended with %v", err)
		}
		g.close()
	})
}

// TestNodesStartInAnyOrder starts the acceptor, or the dialer, long after the other.
func TestNodesStartInAnyOrder(t *testing.T) {
	for _, late := range []int{0, 1} {
		for _, by := range []time.Duration{0, time.Second, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, 2)
				refused := 0
				g.through = func(a, b net.Conn) (net.Conn, net.Conn, error) {
					if refused++; refused%3 == 1 {
						return nil, nil, errors.New("nobody listens")
					}
					return a, b, nil
				}
				early := g.start(1-late, 1, 1)
				time.Sleep(by)
				other := g.start(late, 1, 1)
				<-early.linked
				<-other.linked
				if err := early.edge(0, 1-late, late).Send(t.Context(), barrier(7)); err != nil {
					t.Fatal(err)
				}
				if env := <-other.inbox.C(); env.Barrier != 7 {
					t.Errorf("came %s", env.Message)
				}
				early.cancel(nil)
				other.cancel(nil)
				<-early.ended
				<-other.ended
				g.close()
			})
		}
	}
}

// A node that never comes is waited for until the start is given up.
func TestAStartThatIsGivenUpEnds(t *testing.T) {
	for node := range 2 {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, 2)
			m := g.start(node, 1, 1)
			time.Sleep(time.Hour)
			boom := errors.New("boom")
			m.cancel(boom)
			if err := <-m.ended; !errors.Is(err, boom) {
				t.Errorf("node %d ended with %v", node, err)
			}
			g.close()
		})
	}
}

// swallow is a connection whose peer has gone without a word: what is written is lost, and nothing comes.
type swallow struct {
	net.Conn
	mu   sync.Mutex
	mute bool
}

func (s *swallow) muted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mute
}

func (s *swallow) Write(b []byte) (int, error) {
	if s.muted() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

func TestASilentPeerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 2)
		var mine, theirs *swallow
		g.through = func(a, b net.Conn) (net.Conn, net.Conn, error) {
			mine, theirs = &swallow{Conn: a}, &swallow{Conn: b}
			return mine, theirs, nil
		}
		a, b := g.start(0, 1, 1), g.start(1, 1, 1)
		<-a.linked
		<-b.linked
		time.Sleep(time.Hour)
		for _, s := range []*swallow{mine, theirs} {
			s.mu.Lock()
			s.mute = true
			s.mu.Unlock()
		}
		began := time.Now()
		var lost *LostError
		for _, m := range []*member{a, b} {
			if err := <-m.ended; !errors.As(err, &lost) || lost.Ended {
				t.Errorf("a node ended with %v", err)
			}
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the loss was seen after %v", took)
		}
		g.close()
	})
}

// TestALostWelcomeIsNoLostStream breaks the connection before the dialer has said that it takes the stream for connected (L5).
func TestALostWelcomeIsNoLostStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 2)
		tries := 0
		g.through = func(a, b net.Conn) (net.Conn, net.Conn, error) {
			if tries++; tries <= 3 {
				return a, &deaf{Conn: b}, nil
			}
			return a, b, nil
		}
		a, b := g.start(0, 1, 1), g.start(1, 1, 1)
		<-a.linked
		<-b.linked
		if tries != 4 {
			t.Errorf("%d tries, want 4", tries)
		}
		a.stop()
		<-b.ended
		g.close()
	})
}

// deaf is a connection that breaks when the acceptor answers.
type deaf struct{ net.Conn }

func (d *deaf) Write([]byte) (int, error) {
	_ = d.Close()
	return 0, io.ErrClosedPipe
}

// TestFencedNodes has nodes of different incarnations meet.
func TestFencedNodes(t *testing.T) {
	var stale *StaleError
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 3)
		// A recovery that reaches node 1 last: its older run ends by the newer one's first word.
		var old []*member
		for n := range 3 {
			old = append(old, g.start(n, 1, 1))
		}
		for _, m := range old {
			<-m.linked
		}
		old[0].stop()
		<-old[1].ended
		<-old[2].ended
		zombie := g.start(1, 2, 1)
		newer := g.start(0, 3, 1)
		if err := <-zombie.ended; !errors.As(err, &stale) || stale.Incarnation != 2 || stale.Newest != 3 || dataflow.ReasonOf(err) != dataflow.ReasonPipelineRecovering {
			t.Errorf("the older run ended with %v", err)
		}
		// The older one cannot be begun again, not even by a node that has not heard of the newer.
		if err := <-g.start(1, 2, 1).ended; !errors.As(err, &stale) {
			t.Errorf("the older run began again, and ended with %v", err)
		}
		late := g.start(0, 2, 1)
		if err := <-late.ended; !errors.As(err, &stale) {
			t.Errorf("an older run began, and ended with %v", err)
		}
		one, two := g.start(1, 3, 1), g.start(2, 3, 1)
		<-newer.linked
		<-one.linked
		<-two.linked
		newer.stop()
		<-one.ended
		<-two.ended
		g.close()
	})
	// A dialer of an older incarnation is told which one is known.
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 2)
		newer := g.start(1, 5, 1)
		synctest.Wait()
		if err := <-g.start(0, 4, 1).ended; !errors.As(err, &stale) || stale.Node != "n1" || stale.Newest != 5 {
			t.Errorf("the older run ended with %v", err)
		}
		newer.stop()
		// What has ended is over for its peers too.
		if err := <-g.start(0, 5, 1).ended; !errors.As(err, &stale) || stale.Newest != 5 || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("the run ended with %v", err)
		}
		g.hubs[1].Forget(1)
		g.close()
		if err := <-g.start(0, 9, 1).ended; !errors.Is(err, ErrClosed) {
			t.Errorf("a run began on a closed hub: %v", err)
		}
	})
}

func TestNodesThatDifferDoNotRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 2)
		for i, change := range []func(m *member) *member{
			func(m *member) *member { m.links.run.Program = "q"; return m },
			func(*member) *member { return g.prepare(0, 2, 3) },
		} {
			a := change(g.prepare(0, dataflow.Incarnation(i+1), 1))
			b := g.start(1, dataflow.Incarnation(i+1), 1)
			a.run(t.Context())
			var mismatch *MismatchError
			for _, m := range []*member{a, b} {
				if err := <-m.ended; !errors.As(err, &mismatch) {
					t.Errorf("case %d: a node ended with %v", i, err)
				}
			}
		}
		g.close()
	})
}

// ints returns a message of n rows.
func ints(n int) exchange.Message {
	b := batch.NewBatch(schema)
	for i := range n {
		b.Cols[0].AppendInt(int64(i) * 977 % 1_000_000)
	}
	b.N = n
	return exchange.Message{Kind: exchange.KindRows, Rows: b, Hashes: make([]uint64, n)}
}

// TestAStreamsQueueIsBoundedByItsBytes is L6: senders wait while the stream does not move, whatever credits they have, and they go
// on when it moves although no receiver deals with anything.
func TestAStreamsQueueIsBoundedByItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inputs = 16
		g := newGroup(t, 2)
		a := g.start(0, 1, inputs)
		m := ints(40_000) // 480 kB, 30 MB by all edges
		var sent atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var given, kept sync.WaitGroup
		send := func(g *sync.WaitGroup, ctx context.Context, input int) {
			g.Go(func() {
				for range exchange.Credits {
					if a.edge(input, 0, 1).Send(ctx, m) != nil {
						return
					}
					sent.Add(1)
				}
			})
		}
		for in := range inputs / 2 {
			send(&given, ctx, in)
		}
		synctest.Wait()
		p := a.links.pairs["n1"]
		p.mu.Lock()
		queued, frames := p.mu.bytes, len(p.mu.queue)
		p.mu.Unlock()
		if queued > maxQueued || queued < maxQueued/2 || int64(frames) != sent.Load() {
			t.Errorf("%d bytes in %d messages are queued, %d were sent", queued, frames, sent.Load())
		}
		cancel() // who gives up has sent nothing, and has its credit back
		given.Wait()
		before := sent.Load()
		for in := range inputs {
			id := exchange.EdgeID{Input: in, From: 0, To: 1}
			if e := p.out[id]; len(e.credits) != exchange.Credits-int(e.sent) {
				t.Errorf("%s has %d credits after %d messages", id, len(e.credits), e.sent)
			}
			kept.Go(func() {
				for range exchange.Credits - int(p.out[id].sent) {
					if err := a.edge(in, 0, 1).Send(t.Context(), m); err != nil {
						t.Error(err)
					}
					sent.Add(1)
				}
			})
		}
		synctest.Wait()
		if sent.Load() != before {
			t.Errorf("%d messages were sent with a full queue", sent.Load()-before)
		}
		b := g.start(1, 1, inputs)
		kept.Wait()
		synctest.Wait()
		if n := len(b.inbox.C()); n != inputs*exchange.Credits {
			t.Errorf("%d messages came, want %d", n, inputs*exchange.Credits)
		}
		a.cancel(nil)
		<-a.ended
		<-b.ended
		g.close()
	})
}

// slow is a connection that gives 64 KiB a second.
type slow struct{ net.Conn }

func (s *slow) Read(b []byte) (int, error) {
	<-time.After(time.Second) // of the bubble
	return s.Conn.Read(b[:min(len(b), 64<<10)])
}

// A message that takes longer than the silence that ends a stream is no silence.
func TestASlowNetworkIsNotALostPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 2)
		g.through = func(a, b net.Conn) (net.Conn, net.Conn, error) { return a, &slow{b}, nil }
		a, b := g.start(0, 1, 1), g.start(1, 1, 1)
		for range 3 {
			if err := a.edge(0, 0, 1).Send(t.Context(), ints(40_000)); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if env := <-b.inbox.C(); env.Rows.N != 40_000 {
				t.Errorf("came %s", env.Message)
			}
		}
		a.cancel(nil)
		<-a.ended
		<-b.ended
		g.close()
	})
}

// What is well-formed and yet none of the receiver's ends the run before the receiver sees it.
func TestAMessageThatTheReceiverRefusesEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 2)
		g.check = func(m exchange.Message) error {
			if m.Kind == exchange.KindRows {
				return dataflow.Errorf(dataflow.ReasonCorrupt, "a row of another shard")
			}
			return nil
		}
		a, b := g.start(0, 1, 1), g.start(1, 1, 1)
		for _, m := range []exchange.Message{barrier(1), ints(3)} {
			if err := a.edge(0, 0, 1).Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range []*member{a, b} {
			var lost *LostError
			if err := <-m.ended; !errors.As(err, &lost) || dataflow.ReasonOf(err) != dataflow.ReasonPipelineRecovering || !strings.Contains(err.Error(), "a row of another shard") {
				t.Errorf("a node ended with %v", err)
			}
		}
		if n := len(b.inbox.C()); n != 1 {
			t.Errorf("%d messages came, want the barrier alone", n)
		}
		g.close()
	})
}
