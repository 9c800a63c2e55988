package sim

import (
	"context"
	"errors"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/raftlog/meta"
)

// bg is the context of proposals, which the modelled log does not look at.
var bg = context.Background()

// coord models node/leader and node/fleet: the coordinators of all pipelines on the node that leads the meta log, and its
// links to the other nodes.
type coord struct {
	n       *node
	term    uint64
	dead    bool // the node has crashed
	drivers []*driver
	links   [maxNodes]*link
}

func newCoord(n *node, term uint64) *coord {
	c := &coord{n: n, term: term}
	n.worker.term = max(n.worker.term, term)
	if n.worker.session != nil {
		n.worker.session.end()
	}
	for _, p := range n.w.nodes {
		if p != n {
			c.links[p.id] = &link{c: c, to: p}
		}
	}
	n.w.after(1, n, func() { c.tick(); c.observe() })
	return c
}

// depose ends the coordinators: the node leads no more.
func (c *coord) depose() {
	if c.dead {
		return
	}
	c.dead = true
	for _, d := range c.drivers {
		if !d.ended {
			if d.committing {
				c.n.w.n.midway++
			}
			d.answer(d.m.Step(c.n.w.now, coordinator.Deposed{}))
		}
	}
	for _, l := range c.links {
		if l != nil && l.out != nil {
			l.out.broken = true
		}
	}
}

func (c *coord) tick() {
	if c.dead {
		return
	}
	for _, l := range c.links {
		if l != nil {
			l.tick()
		}
	}
}

// observe lets the drivers look at the meta log, and begins those of new pipelines.
func (c *coord) observe() {
	if c.dead {
		return
	}
	for _, p := range c.n.meta.State().PipelineList() {
		if !slices.ContainsFunc(c.drivers, func(d *driver) bool { return d.uid == p.UID }) {
			d := &driver{c: c, uid: p.UID, m: coordinator.New()}
			c.drivers = append(c.drivers, d)
			d.post(coordinator.Elected{})
		}
	}
	for _, d := range c.drivers {
		d.run()
	}
}

func (c *coord) driver(uid dataflow.PipelineUID) *driver {
	for _, d := range c.drivers {
		if d.uid == uid && !d.ended {
			return d
		}
	}
	return nil
}

// driver models the driver of one pipeline's machine: it carries out actions in order, and waits for the answers of those that
// have one.
type driver struct {
	c     *coord
	uid   dataflow.PipelineUID
	m     *coordinator.Machine
	ended bool

	stack  []frame
	parked bool
	mail   []coordinator.Event
	armed  int64 // when a Tick is due

	dirty, flying bool
	known         bool
	state         dataflow.PipelineState
	options       dataflow.PipelineOptions
	committing    bool
	attempt       dataflow.CheckpointID // the last one injected

	starts   int // tells starts apart; StopTasks cancels the one under way
	placed   dataflow.Incarnation
	placedOn []int
}

type frame struct {
	acts []coordinator.Action
	evs  []coordinator.Event
}

// post hands the machine an event.
func (d *driver) post(ev coordinator.Event) {
	if d.ended || d.c.dead {
		return
	}
	if a, ok := ev.(coordinator.Ack); ok && d.w().mutant == "acks-of-older-incarnations" {
		a.Incarnation, a.Checkpoint = d.m.Incarnation(), d.attempt
		ev = a
	}
	d.mail = append(d.mail, ev)
	d.run()
}

func (d *driver) w() *world { return d.c.n.w }

// run works until it must wait.
func (d *driver) run() {
	if d.parked {
		return
	}
	d.parked = true // not again from within
	for d.once() {
	}
}

