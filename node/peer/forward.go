package peer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog"
)

// Forward implements raftlog.Forwarder.
func (p *Peers) Forward(ctx context.Context, node, group string, term uint64) (raftlog.ForwardStream, error) {
	c, err := p.Conn(node)
	if err != nil {
		return nil, err
	}
	s, err := peerv1.NewPeerServiceClient(c).Forward(ctx)
	if err != nil {
		return nil, fromStatus(err)
	}
	open := &peerv1.ForwardOpen{Log: group, Term: term}
	// When this fails, Recv says why.
	_ = s.Send(&peerv1.ForwardRequest{Request: &peerv1.ForwardRequest_Open{Open: open}})
	f := forwardStream{s}
	r, err := f.Receive()
	if err != nil {
		return nil, err
	}
	return f, r.Err
}

// fromStatus returns the error that a call to another node ended with: what that node said, or why it was not reached.
func fromStatus(err error) error {
	if e, _, ok := wire.ErrorOf(status.Convert(err).Proto()); ok {
		return e
	}
	return err
}

// forwardStream is a raftlog.ForwardStream over gRPC.
type forwardStream struct {
	s peerv1.PeerService_ForwardClient
}

// Send implements raftlog.ForwardStream.
func (f forwardStream) Send(frame []byte) error {
	return f.s.Send(&peerv1.ForwardRequest{Request: &peerv1.ForwardRequest_Frame{Frame: frame}})
}

// Receive implements raftlog.ForwardStream.
func (f forwardStream) Receive() (raftlog.ForwardReply, error) {
	m, err := f.s.Recv()
	if err != nil {
		return raftlog.ForwardReply{}, fromStatus(err) // io.EOF stays
	}
	r := raftlog.ForwardReply{Index: dataflow.LogIndex(m.Index), Stopped: m.Stopped}
	if m.Error != nil {
		e, _, ok := wire.ErrorOf(m.Error)
		if !ok {
			return r, fmt.Errorf("a reply with an error of nobody: %s", m.Error.Message)
		}
		r.Err = e
	}
	return r, nil
}

// service serves peerv1.PeerService.
type service struct {
	peerv1.UnimplementedPeerServiceServer
	p *Peers
}

// Forward implements peerv1.PeerServiceServer.
func (s *service) Forward(stream peerv1.PeerService_ForwardServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	open := m.GetOpen()
	if open == nil {
		return asStatus(dataflow.Errorf(dataflow.ReasonRequestInvalid, "the first request of a stream of commands opens it"))
	}
	l := s.p.log(open.Log)
	if l == nil {
		return asStatus(dataflow.Errorf(dataflow.ReasonNotLeader, "node %s has no log %s, or does not have it yet", s.p.cfg.Net.Self().Node, open.Log).
			WithRetry(firstRetry))
	}
	if err := l.CheckForwards(open.Term); err != nil {
		return asStatus(err)
	}
	if err := stream.Send(&peerv1.ForwardResponse{}); err != nil {
		return err
	}
	return asStatus(l.ServeForwards(stream.Context(), open.Term, forwards{stream}))
}

// asStatus makes an error one that fromStatus understands. A status, as of a broken stream, stays.
func asStatus(err error) error {
	var e *dataflow.Error
	if _, ok := status.FromError(err); ok && !errors.As(err, &e) {
		return err
	}
	return status.FromProto(wire.Status(err, nil)).Err()
}

// forwards is a raftlog.Forwards over gRPC.
type forwards struct {
	s peerv1.PeerService_ForwardServer
}

// Receive implements raftlog.Forwards.
func (f forwards) Receive() ([]byte, error) {
	m, err := f.s.Recv()
	if err != nil {
		return nil, err
	}
	return m.GetFrame(), nil
}

// Send implements raftlog.Forwards.
func (f forwards) Send(r raftlog.ForwardReply) error {
	m := &peerv1.ForwardResponse{Index: uint64(r.Index), Stopped: r.Stopped}
	if r.Err != nil {
		m.Error = wire.Status(r.Err, nil)
	}
	return f.s.Send(m)
}
