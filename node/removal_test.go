package node_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// wantNode asks a node until another one is as wanted, and returns what all say of the logs that it leaves.
func wantNode(t *testing.T, via *nodetest.Node, name, what string, ok func(n *weirv1.NodeStatus, leaves []*weirv1.Departure) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		r, err := via.Cluster().GetStatus(ctx, &weirv1.GetStatusRequest{})
		var leaves []*weirv1.Departure
		for _, n := range r.GetNodes() {
			leaves = append(leaves, n.GetDepartures()...)
		}
		for _, n := range r.GetNodes() {
			if n.GetNode() == name && ok(n, leaves) {
				return
			}
		}
		if pause.For(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("%s: %v, %v, %v", what, r.GetNodes(), leaves, err)
		}
	}
}

// TestARemovalThatCannotEndIsTakenBack removes a node right after another one died. No log gives up its majority for that, also while its
// leader has not missed the dead one yet; what is waited for is said; and the node that was to go stays, with all its votes.
func TestARemovalThatCannotEndIsTakenBack(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 3, Tuning: node.Tuning{ElectionTimeout: quickElection}})
	wantVotes(t, g.Node(1), "after the founding", spread("n1", "n2", "n3"))
	g.Node(1).Deploy("wc", groupSQL)
	token := flow(t, g.Node(1), "", 10)
	set := func(undo bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for {
			_, err := g.Node(1).Cluster().RemoveNode(ctx, &weirv1.RemoveNodeRequest{Node: "n2", Undo: undo})
			if err == nil {
				return
			}
			if pause.For(ctx, 20*time.Millisecond) != nil { // the meta log may change its leader
				t.Fatal(err)
			}
		}
	}
	g.Kill(nodetest.LoseUnsynced, 3)
	set(false)
	wantNode(t, g.Node(1), "n2", "each log says that n3 is missing", func(_ *weirv1.NodeStatus, leaves []*weirv1.Departure) bool {
		var logs []string
		for _, d := range leaves {
			if d.GetNode() == "n2" && slices.Equal(d.GetNodes(), []string{"n3"}) {
				logs = append(logs, d.GetLog())
			}
		}
		slices.Sort(logs)
		return fmt.Sprint(logs) == "[meta shard-0 shard-1 shard-2]"
	})
	set(true)
	wantNode(t, g.Node(1), "n2", "it is active again", func(n *weirv1.NodeStatus, leaves []*weirv1.Departure) bool {
		return n.GetState() == "active" && len(leaves) == 0
	})
	token = flow(t, g.Node(2), token, 10)
	g.Start(3)
	token = flow(t, g.Node(3), token, 10)
	wantVotes(t, g.Node(2), "all vote", func(v votes) bool { return v.of("n1")+v.of("n2")+v.of("n3") == 9 })
	for _, n := range g.Nodes() {
		wantRounds(t, n, token, 30)
	}
	wantEqual(t, g.Node(2))
}

// TestARemovalThatHasBegunIsTakenBack: what the node had left it joins again, until it is gone.
func TestARemovalThatHasBegunIsTakenBack(t *testing.T) {
	t.Parallel()
	for range 5 {
		if takenBackInTime(t) {
			return
		}
	}
	t.Error("each of the removals was over before it was taken back")
}

// takenBackInTime removes a node and takes that back once it has left a log, unless the removal ends before.
func takenBackInTime(t *testing.T) bool {
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 3, Tuning: node.Tuning{ElectionTimeout: quickElection}})
	wantVotes(t, g.Node(1), "after the founding", spread("n1", "n2", "n3"))
	g.Node(1).Deploy("wc", groupSQL)
	remove := func(undo bool) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for {
			_, err = g.Node(1).Cluster().RemoveNode(ctx, &weirv1.RemoveNodeRequest{Node: "n2", Undo: undo})
			if err == nil || nodetest.Reason(err) == dataflow.ReasonNodeConflict || pause.For(ctx, 20*time.Millisecond) != nil {
				return err // else the meta log changes its leader
			}
		}
	}
	if err := remove(false); err != nil {
		t.Fatal(err)
	}
	wantVotes(t, g.Node(1), "it is out of a shard", func(v votes) bool { return v.of("n2") < 3 })
	if err := remove(true); nodetest.Reason(err) == dataflow.ReasonNodeConflict {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	wantNode(t, g.Node(1), "n2", "it is active again", func(n *weirv1.NodeStatus, _ []*weirv1.Departure) bool { return n.GetState() == "active" })
	wantVotes(t, g.Node(1), "all vote", func(v votes) bool { return v.of("n1")+v.of("n2")+v.of("n3") == 9 })
	token := flow(t, g.Node(2), "", 10)
	for _, n := range g.Nodes() {
		wantRounds(t, n, token, 10)
	}
	wantEqual(t, g.Node(2))
	return true
}
