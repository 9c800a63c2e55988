package peernet_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/peernet/peernettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// where is a Resolver whose answers tests change.
type where struct {
	mu    sync.Mutex
	addrs map[string]string
}

func (w *where) resolve(node string) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.addrs[node]
	return a, ok
}

func (w *where) set(node, addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.addrs == nil {
		w.addrs = map[string]string{}
	}
	w.addrs[node] = addr
}

// world is a group of nodes over a network.
type world struct {
	t     testing.TB
	net   *peernettest.Network // nil: TCP
	where where
}

// open opens a node, which listens. mod changes what is usual.
func (w *world) open(name string, mod func(*peernet.Config)) *peernet.Net {
	w.t.Helper()
	cfg := peernet.Config{Self: peernet.Identity{Node: name, Data: "data-" + name, GroupName: "weir"}, Resolve: w.where.resolve}
	addr := "127.0.0.1:0"
	if w.net != nil {
		cfg.Network, addr = w.net.Host(name), name+":0"
	}
	if mod != nil {
		mod(&cfg)
	}
	n, err := peernet.Open(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := n.Listen(addr); err != nil {
		w.t.Fatal(err)
	}
	w.where.set(name, n.Addr().String())
	w.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return n
}

// echo serves a service that says everything back.
func echo(t testing.TB, n *peernet.Net, service string) {
	t.Helper()
	l, err := n.Listener(service)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), n.Close()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// say sends a text over a connection and wants it back.
func say(t testing.TB, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("heard %q, %v", got, err)
	}
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return c
}

// onBoth runs a test over TCP, and over the network in memory in a bubble.
func onBoth(t *testing.T, test func(*testing.T, *world)) {
	t.Run("tcp", func(t *testing.T) { test(t, &world{t: t}) })
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, &world{t: t, net: peernettest.New()}) })
	})
}

func TestServicesOfOnePortAreApart(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.open("n1", nil), w.open("n2", nil)
		echo(t, b, "one")
		lis, err := b.Listener("two")
		if err != nil {
			t.Fatal(err)
		}
		one, err := a.Dial(ctx(t), "n2", "one")
		if err != nil {
			t.Fatal(err)
		}
		two, err := a.Dial(ctx(t), "n2", "two")
		if err != nil {
			t.Fatal(err)
		}
		say(t, one, "hello")
		there, err := lis.AcceptPeer()
		if err != nil {
			t.Fatal(err)
		}
		if p := there.Peer(); p.Node != "n1" || p.Data != "data-n1" || p.Service != "two" || p.Dialled {
			t.Errorf("the acceptor sees %+v", p)
		}
		if p := two.Peer(); p.Node != "n2" || p.Data != "data-n2" || !p.Dialled {
			t.Errorf("the dialler sees %+v", p)
		}
		if a, ok := there.RemoteAddr().(peernet.Addr); !ok || a.Node != "n1" {
			t.Errorf("the acceptor sees the address %v", there.RemoteAddr())
		}
		if _, err := b.Listener("two"); err == nil {
			t.Error("two serve one service")
		}
		bufs := net.Buffers{[]byte("ab"), []byte("c")}
		if n, err := two.WriteBuffers(&bufs); n != 3 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		got := make([]byte, 3)
		if _, err := io.ReadFull(there, got); err != nil || string(got) != "abc" {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// wantRefused checks that a connection is refused for a reason, by the given side.
func wantRefused(t *testing.T, err error, want peernet.Reason, theirs bool) {
	t.Helper()
	var r *peernet.Refusal
	if !errors.As(err, &r) || r.Reason != want || r.Theirs != theirs {
		t.Errorf("got %v, want %s (theirs: %v)", err, want, theirs)
	}
	if !errors.Is(err, &peernet.Refusal{Reason: want}) {
		t.Errorf("%v is not %s", err, want)
	}
}

func TestStrangersAreRefusedWithTheReason(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		echo(t, w.open("n1", func(c *peernet.Config) {
			c.Self.Group = "g1"
			c.Admit = func(p peernet.Peer) error {
				switch {
				case p.Node == "n9":
					return peernet.Deny(peernet.ReasonUnknownNode, p, "add it with weir cluster add")
				case p.Node == "n3" && p.Data != "data-n3":
					return peernet.Deny(peernet.ReasonData, p, "it lost its disk")
				}
				return nil
			}
		}), "x")
		dial := func(name string, mod func(*peernet.Config)) error {
			n := w.open(name, mod)
			c, err := n.Dial(ctx(t), "n1", "x")
			if err == nil {
				_ = c.Close()
			}
			if cerr := n.Close(); cerr != nil {
				t.Error(cerr)
			}
			return err
		}
		if err := dial("n2", nil); err != nil {
			t.Errorf("a new node of the group's name: %v", err)
		}
		if err := dial("n2", func(c *peernet.Config) { c.Self.Group = "g1"; c.Self.GroupName = "renamed" }); err != nil {
			t.Errorf("a node of the group: %v", err)
		}
		wantRefused(t, dial("n2", func(c *peernet.Config) { c.Self.Group = "g2" }), peernet.ReasonGroup, true)
		wantRefused(t, dial("n2", func(c *peernet.Config) { c.Self.GroupName = "other" }), peernet.ReasonGroup, true)
		wantRefused(t, dial("n9", nil), peernet.ReasonUnknownNode, true)
		wantRefused(t, dial("n3", func(c *peernet.Config) { c.Self.Data = "empty" }), peernet.ReasonData, true)
		wantRefused(t, dial("n2", func(c *peernet.Config) {
			c.Admit = func(p peernet.Peer) error { return peernet.Deny(peernet.ReasonData, p, "it is not who it was") }
		}), peernet.ReasonData, false)

		n := w.open("n2", nil)
		w.where.set("n7", mustResolve(t, w, "n1"))
		_, err := n.Dial(ctx(t), "n7", "x")
		wantRefused(t, err, peernet.ReasonTarget, true)
		_, err = n.Dial(ctx(t), "n1", "y")
		wantRefused(t, err, peernet.ReasonService, true)
		if _, err := n.Dial(ctx(t), "n8", "x"); !errors.Is(err, peernet.ErrNoAddress) {
			t.Errorf("a node without an address: %v", err)
		}
	})
}

