package chaostest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/weirdb/weir/internal/pause"
)

// rule says what becomes of the bytes that go one way between two nodes.
type rule struct {
	cut     bool          // they wait, as when packets are dropped: nobody is told
	swallow bool          // they are taken and lost, and the connection is broken when that is over
	refuse  bool          // new connections are broken off
	delay   time.Duration // they arrive later
	rate    int           // so many go through in a second; 0 = all
}

// way is what goes from one node to another, over connections that either has opened.
type way struct {
	mu      sync.Mutex
	rule    rule
	changed chan struct{} // closed when rule changes
}

func (w *way) now() (rule, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rule, w.changed
}

func (w *way) set(r rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = r
	close(w.changed)
	w.changed = make(chan struct{})
}

// open waits until the way is not cut.
func (w *way) open(ctx context.Context) (rule, error) {
	for {
		r, changed := w.now()
		if !r.cut {
			return r, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// link is where one node reaches another.
type link struct {
	from, to string
	l        net.Listener
	target   string
	out, in  *way

	mu    sync.Mutex
	conns map[*carried]bool
}

// carried is a connection that the proxy carries.
type carried struct {
	once sync.Once
	stop context.CancelFunc
	a, b net.Conn // b is nil until the other node has answered
	lost bool     // bytes of it were swallowed; guarded by the link's mu
}

// end closes both sides so that they notice at once.
func (c *carried) end() {
	c.once.Do(func() {
		c.stop()
		for _, conn := range []net.Conn{c.a, c.b} {
			if t, ok := conn.(*net.TCPConn); ok && t != nil {
				_ = t.SetLinger(0) // a reset
				_ = t.Close()
			}
		}
	})
}

// matrix is the network between the nodes: a link for each ordered pair.
type matrix struct {
	ways  map[[2]string]*way
	links map[[2]string]*link
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// newMatrix carries connections between nodes that listen at these addresses.
func newMatrix(addrs map[string]string) (*matrix, error) {
	m := &matrix{ways: make(map[[2]string]*way), links: make(map[[2]string]*link)}
	m.ctx, m.stop = context.WithCancel(context.Background())
	for a := range addrs {
		for b := range addrs {
			if a != b {
				m.ways[[2]string{a, b}] = &way{changed: make(chan struct{})}
			}
		}
	}
	for pair, w := range m.ways {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			m.close()
			return nil, err
		}
		k := &link{from: pair[0], to: pair[1], l: l, target: addrs[pair[1]], out: w, in: m.ways[[2]string{pair[1], pair[0]}], conns: make(map[*carried]bool)}
		m.links[pair] = k
		m.work.Go(func() { m.accept(k) })
	}
	return m, nil
}

// instead returns, for the addresses of the other nodes, those that a node dials.
func (m *matrix) instead(from string) map[string]string {
	out := make(map[string]string)
	for pair, k := range m.links {
		if pair[0] == from {
			out[k.target] = k.l.Addr().String()
		}
	}
	return out
}

func (m *matrix) close() {
	m.stop()
	for _, k := range m.links {
		_ = k.l.Close()
		k.reset(nil)
	}
	m.work.Wait()
}

func (m *matrix) accept(k *link) {
	for {
		c, err := k.l.Accept()
		if err != nil {
			return
		}
		m.work.Go(func() { m.carry(k, c) })
	}
}

func (m *matrix) carry(k *link, a net.Conn) {
	ctx, stop := context.WithCancel(m.ctx)
	c := &carried{a: a, stop: stop}
	k.mu.Lock()
	k.conns[c] = true
	k.mu.Unlock()
	defer func() {
		c.end()
		k.mu.Lock()
		delete(k.conns, c)
		k.mu.Unlock()
	}()
	// Both ways must be open for a connection to come about.
	out, err := k.out.open(ctx)
	if err != nil {
		return
	}
	in, err := k.in.open(ctx)
	if err != nil || out.refuse || in.refuse {
		return
	}
	if out.swallow {
		k.loses(c)
		_, _ = io.Copy(io.Discard, a) // until somebody gives up
		return
	}
	b, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", k.target)
	if err != nil {
		return
	}
	k.mu.Lock()
	c.b = b
	k.mu.Unlock()
	if ctx.Err() != nil {
		_ = b.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { k.copy(ctx, c, a, b, k.out) })
	both.Go(func() { k.copy(ctx, c, b, a, k.in) })
	both.Wait()
	// What was written before an orderly end still arrives.
	_, _ = a.Close(), b.Close()
}

func (k *link) loses(c *carried) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.lost = true
}

// copy carries bytes one way until the connection ends.
func (k *link) copy(ctx context.Context, c *carried, from, to net.Conn, w *way) {
	orderly := false
	defer func() {
		if !orderly {
			c.end()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if errors.Is(err, io.EOF) {
			if t, ok := to.(*net.TCPConn); ok {
				orderly = t.CloseWrite() == nil
			}
			return
		}
		if err != nil {
			return
		}
		r, err := w.open(ctx)
		if err != nil {
			return
		}
		if r.swallow {
			k.loses(c)
			continue
		}
		wait := r.delay
		if r.rate > 0 {
			wait += time.Duration(n) * time.Second / time.Duration(r.rate)
		}
		if wait > 0 && pause.For(ctx, wait) != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// reset breaks the connections that are chosen; nil = all.
func (k *link) reset(chosen func(*carried) bool) int {
	k.mu.Lock()
	var end []*carried
	for c := range k.conns {
		if chosen == nil || chosen(c) {
			end = append(end, c)
		}
	}
	k.mu.Unlock()
	for _, c := range end {
		c.end()
	}
	return len(end)
}

// set gives what goes from one node to another a rule.
func (m *matrix) set(from, to string, r rule) { m.ways[[2]string{from, to}].set(r) }

// reset breaks the connections between two nodes.
func (m *matrix) reset(a, b string) int {
	return m.links[[2]string{a, b}].reset(nil) + m.links[[2]string{b, a}].reset(nil)
}

// heal ends all rules. Connections that have lost bytes are broken: the two sides no longer mean the same.
func (m *matrix) heal() {
	for _, w := range m.ways {
		w.set(rule{})
	}
	for _, k := range m.links {
		k.reset(func(c *carried) bool { return c.lost })
	}
}

// freePorts returns ports of the loopback interface that nobody uses, below those that the system gives away: a node must
// find its port free again after it was killed.
func freePorts(n int, first int) ([]string, error) {
	var out []string
	for port := first; len(out) < n; port++ {
		if port >= 32000 {
			return nil, fmt.Errorf("there are no %d free ports", n)
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		out = append(out, addr)
	}
	return out, nil
}
