package protocol

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

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

// world is everything: the clock, the meta log, the tasks, the leaders and the messages between them.
type world struct {
	t      *testing.T
	seed   uint64
	rnd    *rand.Rand
	now    int64
	calm   bool // no more failures
	trace  []string
	counts counts

	index dataflow.LogIndex
	fsm   *meta.FSM
	log   *meta.Log
	uid   dataflow.PipelineUID

	ends  [shards]dataflow.Offset // rows in the streams
	tasks tasks

	leader   *leader
	zombies  []*leader // deposed, but not aware of it
	messages []message

	deltas map[deltaKey]dataflow.Offset // what a delta sets the shard's one value to: the rows folded so far
	acks   map[ackKey]coordinator.Ack   // each shard's acknowledgement of an attempt, as first sent
	bases  map[dataflow.Incarnation]*dataflow.CheckpointCommit
	cuts   map[dataflow.CheckpointID]string

	waiters    map[uint64]*waiter
	nextWaiter uint64
	injectedAt map[dataflow.CheckpointID]int64
}

type deltaKey struct {
	incarnation dataflow.Incarnation
	shard       dataflow.ShardID
	seq         dataflow.DeltaSeq
}

type ackKey struct {
	incarnation dataflow.Incarnation
	checkpoint  dataflow.CheckpointID
	shard       dataflow.ShardID
}

type waiter struct {
	askedAt int64
	answers int
}

// tasks models the tasks of all shards: they run one incarnation or none.
type tasks struct {
	incarnation dataflow.Incarnation // 0 = none
	stopped     dataflow.Incarnation // tasks of these incarnations are not started any more
	cancelled   dataflow.CheckpointID
	shard       [shards]struct {
		pos     dataflow.Offset
		seq     dataflow.DeltaSeq
		frozen  dataflow.Offset // pos at the last delta
		barrier dataflow.CheckpointID
	}
}

// leader is a coordinator with its driver.
type leader struct {
	name    int
	machine *coordinator.Machine
	deposed bool
	state   dataflow.PipelineState // as last told to the machine
	ready   bool                   // BarrierPassed was stepped
}

// message is something on its way. It is delivered at a random time after due.
type message struct {
	due  int64
	what string
	from *leader // a proposal of this leader; nil = another message
	run  func()
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), now: 1_000_000, fsm: meta.NewFSM(),
		deltas: map[deltaKey]dataflow.Offset{}, acks: map[ackKey]coordinator.Ack{},
		bases: map[dataflow.Incarnation]*dataflow.CheckpointCommit{}, cuts: map[dataflow.CheckpointID]string{},
		waiters: map[uint64]*waiter{}, injectedAt: map[dataflow.CheckpointID]int64{},
	}
	w.log = meta.New(w, w.fsm, func() int64 { return w.now })
	ctx := context.Background()
	w.check(w.log.Bootstrap(ctx, "test", shards))
	p, _, err := w.log.CreatePipeline(ctx, meta.CreatePipeline{
		Name: "p", Fingerprint: "f", Reads: map[string]dataflow.StreamID{"s": 0},
		Options:  []dataflow.Option{{Name: "checkpoint.timeout", Value: "2s"}, {Name: "checkpoint.tolerable_failures", Value: "2"}},
		Declared: []meta.StreamDefinition{{Name: "s", Schema: dataflow.Schema{{Name: "a", Type: dataflow.TypeBigInt}}}},
	})
	w.check(err)
	w.uid = p.UID
	w.bases[1] = p.Base
	return w
}

// Propose implements meta.Group: the log is a model that applies at once, and checks what has been committed.
func (w *world) Propose(_ context.Context, cmd []byte) (dataflow.LogIndex, any, error) {
	w.index++
	result := w.fsm.Apply(w.index, cmd)
	if p := w.pipeline(); p != nil {
		w.checkCommits(p)
	}
	return w.index, result, nil
}

// Barrier implements meta.Group.
func (w *world) Barrier(context.Context) error { return nil }

func (w *world) check(err error) {
	if err != nil {
		w.fatalf("%v", err)
	}
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	tail := w.trace[max(0, len(w.trace)-60):]
	w.t.Fatalf("seed %d (run with -seed=%d): %s\n%s", w.seed, w.seed, fmt.Sprintf(format, args...), strings.Join(tail, "\n"))
}