// once does the next thing; false = it waits for something.
func (d *driver) once() bool {
	w := d.w()
	if d.ended || d.c.dead {
		return false // for good: parked stays
	}
	if len(d.stack) > 0 {
		f := &d.stack[len(d.stack)-1]
		switch {
		case len(f.acts) > 0:
			a := f.acts[0]
			f.acts = f.acts[1:]
			w.logf("%s → %s", d.name(), a)
			return d.do(a)
		case len(f.evs) > 0:
			ev := f.evs[0]
			f.evs = f.evs[1:]
			d.step(ev)
		default:
			d.stack = d.stack[:len(d.stack)-1]
		}
		return true
	}
	if len(d.mail) > 0 {
		ev := d.mail[0]
		d.mail = d.mail[1:]
		d.step(ev)
		return true
	}
	if ev := d.observe(); ev != nil {
		d.step(ev)
		return true
	}
	at := d.m.Deadline()
	if at != 0 && at <= w.now {
		d.step(coordinator.Tick{})
		return true
	}
	d.parked = false
	if at != 0 && at != d.armed {
		d.armed = at
		w.after(at-w.now, d.c.n, func() {
			if d.armed == at {
				d.armed = 0
			}
			d.run()
		})
	}
	return false
}

func (d *driver) name() string { return d.c.n.name + " coordinates " + d.uid.String() }

func (d *driver) step(ev coordinator.Event) {
	acts := d.m.Step(d.w().now, ev)
	d.w().logf("%s: %s", d.name(), ev)
	d.stack = append(d.stack, frame{acts: acts})
	if _, gone := ev.(coordinator.Deleted); gone {
		d.answer(acts)
		d.stopTasks(d.m.Incarnation(), func() {})
		d.ended = true
	}
}

// resume goes on after an action whose answer was waited for.
func (d *driver) resume(ev coordinator.Event) {
	if d.ended || d.c.dead {
		return
	}
	if ev != nil {
		f := &d.stack[len(d.stack)-1]
		f.evs = append(f.evs, ev)
	}
	for d.once() {
	}
}

// observe returns what is new in the meta log or the streams; nil = nothing.
func (d *driver) observe() coordinator.Event {
	st := d.c.n.meta.State()
	p := st.Pipelines[d.uid]
	if p == nil {
		return coordinator.Deleted{}
	}
	if !d.known {
		return nil
	}
	if p.Options != d.options {
		d.options = p.Options
		return coordinator.OptionsChanged{Options: p.Options}
	}
	was := d.state
	if p.State != was {
		switch {
		case p.State == dataflow.PipelineStopping && !was.Active():
			d.state = dataflow.PipelineRecovering
			return coordinator.Resumed{}
		case p.State == dataflow.PipelineStopping:
			d.state = p.State
			return coordinator.StopRequested{}
		case p.State == dataflow.PipelineRecovering && !was.Active():
			d.state = p.State
			return coordinator.Resumed{}
		}
		d.state = p.State
	}
	if !d.dirty && !d.flying && p.State.Active() {
		for s, m := range d.c.n.machines {
			k := dataflow.StreamShard{Stream: streamID, Shard: dataflow.ShardID(s)}
			if _, end := m.Range(streamID); p.Newest().Positions[k] < end {
				d.dirty = true
				return coordinator.Dirty{}
			}
		}
	}
	return nil
}

// answer carries out what needs no tasks: the answers to waiters.
func (d *driver) answer(acts []coordinator.Action) {
	for _, a := range acts {
		switch a := a.(type) {
		case coordinator.AnswerWaiter:
			d.w().oracle.answered(d.uid, a.Waiter, a.Checkpoint)
		case coordinator.FailWaiter:
			d.w().oracle.answered(d.uid, a.Waiter, 0)
		}
	}
}

// propose makes a proposal until it has an answer.
func (d *driver) propose(op metaOp, done func(v any, err error)) {
	d.c.n.proposeMeta(op, func(_ uint64, v any, err error) {
		switch {
		case d.c.dead:
		case errors.Is(err, errNotLeader), errors.Is(err, errUnknown):
			d.w().after(20*ms, d.c.n, func() {
				if !d.c.dead {
					d.propose(op, done)
				}
			})
		default:
			done(v, err)
		}
	})
}

