package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// small returns a program that counts words of a stream with room for 20 kB.
func small(options string) string {
	return options + `
CREATE STREAM words (word TEXT) WITH (max_bytes = '20 kB');
CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM words GROUP BY word;`
}

// untilTaken appends until the rows are taken, and returns their token and the refusals that came before.
func untilTaken(t *testing.T, n *nodetest.Node, rows string) (token string, refusals []error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(50 * time.Second); ; <-tick.C {
		r, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "words", JsonRows: []byte(rows)})
		if err == nil {
			return r.GetToken(), refusals
		}
		if refusals = append(refusals, err); time.Now().After(deadline) {
			t.Fatalf("refused for ever, at last: %v", err)
		}
	}
}

// TestACaughtUpPipelineNeverHoldsAStreamUp goes far over a stream's size while nothing but the appends moves the pipeline:
// whatever keeps older cuts, they need no rows.
func TestACaughtUpPipelineNeverHoldsAStreamUp(t *testing.T) {
	for _, options := range []string{
		"", // the interval is a second, three cuts are retained
		"SET checkpoint.retained = '100';",
		"SET checkpoint.interval = '50 ms';",
		"SET checkpoint.interval = 'off';",
		"SET checkpoint.interval = '1 hour';",
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			n := nodetest.Open(t, nodetest.Options{})
			n.Deploy("wc", small(options))
			if _, err := n.Pipelines().LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "wc"}); err != nil {
				t.Fatal(err)
			}
			chunk := strings.Repeat(word(strings.Repeat("x", 500))+"\n", 50) // more than the stream has room for
			for range 3 {
				token, refusals := untilTaken(t, n, chunk)
				n.WaitProcessed(token)
				for _, err := range refusals {
					refused(t, err, dataflow.ReasonOverloaded, "stream words is full", "pipeline wc (R", "rows are behind its newest checkpoint", "has been asked for a checkpoint")
				}
			}
			n.Checkpoint("wc")
			if row, _, _ := n.Get("wc", "counts", nodetest.Committed, strings.Repeat("x", 500)); !strings.HasSuffix(row, fmt.Sprintf(`"n":%d}`, 150)) {
				t.Errorf("not all rows count: %s", row)
			}
		})
	}
}

// TestAStreamGoesBackToItsSizeWhenACutFreesRows waits for the trim that follows a commit, with a look for old rows that
// never comes.
func TestAStreamGoesBackToItsSizeWhenACutFreesRows(t *testing.T) {
	tuning := nodetest.Restless()
	tuning.RetentionEvery = 24 * time.Hour
	n := nodetest.Open(t, nodetest.Options{Tuning: tuning})
	n.Deploy("wc", small("SET checkpoint.interval = 'off';"))
	for range 90 {
		n.Append("words", word(strings.Repeat("x", 190)))
	}
	n.WaitProcessed(n.Append("words", slices.Repeat([]string{word(strings.Repeat("y", 500))}, 100)...))
	n.Checkpoint("wc")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(50 * time.Second); ; <-tick.C {
		r, err := n.Ingest().DescribeStream(t.Context(), &weirv1.DescribeStreamRequest{Stream: "words"})
		if err != nil {
			t.Fatal(err)
		}
		var rows uint64
		for _, s := range r.GetShards() {
			rows += s.GetEndOffset() - s.GetStartOffset()
		}
		// The newest append of each shard stays, whatever its size: the large one, and of the other shard one of the small.
		if rows == 101 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d rows are kept: %v", rows, r)
		}
	}
}
