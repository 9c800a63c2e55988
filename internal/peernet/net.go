package peernet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Net is a node's side of the network between nodes. Its methods are safe for concurrent use.
type Net struct {
	cfg Config

	ctx    context.Context // ends with Close; the lifetime of everything
	cancel context.CancelFunc
	wg     sync.WaitGroup // accept loop, hellos, and the watchers of dials

	mu struct {
		sync.Mutex
		self      Identity
		closed    bool
		listener  net.Listener
		services  map[string]*Listener
		conns     map[*Conn]struct{} // open, on both sides
		accepting map[net.Conn]struct{}
		accepted  int // of accepting and conns, those that were accepted here
	}
}

// Open returns a Net that dials. Listen makes it take connections. Close ends both.
func Open(cfg Config) (*Net, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Net{cfg: cfg}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.mu.self = cfg.Self
	n.mu.services = make(map[string]*Listener)
	n.mu.conns = make(map[*Conn]struct{})
	n.mu.accepting = make(map[net.Conn]struct{})
	return n, nil
}

// Self returns who this node is.
func (n *Net) Self() Identity {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.self
}

// SetAddr says where other nodes reach this one. Hellos from then on have it.
func (n *Net) SetAddr(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.self.Addr = addr
}

// SetGroup says what the group's id is, once it is known. Connections that are open stay.
func (n *Net) SetGroup(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.self.Group = id
}

// Listen binds the node's one address and takes connections from then on. A service that has no Listener yet is refused
// with ReasonService, which diallers try again.
func (n *Net) Listen(addr string) error {
	l, err := n.cfg.Network.Listen(addr)
	if err != nil {
		return fmt.Errorf("listen for nodes: %w", err)
	}
	n.mu.Lock()
	refused := error(nil)
	switch {
	case n.mu.closed:
		refused = ErrClosed
	case n.mu.listener != nil:
		refused = fmt.Errorf("listen for nodes on %s: this node listens on %s", addr, n.mu.listener.Addr())
	default:
		n.mu.listener = l
		n.wg.Go(func() { n.serve(l) })
	}
	n.mu.Unlock()
	if refused != nil {
		return errors.Join(refused, l.Close())
	}
	return nil
}

// Addr returns where this node listens; nil before Listen.
func (n *Net) Addr() net.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.listener == nil {
		return nil
	}
	return n.mu.listener.Addr()
}

// serve accepts until the listener is closed.
func (n *Net) serve(l net.Listener) {
	const first, most = 5 * time.Millisecond, time.Second
	for wait := first; ; {
		raw, err := l.Accept()
		switch {
		case err == nil:
			wait = first
			n.take(raw)
			continue
		case n.ctx.Err() != nil:
			return
		}
		// Out of file descriptors, most likely: those that are open will end.
		n.cfg.Logger.Warn("a connection of a node was not accepted", "err", err, "retry", wait)
		select {
		case <-time.After(wait):
			wait = min(2*wait, most)
		case <-n.ctx.Done():
			return
		}
	}
}

// take begins a hello on a goroutine of its own, or drops the connection when there are too many (N4): who cannot even
// be answered cheaply is not answered.
func (n *Net) take(raw net.Conn) {
	n.mu.Lock()
	ok := !n.mu.closed && n.mu.accepted < n.cfg.MaxConns
	if ok {
		n.mu.accepted++
		n.mu.accepting[raw] = struct{}{}
		n.wg.Go(func() { n.welcome(raw) })
	}
	n.mu.Unlock()
	if !ok {
		n.cfg.Logger.Warn("a connection of a node was dropped: there are too many", "addr", raw.RemoteAddr(), "limit", n.cfg.MaxConns)
		_ = raw.Close() // it was never used
	}
}

// Close ends the listeners and every connection, and waits for the goroutines of this package.
func (n *Net) Close() error {
	n.mu.Lock()
	if n.mu.closed {
		n.mu.Unlock()
		n.wg.Wait()
		return nil
	}
	n.mu.closed = true
	l := n.mu.listener
	services := make([]*Listener, 0, len(n.mu.services))
	for _, s := range n.mu.services {
		services = append(services, s)
	}
	conns := make([]net.Conn, 0, len(n.mu.conns)+len(n.mu.accepting))
	for c := range n.mu.conns {
		conns = append(conns, c)
	}
	for c := range n.mu.accepting {
		conns = append(conns, c)
	}
	n.mu.Unlock()

	n.cancel()
	var err error
	if l != nil {
		err = l.Close()
	}
	for _, s := range services {
		_ = s.Close() // cannot fail
	}
	for _, c := range conns {
		_ = c.Close() // nothing is promised about what is on the way
	}
	n.wg.Wait()
	return err
}

// Listener returns the connections of a service. It is for grpc.Server.Serve and the like; closing it ends the service
// and leaves its connections as they are.
func (n *Net) Listener(service string) (*Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return nil, ErrClosed
	}
	if service == "" || service == whoService || n.mu.services[service] != nil {
		return nil, fmt.Errorf("peernet: service %q is served already", service)
	}
	l := &Listener{n: n, service: service, places: make(chan struct{}, backlog), conns: make(chan *Conn, backlog), done: make(chan struct{})}
	n.mu.services[service] = l
	return l, nil
}

func (n *Net) listener(service string) *Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.services[service]
}

// Listener is a net.Listener of one service.
type Listener struct {
	n       *Net
	service string
	places  chan struct{} // held by connections that were promised a place and not taken
	conns   chan *Conn
	done    chan struct{}
	once    sync.Once
}

var _ net.Listener = (*Listener)(nil)

// Accept implements net.Listener. The connection is a *Conn.
func (l *Listener) Accept() (net.Conn, error) { return l.AcceptPeer() }

// AcceptPeer is Accept with the connection's type.
func (l *Listener) AcceptPeer() (*Conn, error) {
	select {
	case <-l.done:
		return nil, ErrClosed
	default:
	}
	select {
	case c := <-l.conns:
		<-l.places
		return c, nil
	case <-l.done:
		return nil, ErrClosed
	}
}

// Close implements net.Listener. It closes the connections that nobody has accepted.
func (l *Listener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		if l.n.mu.services[l.service] == l {
			delete(l.n.mu.services, l.service)
		}
		l.n.mu.Unlock()
		close(l.done)
		l.discard()
	})
	return nil
}

// discard closes what waits to be accepted.
func (l *Listener) discard() {
	for {
		select {
		case c := <-l.conns:
			_ = c.Close() // nobody has used it
			<-l.places
		default:
			return
		}
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return Addr{Node: l.n.Self().Node, Service: l.service} }

// Addr is a node's name as a net.Addr. RemoteAddr of a Conn is such, so that what serves it knows who calls.
type Addr struct {
	Node, Service string
	// At is where the node is, for people.
	At string
}

// Network implements net.Addr.
func (Addr) Network() string { return "weir" }

func (a Addr) String() string {
	if a.At == "" {
		return a.Node + "/" + a.Service
	}
	return a.Node + "/" + a.Service + "@" + a.At
}