func mustResolve(t *testing.T, w *world, node string) string {
	t.Helper()
	a, ok := w.where.resolve(node)
	if !ok {
		t.Fatalf("%s has no address", node)
	}
	return a
}

func TestWhoTellsWhoIsAtAnAddressAlsoToStrangers(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a := w.open("n1", func(c *peernet.Config) { c.Self.Group = "g1" })
		b := w.open("n2", func(c *peernet.Config) { c.Self.Group = "g2" })
		id, err := b.Who(ctx(t), a.Addr().String())
		if want := a.Self(); err != nil || id != want {
			t.Errorf("heard of %+v, %v; want %+v", id, err, want)
		}
		b.SetGroup("g3")
		if id, err := a.Who(ctx(t), b.Addr().String()); err != nil || id.Group != "g3" {
			t.Errorf("heard of %+v, %v", id, err)
		}
	})
}

func TestANodeThatMovesIsFoundAtTheNextDial(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.open("n1", nil), w.open("n2", nil)
		echo(t, b, "x")
		c, err := a.Dial(ctx(t), "n2", "x")
		if err != nil {
			t.Fatal(err)
		}
		say(t, c, "here")
		old := b.Addr().String()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the connection survived its node")
		}
		moved := w.open("n2", nil)
		echo(t, moved, "x")
		if old == moved.Addr().String() {
			t.Fatal("it did not move")
		}
		if c, err = a.Dial(ctx(t), "n2", "x"); err != nil {
			t.Fatal(err)
		}
		say(t, c, "there")
	})
}

// TestWhereNodesAreIsToldByThoseThatConnect has nodes connect, and be missed where they are not.
func TestWhereNodesAreIsToldByThoseThatConnect(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		met, missed := map[string]string{}, map[string]string{}
		note := func(in map[string]string) func(node, addr string) {
			return func(node, addr string) {
				mu.Lock()
				defer mu.Unlock()
				in[node] = addr
			}
		}
		a := w.open("n1", func(cfg *peernet.Config) {
			cfg.Met, cfg.Missed = func(p peernet.Peer) { note(met)(p.Node, p.Addr) }, note(missed)
		})
		b := w.open("n2", nil)
		echo(t, a, "x")
		if _, err := b.Dial(ctx(t), "n1", "x"); err != nil { // it does not know its own address yet
			t.Fatal(err)
		}
		b.SetAddr("n2.example:7712")
		if _, err := b.Dial(ctx(t), "n1", "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Dial(ctx(t), "n2", "unserved"); err == nil {
			t.Error("nobody serves it")
		}
		w.where.set("n3", b.Addr().String())
		if _, err := a.Dial(ctx(t), "n3", "x"); err == nil {
			t.Error("it is another node")
		}
		gone := b.Addr().String()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		w.where.set("n4", gone)
		if _, err := a.Dial(ctx(t), "n4", "x"); err == nil {
			t.Error("nobody is there")
		}
		mu.Lock()
		defer mu.Unlock()
		if want := map[string]string{"n2": "n2.example:7712"}; !maps.Equal(met, want) {
			t.Errorf("met %v, want %v", met, want)
		}
		if want := map[string]string{"n3": gone, "n4": gone}; !maps.Equal(missed, want) {
			t.Errorf("missed %v, want %v", missed, want)
		}
	})
}

