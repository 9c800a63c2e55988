package checkpoint

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// Aligner decides, for a task with several input edges, which messages may be processed now. It is a pure state
// machine: one goroutine calls it, and it does no I/O.
//
// Aligned exactly-once: once an edge has delivered barrier n, what follows on it belongs to the next checkpoint and is
// held until every edge has delivered n. T is the message type; the aligner does not look into it.
//
//	A1  Messages of one edge are delivered in the order they came.
//	A2  Nothing that followed barrier n on its edge is delivered before Aligned(n).
//	A3  Barriers arrive on an edge in increasing order; every edge delivers every barrier.
type Aligner[T any] struct {
	edges   []edgeState[T]
	current dataflow.CheckpointID // the barrier being aligned; 0 = none
	arrived int                   // edges that have delivered it
}

type edgeState[T any] struct {
	last    dataflow.CheckpointID // last barrier taken from the edge
	blocked bool
	held    []item[T]
}

type item[T any] struct {
	barrier dataflow.CheckpointID // 0 = a message
	msg     T
}

// NewAligner returns an aligner over the given number of edges.
func NewAligner[T any](edges int) *Aligner[T] {
	return &Aligner[T]{edges: make([]edgeState[T], edges)}
}

// Actions is what a task must do, in this order: process Deliver, then, when Aligned is not 0, take the snapshot of
// that barrier, pass it on, and call Resume for what follows.
type Actions[T any] struct {
	Deliver []Delivery[T]
	Aligned dataflow.CheckpointID
	// Barriers are the edges whose barrier message is dealt with by Aligned: its credit returns.
	Barriers []int
}

// Delivery is one message to process.
type Delivery[T any] struct {
	Edge int
	Msg  T
}

// Message takes a message that came by an edge.
func (a *Aligner[T]) Message(edge int, msg T) Actions[T] {
	e := &a.edges[edge]
	if e.blocked {
		e.held = append(e.held, item[T]{msg: msg})
		return Actions[T]{}
	}
	return Actions[T]{Deliver: []Delivery[T]{{Edge: edge, Msg: msg}}}
}

// Barrier takes barrier n that came by an edge. An error means that a rule was broken upstream and the run must end.
func (a *Aligner[T]) Barrier(edge int, n dataflow.CheckpointID) (Actions[T], error) {
	e := &a.edges[edge]
	if e.blocked {
		e.held = append(e.held, item[T]{barrier: n})
		return Actions[T]{}, nil
	}
	return a.barrier(edge, n)
}

func (a *Aligner[T]) barrier(edge int, n dataflow.CheckpointID) (Actions[T], error) {
	e := &a.edges[edge]
	if n <= e.last {
		return Actions[T]{}, fmt.Errorf("edge %d delivered barrier %d after %d", edge, n, e.last)
	}
	if a.current != 0 && n != a.current {
		return Actions[T]{}, fmt.Errorf("edge %d delivered barrier %d while %d is being aligned", edge, n, a.current)
	}
	e.last, e.blocked = n, true
	a.current = n
	a.arrived++
	if a.arrived < len(a.edges) {
		return Actions[T]{}, nil
	}
	acts := Actions[T]{Aligned: n}
	for i := range a.edges {
		acts.Barriers = append(acts.Barriers, i)
	}
	return acts, nil
}

// Resume is called once the snapshot of an aligned barrier has been taken and the barrier passed on. It unblocks the
// edges and returns what they had held. When that completes the next barrier, Aligned is set again.
func (a *Aligner[T]) Resume() (Actions[T], error) {
	var acts Actions[T]
	a.current, a.arrived = 0, 0
	for i := range a.edges {
		a.edges[i].blocked = false
	}
	for i := range a.edges {
		e := &a.edges[i]
		for len(e.held) > 0 && !e.blocked {
			it := e.held[0]
			e.held = e.held[1:]
			if it.barrier == 0 {
				acts.Deliver = append(acts.Deliver, Delivery[T]{Edge: i, Msg: it.msg})
				continue
			}
			more, err := a.barrier(i, it.barrier)
			if err != nil {
				return acts, err
			}
			acts.Aligned, acts.Barriers = more.Aligned, more.Barriers
		}
		if len(e.held) == 0 {
			e.held = nil
		}
	}
	return acts, nil
}

// Aligning returns the barrier being aligned and how many edges have not delivered it yet; 0 when none is.
func (a *Aligner[T]) Aligning() (n dataflow.CheckpointID, missing []int) {
	if a.current == 0 {
		return 0, nil
	}
	for i := range a.edges {
		if a.edges[i].last != a.current {
			missing = append(missing, i)
		}
	}
	return a.current, missing
}
