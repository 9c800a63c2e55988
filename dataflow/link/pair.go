package link

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow/exchange"
)

// pair is a run's stream between this node and another: one goroutine writes it, one reads it.
type pair struct {
	links    *Links
	peer     string
	out      map[exchange.EdgeID]*outEdge // fixed before the run begins
	in       map[exchange.EdgeID]*inEdge
	accepted chan net.Conn // of the acceptor; capacity 1
	over     chan struct{} // closed when the run does not use the stream any more
	wake     chan struct{} // of the writer; capacity 1

	mu struct {
		sync.Mutex
		queue   []*frame      // to be written; each holds a credit, which bounds their number (L6 bounds their bytes)
		bytes   int           // of queue
		room    chan struct{} // closed when the queue is taken; nil = nobody waits
		credits []*inEdge     // edges with credits to be sent
		taken   bool          // a connection has been accepted, or the run has ended
	}
}

func newPair(l *Links, peer string) *pair {
	return &pair{
		links: l, peer: peer, out: make(map[exchange.EdgeID]*outEdge), in: make(map[exchange.EdgeID]*inEdge),
		accepted: make(chan net.Conn, 1), over: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// dials reports whether this node dials the other.
func (p *pair) dials() bool { return p.links.hub.cfg.Node < p.peer }

// attach hands an accepted connection over. It is used until over is closed; not when the pair has one.
func (p *pair) attach(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.taken {
		return false
	}
	p.mu.taken = true
	p.accepted <- conn
	return true
}

func (p *pair) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.taken = true
	close(p.over)
}

// maxQueued bounds the bytes that wait to be written (L6). Not smaller: while one queue is being written the next fills, and the
// connection should not run dry meanwhile. Not larger: a barrier is written after what is queued before it.
const maxQueued = 4 << 20

// push queues a frame for the writer once there is room. It returns ctx's error, and has queued nothing, when ctx ends first.
func (p *pair) push(ctx context.Context, f *frame) error {
	for {
		p.mu.Lock()
		if len(p.mu.queue) == 0 || p.mu.bytes+len(f.b) <= maxQueued {
			p.mu.queue, p.mu.bytes = append(p.mu.queue, f), p.mu.bytes+len(f.b)
			p.mu.Unlock()
			p.notify()
			return nil
		}
		if p.mu.room == nil {
			p.mu.room = make(chan struct{})
		}
		room := p.mu.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release queues a credit of an edge for the writer.
func (p *pair) release(e *inEdge) {
	p.mu.Lock()
	if e.due++; e.due == 1 {
		p.mu.credits = append(p.mu.credits, e)
	}
	p.mu.Unlock()
	p.notify()
}

func (p *pair) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take returns what is to be written: the credits as a frame appended to head, and the queued frames, in exchange for an
// empty queue.
func (p *pair) take(head []byte, empty []*frame) ([]byte, []*frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.credits) > 0 {
		at := len(head)
		head = beginFrame(head, frameCredit)
		for _, e := range p.mu.credits {
			head = appendUvarint(appendEdge(head, e.id), e.due)
			e.due = 0
		}
		p.mu.credits = p.mu.credits[:0]
		head = endFrame(head, at)
	}
	queue := p.mu.queue
	p.mu.queue, p.mu.bytes = empty, 0
	if p.mu.room != nil {
		close(p.mu.room)
		p.mu.room = nil
	}
	return head, queue
}

func appendUvarint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

// connect returns the stream to the peer. The error is ctx's cause, or says that the two nodes cannot run together.
func (p *pair) connect(ctx context.Context) (net.Conn, error) {
	if !p.dials() {
		select {
		case conn := <-p.accepted:
			return conn, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	cfg := &p.links.hub.cfg
	for pause := firstRetry; ; pause = min(2*pause, maxRetry) {
		conn, err := p.dial(ctx)
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case permanent(err):
			return nil, lost(&LostError{Peer: p.peer, Err: err})
		}
		cfg.Logger.Info("a node of a run does not answer yet", "pipeline", p.links.run.Pipeline, "incarnation", p.links.run.Incarnation, "peer", p.peer, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

func (p *pair) dial(ctx context.Context) (net.Conn, error) {
	conn, err := p.links.hub.cfg.Dial(ctx, p.peer)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = p.greet(conn)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close() // the greeting's error says more
		return nil, err
	}
	return conn, nil
}

// farewell is how long a run that ends tries to say so, and to take what is on its way so that its word is not lost with the
// connection.
const farewell = 250 * time.Millisecond

// carry writes and reads the stream until ctx ends or the stream breaks. It closes the connection.
func (p *pair) carry(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &timed{Conn: conn, silence: p.links.hub.cfg.Silence}
	stop := context.AfterFunc(ctx, c.hurry)
	defer stop()
	read := make(chan struct{})
	go func() {
		defer close(read)
		cancel(p.broken(p.read(c)))
	}()
	if err := p.write(ctx, c); err != nil {
		cancel(p.broken(err))
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the peer reads our word, and then the end
	} else {
		select { // closing would take the word back
		case <-read:
		case <-time.After(farewell):
		}
		_ = conn.Close()
	}
	<-read
	_ = conn.Close()
	return context.Cause(ctx)
}

// broken returns what an error of the stream means for the run.
func (p *pair) broken(err error) error {
	var l *LostError
	if !errors.As(err, &l) {
		l = &LostError{Peer: p.peer, Err: err}
	}
	return lost(l)
}

// write writes what is queued until ctx ends, and then says goodbye. The error is the connection's.
func (p *pair) write(ctx context.Context, c *timed) error {
	w := bufio.NewWriterSize(c, 64<<10)
	ping := time.NewTicker(p.links.hub.cfg.Ping)
	defer ping.Stop()
	var head []byte
	var queue []*frame
	for idle := false; ; {
		select {
		case <-ctx.Done():
			return p.bye(w, context.Cause(ctx))
		case <-p.wake:
		case <-ping.C:
			if idle {
				if _, err := w.Write(endFrame(beginFrame(head[:0], framePing), 0)); err != nil {
					return err
				}
			}
			idle = true
		}
		for ctx.Err() == nil {
			clear(queue)
			head, queue = p.take(head[:0], queue[:0])
			if len(head) == 0 && len(queue) == 0 {
				break
			}
			idle = false
			if _, err := w.Write(head); err != nil {
				return err
			}
			for _, f := range queue {
				if _, err := w.Write(f.b); err != nil {
					return err
				}
				p.links.recycle(f)
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// bye tells the peer why the run ends here. It is not told what it has told us.
func (p *pair) bye(w *bufio.Writer, cause error) error {
	var l *LostError
	if errors.As(cause, &l) && l.Peer == p.peer && l.Ended {
		return nil
	}
	stopped, reason := byte(0), ""
	if errors.Is(cause, context.Canceled) {
		stopped = 1
	} else {
		reason = cause.Error()
	}
	b := append(beginFrame(nil, frameBye), stopped)
	b = endFrame(append(b, reason[:min(len(reason), maxReason)]...), 0)
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.Flush()
}

// read takes what the peer sends until the stream ends. A defect that a message meets ends the run, not the node.
func (p *pair) read(c *timed) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.links.hub.cfg.Logger.Error("reading the stream of a peer panicked", "peer", p.peer, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error: reading panicked: %v", v)
		}
	}()
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		kind, body, err := readFrame(r, maxFrame)
		if err != nil {
			return err
		}
		if err := p.received(kind, body); err != nil {
			return err
		}
	}
}

func (p *pair) received(kind frameKind, body []byte) error {
	r := reader{rest: body}
	switch kind {
	case frameMessage:
		id, number := r.edge(), r.uvarint()
		if r.err != nil {
			return r.err
		}
		e := p.in[id]
		if e == nil {
			return fmt.Errorf("a message came by %s, which is no edge from node %s", id, p.peer)
		}
		return e.arrived(number, r.rest)
	case frameCredit:
		for len(r.rest) > 0 {
			id, n := r.edge(), r.uvarint()
			if r.err != nil {
				return r.err
			}
			e := p.out[id]
			if e == nil {
				return fmt.Errorf("credits came by %s, which is no edge to node %s", id, p.peer)
			}
			if err := e.returned(n); err != nil {
				return err
			}
		}
		return r.err
	case framePing:
		return nil
	case frameBye:
		if len(body) == 0 {
			return errFrame
		}
		return &LostError{Peer: p.peer, Ended: true, Stopped: body[0] == 1, Err: errors.New(string(body[1:]))}
	}
	return fmt.Errorf("frame of kind %d: %w", kind, errFrame)
}

// timed gives each read and write of a connection a deadline: the peer's silence, until hurry ends all soon.
type timed struct {
	net.Conn
	silence time.Duration
	mu      struct {
		sync.Mutex
		last time.Time // of hurry; zero = not yet
	}
}

// hurry ends reads and writes after farewell.
func (c *timed) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.last = time.Now().Add(farewell)
	_ = c.SetDeadline(c.mu.last) // a closed connection fails at the next use
}

// extend sets one of the deadlines; on a closed connection that fails, and so does the use that follows, which says more. The
// lock is held meanwhile so that it does not undo what hurry has set.
func (c *timed) extend(set func(time.Time) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := c.mu.last
	if until.IsZero() {
		until = time.Now().Add(c.silence)
	}
	_ = set(until)
}

func (c *timed) Read(b []byte) (int, error) {
	c.extend(c.SetReadDeadline)
	return c.Conn.Read(b)
}

// writeBytes is how much is written under one deadline: the peer has Config.Silence to take it. A row may take megabytes.
const writeBytes = 256 << 10

func (c *timed) Write(b []byte) (n int, err error) {
	for {
		c.extend(c.SetWriteDeadline)
		k, err := c.Conn.Write(b[n:min(len(b), n+writeBytes)])
		if n += k; err != nil || n == len(b) {
			return n, err
		}
	}
}

var _ io.ReadWriter = (*timed)(nil)
