package leader_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/leader"
)

// triggered is the outcome of a Trigger in a goroutine.
type triggered struct {
	id  dataflow.CheckpointID
	err error
}

// trigger asks for a checkpoint; the channel gives the answer.
func trigger(ctx context.Context, d *leader.Driver, uid dataflow.PipelineUID) <-chan triggered {
	ch := make(chan triggered, 1)
	go func() {
		id, err := d.Trigger(ctx, uid)
		ch <- triggered{id, err}
	}()
	return ch
}

// answer returns the answer of a trigger that has been answered by now.
func (w *world) answer(ch <-chan triggered) triggered {
	w.t.Helper()
	synctest.Wait()
	select {
	case a := <-ch:
		return a
	default:
		w.t.Fatal("a trigger has no answer")
		return triggered{}
	}
}

func (w *world) refused(a triggered, want dataflow.Reason) {
	w.t.Helper()
	if got := dataflow.ReasonOf(a.err); got != want {
		w.t.Errorf("the trigger came to %d, %v (%s), want %s", a.id, a.err, got, want)
	}
}

// TestHoldHoldsTheSourcesBehindItsOwnBarrier asks for what comes before leads move.
func TestHoldHoldsTheSourcesBehindItsOwnBarrier(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		d, _ := w.lead()
		uid := w.deploy(off)
		w.expect("Bootstrap; CreatePipeline; barrier; ReserveAttempts; start i1 from 0; RUNNING")
		if err := d.Hold(t.Context(), uid); err != nil {
			t.Error(err)
		}
		w.expect("inject 1, hold; CommitCheckpoint")
		w.answer(trigger(t.Context(), d, uid))
		w.expect("inject 2; CommitCheckpoint")
	})
}

func TestADeployedPipelineIsStartedAndCheckpointed(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		d, _ := w.lead()
		uid := w.deploy(off)
		w.expect("Bootstrap; CreatePipeline; barrier; ReserveAttempts; start i1 from 0; RUNNING")
		w.rows(5)
		w.expect("") // checkpoint.interval is off
		a := w.answer(trigger(t.Context(), d, uid))
		if a.id != 1 || a.err != nil {
			t.Errorf("%d %v", a.id, a.err)
		}
		w.expect("inject 1; CommitCheckpoint")
		if got := w.pipeline().Newest(); got.ID != 1 || got.Positions.String() != "1/0:5" {
			t.Errorf("committed %s", got)
		}
	})
}

func TestAnIdleStreamMakesNoCheckpoints(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.lead()
		w.deploy()
		time.Sleep(10 * time.Second)
		w.took() // the first checkpoint after a start covers what the tasks may have done before
		time.Sleep(time.Minute)
		w.expect("")
		for range 3 {
			w.rows(1)
		}
		time.Sleep(2 * time.Second)
		w.expect("inject 2; CommitCheckpoint")
		time.Sleep(time.Minute)
		w.expect("")
	})
}

func TestAProposalOfUnknownOutcomeIsMadeAgain(t *testing.T) {
	unknown := dataflow.Errorf(dataflow.ReasonOutcomeUnknown, "the leader was lost")
	busy := dataflow.Errorf(dataflow.ReasonOverloaded, "the queue is full")
	for _, name := range []string{"", "barrier", "ReserveAttempts", "RUNNING", "CommitCheckpoint", "BeginIncarnation", "STOPPED"} {
		for _, applied := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s applied=%v", name, applied), func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					uid := w.deploy(off)
					if applied {
						w.set(func() { w.mu.after = once(name, unknown) })
					} else {
						w.set(func() { w.mu.before = once(name, busy) })
					}
					d, _ := w.lead()
					time.Sleep(time.Second)
					waiter := trigger(t.Context(), d, uid)
					time.Sleep(time.Second)
					first := w.answer(waiter)
					time.Sleep(time.Second)
					w.fail(false)
					time.Sleep(time.Second)
					if p := w.pipeline(); p.State != dataflow.PipelineRunning || p.Incarnation != 2 || first.err != nil || p.Newest().ID != first.id || p.Base != p.Newest() {
						t.Errorf("%s i%d, answered %v, newest %d, base %d", p.State, p.Incarnation, first, p.Newest().ID, p.Base.ID)
					}
					w.retrying(func() error { _, err := w.log.Stop(t.Context(), uid); return err })
					time.Sleep(time.Second)
					w.state(dataflow.PipelineStopped)
					if got := len(w.pipeline().Cuts); got != 3 {
						t.Errorf("%d cuts are committed", got)
					}
				})
			})
		}
	}
}

