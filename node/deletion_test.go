package node_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestWhoWaitsForACheckpointOfADeletedPipelineLearnsThatItIsGone(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		n.Deploy(name, "SET checkpoint.interval = 'off'; CREATE STREAM s (k TEXT); CREATE MATERIALIZED VIEW c AS SELECT k, count(*) AS n FROM s GROUP BY k;")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					_, err := n.Pipelines().TriggerCheckpoint(t.Context(), &weirv1.TriggerCheckpointRequest{Pipeline: name, Wait: true})
					if err == nil {
						continue
					}
					if r := nodetest.Reason(err); r != dataflow.ReasonPipelineNotFound {
						t.Errorf("round %d: %s: %v", i, r, err)
					}
					return
				}
			})
		}
		if _, err := n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: name}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
}
