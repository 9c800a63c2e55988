package raftlog

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
)

// ErrWriteDeadline is the cause of Failed when a durable write did not end in time (R3).
var ErrWriteDeadline = errors.New("raftlog: a durable write did not end in time")

// errFrozen answers entries that were not applied because an earlier one could not be.
var errFrozen = errors.New("raftlog: the state machine is frozen after a failure")

func (g *Group) errNotLeader() error {
	e := dataflow.Errorf(dataflow.ReasonNotLeader, "this node does not lead log %s", g.cfg.Group).WithRetry(retryElection)
	switch l := g.Leader(); l {
	case g.cfg.NodeID:
	case "":
		e.Message = fmt.Sprintf("no leader of log %s is known to this node", g.cfg.Group)
		e = e.WithHint("one is elected when a majority of the log's voters answers; weir cluster status shows who does not")
	default:
		e = e.WithHint("node %s leads it", l).WithMeta("leader", l)
	}
	return e
}

func (g *Group) errClosed() error {
	return dataflow.Errorf(dataflow.ReasonShuttingDown, "log %s is closed", g.cfg.Group)
}

func (g *Group) errUnknown(cause error) error {
	e := dataflow.Errorf(dataflow.ReasonOutcomeUnknown, "log %s: it is unknown whether the command was or will be applied: %v", g.cfg.Group, cause)
	e.Err = cause
	return e
}

// proposeError says what a failed future of hashicorp/raft means (R2).
func (g *Group) proposeError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return g.errNotLeader()
	default:
		// Leadership lost, shutdown, an aborting restore, a failed write of the leader's own log: the entry may be on
		// the disk of any member.
		return g.errUnknown(fmt.Errorf("raft: %w", err))
	}
}
