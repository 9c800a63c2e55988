package coordinator

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// Event is something that the machine learns. Each prints itself on one line.
type Event interface {
	fmt.Stringer
	event()
}

// View is what the meta log says of the pipeline.
type View struct {
	State       dataflow.PipelineState
	Incarnation dataflow.Incarnation
	// Fresh says that no attempt numbers were ever reserved: nobody has started tasks yet, because a machine reserves
	// numbers before it starts any. Incarnation 1 can then be started as it is.
	Fresh     bool
	Base      *dataflow.CheckpointCommit // of the incarnation
	Committed dataflow.CheckpointID      // the newest committed cut
	Options   dataflow.PipelineOptions
	Shards    int // of the group
}

type (
	// Elected begins the machine's life: this node leads the meta log.
	Elected struct{}

	// BarrierPassed answers PassBarrier: View contains everything that earlier leaders committed.
	BarrierPassed struct {
		View View
		// Running is the incarnation of which all tasks run, as the workers report; 0 = none. When it is the current one
		// the new leader takes the tasks over without a restart.
		Running dataflow.Incarnation
	}

	// AttemptsReserved answers ReserveAttempts: the numbers First up to but not including End.
	AttemptsReserved struct{ First, End dataflow.CheckpointID }

	// Tick tells the time. The driver steps it at Machine.Deadline at the latest.
	Tick struct{}

	// Dirty says that there is something behind the last barrier.
	Dirty struct{}

	// RoomWanted says that a stream refuses rows until a checkpoint lets go of some: the next one, if there is anything
	// behind the last barrier, comes at most PressureInterval after it, also when checkpoint.interval is longer or off.
	RoomWanted struct{}

	// TriggerRequested asks for a checkpoint whose barrier is injected after now. Waiter is answered once. With Hold the sources
	// read nothing behind the barrier for a while: leads are about to move, and the next incarnation then begins where this one
	// has read to, so that nothing is read twice and live tables do not step back.
	TriggerRequested struct {
		Waiter uint64
		Hold   bool
	}

	// Ack is one shard's acknowledgement of an attempt: all its tasks have passed the barrier and its delta is in the
	// shard's log.
	Ack struct {
		Incarnation dataflow.Incarnation
		Checkpoint  dataflow.CheckpointID
		Shard       dataflow.ShardID
		Seq         dataflow.DeltaSeq
		Digest      uint64
		Index       dataflow.LogIndex
		Skipped     uint64             // rows left out since deployment
		Positions   dataflow.Positions // of the shard's sources at the barrier
	}

	// TaskFailed says that a task ended. With Permanent set a restart would meet the same end (a row makes an expression
	// fail, positions expired): the pipeline fails. Otherwise it is restarted; NOT_LEADER says that nothing has failed, and
	// the lead of a shard has moved.
	TaskFailed struct {
		Incarnation dataflow.Incarnation
		Permanent   bool
		Failure     dataflow.PipelineFailure
	}

	// TasksStarted answers StartTasks: all tasks of the incarnation run.
	TasksStarted struct{ Incarnation dataflow.Incarnation }

	// TasksStopped answers StopTasks: no task of the incarnation, or of an older one, runs any more.
	TasksStopped struct{ Incarnation dataflow.Incarnation }

	// CommitApplied answers ProposeCommit: the cut is committed.
	CommitApplied struct{ Commit *dataflow.CheckpointCommit }

	// CommitRefused answers ProposeCommit: the meta log refused it for good.
	CommitRefused struct {
		Checkpoint dataflow.CheckpointID
		Err        error
	}

	// IncarnationBegun answers ProposeBegin.
	IncarnationBegun struct {
		Incarnation dataflow.Incarnation
		Base        *dataflow.CheckpointCommit
	}

	// BeginRefused answers ProposeBegin: the meta log refused it; View is what it says instead.
	BeginRefused struct {
		Err  error
		View View
	}

	// OptionsChanged says that the pipeline has other options from now on.
	OptionsChanged struct{ Options dataflow.PipelineOptions }

	// StopRequested says that the meta log has the pipeline STOPPING.
	StopRequested struct{}

	// Resumed says that the meta log has the stopped or failed pipeline RECOVERING.
	Resumed struct{}

	// Deleted says that the meta log has the pipeline no more.
	Deleted struct{}

	// Deposed says that this node leads no more. The machine answers its waiters and does nothing afterwards.
	Deposed struct{}
)