// do carries out one action; false = it waits for the answer.
func (d *driver) do(a coordinator.Action) bool {
	n, w, uid := d.c.n, d.w(), d.uid
	switch a := a.(type) {
	case coordinator.PassBarrier:
		d.passBarrier()
		return false
	case coordinator.CancelAttempts:
		w.n.cancelled++
		d.dirty, d.flying = false, false
	case coordinator.ReserveAttempts:
		if p := n.meta.State().Pipelines[uid]; w.mutant == "attempt-numbers-reused" && p != nil && p.AttemptsTo > 1 && a.Fence {
			f := &d.stack[len(d.stack)-1]
			f.evs = append(f.evs, coordinator.AttemptsReserved{First: max(p.AttemptsFrom, p.Newest().ID+1), End: p.AttemptsTo})
			return true
		}
		d.propose(metaOp{a.String(), func(l *meta.Log) (any, error) {
			first, end, err := l.ReserveAttempts(bg, uid, 10, a.Fence && w.mutant != "commits-of-older-incarnations")
			return coordinator.AttemptsReserved{First: first, End: end}, err
		}}, func(v any, err error) {
			if err != nil {
				d.resume(coordinator.Deleted{})
				return
			}
			d.resume(v.(coordinator.AttemptsReserved))
		})
		return false
	case coordinator.InjectBarrier:
		d.dirty, d.flying, d.attempt = false, true, a.Checkpoint
		w.oracle.injected(uid, a)
		d.inject(a.Incarnation, a.Checkpoint)
	case coordinator.ProposeCommit:
		d.commit(a.Commit)
		return false
	case coordinator.ProposeBegin:
		d.begin(a)
		return false
	case coordinator.StartTasks:
		d.dirty, d.flying = false, false
		d.start(a)
	case coordinator.StopTasks:
		d.starts++
		d.stopTasks(a.Incarnation, func() { d.resume(coordinator.TasksStopped(a)) })
		return false
	case coordinator.MarkRunning:
		d.mark(dataflow.PipelineRunning, a.String(), func(l *meta.Log) (any, error) { return l.MarkRunning(bg, uid, a.Incarnation) })
		return false
	case coordinator.MarkStopped:
		d.mark(dataflow.PipelineStopped, a.String(), func(l *meta.Log) (any, error) { return l.MarkStopped(bg, uid, a.Incarnation) })
		return false
	case coordinator.MarkFailed:
		d.mark(dataflow.PipelineFailed, a.String(), func(l *meta.Log) (any, error) { return l.MarkFailed(bg, uid, a.Failure) })
		return false
	case coordinator.AnswerWaiter, coordinator.FailWaiter:
		d.answer([]coordinator.Action{a})
	}
	return true
}

// inject puts a barrier in at all nodes that run the incarnation's tasks. A node at which a newer coordinator has been takes none
// from an older one: the newer one's barriers follow those that were in then.
func (d *driver) inject(inc dataflow.Incarnation, b dataflow.CheckpointID) {
	uid := d.uid
	for _, id := range d.placedOn {
		if l := d.c.links[id]; l != nil && l.up {
			ses := l.ses
			l.out.send(func() {
				if !ses.ended {
					ses.n.worker.inject(uid, inc, b)
				}
			})
		}
	}
	if wk := &d.c.n.worker; wk.term <= d.c.term {
		wk.inject(uid, inc, b)
	}
}

func (d *driver) passBarrier() {
	n := d.c.n
	n.groups[0].propose(&entry{}, func(_ uint64, _ any, err error) {
		if d.c.dead {
			return
		}
		if err != nil {
			d.w().after(20*ms, n, func() {
				if !d.c.dead {
					d.passBarrier()
				}
			})
			return
		}
		// An entry without a command reaches no machine: look once it is applied.
		d.w().after(1, n, func() {
			st := n.meta.State()
			p := st.Pipelines[d.uid]
			if d.c.dead {
				return
			}
			if p == nil {
				d.resume(coordinator.Deleted{})
				return
			}
			d.known, d.state, d.options = true, p.State, p.Options
			v := view(st, p)
			d.attach(p, func(running dataflow.Incarnation) {
				if running != 0 && running == v.Incarnation {
					d.w().n.takeovers++
				}
				d.resume(coordinator.BarrierPassed{View: v, Running: running})
			})
		})
	})
}

