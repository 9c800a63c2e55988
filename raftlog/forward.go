package raftlog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/frame"
)

// Forwarder carries commands to the members that lead. Group.ServeForwards is the other end.
type Forwarder interface {
	// Forward opens a stream of commands of a group to the node that leads it in the given term, and returns when that
	// node has said that it does. An error means that nothing was sent. The stream ends with ctx.
	Forward(ctx context.Context, node, group string, term uint64) (ForwardStream, error)
}

// ForwardStream carries commands in order. One goroutine sends while another receives.
type ForwardStream interface {
	// Send sends a command's frame, which it copies. After an error, it is unknown which of the commands arrived.
	Send(frame []byte) error
	// Receive returns the replies, one for each Send, in order.
	Receive() (ForwardReply, error)
}

// ForwardReply is what the leader says to a command.
type ForwardReply struct {
	// Index is where the command was committed.
	Index dataflow.LogIndex
	// Err is why not (R2); nil when it was.
	Err error
	// Stopped says that this command and all later ones of the stream were refused, before anything was written. They are
	// replied to all the same.
	Stopped bool
}

// retryDial is how long after a failed attempt to reach the leader commands are refused without another one.
const retryDial = 50 * time.Millisecond

// forwarding carries commands of this member to the one that leads, and brings their outcomes back.
//
// The commands go over one stream, in order, and are refused by a leader of another term than the one that the stream
// was opened for: what is late on its way to an old leader cannot overtake anything. A command carries its origin, so
// that this member recognises it in Apply and has the FSM's own answer; the leader's reply is needed for refusals, and to
// notice commands that this member never applies because it got a snapshot instead.
//
// Its methods that the FSM's goroutine calls do nothing on nil.
type forwarding struct {
	g       *Group
	session uint64
	seq     atomic.Uint64
	queue   chan *Pending // not sent yet; holds MaxPending
	waiting atomic.Int64  // commands that were put in the queue and have not left this member

	ctx    context.Context // ends with stop
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// Only run touches these.
	failedAt time.Time // when reaching failedTo failed last
	failedTo leadership
	failure  error

	mu struct {
		sync.Mutex
		stream *forwardStream
		sent   map[uint64]*Pending // commands without an outcome, by the number of their origin
	}
}

// leadership is who leads in a term.
type leadership struct {
	node string
	term uint64
}

