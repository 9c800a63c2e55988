package node_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestNoRowFollowsASeal(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 4})
	n.Deploy("p", "CREATE STREAM s (k TEXT); CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s;")
	end := func() uint64 {
		t.Helper()
		r, err := n.Ingest().DescribeStream(t.Context(), &weirv1.DescribeStreamRequest{Stream: "s"})
		if err != nil {
			t.Fatal(err)
		}
		var rows uint64
		for _, sh := range r.GetShards() {
			rows += sh.GetEndOffset()
		}
		return rows
	}
	var senders sync.WaitGroup
	var acked [4]uint64
	under := make(chan struct{}, len(acked))
	for i := range acked {
		senders.Go(func() {
			for {
				_, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(fmt.Sprintf(`{"k":"%d"}`, i))})
				if err != nil {
					if nodetest.Reason(err) != dataflow.ReasonStreamSealed {
						t.Error(err)
					}
					return
				}
				if acked[i]++; acked[i] == 5 {
					under <- struct{}{}
				}
			}
		})
	}
	for range acked {
		<-under
	}
	for range 2 { // sealing twice changes nothing
		if _, err := n.Ingest().SealStream(t.Context(), &weirv1.SealStreamRequest{Stream: "s"}); err != nil {
			t.Fatal(err)
		}
	}
	sealed := end()
	senders.Wait()
	n.Restart()
	if _, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(`{"k":"late"}`)}); nodetest.Reason(err) != dataflow.ReasonStreamSealed {
		t.Errorf("after a restart: %v", err)
	}
	var total uint64
	for _, a := range acked {
		total += a
	}
	if got := end(); got != sealed || got != total {
		t.Errorf("there were %d rows at the seal, %d are acknowledged, %d are there", sealed, total, got)
	}
}
