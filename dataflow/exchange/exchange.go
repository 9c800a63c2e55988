// Package exchange carries rows, barriers and markers between the tasks of a pipeline.
//
// A receiving task has one Inbox; each sending task has one Edge into it. Credits are per edge: an edge that is blocked,
// because it has delivered its barrier and waits for its siblings, holds back its own sender alone and never a sibling's
// barrier. The inbox has room for every credit of every edge, so that a sender with a credit never waits.
//
// Rules:
//
//	X1  Messages of one edge arrive in the order they were sent.
//	X2  A sender holds at most Credits messages in an inbox, the ones the receiver holds back included.
//	X3  A credit returns when the receiver has dealt with the message, not when it has taken it out.
//	X4  Send blocks the sender for want of a credit; nothing else in this package blocks.
package exchange

import (
	"context"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Credits is how many messages an edge may have in flight. Fewer would leave the receiver idle while the sender waits
// for the credit's return; more would only deepen what a barrier has to wait for.
const Credits = 4

// Kind tells messages apart.
type Kind uint8

const (
	// KindRows is a batch of rows for the receiver's key groups.
	KindRows Kind = iota
	// KindPartials is a set of pre-aggregated accumulators for the receiver's key groups.
	KindPartials
	// KindBarrier cuts the stream at a checkpoint attempt.
	KindBarrier
	// KindMarker says which input positions the messages before it cover (P9).
	KindMarker
)

// Message is one item on an edge. The receiver owns what it points to.
type Message struct {
	Kind Kind

	// Rows and Hashes belong to KindRows: Hashes[i] is the hash of row i's key columns.
	Rows   *batch.Batch
	Hashes []uint64

	// Partials belongs to KindPartials.
	Partials *Partials

	// Barrier belongs to KindBarrier.
	Barrier dataflow.CheckpointID

	// Marker and Positions belong to KindMarker. Markers are numbered per run of a pipeline, from 1.
	Marker    uint64
	Positions dataflow.Positions
}

// Partials holds one accumulator per distinct key.
type Partials struct {
	Hashes []uint64
	Keys   [][]byte
	Accs   [][]byte
}

func (m Message) String() string {
	switch m.Kind {
	case KindRows:
		return fmt.Sprintf("rows(%d)", m.Rows.N)
	case KindPartials:
		return fmt.Sprintf("partials(%d)", len(m.Partials.Keys))
	case KindBarrier:
		return fmt.Sprintf("barrier(%d)", m.Barrier)
	case KindMarker:
		return fmt.Sprintf("marker(%d %s)", m.Marker, m.Positions)
	}
	return fmt.Sprintf("message(%d)", m.Kind)
}

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
	select {
	case in.edges[edge].credits <- struct{}{}:
	default:
		panic("exchange: a credit was released twice")
	}
}

// Edge is one sender's way into an inbox.
type Edge struct {
	index   int
	inbox   *Inbox
	credits chan struct{}
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
