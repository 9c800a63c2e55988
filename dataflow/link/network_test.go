package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/peernet/peernettest"
)

// wire is an edge from one node to another over sockets, as the product connects them.
type wire struct {
	from, to         *peernet.Net
	sender           exchange.Sender
	inbox            *exchange.Inbox
	stop             context.CancelFunc // of the sender's part of the run
	fromEnds, toEnds chan error
}

func newWire(t testing.TB, secure bool) *wire {
	w := &wire{inbox: exchange.NewInbox(1, exchange.Credits), fromEnds: make(chan error, 1), toEnds: make(chan error, 1)}
	var ca *peernettest.Authority
	if secure {
		ca = peernettest.NewAuthority(t)
	}
	resolve := func(node string) (string, bool) {
		return map[string]*peernet.Net{"n0": w.from, "n1": w.to}[node].Addr().String(), true
	}
	var handlers sync.WaitGroup
	var hubs []*Hub
	for i, n := range []**peernet.Net{&w.from, &w.to} {
		cfg := peernet.Config{Self: peernet.Identity{Node: fmt.Sprint("n", i), Data: fmt.Sprint("data-", i), GroupName: "weir"}, Resolve: resolve}
		var err error
		if secure {
			if cfg.ServerTLS, cfg.ClientTLS, err = peernet.LoadTLS(ca.Write(t, t.TempDir(), cfg.Self.Node, 2)); err != nil {
				t.Fatal(err)
			}
		}
		if *n, err = peernet.Open(cfg); err != nil {
			t.Fatal(err)
		}
		if err := (*n).Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		hub := Open(Config{Node: cfg.Self.Node, Dial: func(ctx context.Context, node string) (net.Conn, error) {
			return (*n).Dial(ctx, node, "exchange")
		}})
		l, err := (*n).Listener("exchange")
		if err != nil {
			t.Fatal(err)
		}
		handlers.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				handlers.Go(func() { _ = hub.Handle(c) }) // the dialer is told
			}
		})
		hubs = append(hubs, hub)
	}
	t.Cleanup(func() {
		for _, h := range hubs {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(w.from.Close(), w.to.Close()); err != nil {
			t.Error(err)
		}
		handlers.Wait()
	})

	run := Run{Pipeline: 1, Incarnation: 1, Owners: []string{"n0", "n1"}}
	a, z := hubs[0].Links(run), hubs[1].Links(run)
	id := exchange.EdgeID{From: 0, To: 1}
	var err error
	if w.sender, err = a.Out(id, schema); err != nil {
		t.Fatal(err)
	}
	if err := z.In(id, schema, w.inbox.Edge(0), nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	linked := make(chan struct{}, 2)
	handlers.Go(func() { w.fromEnds <- a.Run(ctx, func() { linked <- struct{}{} }) })
	handlers.Go(func() { w.toEnds <- z.Run(context.Background(), func() { linked <- struct{}{} }) })
	<-linked
	<-linked
	return w
}

// drain takes n messages, and lets each go.
func drain(in *exchange.Inbox, n int, done chan<- struct{}) {
	for range n {
		in.Release((<-in.C()).Edge)
	}
	close(done)
}

// TestALinkOverSockets sends rows over TCP, in clear and with TLS, and ends in each of two ways.
func TestALinkOverSockets(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, broken := range []bool{false, true} {
			t.Run(fmt.Sprintf("tls=%v/broken=%v", secure, broken), func(t *testing.T) {
				w := newWire(t, secure)
				const messages = 300
				sent := make(chan error, 1)
				go func() {
					for i := range messages {
						if err := w.sender.Send(t.Context(), ints(1+i*41)); err != nil {
							sent <- err
							return
						}
					}
					sent <- w.sender.Send(t.Context(), barrier(9))
				}()
				for i := range messages {
					m := (<-w.inbox.C()).Message
					if n := 1 + i*41; m.Kind != exchange.KindRows || m.Rows.N != n || m.Rows.Cols[0].Ints[n-1] != int64(n-1)*977%1_000_000 {
						t.Fatalf("message %d is %s", i, m)
					}
					w.inbox.Release(0)
				}
				if m := (<-w.inbox.C()).Message; m.Barrier != 9 {
					t.Errorf("the last message is %s", m)
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
				var lost *LostError
				if broken {
					if err := w.from.Close(); err != nil {
						t.Error(err)
					}
					if err := <-w.fromEnds; !errors.As(err, &lost) || lost.Ended || dataflow.ReasonOf(err) != dataflow.ReasonPipelineRecovering {
						t.Errorf("the sender's node ended with %v", err)
					}
				} else {
					w.stop()
					if err := <-w.fromEnds; !errors.Is(err, context.Canceled) {
						t.Errorf("the sender's node ended with %v", err)
					}
				}
				if err := <-w.toEnds; !errors.As(err, &lost) || lost.Stopped == broken || dataflow.ReasonOf(err) != dataflow.ReasonPipelineRecovering {
					t.Errorf("the receiver's node ended with %v", err)
				}
				w.stop()
			})
		}
	}
}

// BenchmarkEdge sends batches over an edge to a receiver that takes them and lets them go: within a node, over TCP, and with TLS.
func BenchmarkEdge(b *testing.B) {
	measure := func(b *testing.B, sender exchange.Sender, in *exchange.Inbox, m exchange.Message) {
		b.ReportAllocs()
		done := make(chan struct{})
		go drain(in, b.N, done)
		b.ResetTimer()
		for range b.N {
			if err := sender.Send(b.Context(), m); err != nil {
				b.Fatal(err)
			}
		}
		<-done
		b.StopTimer()
		b.ReportMetric(float64(b.N)*float64(m.Rows.N)/b.Elapsed().Seconds(), "rows/s")
	}
	for _, rows := range []int{batch.TargetRows, 64} {
		b.Run(fmt.Sprintf("edge=local/rows=%d", rows), func(b *testing.B) {
			in := exchange.NewInbox(1, exchange.Credits)
			measure(b, in.Edge(0), in, ints(rows))
		})
		for name, secure := range map[string]bool{"tcp": false, "tls": true} {
			b.Run(fmt.Sprintf("edge=%s/rows=%d", name, rows), func(b *testing.B) {
				w := newWire(b, secure)
				measure(b, w.sender, w.inbox, ints(rows))
				w.stop()
				<-w.fromEnds
				<-w.toEnds
			})
		}
	}
}