func TestAConnectionThatNobodyAcceptsIsRefusedAsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: peernettest.New()}
		a, b := w.open("n1", nil), w.open("n2", nil)
		lis, err := b.Listener("x")
		if err != nil {
			t.Fatal(err)
		}
		var conns []net.Conn
		for {
			c, err := a.Dial(ctx(t), "n2", "x")
			if err != nil {
				wantRefused(t, err, peernet.ReasonBusy, true)
				break
			}
			conns = append(conns, c)
		}
		if len(conns) != 32 {
			t.Errorf("%d connections wait", len(conns))
		}
		if _, err := lis.Accept(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Dial(ctx(t), "n2", "x"); err != nil {
			t.Errorf("there is a place, but: %v", err)
		}
		if err := lis.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := conns[5].Read(make([]byte, 1)); err == nil {
			t.Error("a connection that nobody can accept any more is open")
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: peernettest.New()}
		a, b := w.open("n1", nil), w.open("n2", func(c *peernet.Config) { c.MaxConns = 2 })
		echo(t, b, "x")
		first, err := a.Dial(ctx(t), "n2", "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Dial(ctx(t), "n2", "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Dial(ctx(t), "n2", "x"); err == nil {
			t.Error("a third connection was accepted")
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := a.Dial(ctx(t), "n2", "x"); err != nil {
			t.Errorf("one has gone, but: %v", err)
		}
	})
}

func TestSilenceAndNoiseEndAHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: peernettest.New()}
		n := w.open("n1", nil)
		for what, bytes := range map[string]string{
			"silence": "", "half a head": "WEIRP", "HTTP": "GET / HTTP/1.1\r\nHost: n1\r\n\r\n", "too long": "WEIRPEER\x02\x00\xff\xff", "half a hello": "WEIRPEER\x02\x00\x05\x00abc",
		} {
			c, err := w.net.Host("stranger").Dial(ctx(t), n.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, bytes); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", what, err)
			}
			if d := time.Since(start); d > peernet.DefaultHelloTimeout {
				t.Errorf("%s held the node up for %v", what, d)
			}
			_ = c.Close()
		}
		// A node of a later version is told so.
		c, err := w.net.Host("n2").Dial(ctx(t), n.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "WEIRPEER\x03\x00\x03\x00new"); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 13)
		if _, err := io.ReadFull(c, head); err != nil || string(head[:10]) != "WEIRANSW\x02\x00" || peernet.Reason(head[12]) != peernet.ReasonVersion {
			t.Errorf("answered %q, %v", head, err)
		}
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.open("n1", nil), w.open("n2", nil)
		lis, err := b.Listener("x")
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.Dial(ctx(t), "n2", "x")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
		go func() {
			for {
				if _, err := lis.Accept(); err != nil {
					ended <- err
					return
				}
			}
		}()
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("no error")
			}
		}
		if _, err := a.Dial(ctx(t), "n2", "x"); !errors.Is(err, peernet.ErrClosed) {
			t.Errorf("a closed node dials: %v", err)
		}
		if _, err := b.Listener("y"); !errors.Is(err, peernet.ErrClosed) {
			t.Errorf("a closed node serves: %v", err)
		}
	})
}

func TestDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: peernettest.New()}
		a, b := w.open("n1", nil), w.open("n2", nil)
		echo(t, b, "x")
		for what, cut := range map[string]func(){
			"no way there": func() { w.net.Cut("n1", "n2") },
			"no way back":  func() { w.net.Cut("n2", "n1") },
			"a slow link":  func() { w.net.Delay("n1", "n2", time.Minute) },
		} {
			cut()
			c, cancel := context.WithTimeout(context.Background(), time.Second)
			start := time.Now()
			if _, err := a.Dial(c, "n2", "x"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(start))
			}
			cancel()
			w.net.Heal()
		}
		if _, err := a.Dial(ctx(t), "n2", "x"); err != nil {
			t.Error(err)
		}
	})
}

func TestTheNetworkInMemoryCutsDelaysAndHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: peernettest.New()}
		a, b := w.open("n1", nil), w.open("n2", nil)
		echo(t, b, "x")
		c, err := a.Dial(ctx(t), "n2", "x")
		if err != nil {
			t.Fatal(err)
		}
		heard := func(within time.Duration) error {
			if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
				t.Fatal(err)
			}
			_, err := io.ReadFull(c, make([]byte, 1))
			return err
		}
		w.net.Partition("n1", "n2")
		if _, err := io.WriteString(c, "a"); err != nil {
			t.Errorf("a sender notices the cut: %v", err)
		}
		if err := heard(time.Hour); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("heard through a cut: %v", err)
		}
		w.net.Heal()
		if err := heard(time.Second); err != nil {
			t.Errorf("what was sent while the link was cut is lost: %v", err)
		}
		w.net.Cut("n2", "n1")
		if _, err := io.WriteString(c, "b"); err != nil {
			t.Fatal(err)
		}
		if err := heard(time.Hour); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("heard through a cut: %v", err)
		}
		w.net.Heal()
		if err := heard(time.Second); err != nil {
			t.Error(err)
		}
		w.net.Delay("n1", "n2", 30*time.Millisecond)
		w.net.Delay("n2", "n1", 12*time.Millisecond)
		start := time.Now()
		if _, err := io.WriteString(c, "c"); err != nil {
			t.Fatal(err)
		}
		if err := heard(time.Second); err != nil || time.Since(start) != 42*time.Millisecond {
			t.Errorf("took %v, %v", time.Since(start), err)
		}
		w.net.Partition("n1", "n2")
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Write(make([]byte, 1<<20)); n != 256<<10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a window takes %d bytes, %v", n, err)
		}
		w.net.Reset("n1", "n2")
		if err := heard(time.Second); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after a reset: %v", err)
		}
	})
}
