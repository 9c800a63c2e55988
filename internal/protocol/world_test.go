package protocol

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/raftlog/meta"
)

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
