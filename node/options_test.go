package node_test

import (
	"testing"

	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func setOption(t *testing.T, n *nodetest.Node, pipeline, name, value string) {
	t.Helper()
	if _, err := n.Pipelines().SetPipelineOptions(t.Context(), &weirv1.SetPipelineOptionsRequest{
		Pipeline: pipeline, Options: map[string]string{name: value}}); err != nil {
		t.Fatal(err)
	}
}

func TestOnErrorOfARunningPipelineCanBeChanged(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	n.Deploy("p", "SET checkpoint.interval = '10 ms';"+ratios)
	n.WaitCommitted(n.Append("s", row("a", 6, 2)))
	n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_RUNNING)

	setOption(t, n, "p", "on_error", "skip")
	// The change is on its way to the coordinator; tasks with the old value would fail at the row that is appended now.
	for n.Pipeline("p").GetIncarnation() == 1 {
		if t.Context().Err() != nil {
			t.Fatal("no incarnation has begun")
		}
	}
	n.WaitCommitted(n.Append("s", row("a", 1, 0), row("b", 5, 5)))
	if cut := wantTable(t, n, "p", "ratio", nodetest.Committed, `{"k":"a","r":3}`, `{"k":"b","r":1}`); cut.GetSkippedRows() != 1 || cut.GetIncarnation() != 2 {
		t.Errorf("cut: %v", cut)
	}

	setOption(t, n, "p", "checkpoint.retained", "5") // not a task's business
	if i := n.Pipeline("p").GetIncarnation(); i != 2 {
		t.Errorf("incarnation %d", i)
	}
	setOption(t, n, "p", "on_error", "fail")
	n.Append("s", row("c", 1, 0)) // which incarnation meets it does not matter
	if f := n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_FAILED).GetFailure(); f.GetView() != "ratio" {
		t.Errorf("failure: %v", f)
	}
}
