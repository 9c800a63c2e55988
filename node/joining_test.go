package node_test

import (
	"context"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// TestANodeThatCannotFinishJoiningIsTakenOutAgain ends a node while it joins: it must not be in the way of others for good.
func TestANodeThatCannotFinishJoiningIsTakenOutAgain(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 1})
	n := g.Add()
	ctx, end := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- n.TryStart(ctx) }()
	cluster := g.Node(1).Cluster()
	eventually(t, func() string {
		_, err := cluster.AddNode(t.Context(), &weirv1.AddNodeRequest{PeerAddr: "n4:7712", Node: "n4"})
		if err != nil {
			return err.Error() // it does not listen yet
		}
		return ""
	})
	end()
	if <-started == nil {
		n.Close() // it was quicker
	} else if _, err := cluster.RemoveNode(t.Context(), &weirv1.RemoveNodeRequest{Node: "n3"}); nodetest.Refusal(err) == nil ||
		nodetest.Reason(err) != dataflow.ReasonNodeConflict || nodetest.Refusal(err).Hint != "weir cluster status shows how far it is; if it cannot finish, weir cluster remove n4 takes it out first" {
		t.Errorf("remove n3 while n4 joins: %v", err)
	}
	g.Remove(1, 4)
	g.Remove(1, 3)
}
