package coordinator_test

import (
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
)

// TestLeadsThatDoNotSettleBeginFewIncarnations: for a minute, no start of tasks finds the leaders that its incarnation names. Then one does,
// within the longest wait.
func TestLeadsThatDoNotSettleBeginFewIncarnations(t *testing.T) {
	const step = 10 * time.Millisecond
	settled := time.Minute
	m, inc, starts, began := coordinator.New(), dataflow.Incarnation(1), 0, time.Duration(0)
	var now time.Duration
	var feed func(ev coordinator.Event)
	feed = func(ev coordinator.Event) {
		for _, a := range m.Step(now.Microseconds(), ev) {
			switch a := a.(type) {
			case coordinator.PassBarrier:
				feed(coordinator.BarrierPassed{View: coordinator.View{State: dataflow.PipelineRunning, Incarnation: inc, Base: &dataflow.CheckpointCommit{},
					Options: dataflow.DefaultPipelineOptions(), Shards: 2}})
			case coordinator.ReserveAttempts:
				feed(coordinator.AttemptsReserved{First: 1, End: 1000})
			case coordinator.ProposeBegin:
				inc++
				feed(coordinator.IncarnationBegun{Incarnation: inc, Base: &dataflow.CheckpointCommit{}})
			case coordinator.StopTasks:
				feed(coordinator.TasksStopped(a))
			case coordinator.StartTasks:
				if starts++; now < settled {
					feed(coordinator.TaskFailed{Incarnation: inc, Failure: dataflow.PipelineFailure{Reason: dataflow.ReasonNotLeader, Message: "no leader is known"}})
				} else if began == 0 {
					began = now
					feed(coordinator.TasksStarted{Incarnation: inc})
				}
			}
		}
	}
	feed(coordinator.Elected{})
	for ; now < settled+2*coordinator.MovedMax; now += step {
		if d := m.Deadline(); d > 0 && d <= now.Microseconds() {
			feed(coordinator.Tick{})
		}
	}
	if starts > 20 || began < settled || began > settled+coordinator.MovedMax {
		t.Errorf("tasks were started %d times, and ran from %s on", starts, began)
	}
}