func (Elected) event()          {}
func (BarrierPassed) event()    {}
func (AttemptsReserved) event() {}
func (Tick) event()             {}
func (Dirty) event()            {}
func (RoomWanted) event()       {}
func (TriggerRequested) event() {}
func (Ack) event()              {}
func (TaskFailed) event()       {}
func (TasksStarted) event()     {}
func (TasksStopped) event()     {}
func (CommitApplied) event()    {}
func (CommitRefused) event()    {}
func (IncarnationBegun) event() {}
func (BeginRefused) event()     {}
func (OptionsChanged) event()   {}
func (StopRequested) event()    {}
func (Resumed) event()          {}
func (Deleted) event()          {}
func (Deposed) event()          {}

func (v View) String() string {
	fresh := ""
	if v.Fresh {
		fresh = " fresh"
	}
	return fmt.Sprintf("%s i%d committed=%d%s", v.State, v.Incarnation, v.Committed, fresh)
}
func (Elected) String() string { return "elected" }
func (e BarrierPassed) String() string {
	return fmt.Sprintf("barrier passed: %s, tasks of i%d run", e.View, e.Running)
}
func (e AttemptsReserved) String() string {
	return fmt.Sprintf("attempts %d..%d reserved", e.First, e.End-1)
}
func (Tick) String() string       { return "tick" }
func (Dirty) String() string      { return "dirty" }
func (RoomWanted) String() string { return "room wanted" }
func (e TriggerRequested) String() string {
	s := fmt.Sprintf("trigger requested by waiter %d", e.Waiter)
	if e.Hold {
		s += ", holding the sources"
	}
	return s
}
func (e Ack) String() string {
	s := fmt.Sprintf("ack %d i%d shard %d s%d@%d [%s]", e.Checkpoint, e.Incarnation, e.Shard, e.Seq, e.Index, e.Positions)
	if e.Skipped > 0 {
		s += fmt.Sprintf(" skipped %d", e.Skipped)
	}
	return s
}
func (e TaskFailed) String() string {
	kind := "transient"
	if e.Permanent {
		kind = "permanent"
	}
	return fmt.Sprintf("task of i%d failed (%s): %s", e.Incarnation, kind, &e.Failure)
}
func (e TasksStarted) String() string  { return fmt.Sprintf("tasks of i%d run", e.Incarnation) }
func (e TasksStopped) String() string  { return fmt.Sprintf("tasks of i%d have stopped", e.Incarnation) }
func (e CommitApplied) String() string { return fmt.Sprintf("commit applied: %d", e.Commit.ID) }
func (e CommitRefused) String() string {
	return fmt.Sprintf("commit of %d refused: %v", e.Checkpoint, e.Err)
}
func (e IncarnationBegun) String() string {
	return fmt.Sprintf("i%d begun from cut %d", e.Incarnation, e.Base.ID)
}
func (e BeginRefused) String() string { return fmt.Sprintf("begin refused: %v; %s", e.Err, e.View) }
func (e OptionsChanged) String() string {
	interval := e.Options.Interval.String()
	if e.Options.Interval == 0 {
		interval = "off"
	}
	s := fmt.Sprintf("options changed: interval=%s timeout=%s", interval, e.Options.Timeout)
	if e.Options.OnError == dataflow.OnErrorSkip {
		s += " on_error=skip"
	}
	return s
}
func (StopRequested) String() string { return "stop requested" }
func (Resumed) String() string       { return "resumed" }
func (Deleted) String() string       { return "deleted" }
func (Deposed) String() string       { return "deposed" }
