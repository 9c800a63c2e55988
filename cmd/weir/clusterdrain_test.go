package main

import (
	"context"
	"strings"
	"testing"

	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// withLog adds to a status how a node has a shard's log.
func withLog(s *weirv1.GetStatusResponse, node, log, role, leader string) *weirv1.GetStatusResponse {
	for _, n := range s.GetNodes() {
		if n.GetNode() == node {
			n.ShardLogs = append(n.ShardLogs, &weirv1.RaftLog{Group: log, Role: role, Leader: leader})
			n.Reachable = true
		}
	}
	return s
}

// TestADrainIsWaitedForUntilTheNodeLeadsNothing: each change of what it leads is said once.
func TestADrainIsWaitedForUntilTheNodeLeadsNothing(t *testing.T) {
	two := withLog(withLog(seenBy(10, "drained"), "n3", "shard-1", "leader", "n3"), "n3", "shard-0", "leader", "n3")
	one := withLog(withLog(seenBy(10, "drained"), "n3", "shard-1", "leader", "n3"), "n3", "shard-0", "voter", "n1")
	silent := withLog(withLog(seenBy(10, "drained"), "n1", "shard-2", "voter", "n3"), "n2", "shard-2", "voter", "n3")
	// n2 has not heard yet that n3 has given the lead away.
	none := withLog(withLog(seenBy(10, "drained"), "n3", "shard-1", "voter", "n1"), "n2", "shard-1", "voter", "n3")
	code, stdout, stderr := clusterOutcome(t, []*weirv1.GetStatusResponse{two, two, one, silent, none}, "drain", "n3", "--wait")
	if code != exitOK || stdout != "node n3 is drained\n" || stderr != "node n3 still leads shard-0, shard-1\nnode n3 still leads shard-1\nnode n3 still leads shard-2\n" {
		t.Errorf("exit code %d: %s\n%s", code, stdout, stderr)
	}
}

func TestADrainThatIsTakenBackFails(t *testing.T) {
	drains := withLog(seenBy(10, "drained"), "n3", "shard-0", "leader", "n3")
	code, stdout, stderr := clusterOutcome(t, []*weirv1.GetStatusResponse{seenBy(9, "active"), drains, seenBy(11, "active")}, "drain", "n3", "--wait")
	if code != exitRefused || stdout != "" || !strings.Contains(stderr, "error: NODE_CONFLICT: the drain of node n3 was taken back: it is active\n") {
		t.Errorf("exit code %d: %s\n%s", code, stdout, stderr)
	}
}

func TestADrainThatIsTakenBackIsNotWaitedFor(t *testing.T) {
	e, _, stderr, _ := testEnvironment(strings.NewReader(""))
	if code := run(context.Background(), e, []string{"cluster", "drain", "n3", "--wait", "--undo", "--addr", "127.0.0.1:1"}); code != exitUsage {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestADrainedNodeLeadsNothingWhenTheWaitEnds drains the leader of the meta log.
func TestADrainedNodeLeadsNothingWhenTheWaitEnds(t *testing.T) {
	g := nodetest.OpenGroup(t, 3, nodetest.Options{})
	s, err := g.Node(1).Cluster().GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	leader := s.GetMeta().GetLeader()
	e, stdout, stderr, _ := testEnvironment(strings.NewReader(""))
	code := run(context.Background(), e, []string{"cluster", "drain", leader, "--wait", "--addr", g.Node(1).GRPCAddr(), "--discover=false"})
	if code != exitOK || stdout.String() != "node "+leader+" is drained\n" {
		t.Fatalf("exit code %d: %s\n%s", code, stdout, stderr)
	}
	s, err = g.Node(1).Cluster().GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if leads := leadsOf(s, leader); err != nil || len(leads) > 0 {
		t.Errorf("%s leads %v, %v", leader, leads, err)
	}
}
