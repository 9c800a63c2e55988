package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
)

const (
	// pingEvery is how often a link shows that it lives, and silence how long one may say nothing before what is at its
	// other end counts as lost. Why not shorter: a busy machine keeps a process from its processor for hundreds of
	// milliseconds. Why not longer: for so long a lost node holds its pipelines up.
	pingEvery = 250 * time.Millisecond
	silence   = 2 * time.Second
	// redial is the pause before a link is made again.
	redial = 100 * time.Millisecond
)

// link is the coordinator's stream to one node.
type link struct {
	node string

	mu struct {
		sync.Mutex
		up    bool
		next  uint64
		calls map[uint64]chan *peerv1.Done // each with room for its answer; closed when the link breaks
		queue []*peerv1.CoordinateRequest
		wake  chan struct{} // capacity 1
	}
}

func newLink(node string) *link {
	l := &link{node: node}
	l.mu.calls = make(map[uint64]chan *peerv1.Done)
	l.mu.wake = make(chan struct{}, 1)
	return l
}

// isUp reports whether the node is connected.
func (l *link) isUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.up
}

func (l *link) set(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.up == up {
		return
	}
	l.mu.up = up
	if !up {
		for id, ch := range l.mu.calls {
			close(ch)
			delete(l.mu.calls, id)
		}
		l.mu.queue = nil
	}
}

// errDown says that nothing was sent, or that no answer will come.
func (l *link) errDown() error {
	return dataflow.Errorf(dataflow.ReasonUnreachable, "node %s cannot be reached", l.node)
}

// post sends a request that is not answered. It does nothing while the node is not connected.
func (l *link) post(m *peerv1.CoordinateRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enqueue(m)
}

func (l *link) enqueue(m *peerv1.CoordinateRequest) {
	if !l.mu.up {
		return
	}
	l.mu.queue = append(l.mu.queue, m)
	select {
	case l.mu.wake <- struct{}{}:
	default:
	}
}

// call sends a request and waits for its answer.
func (l *link) call(ctx context.Context, m *peerv1.CoordinateRequest) (*peerv1.Done, error) {
	l.mu.Lock()
	if !l.mu.up {
		l.mu.Unlock()
		return nil, l.errDown()
	}
	l.mu.next++
	id, ch := l.mu.next, make(chan *peerv1.Done, 1)
	m.Call = id
	l.mu.calls[id] = ch
	l.enqueue(m)
	l.mu.Unlock()
	select {
	case d, ok := <-ch:
		if !ok {
			return nil, l.errDown()
		}
		return d, decodeProblem(l.node, d.Problem)
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.mu.calls, id)
		l.mu.Unlock()
		return nil, context.Cause(ctx)
	}
}

func (l *link) answer(d *peerv1.Done) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch := l.mu.calls[d.Call]; ch != nil {
		ch <- d
		delete(l.mu.calls, d.Call)
	}
}

// run keeps the link until ctx ends. reports takes what the node's tasks report, lost is called when the link breaks.
func (l *link) run(ctx context.Context, conn grpc.ClientConnInterface, hello *peerv1.Hello, reports func(*peerv1.CoordinateResponse), lost func(error)) {
	for ctx.Err() == nil {
		err := l.hold(ctx, conn, hello, reports)
		if l.isUp() {
			l.set(false)
			if ctx.Err() == nil {
				lost(err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(redial):
		}
	}
}

// hold opens the stream and uses it until it breaks.
func (l *link) hold(ctx context.Context, conn grpc.ClientConnInterface, hello *peerv1.Hello, reports func(*peerv1.CoordinateResponse)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(fmt.Errorf("node %s has said nothing for %s", l.node, silence)) })
	defer watchdog.Stop()
	stream, err := peerv1.NewTaskServiceClient(conn).Coordinate(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&peerv1.CoordinateRequest{Request: &peerv1.CoordinateRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() { // ends with the stream, which is cancelled when this function returns
		for {
			m, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			watchdog.Reset(silence)
			l.set(true)
			if d := m.GetDone(); d != nil {
				l.answer(d)
			} else {
				reports(m)
			}
		}
	}()
	wait := func(err error) error {
		cancel(err)
		return errors.Join(err, <-received)
	}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		l.mu.Lock()
		queue := l.mu.queue
		l.mu.queue = nil
		l.mu.Unlock()
		for _, m := range queue {
			if err := stream.Send(m); err != nil {
				return wait(err)
			}
		}
		select {
		case <-l.mu.wake:
		case <-tick.C:
			if err := stream.Send(&peerv1.CoordinateRequest{Request: &peerv1.CoordinateRequest_Ping{Ping: &peerv1.Ping{}}}); err != nil {
				return wait(err)
			}
		case err := <-received:
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
	}
}