func (d *driver) commit(c *dataflow.CheckpointCommit) {
	commit := c.Clone()
	commit.Pipeline = d.uid
	d.flying, d.committing = false, true
	op := metaOp{"propose " + commit.String(), func(l *meta.Log) (any, error) { return l.CommitCheckpoint(bg, commit) }}
	answer := func(v any, err error) {
		switch {
		case errors.Is(err, meta.ErrStaleIncarnation):
			d.w().n.racing++
		case errors.Is(err, meta.ErrStaleAttempt):
			d.w().n.refused++
		case errors.Is(err, meta.ErrBadCommit):
			d.w().fail("P2", "%v", err)
		}
		if d.c.dead || !d.committing {
			return
		}
		d.committing = false
		switch {
		case err == nil:
			d.resume(coordinator.CommitApplied{Commit: v.(*dataflow.CheckpointCommit)})
		case dataflow.ReasonOf(err) == dataflow.ReasonPipelineNotFound:
			d.resume(coordinator.Deleted{})
		default:
			d.resume(coordinator.CommitRefused{Checkpoint: commit.ID, Err: err})
		}
	}
	d.w().lateCopy(0, func(l *node) { l.proposeMeta(op, func(uint64, any, error) {}) })
	if !d.w().calm && d.w().chance(30) { // it hangs, and is proposed when perhaps another coordinator is at work
		d.w().hang(0, func(l *node) {
			l.proposeMeta(op, func(_ uint64, v any, err error) {
				if !errors.Is(err, errNotLeader) && !errors.Is(err, errUnknown) {
					answer(v, err)
				} else if !d.c.dead {
					d.propose(op, answer)
				}
			})
		})
		return
	}
	d.propose(op, answer)
}

// begin begins an incarnation, once every shard has a leader that can be reached.
func (d *driver) begin(a coordinator.ProposeBegin) {
	n := d.c.n
	var owners []meta.Owner
	for s := range d.w().shards {
		g := n.groups[s+1]
		if g.leader < 0 || g.leader != n.id && !d.c.links[g.leader].up {
			d.w().after(20*ms, n, func() {
				if !d.c.dead && !d.ended {
					d.begin(a)
				}
			})
			return
		}
		owners = append(owners, meta.Owner{Shard: dataflow.ShardID(s), Node: d.w().nodes[g.leader].name, Term: g.term})
	}
	op := metaOp{a.String(), func(l *meta.Log) (any, error) { return l.BeginIncarnation(bg, d.uid, a.After, owners, a.Cause) }}
	d.w().lateCopy(0, func(l *node) { l.proposeMeta(op, func(uint64, any, error) {}) })
	d.propose(op, func(v any, err error) {
		if err == nil {
			p := v.(*meta.Pipeline)
			d.state = p.State
			d.w().n.recoveries++
			d.resume(coordinator.IncarnationBegun{Incarnation: p.Incarnation, Base: p.Base})
			return
		}
		st := n.meta.State()
		p := st.Pipelines[d.uid]
		if p == nil {
			d.resume(coordinator.Deleted{})
			return
		}
		d.state = p.State
		d.resume(coordinator.BeginRefused{Err: err, View: view(st, p)})
	})
}

func (d *driver) mark(state dataflow.PipelineState, what string, call func(*meta.Log) (any, error)) {
	d.propose(metaOp{what, call}, func(v any, err error) {
		if p, ok := v.(*meta.Pipeline); err == nil && ok && p.State == state {
			d.state = state
		}
		d.resume(nil)
	})
}

// place remembers where an incarnation's tasks are.
func (d *driver) place(p *meta.Pipeline) (here bool) {
	d.placed, d.placedOn = p.Incarnation, nil
	for _, o := range p.Owners {
		id := slices.IndexFunc(d.w().nodes, func(m *node) bool { return m.name == o.Node })
		switch {
		case id == d.c.n.id:
			here = true
		case !slices.Contains(d.placedOn, id):
			d.placedOn = append(d.placedOn, id)
		}
	}
	return here
}

