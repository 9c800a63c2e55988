package weir

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Any node takes the rows of any shard, and carries them to the node that leads the shard's log. A producer learns from the
// answers which node that is, and sends a shard's rows there when it can reach it: they are on their way once less. That is an
// improvement and nothing else: whatever goes wrong with such a node, the rows go to the one that the client uses for
// everything, and only what that says is final.

const (
	// avoidFor is how long no rows go directly to a node with which something went wrong.
	avoidFor = 10 * time.Second
	// answerTime is how long a node may leave rows unanswered before they go another way. A node that is paused, or that leads
	// no more and does not know, would otherwise hold them up until its connection ends.
	answerTime = 5 * time.Second
)

// way is an AppendStream call to a node.
type way struct {
	node string
	call grpc.BidiStreamingClient[weirv1.AppendStreamRequest, weirv1.AppendStreamResponse]
	used bool // the first request, which says whose rows these are, has been sent
}

// sending is the calls that are under way, one for each node that rows are sent to.
type sending struct {
	p      *Producer
	ctx    context.Context
	cancel context.CancelFunc
	ways   map[string]*way
	late   chan string // the node that does not answer; holds one
	ended  chan wayEnd // holds one of each way
	work   sync.WaitGroup
	acked  int // guarded by p.mu
}

// wayEnd is why a call has ended.
type wayEnd struct {
	node string
	err  error
}

// send sends to one node or several until a call fails or ctx ends. It returns how many batches were acknowledged, the node
// with which it ended, and why.
func (p *Producer) send(ctx context.Context) (acked int, node string, err error) {
	s := &sending{p: p, ways: make(map[string]*way), late: make(chan string, 1), ended: make(chan wayEnd, 1)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	p.mu.Lock()
	p.mu.w.rewind()
	p.mu.Unlock()
	node, err = s.run()
	s.cancel()
	s.work.Wait()
	select {
	case node = <-s.late:
		err = dataflow.Errorf(dataflow.ReasonUnreachable, "node %s has not answered for %v", node, answerTime)
	default:
	}
	return s.acked, node, p.c.errorOf(ctx, err) // nobody else is left who counts
}

func (s *sending) run() (node string, err error) {
	for {
		c, node, linger := s.p.nextChunk()
		if c == nil {
			select {
			case <-s.p.wake:
			case <-linger.C:
			case e := <-s.ended:
				linger.Stop()
				return e.node, e.err
			}
			linger.Stop()
			continue
		}
		w, err := s.to(node)
		if err == nil {
			err = s.request(w, c)
		}
		if errors.Is(err, io.EOF) { // who receives has the reason, of this way or of another
			e := <-s.ended
			return e.node, e.err
		}
		if err != nil {
			return node, err
		}
	}
}

// to returns the way to a node, which is opened when it is first needed.
func (s *sending) to(node string) (*way, error) {
	if w := s.ways[node]; w != nil {
		return w, nil
	}
	w := &way{node: node}
	var err error
	if node == anyNode {
		w.call, err = s.p.c.ingest.AppendStream(s.ctx)
	} else if conn := s.p.c.nodes.reach(node); conn != nil {
		w.call, err = weirv1.NewIngestServiceClient(conn).AppendStream(s.ctx)
	} else {
		err = dataflow.Errorf(dataflow.ReasonUnreachable, "node %s is not to be reached any more", node)
	}
	if err != nil {
		return nil, err
	}
	s.ways[node] = w
	s.work.Go(func() {
		e := wayEnd{node, s.receive(w)}
		select {
		case s.ended <- e:
		default: // another one has ended before
		}
	})
	if node != anyNode {
		s.work.Go(func() { s.watch(node) })
	}
	return w, nil
}

func (s *sending) request(w *way, c *chunk) error {
	req := &weirv1.AppendRequest{Shards: []*weirv1.ShardRows{c.message(wire.EncodeColumns)}}
	if !w.used {
		req.Stream, req.Producer, req.PreviousToken = s.p.stream, s.p.session, s.p.Token()
		w.used = true
	}
	return w.call.Send(&weirv1.AppendStreamRequest{Append: req})
}

// receive takes acknowledgements until the call ends, and returns why it ended.
func (s *sending) receive(w *way) error {
	for {
		m, err := w.call.Recv()
		if errors.Is(err, io.EOF) {
			return dataflow.Errorf(dataflow.ReasonUnreachable, "the server ended the call")
		}
		if err != nil {
			return err
		}
		again, err := s.acknowledged(w.node, m)
		if err != nil {
			return err
		}
		if again {
			return errResend
		}
	}
}

func (s *sending) acknowledged(node string, m *weirv1.AppendStreamResponse) (again bool, err error) {
	p, a := s.p, m.GetAppended()
	p.mu.Lock()
	defer p.mu.Unlock()
	if again, err = p.mu.w.acknowledge(node, a); err != nil {
		return false, err
	}
	if again {
		s.acked++
		return true, nil
	}
	token := a.GetToken()
	if p.mu.spread {
		// Each call's token covers what was acknowledged on it, and before it began.
		if token, err = dataflow.JoinTokens(p.mu.token, token); err != nil {
			return false, dataflow.Errorf(dataflow.ReasonInternal, "the server's token cannot be joined with another: %w", err)
		}
	}
	s.acked++
	p.mu.token, p.mu.trouble = token, nil
	if l := m.GetLeaders(); len(l) == 1 && l[0] != "" {
		p.followLocked(dataflow.ShardID(a.GetShards()[0].GetShard()), l[0])
	}
	p.broadcastLocked()
	p.signal() // there may be room in flight
	return false, nil
}

// watch ends the calls when a node leaves rows unanswered for too long.
func (s *sending) watch(node string) {
	tick := time.NewTicker(answerTime / 5)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		s.p.mu.Lock()
		c := s.p.mu.w.oldest(node)
		silent := c != nil && time.Since(c.sent) > answerTime
		s.p.mu.Unlock()
		if !silent {
			continue
		}
		select {
		case s.late <- node:
		default:
		}
		s.cancel()
		return
	}
}

