package raftlog

import (
	"strconv"

	"github.com/weirdb/weir/dataflow"
)

// Stats are figures of a group for people and metrics. They are read one after another, not at one moment.
type Stats struct {
	State         string // Leader, Follower, Candidate or Shutdown
	Term          uint64
	LastIndex     dataflow.LogIndex
	CommitIndex   dataflow.LogIndex
	AppliedIndex  dataflow.LogIndex
	SnapshotIndex dataflow.LogIndex
	Pending       int   // commands that wait or are in flight
	PendingBytes  int64 // their bytes
}

// Stats returns the group's figures.
func (g *Group) Stats() Stats {
	// The library hands the snapshot's index out as text only.
	snap, _ := strconv.ParseUint(g.raft.Stats()["last_snapshot_index"], 10, 64)
	s := Stats{
		State:         g.raft.State().String(),
		Term:          g.Term(),
		LastIndex:     dataflow.LogIndex(g.raft.LastIndex()),
		CommitIndex:   dataflow.LogIndex(g.raft.CommitIndex()),
		AppliedIndex:  g.AppliedIndex(),
		SnapshotIndex: dataflow.LogIndex(snap),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Pending, s.PendingBytes = g.mu.pending, g.mu.pendingBytes
	return s
}
