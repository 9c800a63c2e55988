package resp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// loops share the connections of clients that have nothing under way that could wait (R6).
type loops struct {
	all  []*loop
	next atomic.Uint32 // which takes the next connection
}

// coresPerLoop is how many cores there are to a loop: what answers need beside it, such as the dataflow, and clients on the
// same machine, have the others. One loop does some 150,000 answers a second unpipelined.
const coresPerLoop = 2

// openLoops starts the loops for the connections of a listener, if it has such as they serve. close must follow.
func openLoops(listener net.Listener) (*loops, error) {
	if _, ok := listener.(*net.TCPListener); !ok {
		return nil, nil
	}
	ls := &loops{}
	for range max(1, runtime.GOMAXPROCS(0)/coresPerLoop) {
		l, err := openLoop()
		if err != nil {
			ls.close()
			return nil, err
		}
		ls.all = append(ls.all, l)
	}
	return ls, nil
}

// close ends the loops and waits for them. No connection is left then.
func (ls *loops) close() {
	if ls == nil {
		return
	}
	for _, l := range ls.all {
		l.close()
	}
}

// adopt makes a connection of nc that a loop serves when start is called. It returns false when nc is not one for loops.
func (ls *loops) adopt(s *Server, nc net.Conn) (*conn, bool) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok || ls == nil {
		return nil, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, false
	}
	// A descriptor of its own: Go's poller would wake for everything that comes on one that it knows.
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(of uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if fd, dupErr = syscall.Dup(int(of)); dupErr == nil {
			syscall.CloseOnExec(fd)
		}
	})
	if err != nil || dupErr != nil {
		return nil, false
	}
	l := ls.all[int(ls.next.Add(1))%len(ls.all)]
	sock := &socket{l: l, fd: fd, local: nc.LocalAddr(), remote: nc.RemoteAddr(), writable: make(chan struct{}, 1)}
	_ = nc.Close() // the socket lives on
	c := newConn(s, sock)
	c.sock = sock
	return c, true
}

// start gives a connection of adopt to its loop.
func (ls *loops) start(c *conn) {
	l := c.sock.l
	l.mu.Lock()
	l.mu.conns[int32(c.sock.fd)] = c
	l.mu.Unlock()
	l.rest(c)
}

// loop serves connections from one goroutine: one read, the answers, one write for each that something has come for. A
// connection that would have to wait gets a goroutine until it has answered what has come (conn.catchUp).
type loop struct {
	epoll     int
	wake      [2]int // a pipe: what is read from it ends the loop
	done      chan struct{}
	impatient context.Context // ended: who would wait with it, does not
	mu        struct {
		sync.Mutex
		conns map[int32]*conn // by descriptor
	}
}

func openLoop() (*loop, error) {
	l := &loop{done: make(chan struct{})}
	l.mu.conns = make(map[int32]*conn)
	var cancel context.CancelFunc
	l.impatient, cancel = context.WithCancel(context.Background())
	cancel()
	var err error
	if l.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("open an epoll: %w", err)
	}
	if err = syscall.Pipe2(l.wake[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, errors.Join(fmt.Errorf("open a pipe: %w", err), syscall.Close(l.epoll))
	}
	if err = l.watch(l.wake[0], syscall.EPOLLIN); err != nil {
		return nil, errors.Join(err, syscall.Close(l.epoll), syscall.Close(l.wake[0]), syscall.Close(l.wake[1]))
	}
	go l.run()
	return l, nil
}

// close ends the loop and waits for it.
func (l *loop) close() {
	_, _ = syscall.Write(l.wake[1], []byte{0}) // an empty pipe takes a byte
	<-l.done
	for _, fd := range []int{l.epoll, l.wake[0], l.wake[1]} {
		_ = syscall.Close(fd)
	}
}

func (l *loop) watch(fd int, events uint32) error {
	return syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)})
}

func (l *loop) unwatch(fd int) error {
	return syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_DEL, fd, nil)
}

// rest waits for the client of a connection that has nothing under way.
func (l *loop) rest(c *conn) {
	if err := l.watch(c.sock.fd, syscall.EPOLLIN); err != nil {
		c.s.end(c)
	}
}

// maxEvents is how many connections are seen at once.
const maxEvents = 128

func (l *loop) run() {
	defer close(l.done)
	events := make([]syscall.EpollEvent, maxEvents)
	for {
		n, err := syscall.EpollWait(l.epoll, events, -1)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			panic(fmt.Sprintf("resp: wait for clients: %v", err)) // nothing but a wrong descriptor is left to be the cause
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == int32(l.wake[0]) {
				return
			}
			l.mu.Lock()
			c := l.mu.conns[e.Fd]
			l.mu.Unlock()
			switch {
			case c == nil:
			case c.sock.waits.Load():
				c.sock.writable <- struct{}{} // there is room: it is sent once per wait
			default:
				l.step(c)
			}
		}
	}
}

// step answers what has come on a connection, and sees to it that somebody does.
func (l *loop) step(c *conn) {
	switch c.hurry(l.impatient) {
	case ended:
		_ = l.unwatch(c.sock.fd) // closing does it too
		c.s.end(c)
	case behind:
		if err := l.unwatch(c.sock.fd); err != nil {
			c.s.end(c)
			return
		}
		c.s.wg.Go(func() {
			if !c.catchUp(c.s.ctx) {
				c.s.end(c)
				return
			}
			l.rest(c)
		})
	case answered:
	}
}

// forget drops a connection that has ended.
func (l *loop) forget(fd int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.conns, int32(fd))
}

// socket is the transport of a connection of a loop. Read does not wait: it returns 0 when nothing has come. Write waits,
// and is not for the loop, which has writeNow.
type socket struct {
	l             *loop
	fd            int
	local, remote net.Addr
	writable      chan struct{}
	waits         atomic.Bool // for room to write
	mu            struct {
		sync.Mutex
		closed bool // the descriptor may be another's
	}
}

var _ transport = (*socket)(nil)

// Read implements transport.
func (s *socket) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(s.fd, b)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		case err != nil:
			return 0, err
		case n == 0:
			return 0, net.ErrClosed
		}
		return n, nil
	}
}

// writeNow writes what there is room for.
func (s *socket) writeNow(b []byte) (n int, err error) {
	for n < len(b) {
		m, err := syscall.Write(s.fd, b[n:])
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return n, nil
		case err != nil:
			return n, err
		}
		n += max(m, 0)
	}
	return n, nil
}

// Write implements transport.
func (s *socket) Write(b []byte) (n int, err error) {
	for {
		m, err := s.writeNow(b[n:])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
		s.waits.Store(true)
		if err := s.l.watch(s.fd, syscall.EPOLLOUT|syscall.EPOLLONESHOT); err != nil {
			return n, err
		}
		<-s.writable // cut makes a socket writable too
		s.waits.Store(false)
		if err := s.l.unwatch(s.fd); err != nil {
			return n, err
		}
	}
}

// Close implements transport.
func (s *socket) Close() error {
	s.l.forget(s.fd)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	return syscall.Close(s.fd)
}

func (s *socket) LocalAddr() net.Addr  { return s.local }
func (s *socket) RemoteAddr() net.Addr { return s.remote }
func (s *socket) cut()                 { s.shutdown(syscall.SHUT_RDWR) }
func (s *socket) stopReading()         { s.shutdown(syscall.SHUT_RD) }

func (s *socket) shutdown(how int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.closed {
		_ = syscall.Shutdown(s.fd, how) // it fails when the client has gone
	}
}
