package coordinator

import (
	"fmt"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// Constants of the machine.
const (
	// AttemptBlock is how many attempt numbers are reserved at once. Why not more: a new leader leaves the rest as a gap
	// in the ids that users see. Why not fewer: each block is an entry of the meta log.
	AttemptBlock = 1000
	// The first restart is immediate. The next ones wait RestartInitial, doubled each time up to RestartMax, until the
	// tasks have run for RestartQuiet without a failure.
	RestartInitial = 200 * time.Millisecond
	RestartMax     = 30 * time.Second
	RestartQuiet   = time.Minute
	// MovedMax bounds the wait before tasks follow leads that move again and again, see moved. Why not longer: such a pipeline has nothing
	// wrong, and its readers wait. Why not shorter: nodes that are short of processor time lose leads because they begin incarnations.
	MovedMax = 5 * time.Second
	// StopTimeout bounds the final checkpoint of a stop, when checkpoint.timeout is longer. A stop that gives it up loses
	// nothing: the rows are read again after a resume.
	StopTimeout = time.Minute
	// PressureInterval is the longest time between two checkpoints while a stream refuses rows because the pipeline's newest
	// cut holds them, whatever checkpoint.interval and checkpoint.min_pause say. Why not shorter: the barriers would slow a pipeline that has to
	// catch up. Why not longer: senders wait for it.
	PressureInterval = time.Second
	// MaxWaiters bounds the requests that wait for the next attempt.
	MaxWaiters = 10_000
)

// phase is where the machine is in the life of the pipeline.
type phase uint8

const (
	created    phase = iota // before Elected
	electing                // waits for BarrierPassed
	reserving               // waits for the first, fencing block of attempt numbers
	idle                    // STOPPED or FAILED: waits for Resumed
	recovering              // begins an incarnation and starts its tasks, see recovery
	running                 // the tasks run; checkpoints are taken
	halting                 // the tasks are being stopped for good
	gone                    // deposed or deleted
)

func (p phase) String() string {
	return [...]string{"created", "electing", "reserving", "idle", "recovering", "running", "halting", "gone"}[p]
}

// Machine is the coordinator of one pipeline. It is not safe for concurrent use.
type Machine struct {
	now     int64 // µs, the largest time a step had
	phase   phase
	actions []Action // of the step under way

	// From the meta log.
	view View
	// took is what the workers had running when this machine was elected.
	took dataflow.Incarnation

	attempts struct {
		next, end dataflow.CheckpointID // numbers left of the block
		asked     bool                  // a block is on its way
	}

	recovery  recovery
	stopAsked dataflow.Incarnation // of the last StopTasks: an answer about an older one says nothing
	restarts  int                  // restarts since the tasks last ran quietly
	moves     int                  // times in a row that leads have moved from under tasks which had hardly run, and committed nothing
	since     int64                // when the tasks began to run

	attempt  *attempt // under way; nil = none
	queued   []uint64 // waiters for the next attempt
	hold     bool     // one of them wants the sources held behind its barrier
	dirty    bool     // something is behind the last barrier
	pressed  bool     // a stream has no room since the last barrier, see RoomWanted
	lastAt   int64    // when the last attempt was triggered, or the tasks began to run
	pausedTo int64    // checkpoint.min_pause ends
	heldTo   int64    // the sources are held, if nothing happens: no periodic attempt lets them go before
	failures int      // attempts failed in a row
	stopping bool     // the meta log has the pipeline STOPPING
	resuming bool     // resumed before the first block of numbers was there

	ended *dataflow.Error // why the machine is gone: what those hear who come later
}

// recovery is the progress of a restart: the tasks of the new incarnation start when the old ones have ended, the
// incarnation has begun in the meta log, and the back-off is over.
type recovery struct {
	cause     string
	startAt   int64 // the back-off's end
	beginAt   int64 // when to propose again after a refusal; 0 = nothing to propose
	proposing bool  // ProposeBegin is under way
	begun     bool
	stopped   bool // no older task runs
	starting  bool // StartTasks is under way
}

// New returns a machine that has not been elected yet: step Elected first.
func New() *Machine { return &Machine{} }

// Step takes one event at the time now, in µs since 1970, and returns what the driver has to do, in order. A time smaller
// than an earlier one counts as that one.
func (m *Machine) Step(now int64, ev Event) []Action {
	m.now = max(m.now, now)
	if m.phase == gone {
		if t, ok := ev.(TriggerRequested); ok {
			m.failWaiters([]uint64{t.Waiter}, m.ended)
		}
		return m.take()
	}
	switch e := ev.(type) {
	case Elected:
		if m.phase == created {
			m.phase = electing
			m.do(PassBarrier{})
		}
	case BarrierPassed:
		m.barrierPassed(e)
	case AttemptsReserved:
		m.attemptsReserved(e)
	case Tick:
	case Dirty:
		m.dirty = true
	case RoomWanted:
		m.pressed = m.phase == running
	case TriggerRequested:
		m.triggerRequested(e)
	case Ack:
		m.ack(e)
	case TaskFailed:
		m.taskFailed(e)
	case TasksStarted:
		m.tasksStarted(e)
	case TasksStopped:
		m.tasksStopped(e)
	case CommitApplied:
		m.commitApplied(e)
	case CommitRefused:
		m.commitRefused(e)
	case IncarnationBegun:
		m.incarnationBegun(e)
	case BeginRefused:
		m.beginRefused(e)
	case OptionsChanged:
		m.optionsChanged(e.Options)
	case StopRequested:
		m.stopRequested()
	case Resumed:
		m.resumed()
	case Deleted:
		m.end(dataflow.Errorf(dataflow.ReasonPipelineNotFound, "the pipeline was deleted"))
		m.stopTasks()
	case Deposed:
		m.end(dataflow.Errorf(dataflow.ReasonNotLeader, "another node coordinates the pipeline now").WithRetry(RestartInitial))
	}
	m.advance()
	return m.take()
}

// Deadline returns when the machine wants a Tick at the latest, in µs since 1970; 0 = it waits for events only.
func (m *Machine) Deadline() int64 {
	switch {
	case m.phase == recovering:
		r := &m.recovery
		if r.beginAt > 0 {
			return r.beginAt
		}
		if r.begun && r.stopped && !r.starting {
			return r.startAt
		}
	case m.phase != running:
	case m.attempt != nil:
		if !m.attempt.committing {
			return m.attemptDeadline()
		}
	case m.dirty && m.interval() > 0 && !m.attempts.asked:
		return m.periodicAt()
	}
	return 0
}

// Incarnation returns the incarnation that the machine last learned of.
func (m *Machine) Incarnation() dataflow.Incarnation { return m.view.Incarnation }

// String prints the machine's state on one line.
func (m *Machine) String() string {
	s := fmt.Sprintf("%s i%d committed=%d", m.phase, m.view.Incarnation, m.view.Committed)
	if m.attempt != nil {
		s += " " + m.attempt.String()
	}
	if m.dirty {
		s += " dirty"
	}
	if m.pressed {
		s += " pressed"
	}
	if len(m.queued) > 0 {
		s += fmt.Sprintf(" queued=%d", len(m.queued))
	}
	if m.stopping {
		s += " stopping"
	}
	return s
}

// advance does what the passing of time or the last event has made possible.
func (m *Machine) advance() {
	switch m.phase {
	case recovering:
		m.advanceRecovery()
	case running:
		if a := m.attempt; a != nil && !a.committing && m.now >= m.attemptDeadline() {
			m.attemptFailed(fmt.Sprintf("not complete after %s: %s", m.attemptTimeout(), a.missing(m.view.Shards)))
		}
		m.trigger()
	case halting:
		m.advanceHalt()
	}
}

func (m *Machine) do(a Action) { m.actions = append(m.actions, a) }

func (m *Machine) take() []Action {
	out := m.actions
	m.actions = nil
	return out
}

func (m *Machine) failWaiters(waiters []uint64, err *dataflow.Error) {
	for _, w := range waiters {
		m.do(FailWaiter{w, err})
	}
}

// failQueued fails the waiters that no attempt has taken yet.
func (m *Machine) failQueued(err *dataflow.Error) {
	m.failWaiters(m.queued, err)
	m.queued, m.hold = nil, false
}

// barrierPassed begins the work of an elected machine: nothing is injected or started before a fencing block of attempt
// numbers is reserved (P3).
func (m *Machine) barrierPassed(e BarrierPassed) {
	if m.phase != electing {
		return
	}
	m.view, m.took = e.View, e.Running
	m.stopping = m.view.State.Active() && (m.stopping || m.view.State == dataflow.PipelineStopping)
	if !m.view.State.Active() {
		m.phase = idle
		m.failQueued(m.notRunning())
		if m.took != 0 {
			m.stopTasks()
		}
		return
	}
	m.phase = reserving
	m.reserve(true)
}

func (m *Machine) reserve(fence bool) {
	if !m.attempts.asked {
		m.attempts.asked = true
		m.do(ReserveAttempts{Count: AttemptBlock, Fence: fence})
	}
}

func (m *Machine) attemptsReserved(e AttemptsReserved) {
	if !m.attempts.asked {
		return
	}
	m.attempts.asked = false
	m.attempts.next, m.attempts.end = e.First, e.End
	if m.phase != reserving {
		return
	}
	if m.took != 0 {
		m.do(CancelAttempts{Incarnation: m.view.Incarnation, Through: e.First - 1, Cause: "a new coordinator took over"})
	}
	switch {
	case m.took == m.view.Incarnation:
		m.run()
		if m.view.State == dataflow.PipelineRecovering {
			m.do(MarkRunning{m.view.Incarnation})
		}
	case m.stopping:
		m.halt()
	case m.view.Fresh && m.took == 0:
		m.phase = recovering
		m.recovery = recovery{cause: "deployed", begun: true, stopped: true}
	case m.resuming:
		m.recover("resumed", 0)
	default:
		m.recover("a new coordinator found no tasks running", 0)
	}
}

// run enters the phase in which the tasks run. What they did before is unknown, so it counts as dirty.
func (m *Machine) run() {
	m.phase = running
	m.since, m.lastAt, m.heldTo = m.now, m.now, 0
	m.dirty, m.pressed = true, false
	m.failures = 0
}

func (m *Machine) stopTasks() {
	m.stopAsked = m.view.Incarnation
	m.recovery.stopped = false
	m.do(StopTasks{m.view.Incarnation})
}

// end answers everybody and leaves the machine's last phase.
func (m *Machine) end(err *dataflow.Error) {
	if m.attempt != nil {
		if m.attempt.committing && err.Reason == dataflow.ReasonNotLeader {
			m.failWaiters(m.attempt.waiters, dataflow.Errorf(dataflow.ReasonOutcomeUnknown,
				"the node lost the lead while checkpoint %d was being committed", m.attempt.id))
		} else {
			m.failWaiters(m.attempt.waiters, err)
		}
		m.attempt = nil
	}
	m.failQueued(err)
	m.phase, m.ended = gone, err
}

// notRunning says why a pipeline without tasks takes no checkpoint.
func (m *Machine) notRunning() *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonPipelineState, "the pipeline is %s and takes no checkpoints", m.view.State).
		WithHint("weir pipeline resume")
}
