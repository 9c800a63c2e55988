package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// unreachable runs a test with a client of three nodes that cannot be reached, in a way of its own each: nothing listens, or a port takes
// connections and is silent as that of a paused process, or it
// says something else than gRPC, or nothing.
func unreachable(t *testing.T, retryFor time.Duration, how [3]string, test func(t *testing.T, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ways := make(map[string]string)
		cfg := Config{RetryFor: retryFor}
		for i, h := range how {
			addr := fmt.Sprintf("%c:1", 'a'+i)
			cfg.Addrs, ways[addr] = append(cfg.Addrs, addr), h
		}
		var open []net.Conn
		dial := func(_ context.Context, addr string) (net.Conn, error) {
			if ways[addr] == "refused" {
				return nil, errors.New("connect: connection refused")
			}
			here, there := net.Pipe()
			open = append(open, there)
			if ways[addr] == "closes" {
				time.AfterFunc(time.Millisecond, func() { _ = there.Close() })
			}
			go func() {
				b := make([]byte, 1024)
				for {
					if _, err := there.Read(b); err != nil {
						return
					}
					switch ways[addr] {
					case "redis":
						_, _ = there.Write([]byte("-ERR unknown command 'PRI'\r\n"))
					case "http":
						_, _ = there.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
					}
				}
			}()
			return here, nil
		}
		cfg.DialOptions = []grpc.DialOption{grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials())}
		c, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		test(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	})
}

// verbs are the calls that try again, for as long as a client, a producer or a watch was told.
var verbs = map[string]func(ctx context.Context, c *Client, d time.Duration) error{
	"call": func(ctx context.Context, c *Client, _ time.Duration) error {
		_, err := c.Get(ctx, "p.t", Key("x"), ReadOptions{})
		return err
	},
	"producer": func(ctx context.Context, c *Client, d time.Duration) error {
		_, err := c.OpenProducer(ctx, "s", ProducerConfig{RetryFor: d})
		return err
	},
	"watch": func(ctx context.Context, c *Client, d time.Duration) (last error) {
		for _, err := range c.Watch(ctx, "p.t", WatchOptions{RetryFor: d}) {
			last = err
		}
		return last
	},
}

func wantTook(t *testing.T, what string, d time.Duration, call func() error) {
	t.Helper()
	start := time.Now()
	err := call()
	if took := time.Since(start); took < d || took > d+500*time.Millisecond || dataflow.ReasonOf(err).Kind() != dataflow.KindUnavailable {
		t.Errorf("%s for %s gave up after %s: %v", what, d, took, err)
	}
}

// TestTriesTakeAsLongAsWasAsked: neither less, when the next pause would be longer than what is left, nor more, when a node takes connections
// and says nothing.
func TestTriesTakeAsLongAsWasAsked(t *testing.T) {
	for _, d := range []time.Duration{2 * time.Second, 10 * time.Second} {
		for what, call := range verbs {
			for _, how := range [][3]string{{"refused", "refused", "refused"}, {"silent", "silent", "silent"}, {"refused", "silent", "redis"}} {
				unreachable(t, d, how, func(t *testing.T, c *Client) {
					wantTook(t, fmt.Sprintf("%s at nodes that are %s", what, how), d, func() error { return call(t.Context(), c, d) })
				})
			}
		}
	}
}

// TestTriesAtANodeThatIsNotReadyTakeAsLongAsWasAsked: it answers at once, each time.
func TestTriesAtANodeThatIsNotReadyTakeAsLongAsWasAsked(t *testing.T) {
	for _, d := range []time.Duration{2 * time.Second, 10 * time.Second} {
		f := &fakeQueries{answer: func(int) (*weirv1.Cut, error) {
			return nil, refused(dataflow.Errorf(dataflow.ReasonNodeNotReady, "node n1 does not serve yet").WithRetry(time.Second))
		}}
		synctest.Test(t, func(t *testing.T) {
			c, stop := serve(t, Config{RetryFor: d}, func(s *grpc.Server) { weirv1.RegisterQueryServiceServer(s, f) })
			defer stop()
			wantTook(t, "a call", d, func() error { return verbs["call"](t.Context(), c, d) })
		})
	}
}

// freezing is a connection whose other end can be paused: it takes what is written and says nothing any more.
type freezing struct {
	net.Conn
	frozen *atomic.Bool
}

