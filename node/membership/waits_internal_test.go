package membership

import (
	"testing"
	"time"
)

// TestALeadThatOnlyMightMoveDoesNotHoldUpThoseThatMust: to spread leads has failed, as to a node that died a moment ago, and then another
// node is removed.
func TestALeadThatOnlyMightMoveDoesNotHoldUpThoseThatMust(t *testing.T) {
	now := time.Unix(1000, 0)
	var w moveWaits
	if !w.may(now, true) || !w.may(now, false) {
		t.Error("it waits though nothing has failed")
	}
	w.failed(now, false)
	if !w.may(now, true) || w.may(now.Add(settleTime-1), false) || !w.may(now.Add(settleTime), false) {
		t.Errorf("after a move that only might be: %+v", w)
	}
	w.failed(now, true)
	if w.may(now.Add(againAfter-1), true) || !w.may(now.Add(againAfter), true) || w.may(now.Add(settleTime-1), false) || !w.may(now.Add(settleTime), false) {
		t.Errorf("after a move that must be: %+v", w)
	}
	w.failed(now.Add(settleTime), true)
	if w.may(now.Add(settleTime+againAfter-1), false) || !w.may(now.Add(settleTime+againAfter), false) {
		t.Errorf("after another: %+v", w)
	}
}

// TestSourcesAreNotHeldForAMoveThatHasFailed: one that fails again and again would hold them all the time.
func TestSourcesAreNotHeldForAMoveThatHasFailed(t *testing.T) {
	var w moveWaits
	if !w.hold() {
		t.Error("not held for the first move")
	}
	w.failed(time.Unix(1000, 0), true)
	if w.hold() {
		t.Error("held though the last move has failed")
	}
	w.succeeded()
	if !w.hold() {
		t.Error("not held though the last move has succeeded")
	}
}