// retrying repeats what a client would.
func (w *world) retrying(f func() error) {
	w.t.Helper()
	var err error
	for range 3 {
		if err = f(); err == nil {
			return
		}
	}
	w.t.Fatal(err)
}

func TestADeposedLeaderAnswersItsWaitersAndLeavesTheTasksAlone(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		d, stop := w.lead()
		uid := w.deploy(off)
		synctest.Wait()
		w.set(func() { w.mu.mute = true })
		waiter, queued := trigger(t.Context(), d, uid), trigger(t.Context(), d, uid)
		w.took()
		stop()
		w.refused(w.answer(waiter), dataflow.ReasonNotLeader)
		w.refused(w.answer(queued), dataflow.ReasonNotLeader)
		w.expect("")
		_, err := d.Trigger(t.Context(), uid)
		w.refused(triggered{err: err}, dataflow.ReasonNotLeader)

		// The next leader finds the tasks running and takes them over; nothing that was under way can commit any more (P3).
		w.set(func() { w.mu.mute = false })
		d, _ = w.lead()
		w.expect("barrier; ReserveAttempts")
		if a := w.answer(trigger(t.Context(), d, uid)); a.err != nil || a.id <= 1000 {
			t.Errorf("%d %v", a.id, a.err)
		}
		if p := w.pipeline(); p.Incarnation != 1 {
			t.Errorf("the tasks were restarted: i%d", p.Incarnation)
		}
	})
}

func TestALeaderThatFindsNoTasksBeginsAnIncarnation(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		_, stop := w.lead()
		w.deploy(off)
		synctest.Wait()
		stop()
		w.set(func() { w.mu.running = 0 })
		w.took()
		w.lead()
		w.expect("barrier; ReserveAttempts; stop i1; BeginIncarnation; start i2 from 0; RUNNING")
	})
}

