package link

import (
	"errors"
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// ErrClosed is returned by a hub that has been closed.
var ErrClosed = errors.New("the node's links are closed")

// LostError says that a run has ended because of another node. It is the cause of a *dataflow.Error of reason
// PIPELINE_RECOVERING: the next incarnation starts from the committed base.
type LostError struct {
	Peer string
	// Ended says that the peer has ended its part of the run and said so; Stopped, that it was told to. Else the stream broke, or
	// the peer broke its rules.
	Ended, Stopped bool
	Err            error // why, as far as it is known
}

func (e *LostError) Error() string {
	switch {
	case e.Stopped:
		return fmt.Sprintf("node %s has stopped its part of the run", e.Peer)
	case e.Ended:
		return fmt.Sprintf("node %s has ended its part of the run: %v", e.Peer, e.Err)
	}
	return fmt.Sprintf("the stream to node %s broke: %v", e.Peer, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

func lost(e *LostError) error { return dataflow.Errorf(dataflow.ReasonPipelineRecovering, "%w", e) }

// StaleError says that an incarnation is too old to run: a newer one is known, or it has ended.
type StaleError struct {
	Node        string // that knows
	Pipeline    dataflow.PipelineUID
	Incarnation dataflow.Incarnation
	Newest      dataflow.Incarnation // equal: this one has ended there
}

func (e *StaleError) Error() string {
	if e.Newest == e.Incarnation {
		return fmt.Sprintf("incarnation %d of pipeline %d has ended on node %s", e.Incarnation, e.Pipeline, e.Node)
	}
	return fmt.Sprintf("incarnation %d of pipeline %d is stale: node %s knows incarnation %d", e.Incarnation, e.Pipeline, e.Node, e.Newest)
}

// MismatchError says that two nodes do not run the same: a defect, or nodes of different versions.
type MismatchError struct {
	Peer string
	What string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("node %s does not run the same: %s; both must have the same version of Weir", e.Peer, e.What)
}