// start starts the tasks, in the background; the machine hears how it went.
func (d *driver) start(a coordinator.StartTasks) {
	n := d.c.n
	p := n.meta.State().Pipelines[d.uid]
	failed := func(err error) {
		d.post(coordinator.TaskFailed{Incarnation: a.Incarnation, Failure: dataflow.PipelineFailure{
			Reason: dataflow.ReasonPipelineRecovering, Message: err.Error(), Incarnation: a.Incarnation}})
	}
	if p == nil || p.Incarnation != a.Incarnation {
		d.w().after(1, n, func() { failed(meta.ErrStaleIncarnation) })
		return
	}
	d.starts++
	token := d.starts
	alive := func() bool { return token == d.starts && !d.c.dead && !d.ended }
	here := d.place(p)
	left := len(d.placedOn)
	if here {
		left++
	}
	over := false
	done := func(err error) {
		if over || d.c.dead {
			return
		}
		left--
		switch {
		case err != nil:
			over = true
			d.starts++
			failed(err)
		case left == 0:
			over = true
			d.post(coordinator.TasksStarted{Incarnation: a.Incarnation})
		}
	}
	uid, inc := d.uid, a.Incarnation
	for _, id := range d.placedOn {
		d.c.links[id].call(func(s *session, reply func(attached, error)) {
			m := s.n
			begin := func() {
				m.worker.start(uid, inc, s.report(d), func() bool { return !s.ended }, func(err error) { reply(attached{}, err) })
			}
			if m.w.mutant == "base-newest-known" {
				begin()
				return
			}
			m.await(func() bool {
				p := m.meta.State().Pipelines[uid]
				return s.ended || p != nil && p.Incarnation >= inc || m.meta.State().PipelineDeleted(uid)
			}, 10*second, func(bool) {
				if !s.ended {
					begin()
				}
			})
		}, func(_ attached, err error) { done(err) })
	}
	if here {
		d.w().after(1, n, func() { n.worker.start(uid, inc, d.post, alive, done) })
	}
}

// stopTasks stops the tasks on all nodes that can be reached, and waits for them a while.
func (d *driver) stopTasks(inc dataflow.Incarnation, done func()) {
	n, uid := d.c.n, d.uid
	if d.placed <= inc {
		d.placed, d.placedOn = 0, nil
	}
	n.worker.stop(uid, inc)
	left := 1
	over := false
	one := func() {
		if left--; left == 0 && !over {
			over = true
			done()
		}
	}
	for _, l := range d.c.links {
		if l == nil || !l.up {
			continue
		}
		left++
		l.call(func(s *session, reply func(attached, error)) {
			s.n.worker.stop(uid, inc)
			reply(attached{}, nil)
		}, func(attached, error) { one() })
	}
	d.w().after(second, n, func() {
		if !over {
			over = true
			done()
		}
	})
	d.w().after(1, n, one)
}

// attach takes the tasks over that run, when they do on every node that owns shards. A barrier that the coordinator before has put
// in at some nodes only is put in at the others: tasks that have it wait for it.
func (d *driver) attach(p *meta.Pipeline, done func(dataflow.Incarnation)) {
	n := d.c.n
	here := d.place(p)
	found := n.worker.attach(d.uid, d.post)
	if here && found.inc != p.Incarnation {
		done(0)
		return
	}
	var barriers []dataflow.CheckpointID
	n.await(func() bool {
		return !slices.ContainsFunc(d.placedOn, func(id int) bool { return !d.c.links[id].up })
	}, second, func(ok bool) {
		if d.c.dead || d.ended {
			return
		}
		left, all, over := len(d.placedOn), ok, false
		if here {
			left++
		}
		one := func(v attached, err error) {
			if err != nil || v.inc != p.Incarnation {
				all = false
			}
			barriers = append(barriers, v.barrier)
			if left--; left > 0 || over || d.c.dead {
				return
			}
			over = true
			if !all {
				done(0)
				return
			}
			if last := slices.Max(barriers); last != slices.Min(barriers) {
				d.w().n.halfBarriers++
				if d.w().mutant != "half-a-barrier" {
					d.inject(p.Incarnation, last)
				}
			}
			done(p.Incarnation)
		}
		for _, id := range d.placedOn {
			d.c.links[id].call(func(s *session, reply func(attached, error)) {
				reply(s.n.worker.attach(d.uid, s.report(d)), nil)
			}, one)
		}
		if here {
			one(found, nil)
		}
	})
}

// trigger asks the machine for a checkpoint.
func (d *driver) trigger(waiter uint64) {
	if d.known {
		d.post(coordinator.TriggerRequested{Waiter: waiter})
	}
}
