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
	if w.may(now.Add(againAfter-1), true) || w.may(now.Add(againAfter-1), false) || !w.may(now.Add(againAfter), true) {
		t.Errorf("after a move that must be: %+v", w)
	}
}
