package coordinator

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// attempt is a checkpoint under way.
type attempt struct {
	id          dataflow.CheckpointID
	incarnation dataflow.Incarnation
	triggeredAt int64
	final       bool // of a stop
	waiters     []uint64

	shards     []dataflow.ShardCommit // by shard; valid where acked
	acked      []bool
	positions  dataflow.Positions
	left       int  // shards that have not acknowledged
	committing bool // proposed to the meta log: the outcome is its to tell
}

func (a *attempt) String() string {
	if a.committing {
		return fmt.Sprintf("committing %d", a.id)
	}
	return fmt.Sprintf("attempt %d (%d of %d)", a.id, len(a.acked)-a.left, len(a.acked))
}

// missing names the shards that have not acknowledged.
func (a *attempt) missing(shards int) string {
	var b strings.Builder
	b.WriteString("waiting for shards")
	for s := range shards {
		if !a.acked[s] {
			fmt.Fprintf(&b, " %d", s)
		}
	}
	return b.String()
}

func (m *Machine) attemptTimeout() time.Duration {
	if m.attempt.final {
		return min(m.view.Options.Timeout, StopTimeout)
	}
	return m.view.Options.Timeout
}

func (m *Machine) attemptDeadline() int64 {
	return m.attempt.triggeredAt + m.attemptTimeout().Microseconds()
}

// interval is the time between two periodic attempts; 0 = none are made.
func (m *Machine) interval() time.Duration {
	i := m.view.Options.Interval
	if m.pressed && (i == 0 || i > PressureInterval) {
		return PressureInterval
	}
	return i
}

// periodicAt is when the next periodic attempt is due. Like the interval, checkpoint.min_pause holds no longer than
// PressureInterval back what frees room.
func (m *Machine) periodicAt() int64 {
	paused := m.pausedTo
	if m.pressed {
		paused = min(paused, m.lastAt+PressureInterval.Microseconds())
	}
	return max(m.lastAt+m.interval().Microseconds(), paused, m.heldTo)
}

// triggerRequested queues a waiter for the next attempt: one that is under way injected its barrier before the request.
func (m *Machine) triggerRequested(e TriggerRequested) {
	if m.phase == idle || m.phase == halting {
		m.failWaiters([]uint64{e.Waiter}, m.notRunning())
		return
	}
	if len(m.queued) >= MaxWaiters {
		m.failWaiters([]uint64{e.Waiter}, dataflow.Errorf(dataflow.ReasonOverloaded,
			"%d requests wait for the pipeline's next checkpoint", len(m.queued)).WithRetry(time.Second))
		return
	}
	m.queued = append(m.queued, e.Waiter)
	m.hold = m.hold || e.Hold
}

// trigger starts an attempt when one is wanted and none is under way.
func (m *Machine) trigger() {
	if m.phase != running || m.attempt != nil {
		return
	}
	periodic := m.dirty && m.interval() > 0 && m.now >= m.periodicAt()
	if !m.stopping && len(m.queued) == 0 && !periodic {
		return
	}
	if m.attempts.next == m.attempts.end {
		m.reserve(false)
		return // AttemptsReserved brings us here again
	}
	m.attempt = &attempt{
		id: m.attempts.next, incarnation: m.view.Incarnation, triggeredAt: m.now, final: m.stopping, waiters: m.queued,
		shards: make([]dataflow.ShardCommit, m.view.Shards), acked: make([]bool, m.view.Shards), left: m.view.Shards,
		positions: dataflow.Positions{},
	}
	m.attempts.next++
	m.do(InjectBarrier{Incarnation: m.attempt.incarnation, Checkpoint: m.attempt.id, Hold: m.hold})
	m.heldTo = 0
	if m.hold {
		m.heldTo = m.now + dataflow.HoldTime.Microseconds()
	}
	m.queued, m.hold = nil, false
	m.dirty, m.pressed = false, false
	m.lastAt = m.now
}

// isCurrent reports whether a message is about the attempt under way, and comes before it is decided.
func (m *Machine) isCurrent(i dataflow.Incarnation, n dataflow.CheckpointID) bool {
	a := m.attempt
	return m.phase == running && a != nil && !a.committing && a.incarnation == i && a.id == n
}

func (m *Machine) ack(e Ack) {
	if !m.isCurrent(e.Incarnation, e.Checkpoint) || int(e.Shard) >= len(m.attempt.acked) || m.attempt.acked[e.Shard] {
		return
	}
	a := m.attempt
	a.acked[e.Shard] = true
	a.left--
	a.shards[e.Shard] = dataflow.ShardCommit{Shard: e.Shard, Seq: e.Seq, Digest: e.Digest, Index: e.Index,
		Skipped: e.Skipped, AckMicros: m.now - a.triggeredAt}
	a.positions.Advance(e.Positions)
	if a.left > 0 {
		return
	}
	a.committing = true
	m.do(ProposeCommit{&dataflow.CheckpointCommit{
		Incarnation: a.incarnation, ID: a.id, Guarantee: m.view.Options.Guarantee, TriggeredAt: a.triggeredAt,
		Positions: a.positions, Shards: a.shards,
	}})
}

func (m *Machine) commitApplied(e CommitApplied) {
	m.view.Committed = max(m.view.Committed, e.Commit.ID)
	a := m.attempt
	if a == nil || !a.committing || a.id != e.Commit.ID {
		return
	}
	m.attempt = nil
	m.failures, m.moves = 0, 0
	m.pausedTo = m.now + m.view.Options.MinPause.Microseconds()
	for _, w := range a.waiters {
		m.do(AnswerWaiter{w, a.id})
	}
	if a.final && m.phase == running {
		m.halt()
	}
}

func (m *Machine) commitRefused(e CommitRefused) {
	a := m.attempt
	if a == nil || !a.committing || a.id != e.Checkpoint {
		return
	}
	if m.phase == running && a.incarnation == m.view.Incarnation {
		m.attemptFailed(fmt.Sprintf("refused: %v", e.Err))
		return
	}
	m.attempt = nil
	m.failWaiters(a.waiters, attemptError(a.id, fmt.Sprintf("refused: %v", e.Err)))
}

// attemptFailed gives up the attempt under way while the tasks go on (G6): what it covered counts for the next one.
func (m *Machine) attemptFailed(cause string) {
	a := m.attempt
	m.attempt = nil
	m.dirty = true
	m.failures++
	m.pausedTo = m.now + m.view.Options.MinPause.Microseconds()
	m.do(CancelAttempts{Incarnation: a.incarnation, Through: a.id, Cause: cause})
	m.failWaiters(a.waiters, attemptError(a.id, cause))
	switch {
	case a.final, m.stopping && m.failures > m.view.Options.TolerableFailures:
		m.halt()
	case m.failures > m.view.Options.TolerableFailures:
		m.restart(fmt.Sprintf("%d checkpoints failed in a row, the last: %s", m.failures, cause))
	}
}

// dropAttempt gives up the attempt under way because its tasks end. One that is being committed is left to the meta log.
func (m *Machine) dropAttempt(cause string) {
	a := m.attempt
	if a == nil || a.committing {
		return
	}
	m.attempt = nil
	m.failWaiters(a.waiters, attemptError(a.id, cause))
}

func attemptError(n dataflow.CheckpointID, cause string) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonCheckpointFailed, "checkpoint %d was given up: %s", n, cause)
}
