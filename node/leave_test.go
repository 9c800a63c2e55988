package node_test

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
)

// TestANodeThatWasRemovedStops removes a node that hears nothing of it, because it is cut off, and lets it hear again.
func TestANodeThatWasRemovedStops(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{})
	g.Isolate(3)
	g.Remove(1, 3)
	g.Net.Heal()
	if err := g.Node(3).Ended(); dataflow.ReasonOf(err) != dataflow.ReasonNodeConflict {
		t.Errorf("the removed node ended with %v, want NODE_CONFLICT", err)
	}
}

// TestAGroupWhoseFoundersWereReplacedStartsCold leaves a founder and two later nodes, and starts two of them, which are a
// majority, while the third is down.
func TestAGroupWhoseFoundersWereReplacedStartsCold(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{})
	for _, old := range []int{2, 3} {
		g.Join(1)
		g.Remove(1, old)
		if err := g.Node(old).Ended(); dataflow.ReasonOf(err) != dataflow.ReasonNodeConflict {
			t.Errorf("the removed node ended with %v, want NODE_CONFLICT", err)
		}
	}
	g.Node(1).Deploy("wc", groupSQL)
	token := g.Node(4).Append("words", `{"word":"whale"}`)
	g.Node(5).WaitCommitted(token)
	g.Kill(nodetest.LoseUnsynced, 1, 4, 5)
	g.Start(1, 4)
	if row, _, _ := g.Node(4).Get("wc", "counts", nodetest.Committed, "whale"); row != `{"word":"whale","n":1}` {
		t.Errorf("after the start: %s", row)
	}
}
