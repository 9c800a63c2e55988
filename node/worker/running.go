package worker

import (
	"sync"
	"sync/atomic"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/dataflow/task"
)

// Running is a pipeline's run on this node.
type Running struct {
	Incarnation dataflow.Incarnation
	Run         *task.Run
	Plan        *plan.Plan
	tables      map[tableRef]*state.Table
	view        func(dataflow.ShardID, dataflow.CheckpointID) (*state.View, error)
	onError     dataflow.OnError // what the tasks were started with
	covered     *Coverage
	led         []*Shard              // whose tasks run here
	kept        map[tableRef]struct{} // the tables that its predecessor had, and that are not to be filled
	fillers     fillers
	watch       sync.WaitGroup                             // ends with Run
	injecting   sync.Mutex                                 // held while a barrier is put in
	injected    atomic.Uint64                              // the last one
	end         func(dataflow.StreamShard) dataflow.Offset // where the rows end that the tasks read
}

type tableRef struct {
	stage dataflow.StageID
	shard dataflow.ShardID
}

// Table returns the live table of a stage on a shard.
func (r *Running) Table(stage dataflow.StageID, shard dataflow.ShardID) *state.Table {
	return r.tables[tableRef{stage, shard}]
}

// committed tells the tables that a cut of the run's incarnation can be read on a shard.
func (r *Running) committed(shard dataflow.ShardID, c *dataflow.CheckpointCommit) {
	if c.Incarnation != r.Incarnation {
		return
	}
	for ref, t := range r.tables {
		if ref.shard == shard {
			t.Committed(c.ID)
		}
	}
}

// closeTables gives the memory of the tables back. No task uses them any more; readers are told that they are gone. r may be nil.
func (r *Running) closeTables() {
	if r == nil {
		return
	}
	for _, t := range r.tables {
		t.Close()
	}
}

// Size returns how many keys the tables hold and the memory they take, about.
func (r *Running) Size() (keys int, bytes int64) {
	for _, t := range r.tables {
		keys += t.Len()
		bytes += t.Bytes()
	}
	return keys, bytes
}

// Live returns the pipeline's run, or nil when it has none that works at this moment.
func (w *Worker) Live(uid dataflow.PipelineUID) *Running {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.mu.runs[uid]
	if r == nil {
		return nil
	}
	select {
	case <-r.Run.Done():
		return nil
	default:
		return r
	}
}

// Inject puts barrier n into the sources of the incarnation, if it runs here, and holds them behind it for a while if told to.
func (w *Worker) Inject(uid dataflow.PipelineUID, inc dataflow.Incarnation, n dataflow.CheckpointID, hold bool) {
	if r := w.Live(uid); r != nil && r.Incarnation == inc {
		r.inject(n, hold)
	}
}

// inject puts barrier n in, unless it or a later one is in. Then it comes from a coordinator that has just taken over: what the one
// before it held the sources for will not happen.
func (r *Running) inject(n dataflow.CheckpointID, hold bool) {
	r.injecting.Lock()
	defer r.injecting.Unlock()
	if uint64(n) > r.injected.Load() {
		r.injected.Store(uint64(n))
		r.Run.Inject(n, hold)
	} else if !hold {
		r.Run.GoOn()
	}
}
