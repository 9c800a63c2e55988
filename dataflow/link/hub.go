package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// Config describes a hub. Node and Dial are needed.
type Config struct {
	Node string // this node's name
	// Dial connects to the hub of another node: what it returns arrives at Handle there. It ends with ctx.
	Dial func(ctx context.Context, node string) (net.Conn, error)
	// Wait is how long a peer that is ahead waits for this node's start before it is told to come again; default 5 s. Both ends of
	// a start are asked for at the same time, so that it is rarely needed.
	Wait time.Duration
	// Silence is after how long a peer is lost that sends nothing, or takes nothing; default 5 s. Shorter would take a node for
	// lost that a garbage collector or a slow disk held up; longer would keep a run waiting that cannot go on.
	Silence time.Duration
	// Ping is how often a stream without traffic says that it is alive; default Silence / 5.
	Ping   time.Duration
	Logger *slog.Logger // nil = none
}

func (c *Config) ensureDefaults() {
	c.Wait = cmp.Or(c.Wait, 5*time.Second)
	c.Silence = cmp.Or(c.Silence, 5*time.Second)
	c.Ping = cmp.Or(c.Ping, c.Silence/5)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Hub is this node's end of all links: it knows the runs that are spread over nodes, and takes the streams of peers.
type Hub struct {
	cfg      Config
	life     context.Context // until Close
	cancel   context.CancelFunc
	handlers sync.WaitGroup

	mu struct {
		sync.Mutex
		fence   fence
		runs    map[dataflow.PipelineUID]*Links
		changed chan struct{} // closed and replaced when a run has begun
		closed  bool
	}
}

// Open returns a hub. Close must be called.
func Open(cfg Config) *Hub {
	cfg.ensureDefaults()
	h := &Hub{cfg: cfg}
	h.life, h.cancel = context.WithCancel(context.Background())
	h.mu.fence.pipelines = make(map[dataflow.PipelineUID]*history)
	h.mu.runs = make(map[dataflow.PipelineUID]*Links)
	h.mu.changed = make(chan struct{})
	return h
}

// Close ends all runs that have links, and waits until no stream of a peer is being handled. It does not wait for the runs.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.mu.closed = true
	for _, l := range h.mu.runs {
		l.fail(ErrClosed)
	}
	h.mu.Unlock()
	h.cancel()
	h.handlers.Wait()
	return nil
}

// Forget drops what is known of a pipeline that has been deleted.
func (h *Hub) Forget(uid dataflow.PipelineUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.runs[uid] == nil {
		delete(h.mu.fence.pipelines, uid)
	}
}

// begin lets a run pass the fence. An older one is ended.
func (h *Hub) begin(l *Links) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return ErrClosed
	}
	uid, inc := l.run.Pipeline, l.run.Incarnation
	ok, overtaken := h.mu.fence.start(uid, inc)
	if !ok {
		return h.staleLocked(uid, inc)
	}
	if overtaken != 0 {
		h.mu.runs[uid].fail(h.staleLocked(uid, overtaken))
	}
	h.mu.runs[uid] = l
	close(h.mu.changed)
	h.mu.changed = make(chan struct{})
	return nil
}

func (h *Hub) end(l *Links) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.fence.end(l.run.Pipeline, l.run.Incarnation)
	if h.mu.runs[l.run.Pipeline] == l {
		delete(h.mu.runs, l.run.Pipeline)
	}
}

func (h *Hub) staleLocked(uid dataflow.PipelineUID, inc dataflow.Incarnation) error {
	e := &StaleError{Node: h.cfg.Node, Pipeline: uid, Incarnation: inc, Newest: h.mu.fence.newest(uid)}
	return dataflow.Errorf(dataflow.ReasonPipelineRecovering, "%w", e)
}

// enter counts a handler; not when the hub is closed.
func (h *Hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.closed {
		h.handlers.Add(1)
	}
	return !h.mu.closed
}

