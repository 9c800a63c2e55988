package node_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// TestRowsAreRefusedWhileTheDiskIsLow: an append is refused before anything of it is written, checkpoints and reads go
// on, and when there is room again nobody has to do anything.
func TestRowsAreRefusedWhileTheDiskIsLow(t *testing.T) {
	t.Parallel()
	const total = 10 << 30
	var free atomic.Int64
	free.Store(total / 2)
	n := nodetest.Open(t, nodetest.Options{
		Tuning: node.Tuning{DiskEvery: time.Millisecond},
		DiskUsage: func() (vfs.DiskUsage, error) {
			f := uint64(free.Load())
			return vfs.DiskUsage{AvailBytes: f, TotalBytes: total, UsedBytes: total - f}, nil
		},
	})
	n.Deploy("p", "SET checkpoint.interval = 'off';"+`
CREATE STREAM s (k TEXT);
CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM s GROUP BY k;
`)
	n.Append("s", `{"k":"before"}`)

	free.Store(total/20 - 1)
	refused := func() (int, string) {
		code, header, body := n.HTTP("POST", "/v1/streams/s:append", `{"k":"low"}`, nil)
		if code == 429 && header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %v", header)
		}
		return code, body
	}
	code, body := 200, ""
	taken := 0
	for t.Context().Err() == nil {
		if code, body = refused(); code != 200 {
			break
		}
		taken++ // before the node has looked
	}
	if code != 429 || !strings.Contains(body, "DISK_LOW") {
		t.Fatalf("append on a full disk: %d %s", code, body)
	}
	_, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(`{"k":"low"}`)})
	if e := nodetest.Refusal(err); status.Code(err) != codes.ResourceExhausted || e == nil || e.Reason != dataflow.ReasonDiskLow || e.RetryAfter == 0 {
		t.Fatalf("append on a full disk: %v: %+v", err, e)
	}
	if _, _, m := n.HTTP("GET", "/metrics", "", nil); !strings.Contains(m, "\nweir_disk_free_bytes 5.36870911e+08\n") {
		t.Errorf("no weir_disk_free_bytes of %d among the metrics", free.Load())
	}
	n.Checkpoint("p")
	if row, _, ok := n.Get("p", "v", nodetest.Committed, "before"); !ok {
		t.Errorf("the row is not committed: %s", row)
	}

	free.Store(total / 2)
	for t.Context().Err() == nil {
		if code, _ = refused(); code == 200 {
			break
		}
	}
	n.Checkpoint("p")
	row, _, ok := n.Get("p", "v", nodetest.Committed, "low")
	if !ok {
		t.Errorf("after there is room again, with %d rows taken: %s", taken, row)
	}
}
