package coordinator

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// Action is something that the driver does for the machine. Each prints itself on one line.
type Action interface {
	fmt.Stringer
	action()
}

type (
	// PassBarrier: pass a barrier of the meta log, then step BarrierPassed.
	PassBarrier struct{}

	// CancelAttempts: every attempt with a number up to Through is given up. The tasks need not know: barriers of these that
	// are under way go through all the same, their deltas count for the next attempt (P2), and acknowledgements that still
	// come are ignored. Needs no answer.
	CancelAttempts struct {
		Incarnation dataflow.Incarnation
		Through     dataflow.CheckpointID
		Cause       string
	}

	// ReserveAttempts: propose it to the meta log, then step AttemptsReserved.
	ReserveAttempts struct {
		Count int
		Fence bool
	}

	// InjectBarrier: tell the sources of the incarnation to inject the barrier. Each shard answers with Ack. With Hold they read
	// nothing behind it for a while: a lead is about to move.
	InjectBarrier struct {
		Incarnation dataflow.Incarnation
		Checkpoint  dataflow.CheckpointID
		Hold        bool
	}

	// ProposeCommit: propose it to the meta log, then step CommitApplied or CommitRefused. The driver sets Pipeline.
	ProposeCommit struct{ Commit *dataflow.CheckpointCommit }

	// ProposeBegin: propose BeginIncarnation to the meta log, then step IncarnationBegun or BeginRefused.
	ProposeBegin struct {
		After dataflow.Incarnation
		Cause string
	}

	// StartTasks: start all tasks of the incarnation from its base (P4), then step TasksStarted, or TaskFailed. A worker
	// does it only while the meta log has this incarnation as the current one.
	StartTasks struct {
		Incarnation dataflow.Incarnation
		Base        *dataflow.CheckpointCommit
	}

	// StopTasks: end all tasks of the incarnation and older ones, then step TasksStopped. A worker that has done so starts
	// none of these any more: a StartTasks of a deposed leader may still come.
	StopTasks struct{ Incarnation dataflow.Incarnation }

	// MarkRunning, MarkStopped, MarkFailed: propose the state to the meta log. Refusals need no answer: something newer
	// has happened, of which there will be an event.
	MarkRunning struct{ Incarnation dataflow.Incarnation }
	MarkStopped struct{ Incarnation dataflow.Incarnation }
	MarkFailed  struct{ Failure dataflow.PipelineFailure }

	// AnswerWaiter: the waiter's checkpoint is committed.
	AnswerWaiter struct {
		Waiter     uint64
		Checkpoint dataflow.CheckpointID
	}

	// FailWaiter: the waiter's checkpoint will not come.
	FailWaiter struct {
		Waiter uint64
		Err    *dataflow.Error
	}
)

func (PassBarrier) action()     {}
func (CancelAttempts) action()  {}
func (ReserveAttempts) action() {}
func (InjectBarrier) action()   {}
func (ProposeCommit) action()   {}
func (ProposeBegin) action()    {}
func (StartTasks) action()      {}
func (StopTasks) action()       {}
func (MarkRunning) action()     {}
func (MarkStopped) action()     {}
func (MarkFailed) action()      {}
func (AnswerWaiter) action()    {}
func (FailWaiter) action()      {}

func (PassBarrier) String() string { return "pass a barrier of the meta log" }
func (a CancelAttempts) String() string {
	return fmt.Sprintf("cancel attempts of i%d through %d: %s", a.Incarnation, a.Through, a.Cause)
}
func (a ReserveAttempts) String() string {
	if a.Fence {
		return fmt.Sprintf("reserve %d attempts, fencing older ones", a.Count)
	}
	return fmt.Sprintf("reserve %d attempts", a.Count)
}
func (a InjectBarrier) String() string {
	s := fmt.Sprintf("inject barrier %d i%d", a.Checkpoint, a.Incarnation)
	if a.Hold {
		s += ", hold the sources"
	}
	return s
}
func (a ProposeCommit) String() string { return "propose " + a.Commit.String() }
func (a ProposeBegin) String() string  { return fmt.Sprintf("propose i%d: %s", a.After+1, a.Cause) }
func (a StartTasks) String() string {
	return fmt.Sprintf("start tasks of i%d from cut %d", a.Incarnation, a.Base.ID)
}
func (a StopTasks) String() string   { return fmt.Sprintf("stop tasks of i%d", a.Incarnation) }
func (a MarkRunning) String() string { return fmt.Sprintf("mark i%d RUNNING", a.Incarnation) }
func (a MarkStopped) String() string { return fmt.Sprintf("mark i%d STOPPED", a.Incarnation) }
func (a MarkFailed) String() string {
	return fmt.Sprintf("mark i%d FAILED: %s", a.Failure.Incarnation, &a.Failure)
}
func (a AnswerWaiter) String() string {
	return fmt.Sprintf("answer waiter %d: %d", a.Waiter, a.Checkpoint)
}
func (a FailWaiter) String() string {
	return fmt.Sprintf("fail waiter %d: %s: %s", a.Waiter, a.Err.Reason, a.Err.Message)
}
