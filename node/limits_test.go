package node_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// TestLargestValuesAreCheckpointed folds texts that fill an accumulator to its limit: one such change makes a chunk of a
// delta that is larger than chunks aim to be.
func TestLargestValuesAreCheckpointed(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("p", `SET checkpoint.interval = 'off';
CREATE STREAM s (k TEXT, v TEXT);
CREATE MATERIALIZED VIEW largest AS SELECT k, max(v) AS v FROM s GROUP BY k;`)
	for i, size := range []int{200 << 10, 300 << 10, 1000 << 10} {
		k := fmt.Sprintf("k%d", i)
		n.Append("s", fmt.Sprintf(`{"k":%q,"v":%q}`, k, strings.Repeat("x", size)))
		n.Checkpoint("p")
		row, _, ok := n.Get("p", "largest", nodetest.Committed, k)
		if !ok || len(row) < size {
			t.Fatalf("a value of %d bytes: found %v, %d bytes", size, ok, len(row))
		}
	}
	n.Crash(nodetest.LoseUnsynced)
	if row, _, ok := n.Get("p", "largest", nodetest.Committed, "k2"); !ok || len(row) < 1000<<10 {
		t.Fatalf("after a crash: found %v, %d bytes", ok, len(row))
	}
}

// TestAFailureIsRecordedWhateverItsRowHolds fails for a row whose text has to be cut in the middle of a character.
func TestAFailureIsRecordedWhateverItsRowHolds(t *testing.T) {
	t.Parallel()
	for cut := range 3 {
		n := nodetest.Open(t, nodetest.Options{})
		n.Deploy("p", ratios)
		n.Append("s", row(strings.Repeat("x", cut)+strings.Repeat("€", 300), 1, 0))
		p := n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_FAILED)
		if f := p.GetFailure(); f.GetView() != "ratio" || !strings.Contains(f.GetRow(), "€") {
			t.Errorf("failure: %s", f)
		}
		n.Close()
	}
}
