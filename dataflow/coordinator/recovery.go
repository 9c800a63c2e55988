package coordinator

import "github.com/weirdb/weir/dataflow"

// recover ends the current incarnation: its tasks are stopped, the next one is proposed at once, so that readers see
// RECOVERING, and its tasks start after the delay (µs).
func (m *Machine) recover(cause string, delay int64) {
	m.leave(recovery{cause: cause, startAt: m.now + delay})
	m.propose()
}

// leave ends the tasks of the current incarnation for a recovery. Until the next one is proposed, readers see RUNNING. Who wanted the
// sources held was about to end them, too.
func (m *Machine) leave(r recovery) {
	m.dropAttempt(r.cause)
	m.hold = false
	m.phase = recovering
	m.recovery = r
	m.stopTasks()
}

func (m *Machine) propose() {
	m.recovery.proposing, m.recovery.beginAt = true, 0
	m.do(ProposeBegin{After: m.view.Incarnation, Cause: m.recovery.cause})
}

func (m *Machine) advanceRecovery() {
	r := &m.recovery
	if r.beginAt > 0 && m.now >= r.beginAt {
		m.propose()
	}
	if r.begun && r.stopped && !r.starting && m.now >= r.startAt {
		r.starting = true
		m.do(StartTasks{Incarnation: m.view.Incarnation, Base: m.view.Base})
	}
}

func (m *Machine) incarnationBegun(e IncarnationBegun) {
	if e.Incarnation <= m.view.Incarnation || !m.recovery.proposing {
		return
	}
	m.view.Incarnation, m.view.Base = e.Incarnation, e.Base
	m.view.Committed = max(m.view.Committed, e.Base.ID)
	m.view.State = dataflow.PipelineRecovering
	m.recovery.proposing, m.recovery.begun = false, true
}

// beginRefused follows the meta log: the pipeline was stopped meanwhile, or is at another incarnation.
func (m *Machine) beginRefused(e BeginRefused) {
	if !m.recovery.proposing {
		return
	}
	m.recovery.proposing = false
	m.view.State, m.view.Incarnation, m.view.Base = e.View.State, max(m.view.Incarnation, e.View.Incarnation), e.View.Base
	if m.phase != recovering {
		return
	}
	switch {
	case m.view.State == dataflow.PipelineStopping:
		m.stopRequested()
	case !m.view.State.Active():
		m.phase = idle
		m.failQueued(m.notRunning())
	default:
		m.recovery.beginAt = m.now + RestartInitial.Microseconds()
	}
}

func (m *Machine) tasksStarted(e TasksStarted) {
	if m.phase != recovering || !m.recovery.starting || e.Incarnation != m.view.Incarnation {
		return
	}
	m.run()
	m.view.State = dataflow.PipelineRunning
	m.do(MarkRunning{m.view.Incarnation})
}

func (m *Machine) tasksStopped(e TasksStopped) {
	if e.Incarnation >= m.stopAsked {
		m.recovery.stopped = true
	}
}

// taskFailed restarts the pipeline, or fails it when a restart would meet the same end.
func (m *Machine) taskFailed(e TaskFailed) {
	if e.Incarnation != m.view.Incarnation {
		return
	}
	starting := m.phase == recovering && m.recovery.starting
	takingOver := m.phase == reserving && m.took == e.Incarnation
	if m.phase != running && !starting && !takingOver {
		return // it is being stopped, or restarted, already
	}
	switch {
	case e.Permanent:
		f := e.Failure
		f.Incarnation = e.Incarnation
		m.dropAttempt(f.Message)
		m.phase = idle
		m.view.State = dataflow.PipelineFailed
		m.stopping = false
		m.failQueued(m.notRunning())
		m.recovery = recovery{}
		m.do(MarkFailed{f})
		m.stopTasks()
	case takingOver:
		m.took = 0 // AttemptsReserved finds no tasks to take over
	case m.stopping:
		m.halt()
	case e.Failure.Reason == dataflow.ReasonNotLeader:
		m.moved(e.Failure.Message)
	default:
		m.restart(e.Failure.Message)
	}
}

// optionsChanged takes over the options. Tasks learn of on_error when they start, so those that run are restarted, from the
// newest cut: which rows a cut leaves out then follows from its incarnation.
func (m *Machine) optionsChanged(o dataflow.PipelineOptions) {
	same := m.view.Options.OnError == o.OnError
	m.view.Options = o
	switch {
	case same || m.stopping:
	case m.phase == reserving:
		m.took = 0 // AttemptsReserved finds no tasks to take over
	case m.phase == running, m.phase == recovering && m.recovery.starting:
		m.recover("on_error was changed", 0)
	}
}

// restart recovers after a failure, with back-off: the same may be met again.
func (m *Machine) restart(cause string) {
	if m.ran() >= RestartQuiet.Microseconds() {
		m.restarts = 0
	}
	var delay int64
	if m.restarts > 0 {
		delay = RestartMax.Microseconds()
		// The shift is bounded so that it cannot overflow; 2²⁰ × RestartInitial is far above RestartMax.
		delay = min(delay, RestartInitial.Microseconds()<<min(m.restarts-1, 20))
	}
	m.restarts++
	m.recover(cause, delay)
}

// moved follows the lead of a shard to another node. That is no failure, however often it happens; only those that follow tasks which
// have hardly run wait a little, and twice as long each time until a checkpoint is committed or tasks have run for longer than that: where
// leads do not settle, an incarnation would begin every RestartInitial, which keeps them from it.
func (m *Machine) moved(cause string) {
	// The shift is bounded so that it cannot overflow, as in restart.
	delay := min(MovedMax.Microseconds(), RestartInitial.Microseconds()<<min(m.moves, 20)) - m.ran()
	if delay <= 0 {
		delay, m.moves = 0, 0
	} else {
		m.moves++
	}
	if delay <= RestartInitial.Microseconds() {
		m.recover(cause, delay)
		return
	}
	// The incarnation names those that lead when it begins: after a longer wait they would be others again.
	m.leave(recovery{cause: cause, beginAt: m.now + delay})
}

// ran is how long the tasks have run, in µs.
func (m *Machine) ran() int64 {
	if m.phase != running {
		return 0
	}
	return m.now - m.since
}

// stopRequested takes a final checkpoint while tasks run, and then stops them; without running tasks it stops at once.
func (m *Machine) stopRequested() {
	m.stopping = true
	m.view.State = dataflow.PipelineStopping
	if m.phase == recovering {
		m.halt()
	}
	// While running, trigger takes the final checkpoint as soon as no other attempt is under way.
}

// halt stops the tasks for good.
func (m *Machine) halt() {
	m.dropAttempt("the pipeline stops")
	m.phase = halting
	m.stopTasks()
}

func (m *Machine) advanceHalt() {
	if !m.recovery.stopped || m.recovery.proposing {
		return // the state is marked for the incarnation that is current once the proposal is settled
	}
	m.phase = idle
	m.stopping = false
	m.view.State = dataflow.PipelineStopped
	m.do(MarkStopped{m.view.Incarnation})
	m.failQueued(m.notRunning())
}

// resumed begins a new incarnation of a stopped or failed pipeline.
func (m *Machine) resumed() {
	if m.phase != idle {
		return
	}
	m.view.State = dataflow.PipelineRecovering
	m.stopping = false
	m.restarts, m.moves = 0, 0
	if m.attempts.end == 0 {
		// Elected while the pipeline did not run: the fencing block comes first (P3).
		m.phase = reserving
		m.resuming, m.took = true, 0
		m.reserve(true)
		return
	}
	m.recover("resumed", 0)
}