func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%9.3fs ", float64(w.now)/1e6)+fmt.Sprintf(format, args...))
}

func (w *world) pipeline() *meta.Pipeline { return w.log.State().Pipelines[w.uid] }

func (w *world) chance(percent int) bool { return !w.calm && w.rnd.IntN(100) < percent }

// send puts a message on its way.
func (w *world) send(what string, run func()) {
	delay := w.rnd.Int64N(int64(20_000))
	if w.chance(5) {
		delay *= 200 // late enough for a timeout
	}
	w.messages = append(w.messages, message{due: w.now + delay, what: what, run: run})
}

// unreliable sends a message none, one or two times.
func (w *world) unreliable(what string, run func()) {
	if w.chance(3) {
		w.logf("lost: %s", what)
		return
	}
	w.send(what, run)
	if w.chance(10) {
		w.send(what+" again", run)
	}
}

// propose sends a leader's proposal. It is applied while the leader leads; its answer reaches it then too.
func (w *world) propose(l *leader, what string, run func()) {
	w.messages = append(w.messages, message{due: w.now + w.rnd.Int64N(10_000), what: what, from: l, run: run})
}

func (w *world) run() {
	w.elect()
	for range 500 {
		w.step()
	}
	w.calm = true
	w.settle()
}

// step lets a little time pass, delivers what is due in random order, and does one random thing.
func (w *world) step() {
	w.now += w.rnd.Int64N(40_000)
	for {
		var due []int
		for i := range w.messages {
			if w.messages[i].due <= w.now {
				due = append(due, i)
			}
		}
		if len(due) == 0 {
			break
		}
		i := due[w.rnd.IntN(len(due))]
		if w.messages[i].from != nil && !w.chance(50) {
			// Proposals of one leader are mostly applied in order; the machine does not depend on it.
			for j := range w.messages {
				if w.messages[j].from == w.messages[i].from {
					i = j
					break
				}
			}
		}
		m := w.messages[i]
		w.messages = append(w.messages[:i], w.messages[i+1:]...)
		if m.from != nil && m.from.deposed {
			continue // its proposals reach no log any more
		}
		w.logf("%s", m.what)
		m.run()
		w.follow()
	}
	w.process()
	w.disturb()
	w.follow()
	w.tick(w.leader)
	for _, z := range w.zombies {
		w.tick(z)
	}
}

func (w *world) tick(l *leader) {
	if !l.ready {
		return
	}
	if w.tasks.incarnation != 0 {
		for s := range w.tasks.shard {
			if sh := &w.tasks.shard[s]; sh.pos != sh.frozen || sh.pos < w.ends[s] {
				w.feed(l, coordinator.Dirty{})
				break
			}
		}
	}
	if dl := l.machine.Deadline(); dl != 0 && dl <= w.now {
		w.feed(l, coordinator.Tick{})
	}
}

// process lets rows arrive and tasks fold them.
func (w *world) process() {
	for s := range w.ends {
		if !w.calm {
			w.ends[s] += dataflow.Offset(w.rnd.IntN(3))
		}
		if w.tasks.incarnation != 0 && w.tasks.shard[s].pos < w.ends[s] {
			left := int64(w.ends[s] - w.tasks.shard[s].pos)
			w.tasks.shard[s].pos += dataflow.Offset(w.rnd.Int64N(left + 1))
			if w.calm {
				w.tasks.shard[s].pos = w.ends[s]
			}
		}
	}
}

func (w *world) disturb() {
	ctx := context.Background()
	p := w.pipeline()
	switch {
	case w.chance(2) && w.tasks.incarnation != 0:
		w.failTasks(false)
	case w.chance(1) && w.tasks.incarnation != 0 && w.rnd.IntN(3) == 0:
		w.failTasks(true)
	case w.chance(2):
		w.changeLeader()
	case w.chance(2) && p.State.Active() && w.rnd.IntN(3) == 0:
		w.logf("user: stop")
		_, err := w.log.Stop(ctx, w.uid)
		w.check(err)
	case w.chance(10) && (p.State == dataflow.PipelineStopped || p.State == dataflow.PipelineFailed):
		w.resume()
	case w.chance(3):
		w.ask()
	case w.chance(1):
		interval := []string{"off", "100ms", "1s"}[w.rnd.IntN(3)]
		w.logf("user: interval %s", interval)
		p, err := w.log.SetOptions(ctx, w.uid, []dataflow.Option{{Name: "checkpoint.interval", Value: interval}})
		w.check(err)
		if w.leader.ready {
			w.feed(w.leader, coordinator.OptionsChanged{Options: p.Options})
		}
	}
}

