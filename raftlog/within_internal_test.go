package raftlog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWaitEndsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, ok := within(10*time.Second, make(chan error), time.After); ok || time.Since(began) != 10*time.Second {
			t.Errorf("nothing comes, and it says %t after %s", ok, time.Since(began))
		}
		boom := errors.New("boom")
		ch := make(chan error)
		go func() {
			time.Sleep(9*time.Second + 900*time.Millisecond)
			ch <- boom
		}()
		began = time.Now()
		if err, ok := within(10*time.Second, ch, time.After); !ok || !errors.Is(err, boom) || time.Since(began) != 9900*time.Millisecond {
			t.Errorf("%v, %t after %s", err, ok, time.Since(began))
		}
	})
}

// TestATimeInWhichTheProcessStoodStillIsNotTheDisks stops the process for an hour, before and after each tick: the timer
// that ran meanwhile is overdue when it goes on, and the write ends soon after.
func TestATimeInWhichTheProcessStoodStillIsNotTheDisks(t *testing.T) {
	for stopped := range withinTicks {
		done := make(chan error, 1)
		ticks := 0
		after := func(d time.Duration) <-chan time.Time {
			if d != 500*time.Millisecond {
				t.Errorf("a tick of %s", d)
			}
			c := make(chan time.Time, 1)
			switch {
			case ticks < stopped:
				c <- time.Time{} // the disk is slow
			case ticks == stopped:
				c <- time.Time{}.Add(time.Hour) // overdue
			case len(done) == 0:
				done <- nil // the disk goes on, before another tick has passed
			}
			ticks++
			return c
		}
		if stopped == withinTicks-1 {
			// Stopped in the very last tick, the write must have ended meanwhile.
			last := after
			after = func(d time.Duration) <-chan time.Time {
				c := last(d)
				if ticks == withinTicks {
					done <- nil
				}
				return c
			}
		}
		if err, ok := within(10*time.Second, done, after); !ok || err != nil {
			t.Errorf("stopped in tick %d: %v, %t", stopped, err, ok)
		}
	}
}
