package fleet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
)

// wire is a connection on which Coordinate calls serve, in one process and without a network, so that time can stand still.
type wire struct {
	serve func(grpc.BidiStreamingServer[peerv1.CoordinateRequest, peerv1.CoordinateResponse]) error
	calls sync.WaitGroup
}

// connect returns a wire to a node's fleet.
func connect(f *Fleet) *wire { return &wire{serve: (&server{f: f}).Coordinate} }

func (w *wire) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errors.New("only streams are served")
}

func (w *wire) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	e := &end{requests: make(chan proto.Message), responses: make(chan proto.Message), over: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(ctx)
	w.calls.Go(func() {
		e.err = w.serve(&grpc.GenericServerStream[peerv1.CoordinateRequest, peerv1.CoordinateResponse]{ServerStream: serverEnd{e}})
		e.cancel()
		close(e.over)
	})
	return clientEnd{e}, nil
}

// end is a stream between the two.
type end struct {
	ctx                 context.Context
	cancel              context.CancelFunc
	requests, responses chan proto.Message
	over                chan struct{} // closed when the server has returned err
	err                 error
}

func (e *end) send(ch chan proto.Message, m any) error {
	select {
	case ch <- proto.Clone(m.(proto.Message)):
		return nil
	case <-e.ctx.Done():
		return io.EOF
	}
}

func (e *end) recv(ch chan proto.Message, m any) error {
	select {
	case got := <-ch:
		proto.Merge(m.(proto.Message), got)
		return nil
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	}
}

type clientEnd struct{ *end }

func (c clientEnd) Header() (metadata.MD, error) { return nil, nil }
func (c clientEnd) Trailer() metadata.MD         { return nil }
func (c clientEnd) CloseSend() error             { return nil }
func (c clientEnd) Context() context.Context     { return c.ctx }
func (c clientEnd) SendMsg(m any) error          { return c.send(c.requests, m) }

func (c clientEnd) RecvMsg(m any) error {
	err := c.recv(c.responses, m)
	if err != nil {
		<-c.over // the server's answer is the reason
		if c.err != nil {
			return c.err
		}
	}
	return err
}

type serverEnd struct{ *end }

func (s serverEnd) SetHeader(metadata.MD) error  { return nil }
func (s serverEnd) SendHeader(metadata.MD) error { return nil }
func (s serverEnd) SetTrailer(metadata.MD)       {}
func (s serverEnd) Context() context.Context     { return s.ctx }
func (s serverEnd) SendMsg(m any) error          { return s.send(s.responses, m) }
func (s serverEnd) RecvMsg(m any) error          { return s.recv(s.requests, m) }

func newFleet(node string) *Fleet {
	return New(Config{Node: node, Logger: slog.New(slog.DiscardHandler)})
}

// linked is a link that runs.
type linked struct {
	*link
	lost chan error
	stop context.CancelFunc
}

func linkTo(t *testing.T, w *wire, node, coordinator string, term uint64) *linked {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &linked{link: newLink(node), lost: make(chan error, 10), stop: stop}
	var run sync.WaitGroup
	run.Go(func() {
		l.run(ctx, w, &peerv1.Hello{Node: coordinator, Term: term}, func(*peerv1.CoordinateResponse) {}, func(err error) { l.lost <- err })
	})
	t.Cleanup(func() {
		stop()
		run.Wait()
		w.calls.Wait()
	})
	return l
}

func TestANodeThatAnswersIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := linkTo(t, connect(newFleet("n2")), "n2", "n1", 1)
		time.Sleep(time.Hour)
		if !l.isUp() || len(l.lost) > 0 {
			t.Fatalf("up %t, lost %d times", l.isUp(), len(l.lost))
		}
	})
}

func TestANodeThatSaysNothingIsLostOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n2 := connect(newFleet("n2"))
		answers, mute := n2.serve, make(chan struct{})
		lives := 0
		n2.serve = func(s grpc.BidiStreamingServer[peerv1.CoordinateRequest, peerv1.CoordinateResponse]) error {
			if lives++; lives > 1 {
				return answers(s)
			}
			return answers(muted{s, mute})
		}
		l := linkTo(t, n2, "n2", "n1", 1)
		time.Sleep(10 * time.Second)
		if !l.isUp() {
			t.Fatal("the link is not up before the node falls silent")
		}
		close(mute)
		begun := time.Now()
		if err := <-l.lost; !strings.Contains(err.Error(), "has said nothing") {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > silence+pingEvery {
			t.Fatalf("the node was lost after %s", took)
		}
		time.Sleep(time.Minute)
		if !l.isUp() || len(l.lost) > 0 || lives != 2 {
			t.Fatalf("up %t, lost %d times more, %d streams", l.isUp(), len(l.lost), lives)
		}
	})
}

// muted sends nothing more from when its channel is closed on.
type muted struct {
	grpc.BidiStreamingServer[peerv1.CoordinateRequest, peerv1.CoordinateResponse]
	mute chan struct{}
}

func (m muted) Send(r *peerv1.CoordinateResponse) error {
	select {
	case <-m.mute:
		return nil
	default:
		return m.BidiStreamingServer.Send(r)
	}
}

func TestACoordinatorOfALaterTermPutsTheOneBeforeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n3 := connect(newFleet("n3"))
		old := linkTo(t, n3, "n3", "n1", 4)
		synctest.Wait()
		if !old.isUp() {
			t.Fatal("the first coordinator is not taken")
		}
		later := linkTo(t, n3, "n3", "n2", 5)
		if err := <-old.lost; !strings.Contains(err.Error(), "node n2 coordinates in term 5 now") {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // in which the old one goes on trying
		if old.isUp() || !later.isUp() || len(later.lost) > 0 {
			t.Fatalf("old up %t, new up %t, lost %d times", old.isUp(), later.isUp(), len(later.lost))
		}
	})
}

func TestANodeThatCoordinatesItselfTakesNoOlderCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet("n3")
		f.mu.term = 6 // of its own
		l := linkTo(t, connect(f), "n3", "n1", 5)
		time.Sleep(time.Minute)
		if l.isUp() {
			t.Fatal("it was taken")
		}
	})
}

func TestACallFailsWhenItsLinkBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n2 := connect(newFleet("n2"))
		n2.serve = func(s grpc.BidiStreamingServer[peerv1.CoordinateRequest, peerv1.CoordinateResponse]) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			if err := s.Send(&peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Pong{Pong: &peerv1.Pong{}}}); err != nil {
				return err
			}
			for { // it takes requests, and answers none
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
		}
		l := linkTo(t, n2, "n2", "n1", 1)
		synctest.Wait()
		if !l.isUp() {
			t.Fatal("the link is not up")
		}
		_, err := l.call(t.Context(), &peerv1.CoordinateRequest{Request: &peerv1.CoordinateRequest_Ping{Ping: &peerv1.Ping{}}})
		if dataflow.ReasonOf(err) != dataflow.ReasonUnreachable {
			t.Fatal(err)
		}
	})
}

func TestNothingIsSentToANodeThatIsNotConnected(t *testing.T) {
	l := newLink("n2")
	l.post(&peerv1.CoordinateRequest{})
	if _, err := l.call(t.Context(), &peerv1.CoordinateRequest{}); dataflow.ReasonOf(err) != dataflow.ReasonUnreachable {
		t.Fatal(err)
	}
	if len(l.mu.queue) > 0 {
		t.Fatal("what was posted before a connection would come after it, out of its time")
	}
}
