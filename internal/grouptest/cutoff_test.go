package grouptest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// leads returns which of the logs a node says that it leads.
func leads(ctx context.Context, t *testing.T, n *nodetest.Node) (logs []string) {
	t.Helper()
	st, err := n.Cluster().GetStatus(ctx, &weirv1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range append(st.GetShardLogs(), st.GetMeta()) {
		if l.GetRole() == "leader" {
			logs = append(logs, l.GetGroup())
		}
	}
	return logs
}

// TestANodeThatIsCutOffTellsNothingOldForNew cuts off the node that leads the only shard, while the others go on.
func TestANodeThatIsCutOffTellsNothingOldForNew(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 1})
	g.Node(1).Deploy("p", tallySQL)
	g.Node(1).WaitCommitted(g.Node(1).Append("votes", `{"who":1,"n":1}`))

	cut := 0
	for i := range g.Nodes() {
		if slices.Contains(leads(ctx, t, g.Node(i+1)), "shard-0") {
			cut = i + 1
		}
	}
	if cut == 0 {
		t.Fatal("nobody leads shard 0")
	}
	alone, others := g.Node(cut), g.Node(cut%3+1)
	client := openClient(t, others.GRPCAddr())
	old := openClient(t, alone.GRPCAddr())
	g.Isolate(cut)
	if _, err := client.Append(ctx, weir.Append{Stream: "votes", JSON: []byte(`{"who":1,"n":2}`), IdempotencyKey: "second"}); err != nil {
		t.Fatal(err)
	}
	const newest = `{"who":1,"rows":2,"total":3}`
	for _, isolation := range []dataflow.Isolation{dataflow.ReadUncommitted, dataflow.ReadCommitted} {
		for row := ""; row != newest; {
			a, err := client.Get(ctx, "p.tally", weir.Key(1), weir.ReadOptions{Isolation: isolation})
			if err != nil {
				t.Fatal(err)
			}
			row = string(a.Row)
			if err := pause.For(ctx, 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
	}

	// Another node has led the shard and answered with the new row: what the old leader has is old.
	key := &weirv1.Key{Values: []*weirv1.Value{{Kind: &weirv1.Value_Literal{Literal: "1"}}}}
	r, err := alone.Queries().Get(ctx, &weirv1.GetRequest{Pipeline: "p", Table: "tally", Key: key, Isolation: nodetest.Live})
	if nodetest.Reason(err) != dataflow.ReasonPipelineRecovering {
		t.Errorf("a live read of the deposed leader: %s, %v", r.GetRow(), err)
	}
	// A committed read says of what cut it is, and whoever asks for more is told who has it.
	r, err = alone.Queries().Get(ctx, &weirv1.GetRequest{Pipeline: "p", Table: "tally", Key: key})
	if err != nil || string(r.GetRow()) != `{"who":1,"rows":1,"total":1}` {
		t.Errorf("a committed read: %s, %v", r.GetRow(), err)
	}
	if role := r.GetCut().GetRole(); role != "follower" {
		t.Errorf("a node that leads nothing calls itself %s", role)
	}
	_, err = alone.Queries().Get(ctx, &weirv1.GetRequest{Pipeline: "p", Table: "tally", Key: key, MaxStaleness: durationpb.New(time.Second)})
	if e := nodetest.Refusal(err); e == nil || e.Reason != dataflow.ReasonCutTooOld || len(strings.Split(e.Metadata["nodes"], ",")) != 2 {
		t.Errorf("max_staleness: %v", err)
	}
	_, err = alone.Queries().Get(ctx, &weirv1.GetRequest{Pipeline: "p", Table: "tally", Key: key, SessionToken: client.SessionToken("p"), MaxWait: durationpb.New(100 * time.Millisecond)})
	if e := nodetest.Refusal(err); e == nil || e.Reason != dataflow.ReasonTokenNotReached || e.Metadata["behind"] == "" {
		t.Errorf("a session that has seen more: %v", err)
	}
	if p, err := alone.Pipelines().GetPipeline(ctx, &weirv1.GetPipelineRequest{Pipeline: "p"}); nodetest.Reason(err).Kind() != dataflow.KindUnavailable {
		t.Errorf("a read of the metadata: %v, %v", p, err)
	}
	// A client that knows only this node finds those that have what it wants.
	for name, o := range map[string]weir.ReadOptions{
		"max_staleness": {MaxStaleness: time.Second}, "live": {Isolation: dataflow.ReadUncommitted}, "session": {SessionToken: client.SessionToken("p"), MaxWait: 100 * time.Millisecond},
	} {
		a, err := old.Get(ctx, "p.tally", weir.Key(1), o)
		if err != nil || string(a.Row) != newest {
			t.Errorf("%s, of a client that was told of the node that is cut off: %v, %v", name, a, err)
		}
	}
}