func (w *world) resume() {
	w.logf("user: resume")
	_, err := w.log.Resume(context.Background(), w.uid)
	w.check(err)
}

// ask asks the leader for a checkpoint.
func (w *world) ask() uint64 {
	w.nextWaiter++
	w.waiters[w.nextWaiter] = &waiter{askedAt: w.now}
	w.feed(w.leader, coordinator.TriggerRequested{Waiter: w.nextWaiter})
	return w.nextWaiter
}

func (w *world) failTasks(permanent bool) {
	i := w.tasks.incarnation
	w.tasks.incarnation = 0
	w.counts.failed++
	w.report(coordinator.TaskFailed{Incarnation: i, Permanent: permanent, Failure: dataflow.PipelineFailure{
		Reason: dataflow.ReasonInternal, Message: fmt.Sprintf("failure %d", w.counts.failed)}})
}

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

// stateAt returns what shard s's state at a cut contains: the last delta that the cut names, or what its incarnation
// began with (P2).
func (w *world) stateAt(c *dataflow.CheckpointCommit, s dataflow.ShardID) dataflow.Offset {
	if c.ID == 0 {
		return c.Positions[w.stream(int(s))]
	}
	if seq := c.Shard(s).Seq; seq > 0 {
		return w.deltas[deltaKey{c.Incarnation, s, seq}]
	}
	return w.stateAt(w.bases[c.Incarnation], s)
}

// checkCommits checks the cuts that it has not seen yet.
func (w *world) checkCommits(p *meta.Pipeline) {
	for _, c := range p.Cuts {
		text := c.String()
		if seen, ok := w.cuts[c.ID]; ok {
			if seen != text {
				w.fatalf("cut %d was %s and is %s", c.ID, seen, text)
			}
			continue
		}
		for id := range w.cuts {
			if id >= c.ID {
				w.fatalf("%s was committed after %d", c, id)
			}
		}
		w.cuts[c.ID] = text
		if c.ID == 0 {
			continue
		}
		w.counts.commits++
		if c.Incarnation != p.Incarnation {
			w.fatalf("%s was committed in incarnation %d", c, p.Incarnation)
		}
		for s := range shards {
			shard := dataflow.ShardID(s)
			ack, ok := w.acks[ackKey{c.Incarnation, c.ID, shard}]
			if !ok {
				w.fatalf("%s was committed without shard %d", c, s)
			}
			if got := c.Shard(shard); got.Seq != ack.Seq || got.Digest != ack.Digest || c.Positions[w.stream(s)] != ack.Positions[w.stream(s)] {
				w.fatalf("%s differs from %s", c, ack)
			}
			if rows := w.stateAt(c, shard); rows != c.Positions[w.stream(s)] {
				w.fatalf("shard %d's state at %s has %d rows", s, c, rows)
			}
		}
	}
}

// settle ends the failures and expects that a checkpoint comes that covers everything.
func (w *world) settle() {
	w.bury()
	limit := w.now + 5*time.Minute.Microseconds()
	var last uint64
	for w.now < limit {
		w.step()
		p := w.pipeline()
		if p.State == dataflow.PipelineStopped || p.State == dataflow.PipelineFailed {
			w.resume()
			w.follow()
		}
		if wt := w.waiters[last]; last == 0 || wt.answers > 0 {
			last = w.ask()
		}
		done := len(w.cuts) > 0
		for s := range shards {
			done = done && p.Newest().Positions[w.stream(s)] == w.ends[s]
		}
		if done && p.State == dataflow.PipelineRunning {
			break
		}
	}
	if w.now >= limit {
		w.fatalf("no checkpoint covers everything after the failures have ended: %s, %s", w.leader.machine, w.pipeline().Newest())
	}
	w.feed(w.leader, coordinator.Deposed{})
	for id, wt := range w.waiters {
		if wt.answers != 1 {
			w.fatalf("waiter %d was answered %d times", id, wt.answers)
		}
	}
}
