package resp

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"
)

// Server serves connections. Serve runs it; Stop ends it and waits for every goroutine.
type Server struct {
	cfg      Config
	commands map[string]*listed
	names    []string // of commands, in order
	cursors  cursors
	large    chan struct{} // a place per connection with a large answer

	ctx    context.Context // of the reads: it ends when Stop does not wait for them any longer
	cancel context.CancelFunc
	wg     sync.WaitGroup // Serve and the connections
	began  time.Time

	ids, accepted, processed atomic.Uint64

	mu struct {
		sync.Mutex
		listener net.Listener // nil before Serve
		loops    *loops       // nil before Serve, after Stop, and where there are none
		conns    map[*conn]struct{}
		stopping bool
	}
}

// New returns a server.
func New(cfg Config) *Server {
	cfg.ensureDefaults()
	s := &Server{cfg: cfg, large: make(chan struct{}, largeAnswers), began: time.Now()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.commands, s.names = commandTable()
	s.mu.conns = make(map[*conn]struct{})
	return s
}

// Serve takes connections until Stop, which closes the listener. One that fails is tried again after a rest.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.mu.stopping {
		s.mu.Unlock()
		return l.Close()
	}
	s.mu.listener = l
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	ended := make(chan struct{})
	defer close(ended)
	loops, err := openLoops(l)
	if err != nil { // every connection has a goroutine then
		s.cfg.Logger.Warn("serve Redis clients without loops", "error", err)
	}
	s.mu.Lock()
	s.mu.loops = loops
	s.mu.Unlock()
	s.wg.Go(func() { s.watchStuck(ended) })
	for {
		nc, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil // Stop has closed it
		case err != nil:
			s.cfg.Logger.Warn("accept a Redis client", "error", err)
			select {
			case <-time.After(acceptRetry):
			case <-s.ctx.Done():
				return nil
			}
			continue
		}
		s.accept(nc)
	}
}

// accept serves a connection, or tells it that there are too many.
func (s *Server) accept(nc net.Conn) {
	s.accepted.Add(1)
	s.mu.Lock()
	full := len(s.mu.conns) >= s.cfg.MaxConns
	if full || s.mu.stopping {
		s.mu.Unlock()
		// A few bytes fit in the socket's buffer; who does not take them has no use for them.
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		if full {
			_, _ = nc.Write(redcon.AppendError(nil, "ERR max number of clients reached"))
		}
		_ = nc.Close()
		return
	}
	ls := s.mu.loops
	c, looped := ls.adopt(s, nc)
	if !looped {
		c = newConn(s, netTransport{nc})
	}
	s.mu.conns[c] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	if looped {
		ls.start(c)
		return
	}
	go func() {
		c.serve(s.ctx)
		s.end(c)
	}()
}

// end lets go of a connection that is over.
func (s *Server) end(c *conn) {
	if c.left {
		c.reader.End()
	}
	c.sent()         // what was not
	_ = c.nc.Close() // nothing is buffered that could be lost
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
	s.wg.Done()
}

// watchStuck cuts off clients that do not take their answers (R3). A clock on every write would cost more than the rest of
// a small answer.
func (s *Server) watchStuck(ended <-chan struct{}) {
	tick := time.NewTicker(stuckTime / stuckTicks)
	defer tick.Stop()
	seen := make(map[*conn]waiting)
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		before := seen
		seen = make(map[*conn]waiting)
		s.mu.Lock()
		for c := range s.mu.conns {
			n := c.writes.Load()
			if n%2 == 0 {
				continue // it writes nothing
			}
			now := waiting{writes: n}
			if was, ok := before[c]; ok && was.writes == n {
				now.ticks = was.ticks + 1
			}
			if seen[c] = now; now.ticks >= stuckTicks {
				c.nc.cut()
			}
		}
		s.mu.Unlock()
	}
}

// waiting is how far an answer was when it was looked at, and for how many ticks it has been there.
type waiting struct {
	writes uint64
	ticks  int
}

// connections returns how many there are.
func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns)
}

// Stop takes no more connections, lets each answer what it has read, and waits for all; when ctx ends first it cuts them
// off, and waits. It may be called again, and before Serve.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	s.mu.stopping = true
	if s.mu.listener != nil {
		_ = s.mu.listener.Close() // it is closed in any case
	}
	for c := range s.mu.conns {
		c.nc.stopReading() // who waits for a command waits no more
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		s.cancel()
		s.mu.Lock()
		for c := range s.mu.conns {
			c.nc.cut()
		}
		s.mu.Unlock()
		<-done
	}
	s.cancel()
	s.mu.Lock()
	loops := s.mu.loops
	s.mu.loops = nil
	s.mu.Unlock()
	loops.close()
}