// Handle takes a connection that a peer's hub has dialed, and returns when it is done with: when the run has ended, or with
// the reason why the peer was refused. It closes the connection.
func (h *Hub) Handle(conn net.Conn) error {
	defer func() { _ = conn.Close() }() // what was sent has been read, or nobody wants it
	if !h.enter() {
		return ErrClosed
	}
	defer h.handlers.Done()
	stop := context.AfterFunc(h.life, func() { _ = conn.Close() })
	defer stop()
	deadline := func(d time.Duration) { _ = conn.SetDeadline(time.Now().Add(d)) } // a closed connection fails at the next use
	deadline(h.cfg.Silence)
	kind, body, err := readFrame(conn, maxGreeting)
	if err == nil && kind != frameHello {
		err = errFrame
	}
	if err != nil {
		return fmt.Errorf("read the greeting of a peer: %w", err)
	}
	peer, err := parseHello(body)
	if err != nil {
		return fmt.Errorf("read the greeting of a peer: %w", err)
	}
	pair, refused := h.admit(peer)
	if refused == nil {
		refused = pair.check(peer)
	}
	deadline(h.cfg.Silence)
	if refused != nil {
		if _, err := conn.Write(refused.append(nil)); err != nil {
			return fmt.Errorf("refuse %s: %w", peer, err)
		}
		return fmt.Errorf("refused %s: %s", peer, refused.reason)
	}
	if _, err := conn.Write(endFrame(beginFrame(nil, frameWelcome), 0)); err != nil {
		return fmt.Errorf("welcome node %s: %w", peer.From, err)
	}
	kind, _, err = readFrame(conn, maxGreeting)
	if err == nil && kind != frameBegin {
		err = errFrame
	}
	if err != nil {
		return fmt.Errorf("welcome node %s: %w", peer.From, err)
	}
	if !stop() {
		return ErrClosed
	}
	if !pair.attach(conn) {
		return fmt.Errorf("node %s is connected already, or its run has ended", peer.From)
	}
	<-pair.over
	return nil
}

// admit returns the pair that a peer's stream belongs to, once the run has begun here, or why there is none.
func (h *Hub) admit(peer hello) (*pair, *refusal) {
	timer := time.NewTimer(h.cfg.Wait)
	defer timer.Stop()
	for {
		h.mu.Lock()
		v, overtaken := h.mu.fence.hello(peer.Pipeline, peer.Incarnation)
		l, newest, changed := h.mu.runs[peer.Pipeline], h.mu.fence.newest(peer.Pipeline), h.mu.changed
		if overtaken != 0 {
			l.fail(h.staleLocked(peer.Pipeline, overtaken))
		}
		h.mu.Unlock()
		switch v {
		case accept:
			if pair := l.pairs[peer.From]; pair != nil && peer.To == h.cfg.Node && !pair.dials() {
				return pair, nil
			}
			e := &MismatchError{Peer: peer.From, What: fmt.Sprintf("it dials as %s, to %s", peer.From, peer.To)}
			return nil, &refusal{code: refuseMismatch, reason: e.Error()}
		case stale:
			return nil, &refusal{code: refuseStale, newest: newest, reason: fmt.Sprintf("node %s knows incarnation %d", h.cfg.Node, newest)}
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, &refusal{code: refuseNotStarted, reason: fmt.Sprintf("node %s has not started incarnation %d", h.cfg.Node, peer.Incarnation)}
		case <-h.life.Done():
			return nil, &refusal{code: refuseBusy, reason: ErrClosed.Error()}
		}
	}
}

// greet makes a dialed connection a stream of the pair. Errors that are not permanent are worth another try.
func (p *pair) greet(conn net.Conn) error {
	cfg := &p.links.hub.cfg
	_ = conn.SetDeadline(time.Now().Add(cfg.Wait + cfg.Silence)) // a closed connection fails at the next use
	if _, err := conn.Write(p.hello().append(nil)); err != nil {
		return err
	}
	kind, body, err := readFrame(conn, maxGreeting)
	if err != nil {
		return err
	}
	switch kind {
	case frameWelcome:
		_, err := conn.Write(endFrame(beginFrame(nil, frameBegin), 0))
		return err
	case frameRefuse:
		r, err := parseRefusal(body)
		if err != nil {
			return err
		}
		run := p.links.run
		switch r.code {
		case refuseStale:
			return &StaleError{Node: p.peer, Pipeline: run.Pipeline, Incarnation: run.Incarnation, Newest: r.newest}
		case refuseMismatch:
			return &MismatchError{Peer: p.peer, What: r.reason}
		}
		return fmt.Errorf("node %s: %s", p.peer, r.reason)
	}
	return errFrame
}

// permanent reports whether trying again leads nowhere.
func permanent(err error) bool {
	var s *StaleError
	var m *MismatchError
	return errors.As(err, &s) || errors.As(err, &m)
}
