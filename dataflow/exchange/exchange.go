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
//
// An edge between two nodes keeps the same rules: its sender encodes messages (AppendMessage) and package link carries
// them to the node of the inbox, where they are delivered (Edge.Deliver) under the edge's credits, and carries the credits
// back.
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

// Sender is a task's way to one task of another stage, on this node or elsewhere.
type Sender interface {
	// Send hands m over once a credit is free. Nothing of what m refers to is changed afterwards by the sender, except by one
	// that knows that the way leads to another node: m is encoded when Send returns. It returns ctx's error when ctx ends
	// first. One goroutine sends on an edge.
	Send(ctx context.Context, m Message) error
}

var _ Sender = (*Edge)(nil)

// EdgeID names an edge of a pipeline's run: it leads from the producing shard to the task of the stage on the other shard,
// by one of the stage's inputs.
type EdgeID struct {
	Stage    dataflow.StageID
	Input    int
	From, To dataflow.ShardID
}

func (id EdgeID) String() string {
	return fmt.Sprintf("stage %d input %d shard %d→%d", id.Stage, id.Input, id.From, id.To)
}

// Kind tells messages apart. The list is append-only: kinds are sent between nodes.
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

	// Marker and Positions belong to KindMarker. Who puts a marker in chooses a number that the run has not seen.
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