func (c *freezing) Write(p []byte) (int, error) {
	if c.frozen.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// freezable runs a test with a client of nodes, of which the first can be paused.
// It takes slow to connect to one.
func freezable(t *testing.T, d, slow time.Duration, addrs []string, rows weirv1.IngestServiceServer, test func(t *testing.T, c *Client, pause func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fakeNet{nodes: make(map[string]*bufconn.Listener)}
		var nodes []*fakeNode
		for i, a := range addrs {
			n := &fakeNode{group: "g", name: fmt.Sprintf("n%d", i+1), told: told(addrs...)}
			w.serve(t, a, n, rows)
			nodes = append(nodes, n)
		}
		var frozen atomic.Bool
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			if frozen.Load() && addr == addrs[0] { // the system takes the connection
				here, there := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, there) }()
				return here, nil
			}
			time.Sleep(slow)
			conn, err := w.dial(ctx, addr)
			if err == nil && addr == addrs[0] {
				conn = &freezing{conn, &frozen}
			}
			return conn, err
		}
		c, err := Open(Config{Addrs: addrs, RetryFor: d,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials())}})
		if err != nil {
			t.Fatal(err)
		}
		test(t, c, func() { frozen.Store(true) })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			n.srv.Stop()
			<-n.done
		}
	})
}

// TestANodeThatFallsSilentLeavesTheOthersTheirTime: that it has, is known after longer than servers are looked for.
func TestANodeThatFallsSilentLeavesTheOthersTheirTime(t *testing.T) {
	freezable(t, 2*time.Second, 200*time.Millisecond, []string{"a:1", "b:1", "c:1"}, newFake(2), func(t *testing.T, c *Client, pause func()) {
		if n := from(t, c); n != "n1" {
			t.Errorf("the first answer is %s's", n)
		}
		pause()
		start := time.Now()
		if n, took := from(t, c), time.Since(start); n != "n2" || took > pingAfter+pingTimeout+time.Second {
			t.Errorf("then %s has answered, after %s", n, took)
		}
	})
}

// TestTheTimeInWhichANodeIsFoundSilentCounts for a producer that has no other node: it has been away that long.
func TestTheTimeInWhichANodeIsFoundSilentCounts(t *testing.T) {
	const d = 20 * time.Second
	freezable(t, d, 0, []string{"a:1"}, newFake(2), func(t *testing.T, c *Client, pause func()) {
		p := openProducer(t, c, ProducerConfig{RetryFor: d})
		mustAppend(t, p, 0, 10)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		pause()
		mustAppend(t, p, 10, 10)
		wantTook(t, "a producer", d, func() error { return p.Close(t.Context()) })
	})
}

// TestANodeThatIsSilentIsPassedOver while there is time for the others.
func TestANodeThatIsSilentIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeNet{nodes: make(map[string]*bufconn.Listener)}
		f := w.run(t, "b:1", &fakeNode{group: "g", name: "n2", told: told("a:1", "b:1")})
		here, there := net.Pipe()
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "a:1" {
				return here, nil
			}
			return w.dial(ctx, addr)
		}
		c, err := Open(Config{Addrs: []string{"a:1", "b:1"}, RetryFor: 2 * time.Second,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials())}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if n, took := from(t, c), time.Since(start); n != "n2" || took > 1100*time.Millisecond {
			t.Errorf("%s has answered after %s", n, took)
		}
		if err := errors.Join(c.Close(), there.Close()); err != nil {
			t.Error(err)
		}
		f.srv.Stop()
		<-f.done
	})
}

// TestEachNodeThatCannotBeReachedIsNamedWithTheReason, and what is the same for all is said once.
func TestEachNodeThatCannotBeReachedIsNamedWithTheReason(t *testing.T) {
	for _, tc := range []struct {
		how  [3]string
		want string
	}{
		{[3]string{"refused", "refused", "refused"}, "no server answers at a:1, b:1, c:1: connection refused"},
		{[3]string{"http", "closes", "closes"}, "no server answers at a:1: what answers there speaks HTTP and no gRPC; at b:1: it ends the connection without a word"},
		{[3]string{"refused", "silent", "redis"}, "no server answers at a:1: connection refused; at b:1: it takes no calls, or too slowly; at c:1: what answers there speaks no gRPC; it may be the port for Redis clients, or another program's"},
	} {
		unreachable(t, time.Second, tc.how, func(t *testing.T, c *Client) {
			_, err := c.Status(t.Context())
			if dataflow.ReasonOf(err) != dataflow.ReasonUnreachable || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
