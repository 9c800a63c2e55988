package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
)

// A pipeline that recovers on the node where it has run begins with the tables that it had: what is in no committed cut is taken
// out of them, and where that can begin again as a partial, or was nothing, no table is to be filled. So such a restart does not
// depend on the size of the state, and when a node of a group is lost, the others fill the tables of its shards and no others.

const (
	// restFor is how long the tables of a run that has ended wait for the next one. Why not longer: they take memory. Why not
	// less: a recovery begins within a second, unless logs have no leader.
	restFor = 15 * time.Second
	// restLook is how often it is looked whether they have waited long enough.
	restLook = time.Second
)

// rested is a run that has ended, and its tables.
type rested struct {
	pipeline dataflow.PipelineUID
	run      *Running
	since    time.Time
}

// rest keeps the tables of a run that has ended for the next one, if there is to be one.
func (w *Worker) rest(uid dataflow.PipelineUID, r *Running) {
	keep := w.resumes(uid) && !r.Run.Spoiled()
	w.mu.Lock()
	before := w.mu.rested[uid].run
	if keep = keep && !w.mu.ended && w.mu.fences[uid].started <= r.Incarnation; keep {
		w.mu.rested[uid] = rested{pipeline: uid, run: r, since: time.Now()}
	}
	w.mu.Unlock()
	if !keep {
		r.closeTables()
		return
	}
	before.closeTables()
}

// resumes reports whether a pipeline is to run.
func (w *Worker) resumes(uid dataflow.PipelineUID) bool {
	p := w.cfg.Meta.State().Pipelines[uid]
	return p != nil && (p.State == dataflow.PipelineRunning || p.State == dataflow.PipelineRecovering)
}

// predecessor ends the pipeline's run before incarnation inc, and returns it or the one that has ended last, with its tables: the
// caller closes those that it does not use. It is nil when there is none.
func (w *Worker) predecessor(uid dataflow.PipelineUID, inc dataflow.Incarnation) *Running {
	r := w.halt(uid, inc-1)
	w.mu.Lock()
	last := w.mu.rested[uid].run
	delete(w.mu.rested, uid)
	w.mu.Unlock()
	if r == nil {
		return last
	}
	last.closeTables()
	return r
}

// succeed returns a table that has what the run had in its own, as far as base has it; nil when it has none, or another. whole
// says that it is not to be filled. r may be nil.
func (r *Running) succeed(ref tableRef, p *plan.Plan, base *dataflow.CheckpointCommit) (t *state.Table, whole bool) {
	if r == nil || r.Plan != p || r.Run.Spoiled() || r.tables[ref] == nil {
		return nil, false
	}
	complete := r.tables[ref].Complete()
	if t = r.tables[ref].Succeed(base.ID, base.Incarnation == r.Incarnation); t == nil {
		return nil, false
	}
	// What was taken out and cannot begin as a partial is filled in again, lest every row be looked for twice from now on.
	return t, t.Filled() && (t.HasPartials() || !complete || t.Complete())
}

// dismiss closes the tables of those that rest and of which done says so.
func (w *Worker) dismiss(done func(rested) bool) {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.mu.rested))
	w.mu.Unlock()
	for _, r := range all {
		if !done(r) {
			continue
		}
		w.mu.Lock()
		mine := w.mu.rested[r.pipeline].run == r.run
		if mine {
			delete(w.mu.rested, r.pipeline)
		}
		w.mu.Unlock()
		if mine {
			r.run.closeTables()
		}
	}
}

// dismissLoop dismisses those that have waited long enough, or wait for nothing.
func (w *Worker) dismissLoop(ctx context.Context) error {
	tick := time.NewTicker(restLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		pressed, _ := w.cfg.Memory.Pressed() // nobody evicts anything of tables without tasks
		w.dismiss(func(r rested) bool { return pressed || time.Since(r.since) > restFor || !w.resumes(r.pipeline) })
	}
}
