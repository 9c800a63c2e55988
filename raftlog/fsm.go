package raftlog

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/frame"
)

// FSM is the state that a group's log builds. Its methods are called by one goroutine of the group, never at the same
// time; a Snapshot's methods run beside them.
type FSM interface {
	// Apply applies the committed command at index. Indexes increase, with gaps (the library's own entries). The result
	// is handed to the proposer, when that is this node. cmd must not be kept or changed after Apply returns, unless it
	// is copied. Apply depends on the state and its arguments alone (P1) and must not fail: what a command does wrong is
	// part of its result.
	Apply(index dataflow.LogIndex, cmd []byte) any
	// Snapshot captures the state as of the last applied command. It must be quick, for Apply waits; the work belongs
	// into Persist.
	Snapshot() (Snapshot, error)
	// Restore replaces the state by a snapshot's, whole or not at all. r ends at the snapshot's end.
	Restore(r io.Reader) error
}

// OnDiskFSM is an FSM that keeps its state itself (P7). Config.OnDisk asks for it.
type OnDiskFSM interface {
	FSM
	// AppliedIndex is the index that the state contains. Open refuses to start below the newest snapshot's index.
	// Entries at or below it may be applied again after a restart; Apply must skip what it has.
	AppliedIndex() dataflow.LogIndex
}

// Snapshot is a captured state.
type Snapshot interface {
	// Persist writes the state. It runs beside Apply.
	Persist(w io.Writer) error
	// Release is called once, after Persist or instead of it.
	Release()
}

// fsmAdapter is the FSM as hashicorp/raft sees it. It opens the frames (R1) and counts what is applied.
type fsmAdapter struct {
	fsm  FSM
	fail func(error) // names the log
	// onApply is called after each command.
	onApply func(*raft.Log)
	// fwd is told what commands that this member had others propose came to; nil in a group that forwards none.
	fwd     *forwarding
	frozen  atomic.Bool
	applied atomic.Uint64
}

var _ raft.FSM = (*fsmAdapter)(nil)

// Apply implements raft.FSM. The result is an applyResult.
func (a *fsmAdapter) Apply(l *raft.Log) any {
	if a.frozen.Load() {
		return applyResult{err: errFrozen}
	}
	cmd, from, err := frame.OpenFrom(l.Data)
	if err != nil {
		// The command is committed, so the other members apply it; this one can only stop (R1).
		err = fmt.Errorf("entry %d: %w", l.Index, err)
		a.frozen.Store(true)
		a.fail(err)
		return applyResult{err: err}
	}
	var v any
	if !from.Barrier {
		v = a.fsm.Apply(dataflow.LogIndex(l.Index), cmd)
	}
	mine := a.fwd.claim(from)
	a.applied.Store(l.Index)
	a.fwd.applied(mine, dataflow.LogIndex(l.Index), v)
	a.onApply(l)
	return applyResult{value: v}
}

// applyResult is what an applied command answers, or why it was not applied.
type applyResult struct {
	value any
	err   error
}

// Snapshot implements raft.FSM.
func (a *fsmAdapter) Snapshot() (raft.FSMSnapshot, error) {
	if a.frozen.Load() {
		return nil, errFrozen
	}
	s, err := a.fsm.Snapshot()
	if err != nil {
		return nil, err
	}
	return snapshotAdapter{s}, nil
}

// Restore implements raft.FSM.
func (a *fsmAdapter) Restore(r io.ReadCloser) error {
	if a.frozen.Load() {
		return errFrozen
	}
	if err := a.fsm.Restore(r); err != nil {
		return err
	}
	// The library hides which snapshot it restores in its own reader.
	for {
		w, ok := r.(raft.ReadCloserWrapper)
		if !ok {
			break
		}
		r = w.WrappedReadCloser()
	}
	if s, ok := r.(*snapshotReader); ok {
		a.applied.Store(s.index)
		a.fwd.restored(dataflow.LogIndex(s.index))
	}
	return nil
}

// snapshotAdapter is a Snapshot as hashicorp/raft sees it.
type snapshotAdapter struct{ Snapshot }

// Persist implements raft.FSMSnapshot. The library closes or cancels the sink again; both are idempotent.
func (s snapshotAdapter) Persist(sink raft.SnapshotSink) error {
	if err := s.Snapshot.Persist(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}