// blocked lets starts wait for their context, or for a signal.
func (w *world) blocked() (unblock func()) {
	gate := make(chan struct{})
	w.set(func() {
		w.mu.start = func(ctx context.Context, _ dataflow.Incarnation) error {
			select {
			case <-gate:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return func() {
		w.set(func() { w.mu.start = nil })
		close(gate)
	}
}

func TestAPipelineThatIsDeletedWhileItStartsIsLetGo(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.blocked()
		d, _ := w.lead()
		uid := w.deploy(off)
		w.took()
		waiter := trigger(t.Context(), d, uid)
		synctest.Wait()
		if _, err := w.log.DeletePipeline(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
		w.expect("DeletePipeline; stop i1")
		w.refused(w.answer(waiter), dataflow.ReasonPipelineNotFound)
		_, err := d.Trigger(t.Context(), uid)
		w.refused(triggered{err: err}, dataflow.ReasonPipelineNotFound)
		if uid = w.deploy(off); uid != 2 { // the name is free, and its pipeline another one
			t.Errorf("uid %d", uid)
		}
		w.expect("CreatePipeline; barrier; ReserveAttempts; start i1 from 0")
	})
}

func TestAPipelineThatIsStoppedWhileItStartsStops(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		unblock := w.blocked()
		w.lead()
		uid := w.deploy(off)
		w.took()
		if _, err := w.log.Stop(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		w.expect("STOPPING; stop i1; STOPPED")
		unblock()
		if _, err := w.log.Resume(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		w.expect("RECOVERING; stop i1; BeginIncarnation; start i2 from 0; RUNNING")
	})
}

func TestAStopTakesAFinalCheckpoint(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		d, _ := w.lead()
		uid := w.deploy(off)
		w.rows(3)
		w.took()
		if _, err := w.log.Stop(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		w.expect("STOPPING; inject 1; CommitCheckpoint; stop i1; STOPPED")
		if got := w.pipeline().Newest().Positions.String(); got != "1/0:3" {
			t.Errorf("the final checkpoint is at %s", got)
		}
		w.refused(w.answer(trigger(t.Context(), d, uid)), dataflow.ReasonPipelineState)
	})
}

// The leader must not take the STOPPED that it has made itself, and the RECOVERING of a user after it, for the RECOVERING
// of long ago.
func TestAResumeRightAfterTheStopIsNotMissed(t *testing.T) {
	for _, made := range []string{"STOPPED", "FAILED"} {
		in(t, func(t *testing.T, w *world) {
			w.lead()
			uid := w.deploy(off)
			w.took()
			resume := once(made, context.Canceled)
			w.set(func() {
				w.mu.after = func(name string) error {
					if resume(name) != nil { // nobody can look in between
						if _, err := w.log.Resume(t.Context(), uid); err != nil {
							t.Error(err)
						}
					}
					return nil
				}
			})
			if made == "FAILED" {
				w.fail(true)
			} else if _, err := w.log.Stop(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
			w.state(dataflow.PipelineRunning)
			if p := w.pipeline(); p.Incarnation != 2 {
				t.Errorf("%s: i%d", made, p.Incarnation)
			}
		})
	}
}

func TestAStopRightAfterTheResumeIsNotMissed(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.lead()
		uid := w.deploy(off)
		synctest.Wait()
		if _, err := w.log.Stop(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		w.took()
		w.set(func() {
			w.mu.after = func(name string) error {
				if name == "RECOVERING" { // nobody can look in between
					if _, err := w.log.Stop(t.Context(), uid); err != nil {
						t.Error(err)
					}
				}
				return nil
			}
		})
		if _, err := w.log.Resume(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		w.state(dataflow.PipelineStopped)
		w.expect("RECOVERING; STOPPING; stop i1; BeginIncarnation; stop i1; STOPPED")
	})
}

func TestOptionsThatChangeDuringARecoveryReachTheMachine(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.lead()
		uid := w.deploy(off)
		synctest.Wait()
		change := once("BeginIncarnation", context.Canceled)
		w.set(func() {
			w.mu.before = func(name string) error {
				if change(name) != nil {
					if _, err := w.log.SetOptions(t.Context(), uid, []dataflow.Option{{Name: "checkpoint.interval", Value: "1 s"}}); err != nil {
						t.Error(err)
					}
				}
				return nil
			}
		})
		w.fail(false)
		time.Sleep(1500 * time.Millisecond)
		w.rows(1)
		w.took()
		time.Sleep(5 * time.Second)
		w.expect("inject 2; CommitCheckpoint") // 1 was what a start is followed by
	})
}

func TestAPermanentFailureFailsThePipelineAndAResumeSkipsItsRow(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		d, _ := w.lead()
		uid := w.deploy(off)
		synctest.Wait()
		w.set(func() { w.mu.mute = true })
		waiter := trigger(t.Context(), d, uid)
		synctest.Wait()
		w.took()
		w.fail(true)
		w.expect("FAILED; stop i1")
		w.refused(w.answer(waiter), dataflow.ReasonCheckpointFailed)
		p := w.pipeline()
		if p.State != dataflow.PipelineFailed || p.Failure == nil || p.Failure.Row.Offset != 7 {
			t.Fatalf("%s %v", p.State, p.Failure)
		}
		if _, err := w.log.Resume(t.Context(), uid, p.Failure.Row); err != nil {
			t.Fatal(err)
		}
		w.expect("RECOVERING; stop i1; BeginIncarnation; start i2 from 0; RUNNING")
	})
}

