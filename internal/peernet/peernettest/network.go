// Package peernettest is a network in memory, for peernet.Config.Network, whose links tests can cut, delay and heal. It
// blocks on channels and timers alone, so that it works in a bubble of testing/synctest.
//
// It behaves as TCP does. What is sent over a cut link is not lost: it arrives when the link is healed, unless somebody
// has given up the connection before; a sender notices nothing until its window is full, and a reader nothing at all.
// Who hangs up while the link is cut is not heard. Dialling over a cut link takes until the link is healed or the
// dialler's context ends. A link has two directions, which can be cut one by one.
package peernettest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/weirdb/weir/internal/peernet"
)

// window is how much a connection holds per direction before the sender waits, as a socket's buffers do.
const window = 256 << 10

// Network connects hosts. Its methods are safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	links     map[[2]string]*link // by from and to
	halves    map[*half]struct{}  // open
	ports     int
	changed   chan struct{} // closed and replaced when a link changes
}

// link is one direction between two hosts.
type link struct {
	cut   bool
	delay time.Duration
}

// New returns a network on which everybody reaches everybody.
func New() *Network {
	return &Network{
		listeners: make(map[string]*listener), links: make(map[[2]string]*link), halves: make(map[*half]struct{}),
		changed: make(chan struct{}),
	}
}

// Host returns the network as the named host sees it. Any address is free to listen on; one that ends in ":0" gets a
// port of its own.
func (w *Network) Host(name string) peernet.Network { return &host{w: w, name: name} }

// Partition cuts both directions between two hosts.
func (w *Network) Partition(a, b string) {
	w.change(func() { w.link(a, b).cut, w.link(b, a).cut = true, true })
}

// Cut cuts one direction.
func (w *Network) Cut(from, to string) { w.change(func() { w.link(from, to).cut = true }) }

// Isolate cuts a host off from others.
func (w *Network) Isolate(name string, others ...string) {
	for _, o := range others {
		w.Partition(name, o)
	}
}

// Delay makes what is sent in one direction from now on arrive later.
func (w *Network) Delay(from, to string, d time.Duration) {
	w.change(func() { w.link(from, to).delay = d })
}

// Mend undoes what was done to both directions between two hosts.
func (w *Network) Mend(a, b string) {
	w.change(func() { *w.link(a, b), *w.link(b, a) = link{}, link{} })
}

// Heal undoes all cuts and delays.
func (w *Network) Heal() {
	w.change(func() {
		for _, l := range w.links {
			*l = link{}
		}
	})
}

// Reset breaks the connections between two hosts, whatever the links are like.
func (w *Network) Reset(a, b string) {
	w.change(func() {
		for h := range w.halves {
			if h.from == a && h.to == b || h.from == b && h.to == a {
				h.reset = true
			}
		}
	})
}

// change does something to the links and wakes everybody.
func (w *Network) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
	close(w.changed)
	w.changed = make(chan struct{})
	for h := range w.halves {
		h.wakeLocked()
	}
}

// link returns a direction. The caller holds mu.
func (w *Network) link(from, to string) *link {
	k := [2]string{from, to}
	if w.links[k] == nil {
		w.links[k] = &link{}
	}
	return w.links[k]
}

// host is one host's view.
type host struct {
	w    *Network
	name string
}

// addr is an address in memory.
type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }

// Listen implements peernet.Network.
func (h *host) Listen(at string) (net.Listener, error) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if name, port, err := net.SplitHostPort(at); err == nil && port == "0" {
		h.w.ports++
		at = net.JoinHostPort(name, fmt.Sprint(10000+h.w.ports))
	}
	if h.w.listeners[at] != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, syscall.EADDRINUSE)
	}
	l := &listener{w: h.w, host: h.name, at: at, conns: make(chan *conn, 128), done: make(chan struct{})}
	h.w.listeners[at] = l
	return l, nil
}

// Dial implements peernet.Network.
func (h *host) Dial(ctx context.Context, at string) (net.Conn, error) {
	w := h.w
	for {
		w.mu.Lock()
		l, changed := w.listeners[at], w.changed
		if l == nil {
			w.mu.Unlock()
			return nil, fmt.Errorf("dial %s: %w", at, syscall.ECONNREFUSED)
		}
		there, back := w.link(h.name, l.host), w.link(l.host, h.name)
		reached, trip := !there.cut && !back.cut, there.delay+back.delay
		w.mu.Unlock()
		if reached {
			select {
			case <-time.After(trip):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			return w.connect(h.name, at, l)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (w *Network) connect(from, at string, l *listener) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports++
	local := addr(fmt.Sprintf("%s:%d", from, 10000+w.ports))
	out := &half{w: w, from: from, to: l.host, signal: make(chan struct{})}
	in := &half{w: w, from: l.host, to: from, signal: make(chan struct{})}
	mine := &conn{w: w, in: in, out: out, local: local, remote: addr(at)}
	theirs := &conn{w: w, in: out, out: in, local: addr(at), remote: local}
	if w.listeners[at] != l {
		return nil, fmt.Errorf("dial %s: %w", at, syscall.ECONNREFUSED)
	}
	select {
	case l.conns <- theirs:
		w.halves[out], w.halves[in] = struct{}{}, struct{}{}
		return mine, nil
	default:
		return nil, fmt.Errorf("dial %s: nobody accepts: %w", at, syscall.ECONNREFUSED)
	}
}

// listener is a net.Listener in memory.
type listener struct {
	w        *Network
	host, at string
	conns    chan *conn
	done     chan struct{}
	once     sync.Once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.w.mu.Lock()
		delete(l.w.listeners, l.at)
		l.w.mu.Unlock()
		close(l.done)
		for {
			select {
			case c := <-l.conns:
				_ = c.Close() // cannot fail
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return addr(l.at) }
