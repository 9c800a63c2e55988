package statequery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/weirdb/weir/dataflow"
)

func TestAGateLetsInNoMoreThanItsSlotsAndTheRestInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("queries", 2)
		for range 2 {
			if waited, err := g.enter(t.Context(), 1); waited || err != nil {
				t.Fatalf("a free slot: waited %v, %v", waited, err)
			}
		}
		entered := make(chan int, 3)
		for i := range 3 {
			go func() {
				if waited, err := g.enter(t.Context(), 1); !waited || err != nil {
					t.Errorf("a full gate: waited %v, %v", waited, err)
				}
				entered <- i
			}()
			synctest.Wait()
		}
		if len(entered) != 0 || g.waiting.Load() != 3 {
			t.Fatalf("%d entered a full gate, %d wait", len(entered), g.waiting.Load())
		}
		for i := range 3 {
			g.leave(1)
			synctest.Wait()
			if len(entered) != 1 || <-entered != i {
				t.Fatalf("a slot came free: not request %d alone entered", i)
			}
		}
		if n := g.waiting.Load(); n != 0 {
			t.Errorf("%d wait in the end", n)
		}
	})
}

func TestWhoseContextEndsBeforeAGateGetsDeadlineAndHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("queries", 1)
		if _, err := g.enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := g.enter(ctx, 1)
			left <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-left; dataflow.ReasonOf(err) != dataflow.ReasonDeadline {
			t.Errorf("got %v", err)
		}
		g.leave(1)
		if waited, err := g.enter(t.Context(), 1); waited || err != nil || g.waiting.Load() != 0 {
			t.Errorf("after it: waited %v, %v, %d wait", waited, err, g.waiting.Load())
		}
	})
}

func TestAFullQueueBeforeAGateIsOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("queries", 1)
		if _, err := g.enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, maxWaiting)
		for range maxWaiting {
			go func() {
				_, err := g.enter(ctx, 1)
				left <- err
			}()
		}
		synctest.Wait()
		_, err := g.enter(ctx, 1)
		var e *dataflow.Error
		if dataflow.ReasonOf(err) != dataflow.ReasonOverloaded {
			t.Errorf("got %v", err)
		} else if errors.As(err, &e) && e.RetryAfter != gateRetry {
			t.Errorf("retry after %s", e.RetryAfter)
		}
		cancel()
		for range maxWaiting {
			<-left
		}
	})
}
