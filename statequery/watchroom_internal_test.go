package statequery

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/weirdb/weir/dataflow"
)

func TestPagesGetSmallerAndThenWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWatchRoom(pageShare * 2 * mostPageBytes)
		enter := func(want int64) {
			t.Helper()
			if n, err := r.enter(t.Context()); err != nil || n != want {
				t.Fatalf("got %d bytes, %v; want %d", n, err, want)
			}
		}
		enter(mostPageBytes)
		if left := r.shrink(mostPageBytes, 3*leastPageBytes); left != 3*leastPageBytes || r.held.Load() != left {
			t.Fatalf("%d bytes are left, %d held", left, r.held.Load())
		}
		enter(mostPageBytes)
		enter(mostPageBytes / 2)
		enter(leastPageBytes)
		// Nothing is left: 3 + 8 + 4 + 1 eighths of a page are held.
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() { _, err := r.enter(ctx); waits <- err }()
		got := make(chan int64)
		go func() { n, _ := r.enter(t.Context()); got <- n }()
		synctest.Wait()
		cancel()
		if err := <-waits; dataflow.ReasonOf(err) != dataflow.ReasonDeadline {
			t.Errorf("who is gone gets %v", err)
		}
		r.leave(mostPageBytes / 2)
		if n := <-got; n != leastPageBytes {
			t.Errorf("who has waited gets %d bytes", n)
		}
		if n := r.held.Load(); n != (3+8+1+1)*leastPageBytes {
			t.Errorf("%d bytes are held", n)
		}
		if left := r.shrink(leastPageBytes, 5*leastPageBytes); left != leastPageBytes {
			t.Errorf("a row larger than a page leaves %d bytes", left)
		}
	})
}

// TestADroppedSetCountsWhileItIsTold lets go of a set of changes that a slow watcher has not taken: it still takes memory, and when
// that is too much he is cut off.
func TestADroppedSetCountsWhileItIsTold(t *testing.T) {
	h := &watchHub{e: &Engine{cfg: Config{WatchBytes: 1000}}}
	f := &feed{hub: h}
	f.mu.newest, f.mu.changed = &dataflow.CheckpointCommit{}, make(chan struct{})
	add := func(from dataflow.CheckpointID) {
		f.add(&changeSet{from: from, cut: &dataflow.CheckpointCommit{ID: from + 1}, bytes: 600}, 0, 1000, 1000)
	}
	add(0)
	slow, _, _, _ := f.after(0)
	again, _, _, _ := f.after(0)
	if slow == nil || slow != again || h.pinned.Load() != 0 {
		t.Fatalf("%v, %v, %d bytes are pinned", slow, again, h.pinned.Load())
	}
	add(1) // both do not fit
	if n := h.pinned.Load(); n != 600 || !f.pinsTooMuch(slow) {
		t.Errorf("%d bytes are pinned, too much: %v", n, f.pinsTooMuch(slow))
	}
	if quick, _, _, _ := f.after(1); f.pinsTooMuch(quick) {
		t.Error("who is told of what is kept anyway is cut off")
	}
	f.told(slow)
	if n := h.pinned.Load(); n != 600 {
		t.Errorf("another is still told of it, and %d bytes are pinned", n)
	}
	f.told(slow)
	if n := h.pinned.Load(); n != 0 {
		t.Errorf("%d bytes are pinned by nobody", n)
	}
}
