package task

import (
	"sync"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/phase"
)

// barriers records how long each barrier is on its way: from its injection until every keyed task has taken its
// snapshot, or the run has ended. It does nothing without a recorder.
type barriers struct {
	phases *phase.Recorder
	tasks  int
	mu     struct {
		sync.Mutex
		missing map[dataflow.CheckpointID]int // tasks that the barrier has not passed
		closed  bool
	}
}

func (b *barriers) init(tasks int, phases *phase.Recorder) {
	b.tasks, b.phases = tasks, phases
	b.mu.missing = make(map[dataflow.CheckpointID]int)
}

func (b *barriers) open(n dataflow.CheckpointID) {
	if b.phases == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.closed {
		b.phases.Enter(phase.Barrier)
		b.mu.missing[n] = b.tasks
	}
}

// passed says that one task has taken its snapshot.
func (b *barriers) passed(n dataflow.CheckpointID) {
	if b.phases == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.missing[n]--; b.mu.missing[n] == 0 {
		b.phases.Leave(phase.Barrier)
		delete(b.mu.missing, n)
	}
}

func (b *barriers) close() {
	if b.phases == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.closed = true
	for n := range b.mu.missing {
		b.phases.Leave(phase.Barrier)
		delete(b.mu.missing, n)
	}
}