func newForwarding(g *Group) *forwarding {
	var b [8]byte
	_, _ = rand.Read(b[:]) // cannot fail
	f := &forwarding{g: g, session: binary.LittleEndian.Uint64(b[:]) | 1, queue: make(chan *Pending, g.cfg.MaxPending)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.mu.sent = make(map[uint64]*Pending)
	return f
}

func (f *forwarding) start() {
	f.wg.Go(f.run)
	f.wg.Go(f.watch)
}

// pending returns a command, or a barrier, that can be carried to another member.
func (f *forwarding) pending(cmd []byte, barrier bool) *Pending {
	o := frame.Origin{Session: f.session, Seq: f.seq.Add(1), Barrier: barrier}
	return &Pending{g: f.g, origin: o, frame: frame.AppendFrom(make([]byte, 0, frame.OverheadFrom+len(cmd)), cmd, o)}
}

// stop gives everything up that has no outcome yet. The group must take no more commands. It may be called again.
func (f *forwarding) stop() {
	f.cancel()
	f.wg.Wait()
	for {
		select {
		case p := <-f.queue:
			f.waiting.Add(-1)
			f.end(p, f.g.errClosed())
			continue
		default:
		}
		break
	}
	f.mu.Lock()
	var left []*Pending
	for seq, p := range f.mu.sent {
		delete(f.mu.sent, seq)
		left = append(left, p)
	}
	f.mu.Unlock()
	for _, p := range left {
		f.end(p, f.g.errUnknown(errors.New("this node stops")))
	}
}

// end gives a command that nobody else holds its outcome.
func (f *forwarding) end(p *Pending, err error) {
	p.err = err
	f.g.finish(p)
}

// run sends the commands, in order.
func (f *forwarding) run() {
	for {
		select {
		case p := <-f.queue:
			f.dispatch(p)
			f.waiting.Add(-1)
		case <-f.ctx.Done():
			return
		}
	}
}

// leads returns who leads, as far as it is known.
func (g *Group) leads() leadership {
	term := g.Term() // before the leader: a newer one would refuse an older term, and not the other way round
	return leadership{g.Leader(), term}
}

func (f *forwarding) dispatch(p *Pending) {
	if f.g.IsLeader() {
		f.g.queue <- p // never blocks: p has its place
		return
	}
	to := f.g.leads()
	if to.node == "" || to.node == f.g.cfg.NodeID {
		f.end(p, f.g.errNotLeader())
		return
	}
	s, err := f.streamTo(to)
	if err != nil {
		f.end(p, err)
		return
	}
	f.mu.Lock()
	taken := s.push(p)
	if taken {
		f.mu.sent[p.origin.Seq] = p
	}
	f.mu.Unlock()
	if !taken { // it broke meanwhile, and nothing of p was sent
		f.end(p, f.g.errNotLeader())
		return
	}
	if s.Send(p.frame) != nil {
		s.cancel() // its reader ends what it carried
	}
}

// streamTo returns the stream to a leader, a new one when there is none.
func (f *forwarding) streamTo(to leadership) (*forwardStream, error) {
	f.mu.Lock()
	s := f.mu.stream
	if s != nil && (s.to != to || s.closing) {
		f.retire(s)
		s = nil
	}
	f.mu.Unlock()
	if s != nil {
		return s, nil
	}
	if f.failedTo == to && time.Since(f.failedAt) < retryDial {
		return nil, f.failure
	}
	// The time to reach it bounds how long commands wait that may be refused in the end.
	ctx, cancel := context.WithCancel(f.ctx)
	late := time.AfterFunc(f.g.cfg.ElectionTimeout, cancel)
	fs, err := f.g.cfg.Forward.Forward(ctx, to.node, f.g.cfg.Group, to.term)
	if err == nil && !late.Stop() {
		err = context.DeadlineExceeded
	}
	if err != nil {
		late.Stop()
		cancel()
		f.failedTo, f.failedAt, f.failure = to, time.Now(), f.errUnreachable(to.node, err)
		return nil, f.failure
	}
	s = &forwardStream{ForwardStream: fs, f: f, to: to, cancel: cancel, ended: make(chan struct{}), drained: make(chan struct{})}
	f.mu.Lock()
	f.mu.stream = s
	f.mu.Unlock()
	f.wg.Go(s.receive)
	return s, nil
}

// errUnreachable says that a command was not sent. What the leader itself said stays as it is.
func (f *forwarding) errUnreachable(node string, err error) error {
	var e *dataflow.Error
	if errors.As(err, &e) {
		return e
	}
	return dataflow.Errorf(dataflow.ReasonNodeUnreachable, "log %s: node %s, which leads it, is not to be reached: %w", f.g.cfg.Group, node, err).
		WithRetry(retryElection).WithMeta("leader", node)
}

// retire takes a stream out of use. What it has carried may still be answered, for the time of an election. The caller
// holds mu.
func (f *forwarding) retire(s *forwardStream) {
	if f.mu.stream == s {
		f.mu.stream = nil
	}
	if s.retired {
		return
	}
	s.retired, s.closing = true, true
	s.noteDrained()
	f.wg.Go(func() {
		select {
		case <-s.ended:
		case <-s.drained:
		case <-time.After(f.g.cfg.ElectionTimeout):
		case <-f.ctx.Done():
		}
		s.cancel()
	})
}

// watch retires the stream when somebody else leads.
func (f *forwarding) watch() {
	for {
		changed := f.g.Changed()
		to := f.g.leads()
		f.mu.Lock()
		if s := f.mu.stream; s != nil && s.to.node != to.node {
			f.retire(s)
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-f.ctx.Done():
			return
		}
	}
}

// replied takes the leader's reply to a command.
func (f *forwarding) replied(p *Pending, r ForwardReply) {
	if r.Err != nil {
		if f.take(p) {
			f.end(p, r.Err)
		}
		return
	}
	f.mu.Lock()
	p.known = r.Index
	// A command is claimed before it counts as applied, so one that still is here was not applied here.
	_, here := f.mu.sent[p.origin.Seq]
	skipped := here && f.g.AppliedIndex() >= r.Index
	if skipped {
		delete(f.mu.sent, p.origin.Seq)
	}
	f.mu.Unlock()
	if skipped {
		f.skip(p)
	}
}

// skip ends a command that was committed, and whose answer is not known here; for a barrier there is none to know.
func (f *forwarding) skip(p *Pending) {
	if p.origin.Barrier {
		f.end(p, nil)
		return
	}
	f.end(p, f.g.errUnknown(fmt.Errorf("it is entry %d, which this node has from a snapshot, without the answer", p.known)))
}

// take says whether p, of a stream, has no outcome yet, and makes it the caller's.
func (f *forwarding) take(p *Pending) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.mu.sent[p.origin.Seq]
	delete(f.mu.sent, p.origin.Seq)
	return ok
}

