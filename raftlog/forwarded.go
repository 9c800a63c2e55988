package raftlog

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/frame"
)

// Forwards is the leader's end of a ForwardStream. One goroutine receives while another sends.
type Forwards interface {
	// Receive returns the next frame, which it gives away. io.EOF is the end.
	Receive() ([]byte, error)
	// Send replies.
	Send(ForwardReply) error
}

// CheckForwards says whether this member takes other members' commands in a term: NOT_LEADER or SHUTTING_DOWN, or nil.
func (g *Group) CheckForwards(term uint64) error {
	switch {
	case g.isClosed():
		return g.errClosed()
	case !g.IsLeader() || g.Term() != term:
		return g.errNotLeader()
	}
	return nil
}

// ServeForwards proposes the commands of another member, which it had because this one leads in a term, and returns when
// the stream has ended and everything was replied to. It ends with ctx, which must also end the stream.
//
// Once a command is refused, all that come after it are, so that none of them overtakes it.
func (g *Group) ServeForwards(ctx context.Context, term uint64, s Forwards) error {
	type item struct {
		p   *Pending
		err error // a refusal
	}
	// One command at a time is taken from the stream and not counted by enqueue; a refused one is none of its.
	items := make(chan item, g.cfg.MaxPending)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var sendErr error
	wg.Go(func() {
		defer cancel() // Receive is ended by the stream's own context, when sending failed
		for it := range items {
			if sendErr = s.Send(g.reply(ctx, it.p, it.err)); sendErr != nil {
				return
			}
		}
	})
	var err error
	var refused error
	for err == nil {
		var b []byte
		if b, err = s.Receive(); err != nil {
			break
		}
		it := item{err: refused}
		if refused == nil {
			it.p, it.err = g.submitForwarded(term, b)
			refused = it.err
		}
		select {
		case items <- it:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	close(items)
	wg.Wait()
	if errors.Is(err, io.EOF) {
		return sendErr
	}
	return errors.Join(sendErr, err)
}

// reply waits for a command's outcome.
func (g *Group) reply(ctx context.Context, p *Pending, refused error) ForwardReply {
	if refused != nil {
		return ForwardReply{Err: refused, Stopped: true}
	}
	index, _, err := p.Wait(ctx)
	if err != nil {
		return ForwardReply{Err: err}
	}
	return ForwardReply{Index: index}
}

// submitForwarded proposes a command of another member. It keeps b.
func (g *Group) submitForwarded(term uint64, b []byte) (*Pending, error) {
	if err := g.CheckForwards(term); err != nil {
		return nil, err
	}
	cmd, from, err := frame.OpenFrom(b)
	if err != nil || from == (frame.Origin{}) {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "log %s: a command was damaged on its way to the leader", g.cfg.Group)
	}
	if err := g.checkSize(len(cmd)); err != nil {
		return nil, err
	}
	return g.enqueue(&Pending{g: g, frame: b}, g.queue)
}
