package fleet

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// session is the coordinator's stream as the node sees that runs the tasks.
type session struct {
	f    *Fleet
	hold *peerv1.Hello
	end  context.CancelCauseFunc

	out  outbox
	work sync.WaitGroup // calls under way

	mu       sync.Mutex
	starting map[dataflow.PipelineUID]context.CancelFunc
}

// outbox holds what is to be sent. It is bounded by the calls and the tasks there are.
type outbox struct {
	mu    sync.Mutex
	queue []*peerv1.CoordinateResponse
	wake  chan struct{} // capacity 1
}

func (o *outbox) post(m *peerv1.CoordinateResponse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, m)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) take() []*peerv1.CoordinateResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queue
	o.queue = nil
	return q
}

// Coordinate implements peerv1.TaskServiceServer.
func (s *server) Coordinate(stream grpc.BidiStreamingServer[peerv1.CoordinateRequest, peerv1.CoordinateResponse]) error {
	f := s.f
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "a coordinator begins with a hello")
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	ses := &session{f: f, hold: hello, end: end, starting: make(map[dataflow.PipelineUID]context.CancelFunc)}
	ses.out.wake = make(chan struct{}, 1)
	if err := f.admit(ses); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	defer f.dismiss(ses)
	ses.out.post(&peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Pong{Pong: &peerv1.Pong{}}})
	received := make(chan error, 1)
	go func() { received <- ses.receive(ctx, stream) }() // ends with the stream, which ends with this function
	for {
		for _, m := range ses.out.take() {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-ses.out.wake:
		case err := <-received:
			return err
		case <-ctx.Done():
			return status.Error(codes.Aborted, context.Cause(ctx).Error())
		}
	}
}

// admit makes ses the node's coordinator, unless one of a newer term has been here.
func (f *Fleet) admit(ses *session) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ses.hold.Term < f.mu.term {
		return fmt.Errorf("node %s coordinates in term %d, and term %d has begun", ses.hold.Node, ses.hold.Term, f.mu.term)
	}
	f.mu.term = ses.hold.Term
	if f.mu.session != nil {
		f.mu.session.end(fmt.Errorf("node %s coordinates in term %d now", ses.hold.Node, ses.hold.Term))
	}
	f.mu.session = ses
	return nil
}

// dismiss ends what ses has under way and waits for it.
func (f *Fleet) dismiss(ses *session) {
	f.mu.Lock()
	if f.mu.session == ses {
		f.mu.session = nil
	}
	f.mu.Unlock()
	ses.mu.Lock()
	for _, cancel := range ses.starting {
		cancel()
	}
	ses.mu.Unlock()
	ses.work.Wait()
}

func (s *session) receive(ctx context.Context, stream grpc.BidiStreamingServer[peerv1.CoordinateRequest, peerv1.CoordinateResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		w := s.f.cfg.Worker
		switch r := m.Request.(type) {
		case *peerv1.CoordinateRequest_Ping:
			s.out.post(&peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Pong{Pong: &peerv1.Pong{}}})
		case *peerv1.CoordinateRequest_Start:
			s.start(ctx, m.Call, dataflow.PipelineUID(r.Start.Pipeline), dataflow.Incarnation(r.Start.Incarnation))
		case *peerv1.CoordinateRequest_Stop:
			uid, inc := dataflow.PipelineUID(r.Stop.Pipeline), dataflow.Incarnation(r.Stop.Incarnation)
			s.mu.Lock()
			if cancel := s.starting[uid]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
			s.work.Go(func() {
				w.Stop(uid, inc)
				s.done(m.Call, nil)
			})
		case *peerv1.CoordinateRequest_Inject:
			s.f.injectFor(s, dataflow.PipelineUID(r.Inject.Pipeline), dataflow.Incarnation(r.Inject.Incarnation), dataflow.CheckpointID(r.Inject.Checkpoint), r.Inject.Hold)
		case *peerv1.CoordinateRequest_Attach:
			uid := dataflow.PipelineUID(r.Attach.Pipeline)
			d := &peerv1.Done{Call: m.Call}
			inc, n := w.Attach(uid, s.report(uid))
			d.Incarnation, d.Barrier = uint64(inc), uint64(n)
			s.out.post(&peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Done{Done: d}})
		default:
			return status.Errorf(codes.Unimplemented, "a request of a coordinator that this node does not know: %T", r)
		}
	}
}

// report returns what takes the reports of a pipeline's tasks for the coordinator.
func (s *session) report(uid dataflow.PipelineUID) func(coordinator.Event) {
	return func(ev coordinator.Event) {
		if m := encodeEvent(uid, ev); m != nil {
			s.out.post(m)
		}
	}
}

func (s *session) done(call uint64, err error) {
	s.out.post(&peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Done{Done: &peerv1.Done{Call: call, Problem: encodeProblem(err)}}})
}

// injectFor puts a barrier in for a coordinator, unless another one has come: its barriers follow those that were in then.
func (f *Fleet) injectFor(s *session, uid dataflow.PipelineUID, inc dataflow.Incarnation, n dataflow.CheckpointID, hold bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.session == s {
		f.cfg.Worker.Inject(uid, inc, n, hold)
	}
}

// start starts tasks, as soon as this node's meta log has the incarnation (P4).
func (s *session) start(ctx context.Context, call uint64, uid dataflow.PipelineUID, inc dataflow.Incarnation) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	if old := s.starting[uid]; old != nil {
		old()
	}
	s.starting[uid] = cancel
	s.mu.Unlock()
	s.work.Go(func() {
		defer cancel()
		s.done(call, s.f.startHere(ctx, uid, inc, s.report(uid)))
	})
}

// startHere starts the tasks of this node's shards.
func (f *Fleet) startHere(ctx context.Context, uid dataflow.PipelineUID, inc dataflow.Incarnation, step func(coordinator.Event)) error {
	st, err := f.cfg.Meta.Wait(ctx, func(st *meta.State) bool {
		p := st.Pipelines[uid]
		return p != nil && p.Incarnation >= inc || st.PipelineDeleted(uid)
	})
	if err != nil {
		return err
	}
	p := st.Pipelines[uid]
	if p == nil {
		return dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %d was deleted", uid)
	}
	return f.cfg.Worker.Start(ctx, uid, inc, p.Base, step)
}
