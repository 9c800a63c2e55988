package main

import (
	"testing"
	"time"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// TestWhatADepartureWaitsForIsSaidOnce: the logs that wait for the same stand together, and the way back is said only while the node
// cannot go.
func TestWhatADepartureWaitsForIsSaidOnce(t *testing.T) {
	leaves := func(log, why string, nodes ...string) *weirv1.Departure {
		return &weirv1.Departure{Log: log, Node: "n2", WaitsFor: why, Nodes: nodes}
	}
	s := &weirv1.GetStatusResponse{Nodes: []*weirv1.NodeStatus{
		{Node: "n1", Departures: []*weirv1.Departure{leaves("meta", "it leaves this log last"), leaves("shard-1", "missing: n3", "n3"), leaves("shard-2", "it is being taken out")}},
		{Node: "n2", State: "leaving", Departures: []*weirv1.Departure{leaves("shard-0", "missing: n3", "n3"), {Log: "shard-7", Node: "n9"}}},
	}}
	const want = `node n2 is leaving
  meta: it leaves this log last
  shard-0, shard-1: missing: n3
  shard-2: it is being taken out
It goes on when these nodes answer and are up to date; weir cluster remove n2 --undo takes the removal back.`
	if got := departureText(s, "n2"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	s.Nodes = s.Nodes[:1]
	s.Nodes[0].Departures = s.Nodes[0].Departures[2:]
	if got, want := departureText(s, "n2"), "node n2 is leaving\n  shard-2: it is being taken out"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestAWaitInPassingIsNotWhatKeepsANode: others come to vote in a node's place one log after the other, and each log waits for them.
func TestAWaitInPassingIsNotWhatKeepsANode(t *testing.T) {
	began := time.Unix(0, 0)
	d := departure{end: began.Add(removeLook)}
	for _, step := range []struct {
		after       time.Duration
		text        string
		stuck       bool
		news, known bool
	}{
		{0, "shard-0: n3 is to vote first", true, true, false},
		{stuckFor - 1, "shard-0: n3 is to vote first", true, false, false},
		{stuckFor, "shard-1: n3 is to vote first", true, true, false},
		{2*stuckFor - 1, "shard-1: n3 is to vote first", true, false, false},
		{2 * stuckFor, "shard-1: n3 is to vote first", true, false, true},
		{3 * stuckFor, "meta: it is being taken out", false, true, false},
		{removeLook + 1, "meta: it is being taken out", false, false, true},
	} {
		if news, known := d.look(step.text, step.stuck, began.Add(step.after)); news != step.news || known != step.known {
			t.Errorf("%s after %s: news %t, known %t, want %t, %t", step.text, step.after, news, known, step.news, step.known)
		}
	}
}
