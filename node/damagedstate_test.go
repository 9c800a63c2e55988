package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// largestTable returns the largest SST of a state store, and its size.
func largestTable(t *testing.T, dir string) (path string, size int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "shards", "0000", "state", "db", "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.Size() > size { // one that is gone was compacted
			path, size = f, info.Size()
		}
	}
	return path, size
}

// TestADamagedStateFileFailsItsPipelineAndNotTheNode damages a block in the middle of the file that a table was folded
// into: the pipeline that has to read all of it cannot run and says why, as do reads of the keys in it; all else goes on.
func TestADamagedStateFileFailsItsPipelineAndNotTheNode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	n := nodetest.Open(t, nodetest.Options{Dir: dir, Shards: 1, Tuning: node.Tuning{Merge: nodetest.Restless().Merge}})
	n.Deploy("p", lostSQL)
	n.Deploy("q", "SET checkpoint.interval = 'off'; CREATE STREAM others (k TEXT); CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM others GROUP BY k;")
	const keys = 5000
	var rows []string
	for i := range keys {
		rows = append(rows, fmt.Sprintf(`{"k":"key%06d","v":%d}`, i, i*7919))
	}
	n.Append("events", rows...)
	n.Checkpoint("p")
	n.Append("others", `{"k":"a"}`)
	n.Checkpoint("q")
	for size := int64(0); size < 30_000; { // until the cut is folded, which follows commits
		n.Append("events", `{"k":"key000000","v":1}`)
		n.Checkpoint("p")
		_, size = largestTable(t, dir)
	}
	n.Close()
	path, size := largestTable(t, dir)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[size/3] ^= 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}

	for range 2 { // and at the next start
		if err := n.Reopen(); err != nil {
			t.Fatal(err)
		}
		f := n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_FAILED).GetFailure()
		if f.GetReason() != string(dataflow.ReasonCorrupt) || !strings.Contains(f.GetMessage(), path) || strings.Contains(f.GetMessage(), "carrier") {
			t.Errorf("the failure is %s: %s", f.GetReason(), f.GetMessage())
		}
		_, err := n.TryQuery("SELECT sum(total) AS s FROM p.sums", nodetest.Committed)
		e := nodetest.Refusal(err)
		if e == nil || e.Reason != dataflow.ReasonCorrupt || !strings.Contains(e.Message, path) {
			t.Errorf("a query of all keys: %v", err)
		}
		if row, _, _ := n.Get("p", "sums", nodetest.Committed, fmt.Sprintf("key%06d", keys-1)); !strings.Contains(row, fmt.Sprint((keys-1)*7919)) {
			t.Errorf("a key that is not in the block: %q", row)
		}
		n.WaitState("q", weirv1.PipelineState_PIPELINE_STATE_RUNNING)
		wantDamaged(t, n, path)
		n.Append("others", `{"k":"a"}`)
		n.Checkpoint("q")
		n.Close()
	}

	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	if row, _, _ := n.Get("q", "counts", nodetest.Committed, "a"); row != `{"k":"a","n":3}` {
		t.Errorf("the other pipeline has %s", row)
	}
	// What the operator can do.
	if _, err := n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "p"}); err != nil {
		t.Fatal(err)
	}
	n.Deploy("p", strings.ReplaceAll(lostSQL, "SET checkpoint.retained = '1';", ""))
	n.Append("events", `{"k":"new","v":5}`)
	n.Checkpoint("p")
	if row, _, _ := n.Get("p", "sums", nodetest.Committed, "new"); row != `{"k":"new","total":5}` {
		t.Errorf("after the deployment: %s", row)
	}
}

// wantDamaged has all that a node without others holds read: the block of p is found, and q is well.
func wantDamaged(t *testing.T, n *nodetest.Node, path string) {
	t.Helper()
	r, err := n.Cluster().VerifyCluster(t.Context(), &weirv1.VerifyClusterRequest{})
	if err != nil || len(r.GetVerified()) != 2 {
		t.Fatalf("verify: %v, %v", r, err)
	}
	for _, v := range r.GetVerified() {
		if len(v.GetReplicas()) != 1 {
			t.Fatalf("verify: %v", v)
		}
		switch c := v.GetReplicas()[0]; {
		case v.GetPipeline() == "q" && (c.GetReason() != "" || c.GetKeys() != 1 || !v.GetEqual() || !v.GetComplete()):
			t.Errorf("verify what is well: %v", v)
		case v.GetPipeline() == "p" && (c.GetReason() != string(dataflow.ReasonCorrupt) || !strings.Contains(c.GetProblem(), path) || v.GetEqual() || v.GetComplete()):
			t.Errorf("verify what is damaged: %v", v)
		}
	}
}