// followLocked has a shard's rows sent to the node that leads its log, when that can be reached. When not, the next answer says it
// again.
func (p *Producer) followLocked(at dataflow.ShardID, node string) {
	if until, avoided := p.mu.avoided[node]; avoided && time.Now().Before(until) || p.c.nodes.reach(node) == nil {
		p.mu.w.lead(at, anyNode)
		return
	}
	delete(p.mu.avoided, node)
	p.mu.w.lead(at, node)
	p.mu.spread = true
}

// avoid sends no rows directly to a node for a while.
func (p *Producer) avoid(node string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.avoided == nil {
		p.mu.avoided = make(map[string]time.Time)
	}
	p.mu.avoided[node] = time.Now().Add(avoidFor)
	p.mu.w.avoid(node)
	p.mu.trouble = err
}

// nextChunk returns what to send now, and to which node; else nil, and a timer for the oldest rows that wait for company. The timer
// never fires when none do.
//
// Rows that have waited for long enough leave their chunk open until it can be sent: as long as all that may be under way is, more
// join them, and a server that is slow gets fewer and larger batches instead of a queue of small ones.
func (p *Producer) nextChunk() (*chunk, string, *time.Timer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, w := time.Now(), p.mu.w
	for {
		if c, node := w.next(p.cfg.InFlight, now); c != nil {
			return c, node, nil
		}
		if w.sent >= p.cfg.InFlight { // an acknowledgement wakes the sender
			return nil, anyNode, time.NewTimer(time.Hour)
		}
		sealed, oldest := w.sealOldest(now.Add(-p.cfg.Linger))
		switch {
		case sealed:
		case oldest.IsZero():
			return nil, anyNode, time.NewTimer(time.Hour)
		default:
			return nil, anyNode, time.NewTimer(oldest.Add(p.cfg.Linger).Sub(now))
		}
	}
}