func TestRepeatedFailuresAreRestartedWithBackOff(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.lead()
		w.deploy(off)
		synctest.Wait()
		var waits []time.Duration
		for range 5 {
			w.took()
			w.fail(false)
			began := time.Now()
			for synctest.Wait(); w.runs() == 0; synctest.Wait() {
				time.Sleep(10 * time.Millisecond)
			}
			waits = append(waits, time.Since(began))
		}
		want := []time.Duration{0, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond}
		if !slices.Equal(waits, want) {
			t.Errorf("waits %v, want %v", waits, want)
		}
		w.state(dataflow.PipelineRunning)
	})
}

func TestAStartThatFailsIsTriedWithTheNextIncarnation(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.set(func() {
			w.mu.start = func(_ context.Context, inc dataflow.Incarnation) error {
				if inc < 3 {
					return dataflow.Errorf(dataflow.ReasonOverloaded, "the shard's queue is full")
				}
				return nil
			}
		})
		w.lead()
		w.deploy(off)
		time.Sleep(time.Second)
		w.expect("Bootstrap; CreatePipeline; barrier; ReserveAttempts; start i1 from 0; stop i1; BeginIncarnation; start i2 from 0; stop i2; BeginIncarnation; start i3 from 0; RUNNING")
	})
}

func TestAStartWithoutItsRowsFailsThePipeline(t *testing.T) {
	for _, reason := range []dataflow.Reason{dataflow.ReasonPositionsExpired, dataflow.ReasonCorrupt} {
		in(t, func(t *testing.T, w *world) {
			w.set(func() {
				w.mu.start = func(context.Context, dataflow.Incarnation) error { return dataflow.Errorf(reason, "gone") }
			})
			w.lead()
			w.deploy(off)
			w.state(dataflow.PipelineFailed)
			if f := w.pipeline().Failure; f == nil || f.Reason != reason {
				t.Errorf("failure %v", f)
			}
		})
	}
}

func TestFailEndsTheRunningIncarnation(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		d, _ := w.lead()
		uid := w.deploy(off)
		w.took()
		d.Fail(uid, 1, "crashed on request")
		w.expect("stop i1; BeginIncarnation; start i2 from 0; RUNNING")
		d.Fail(uid, 1, "again")
		d.Fail(99, 1, "nobody") // does nothing
		w.expect("")
	})
}

// TestEveryTriggerIsAnswered asks for checkpoints while everything happens that can happen to a pipeline.
func TestEveryTriggerIsAnswered(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				rng := rand.New(rand.NewPCG(seed, 7))
				d, stop := w.lead()
				uid := w.deploy()
				var waiters sync.WaitGroup
				for range 200 {
					switch rng.IntN(12) {
					case 0:
						w.rows(1)
					case 1:
						if w.runs() != 0 {
							w.fail(rng.IntN(4) == 0)
						}
					case 2:
						_, _ = w.log.Stop(t.Context(), uid)
					case 3, 4:
						_, _ = w.log.Resume(t.Context(), uid)
					case 5:
						w.set(func() { w.mu.mute = !w.mu.mute })
					case 6:
						if rng.IntN(10) == 0 {
							stop()
							d, stop = w.lead()
						}
					case 7:
						if rng.IntN(20) == 0 {
							if _, err := w.log.DeletePipeline(t.Context(), "p"); err == nil {
								uid = w.deploy()
							}
						}
					case 8:
						time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
					default:
						d, uid := d, uid
						waiters.Go(func() {
							// The longest a waiter has to wait is an attempt's timeout; the driver must beat that.
							ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
							defer cancel()
							if _, err := d.Trigger(ctx, uid); dataflow.ReasonOf(err) == dataflow.ReasonDeadline || dataflow.ReasonOf(err) == dataflow.ReasonInternal {
								t.Errorf("a trigger was left alone: %v", err)
							}
						})
					}
				}
				w.set(func() { w.mu.mute = false })
				waiters.Wait()
				stop()
			})
		})
	}
}
