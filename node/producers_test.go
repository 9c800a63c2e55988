package node_test

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestAnonymousProducersLeaveNothingInTheMetaLog(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	n.Deploy("p", "SET checkpoint.interval = 'off'; CREATE STREAM s (k TEXT); CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s;")
	n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_RUNNING)
	open := func(name string) uint64 {
		t.Helper()
		r, err := n.Ingest().OpenProducer(t.Context(), &weirv1.OpenProducerRequest{Stream: "s", Producer: name})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetEpoch()
	}
	applied := func() uint64 {
		t.Helper()
		r, err := n.Cluster().GetStatus(t.Context(), &weirv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetMeta().GetAppliedIndex()
	}
	before := applied()
	for range 2 {
		if got := open(dataflow.AnonymousProducer + "x"); got != 1 {
			t.Errorf("epoch %d of an anonymous producer", got)
		}
	}
	if after := applied(); after != before {
		t.Errorf("the meta log has gone from %d to %d", before, after)
	}
	if a, b := open("named"), open("named"); a != 1 || b != 2 {
		t.Errorf("epochs %d and %d of a named producer", a, b)
	}
	if after := applied(); after != before+2 {
		t.Errorf("the meta log has gone from %d to %d", before, after)
	}
}
