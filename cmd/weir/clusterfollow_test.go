package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// changingGroup is a group whose nodes are each time as the next status says, and then stay so.
type changingGroup struct {
	weirv1.UnimplementedClusterServiceServer
	mu       sync.Mutex
	statuses []*weirv1.GetStatusResponse
}

func (g *changingGroup) RemoveNode(_ context.Context, r *weirv1.RemoveNodeRequest) (*weirv1.RemoveNodeResponse, error) {
	return &weirv1.RemoveNodeResponse{Node: &weirv1.NodeStatus{Node: r.GetNode(), State: "leaving"}}, nil
}

func (g *changingGroup) DrainNode(_ context.Context, r *weirv1.DrainNodeRequest) (*weirv1.DrainNodeResponse, error) {
	return &weirv1.DrainNodeResponse{Node: &weirv1.NodeStatus{Node: r.GetNode(), State: "drained"}}, nil
}

func (g *changingGroup) GetStatus(context.Context, *weirv1.GetStatusRequest) (*weirv1.GetStatusResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.statuses[0]
	if len(g.statuses) > 1 {
		g.statuses = g.statuses[1:]
	}
	return s, nil
}

// clusterOutcome runs a verb of weir cluster against a group that changes so.
func clusterOutcome(t *testing.T, statuses []*weirv1.GetStatusResponse, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	weirv1.RegisterClusterServiceServer(server, &changingGroup{statuses: statuses})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	e, out, errs, _ := testEnvironment(strings.NewReader(""))
	code = run(context.Background(), e, slices.Concat([]string{"cluster"}, args, []string{"--discover=false", "--addr", l.Addr().String()}))
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	return code, out.String(), errs.String()
}

// seenBy is a status of node n1, which has applied so much of the meta log, where n2 has applied 10: n3 is in this state.
func seenBy(applied uint64, state string) *weirv1.GetStatusResponse {
	meta := &weirv1.RaftLog{Group: "meta", AppliedIndex: applied}
	return &weirv1.GetStatusResponse{Node: "n1", Meta: meta, Nodes: []*weirv1.NodeStatus{
		{Node: "n1", State: "active", Meta: meta}, {Node: "n2", State: "active", Meta: &weirv1.RaftLog{Group: "meta", AppliedIndex: 10}}, {Node: "n3", State: state}}}
}

// TestARemovalThatIsTakenBackFails: weir cluster remove --wait printed that the node is joining, and exited with 0.
func TestARemovalThatIsTakenBackFails(t *testing.T) {
	for _, state := range []string{"joining", "active"} {
		for _, args := range [][]string{{"remove", "n3", "--wait"}, {"remove", "n3"}} {
			code, stdout, stderr := clusterOutcome(t, []*weirv1.GetStatusResponse{seenBy(10, "leaving"), seenBy(11, state)}, args...)
			if code != exitRefused || stdout != "" || !strings.Contains(stderr, "error: NODE_CONFLICT: the removal of node n3 was taken back: it is "+state+"\n") {
				t.Errorf("%v: exit code %d: %s\n%s", args, code, stdout, stderr)
			}
		}
	}
}

// TestANodeThatLagsDoesNotSayThatARemovalWasTakenBack: it has not heard of the removal.
func TestANodeThatLagsDoesNotSayThatARemovalWasTakenBack(t *testing.T) {
	code, stdout, stderr := clusterOutcome(t, []*weirv1.GetStatusResponse{seenBy(9, "active"), seenBy(10, "gone")}, "remove", "n3", "--wait")
	if code != exitOK || stdout != "node n3 is gone\n" || stderr != "" {
		t.Errorf("exit code %d: %s\n%s", code, stdout, stderr)
	}
}