// claim returns this member's command of an origin, if it waits for one.
func (f *forwarding) claim(from frame.Origin) *Pending {
	if f == nil || from.Session != f.session {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.mu.sent[from.Seq]
	delete(f.mu.sent, from.Seq)
	return p
}

// applied is told what a command that claim gave came to; p may be nil.
func (f *forwarding) applied(p *Pending, index dataflow.LogIndex, value any) {
	if p != nil {
		p.index, p.value = index, value
		f.g.finish(p)
	}
}

// restored is told of the index of a snapshot that the state was replaced by.
func (f *forwarding) restored(index dataflow.LogIndex) {
	if f == nil {
		return
	}
	f.mu.Lock()
	var skipped []*Pending
	for seq, p := range f.mu.sent {
		if p.known != 0 && p.known <= index {
			delete(f.mu.sent, seq)
			skipped = append(skipped, p)
		}
	}
	f.mu.Unlock()
	for _, p := range skipped {
		f.skip(p)
	}
}

// forwardStream is a stream in use. Only run sends on it.
type forwardStream struct {
	ForwardStream
	f      *forwarding
	to     leadership
	cancel context.CancelFunc
	ended  chan struct{} // closed when receive has ended
	// drained is closed when the stream is retired and everything was replied to. Who retires it does not touch the
	// sending side, which is run's.
	drained chan struct{}

	// Guarded by f.mu.
	fifo    []*Pending // sent, or being sent, without reply
	closing bool       // nothing more may be sent
	retired bool
	idle    bool // drained is closed
}

// push says that p is about to be sent; false when it must not be. The caller holds f.mu.
func (s *forwardStream) push(p *Pending) bool {
	if s.closing {
		return false
	}
	s.fifo = append(s.fifo, p)
	return true
}

// noteDrained closes drained when nothing waits for a reply. The caller holds f.mu.
func (s *forwardStream) noteDrained() {
	if len(s.fifo) == 0 && !s.idle {
		s.idle = true
		close(s.drained)
	}
}

// receive hands the replies out, until the stream ends; then the outcome of what has none is unknown.
func (s *forwardStream) receive() {
	defer close(s.ended)
	defer s.cancel()
	f := s.f
	var err error
	for {
		var r ForwardReply
		if r, err = s.Receive(); err != nil {
			break
		}
		f.mu.Lock()
		if len(s.fifo) == 0 {
			f.mu.Unlock()
			err = errors.New("a reply to nothing")
			break
		}
		p := s.fifo[0]
		s.fifo[0] = nil
		s.fifo = s.fifo[1:]
		switch {
		case s.retired:
			s.noteDrained()
		case r.Stopped:
			f.retire(s)
		}
		f.mu.Unlock()
		f.replied(p, r)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the stream to the leader ended")
	}
	f.mu.Lock()
	s.closing = true
	if f.mu.stream == s {
		f.mu.stream = nil
	}
	left := s.fifo
	s.fifo = nil
	f.mu.Unlock()
	for _, p := range left {
		if f.take(p) {
			f.end(p, f.g.errUnknown(fmt.Errorf("carried to node %s: %w", s.to.node, err)))
		}
	}
}
