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

func TestANodeThatDidNotTakeALeadGetsNoneForAWhile(t *testing.T) {
	now := time.Unix(1000, 0)
	s := make(shunned)
	s.shun("n2", now)
	nodes := []Node{{ID: "n1", Fit: Well}, {ID: "n2", Fit: Well}, {ID: "n3", Fit: Well, Away: true}}
	voters, leaders := [][]string{{"n1", "n2"}, {"n2", "n3"}}, []string{"n1", "n2"}
	if got := s.among(nodes, now.Add(shunFor-1)); got[0].Away || !got[1].Away || !got[2].Away {
		t.Errorf("before: %+v", got)
	}
	// It keeps what it leads: nobody may be able to ask it.
	drained := s.among([]Node{{ID: "n1", Fit: Drained}, nodes[1], nodes[2]}, now)
	if moves := Leads(drained, voters, leaders, false); len(moves) > 0 {
		t.Errorf("moves %v", moves)
	}
	if got := s.among(nodes, now.Add(shunFor)); got[1].Away || nodes[1].Away {
		t.Errorf("after: %+v, and what was asked about is %+v", got, nodes)
	}
}
