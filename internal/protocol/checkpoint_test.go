package protocol

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/raftlog/meta"
)

var (
	seedFlag = flag.Uint64("seed", 0, "run this seed alone")
	runsFlag = flag.Int("runs", 300, "how many seeds to run")
)

// TestCommitsAreExactUnderAnyInterleaving drives the coordinator, the meta FSM and modelled shards through random
// histories and checks after each step that
//
//   - attempt numbers are never used twice (P3); committed ids increase, and no id is committed twice;
//   - a commit names the current incarnation, and exactly what every shard acknowledged for it (P2);
//   - the state at the cut, built from base and deltas, contains exactly the rows below the positions (G1), whatever
//     attempts failed before (G6);
//   - every waiter is answered exactly once, and told of a commit only when there is one that began after it asked;
//   - when the failures end, a checkpoint covers all rows.
func TestCommitsAreExactUnderAnyInterleaving(t *testing.T) {
	if *seedFlag != 0 {
		newWorld(t, *seedFlag).run()
		return
	}
	var total counts
	for seed := uint64(1); seed <= uint64(*runsFlag); seed++ {
		w := newWorld(t, seed)
		w.run()
		total.add(w.counts)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d runs: %+v", *runsFlag, total)
	// A history without these proves little.
	for name, n := range map[string]int{"commits": total.commits, "recoveries": total.recoveries,
		"leader changes": total.leaders, "take-overs": total.takeovers, "failures": total.failed, "stops": total.stops,
		"failed attempts": total.cancelled, "refused commits (× 1000)": 1000 * total.refused} {
		if n < *runsFlag {
			t.Errorf("only %d %s in %d runs", n, name, *runsFlag)
		}
	}
}

type counts struct{ commits, refused, recoveries, leaders, takeovers, failed, stops, cancelled int }

func (c *counts) add(o counts) {
	c.commits += o.commits
	c.refused += o.refused
	c.recoveries += o.recoveries
	c.leaders += o.leaders
	c.takeovers += o.takeovers
	c.failed += o.failed
	c.stops += o.stops
	c.cancelled += o.cancelled
}

const shards = 3

// report tells every leader, dead or alive, what happened to the tasks. A leader that is not ready yet learns it from
// what runs when it passes its barrier.
func (w *world) report(ev coordinator.Event) {
	for _, l := range append([]*leader{w.leader}, w.zombies...) {
		w.send(fmt.Sprintf("to leader %d: %s", l.name, ev), func() {
			if l.ready {
				w.feed(l, ev)
			}
		})
	}
}

// changeLeader deposes the leader. What it proposed before is applied in order up to some point, and then lost.
func (w *world) changeLeader() {
	old := w.leader
	w.counts.leaders++
	w.logf("leader %d is deposed", old.name)
	applied := w.rnd.IntN(4)
	before := w.messages
	w.messages = nil
	var kept []message
	for _, m := range before {
		if m.from != old {
			kept = append(kept, m)
			continue
		}
		if applied > 0 {
			applied--
			w.logf("still applied: %s", m.what)
			old.ready = false // no answer reaches its machine
			m.run()
		}
	}
	w.messages = append(kept, w.messages...)
	old.deposed, old.ready = true, true
	w.zombies = append(w.zombies, old)
	if w.rnd.IntN(2) == 0 || len(w.zombies) > 2 {
		w.bury()
	}
	w.elect()
}

// bury tells the deposed leaders that they are.
func (w *world) bury() {
	for _, z := range w.zombies {
		w.feed(z, coordinator.Deposed{})
		z.ready = false
	}
	w.zombies = nil
}

func (w *world) elect() {
	w.leader = &leader{name: w.counts.leaders + 1, machine: coordinator.New()}
	w.feed(w.leader, coordinator.Elected{})
}

// follow tells the leader what has changed in the meta log.
func (w *world) follow() {
	p, l := w.pipeline(), w.leader
	if !l.ready || l.state == p.State {
		return
	}
	was := l.state
	l.state = p.State
	switch {
	case p.State == dataflow.PipelineStopping:
		w.counts.stops++
		w.feed(l, coordinator.StopRequested{})
	case p.State == dataflow.PipelineRecovering && (was == dataflow.PipelineStopped || was == dataflow.PipelineFailed):
		w.feed(l, coordinator.Resumed{})
	}
}

func (w *world) view() coordinator.View {
	p := w.pipeline()
	return coordinator.View{State: p.State, Incarnation: p.Incarnation, Fresh: p.AttemptsTo == 1, Base: p.Base,
		Committed: p.Newest().ID, Options: p.Options, Shards: shards}
}

// feed steps a leader's machine and carries out its actions.
func (w *world) feed(l *leader, ev coordinator.Event) {
	actions := l.machine.Step(w.now, ev)
	if len(actions) == 0 {
		return
	}
	w.logf("leader %d: %s", l.name, ev)
	for _, a := range actions {
		w.logf("leader %d → %s", l.name, a)
	}
	for _, a := range actions {
		w.do(l, a)
	}
}

func (w *world) do(l *leader, a coordinator.Action) {
	ctx := context.Background()
	answer := func(ev coordinator.Event) {
		if l.ready {
			w.feed(l, ev)
		}
	}
	switch a := a.(type) {
	case coordinator.PassBarrier:
		w.propose(l, "barrier", func() {
			if l.deposed {
				return
			}
			l.ready, l.state = true, w.pipeline().State
			v := w.view()
			if w.tasks.incarnation != 0 && w.tasks.incarnation == v.Incarnation {
				w.counts.takeovers++
			}
			w.feed(l, coordinator.BarrierPassed{View: v, Running: w.tasks.incarnation})
		})
	case coordinator.ReserveAttempts:
		w.propose(l, a.String(), func() {
			first, end, err := w.log.ReserveAttempts(ctx, w.uid, 7, a.Fence)
			w.check(err)
			answer(coordinator.AttemptsReserved{First: first, End: end})
		})
	case coordinator.ProposeCommit:
		commit := a.Commit.Clone()
		commit.Pipeline = w.uid
		w.propose(l, a.String(), func() {
			got, err := w.log.CommitCheckpoint(ctx, commit)
			if w.rnd.IntN(5) == 0 { // the driver did not hear the answer and proposes again
				again, err2 := w.log.CommitCheckpoint(ctx, commit)
				if (err == nil) != (err2 == nil) || err == nil && again.String() != got.String() {
					w.fatalf("commit answered %v, %v and then %v, %v", got, err, again, err2)
				}
			}
			switch {
			case errors.Is(err, meta.ErrBadCommit):
				w.fatalf("%v", err)
			case err != nil:
				w.counts.refused++
				answer(coordinator.CommitRefused{Checkpoint: commit.ID, Err: err})
			default:
				answer(coordinator.CommitApplied{Commit: got})
			}
		})
	case coordinator.ProposeBegin:
		w.propose(l, a.String(), func() {
			p, err := w.log.BeginIncarnation(ctx, w.uid, a.After, nil, a.Cause)
			if err != nil {
				answer(coordinator.BeginRefused{Err: err, View: w.view()})
				return
			}
			w.counts.recoveries++
			if base := w.bases[p.Incarnation]; base != nil && base.ID != p.Base.ID {
				w.fatalf("incarnation %d has two bases, %s and %s", p.Incarnation, base, p.Base)
			}
			w.bases[p.Incarnation] = p.Base
			if p.Base.ID != p.Newest().ID {
				w.fatalf("incarnation %d begins from %d, not the newest cut %d", p.Incarnation, p.Base.ID, p.Newest().ID)
			}
			answer(coordinator.IncarnationBegun{Incarnation: p.Incarnation, Base: p.Base})
		})
	case coordinator.MarkRunning:
		w.propose(l, a.String(), func() { _, _ = w.log.MarkRunning(ctx, w.uid, a.Incarnation) })
	case coordinator.MarkStopped:
		w.propose(l, a.String(), func() { _, _ = w.log.MarkStopped(ctx, w.uid, a.Incarnation) })
	case coordinator.MarkFailed:
		w.propose(l, a.String(), func() { _, _ = w.log.MarkFailed(ctx, w.uid, a.Failure) })
	case coordinator.StartTasks:
		w.send(a.String(), func() { w.startTasks(a.Incarnation, a.Base) })
	case coordinator.StopTasks:
		w.send(a.String(), func() {
			w.tasks.stopped = max(w.tasks.stopped, a.Incarnation)
			if w.tasks.incarnation <= a.Incarnation {
				w.tasks.incarnation = 0
			}
			w.report(coordinator.TasksStopped(a))
		})
	case coordinator.InjectBarrier:
		if _, used := w.injectedAt[a.Checkpoint]; used {
			w.fatalf("attempt number %d is used twice (P3)", a.Checkpoint)
		}
		w.injectedAt[a.Checkpoint] = w.now
		for s := range w.tasks.shard {
			shard := dataflow.ShardID(s)
			w.unreliable(fmt.Sprintf("%s at shard %d", a, s), func() { w.barrier(shard, a.Incarnation, a.Checkpoint) })
		}
	case coordinator.CancelAttempts:
		w.counts.cancelled++
		w.unreliable(a.String(), func() {
			if a.Incarnation == w.tasks.incarnation {
				w.tasks.cancelled = max(w.tasks.cancelled, a.Through)
			}
		})
	case coordinator.AnswerWaiter:
		w.answered(a.Waiter)
		if w.cuts[a.Checkpoint] == "" && w.pipeline().Newest().ID != a.Checkpoint {
			w.fatalf("waiter %d was told of %d, which is not committed", a.Waiter, a.Checkpoint)
		}
		if at := w.injectedAt[a.Checkpoint]; at < w.waiters[a.Waiter].askedAt {
			w.fatalf("waiter %d was told of %d, which began before it asked", a.Waiter, a.Checkpoint)
		}
	case coordinator.FailWaiter:
		w.answered(a.Waiter)
	default:
		w.fatalf("no driver for %T", a)
	}
}

func (w *world) answered(id uint64) {
	if w.waiters[id].answers++; w.waiters[id].answers > 1 {
		w.fatalf("waiter %d was answered twice", id)
	}
}

// startTasks starts an incarnation's tasks, if the meta log still has it as the current one (P4).
func (w *world) startTasks(i dataflow.Incarnation, base *dataflow.CheckpointCommit) {
	if w.pipeline().Incarnation != i || w.tasks.incarnation >= i || w.tasks.stopped >= i {
		return
	}
	if w.tasks.incarnation != 0 {
		w.fatalf("tasks of %d start beside those of %d", i, w.tasks.incarnation)
	}
	if w.chance(10) {
		w.report(coordinator.TaskFailed{Incarnation: i, Failure: dataflow.PipelineFailure{Reason: dataflow.ReasonInternal, Message: "no start"}})
		return
	}
	w.tasks = tasks{incarnation: i, stopped: w.tasks.stopped}
	for s := range w.tasks.shard {
		pos := w.stateAt(base, dataflow.ShardID(s))
		if want := base.Positions[w.stream(s)]; pos != want {
			w.fatalf("the state of shard %d at base %s has %d rows", s, base, pos)
		}
		w.tasks.shard[s].pos, w.tasks.shard[s].frozen = pos, pos
	}
	w.report(coordinator.TasksStarted{Incarnation: i})
}

func (w *world) stream(s int) dataflow.StreamShard {
	return dataflow.StreamShard{Stream: 1, Shard: dataflow.ShardID(s)}
}

// barrier lets a shard's task freeze and acknowledge.
func (w *world) barrier(s dataflow.ShardID, i dataflow.Incarnation, n dataflow.CheckpointID) {
	sh := &w.tasks.shard[s]
	if w.tasks.incarnation != i || n <= sh.barrier || n <= w.tasks.cancelled {
		return
	}
	sh.barrier = n
	if sh.pos != sh.frozen {
		sh.seq++
		sh.frozen = sh.pos
		w.deltas[deltaKey{i, s, sh.seq}] = sh.pos
	}
	ack := coordinator.Ack{Incarnation: i, Checkpoint: n, Shard: s, Seq: sh.seq, Digest: uint64(sh.seq), Index: dataflow.LogIndex(sh.seq),
		Positions: dataflow.Positions{w.stream(int(s)): sh.pos}}
	if _, ok := w.acks[ackKey{i, n, s}]; !ok {
		w.acks[ackKey{i, n, s}] = ack
	}
	for _, l := range append([]*leader{w.leader}, w.zombies...) {
		w.unreliable(fmt.Sprintf("to leader %d: %s", l.name, ack), func() { w.feed(l, ack) })
	}
}
