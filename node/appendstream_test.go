package node_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// TestANodeThatStopsEndsAppendStreams has senders that keep their calls open and send nothing: the node tells them that it stops.
// One that waited for them would cut them off at the end of its drain, without a reason.
func TestANodeThatStopsEndsAppendStreams(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	n.Deploy("p", "CREATE STREAM s (k TEXT); CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s;")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials())) // the node's own is closed first
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	var calls []weirv1.IngestService_AppendStreamClient
	for range 3 {
		call, err := weirv1.NewIngestServiceClient(conn).AppendStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := call.Send(&weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(`{"k":"a"}`)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := call.Recv(); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	n.Close()
	for i, call := range calls {
		if m, err := call.Recv(); nodetest.Reason(err) != dataflow.ReasonShuttingDown {
			t.Errorf("call %d ended with %v, %v", i, m, err)
		}
	}
}
