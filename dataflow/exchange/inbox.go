package exchange

import (
	"context"
	"fmt"
)

// Envelope is a message with the edge it came by.
type Envelope struct {
	Edge int
	Message
}

// Inbox is where one task receives from all its edges.
type Inbox struct {
	ch    chan Envelope
	edges []*Edge
}

// NewInbox returns an inbox with the given number of edges, each with the given credits.
func NewInbox(edges, credits int) *Inbox {
	in := &Inbox{ch: make(chan Envelope, edges*credits)}
	for i := range edges {
		e := &Edge{index: i, inbox: in, credits: make(chan struct{}, credits)}
		for range credits {
			e.credits <- struct{}{}
		}
		in.edges = append(in.edges, e)
	}
	return in
}

// Edges returns how many edges lead into the inbox.
func (in *Inbox) Edges() int { return len(in.edges) }

// Edge returns edge i. Only one goroutine may send on it.
func (in *Inbox) Edge(i int) *Edge { return in.edges[i] }

// C returns the channel that the owning task receives from.
func (in *Inbox) C() <-chan Envelope { return in.ch }

// Release returns the credit of a message of the edge (X3).
func (in *Inbox) Release(edge int) {
	e := in.edges[edge]
	select {
	case e.credits <- struct{}{}:
	default:
		panic("exchange: a credit was released twice")
	}
	if e.released != nil {
		e.released()
	}
}

// Edge is one sender's way into an inbox.
type Edge struct {
	index   int
	inbox   *Inbox
	credits chan struct{}
	// released, if set, is told of every credit that returns: the sender is on another node.
	released func()
}

// OnRelease makes the edge one that is fed by Deliver, and lets f know of every credit that returns. f must not block. It is
// called before the run starts.
func (e *Edge) OnRelease(f func()) { e.released = f }

// Deliver puts m, which came from another node, into the inbox. It never blocks: the error says that the sender has sent more
// than it had credits for.
func (e *Edge) Deliver(m Message) error {
	select {
	case <-e.credits:
	default:
		return fmt.Errorf("%s came without a credit", m)
	}
	e.inbox.ch <- Envelope{Edge: e.index, Message: m} // has room, as in Send
	return nil
}

// Send puts m into the inbox once a credit is free. It returns ctx's error, and has sent nothing, when ctx ends first.
func (e *Edge) Send(ctx context.Context, m Message) error {
	select {
	case <-e.credits:
	default:
		select {
		case <-e.credits:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e.inbox.ch <- Envelope{Edge: e.index, Message: m} // has room: the capacity is the number of credits
	return nil
}
