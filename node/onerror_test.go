package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// ratios fails for a row whose b is 0. The other view never does.
const ratios = `
CREATE STREAM s (k TEXT, a BIGINT, b BIGINT);
CREATE MATERIALIZED VIEW ratio AS
SELECT k, sum(a / b) AS r FROM s
GROUP BY k;
CREATE MATERIALIZED VIEW n AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW of_n AS SELECT n, count(*) AS ks FROM n GROUP BY n;
`

func row(k string, a, b int) string { return fmt.Sprintf(`{"k":%q,"a":%d,"b":%d}`, k, a, b) }

// scan wants a table to hold the rows, in the order of the key.
func wantTable(t *testing.T, n *nodetest.Node, pipeline, table string, isolation nodetest.Isolation, want ...string) *weirv1.Cut {
	t.Helper()
	rows, cut := n.Scan(pipeline, table, isolation)
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s of %s.%s:\n%s\nwant\n%s", isolation, pipeline, table, strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	return cut
}

func TestARowThatFailsStopsThePipelineAndIsNamed(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 3})
	ctx := t.Context()
	n.Deploy("p", "SET checkpoint.interval = 'off';"+ratios)
	n.Append("s", row("x", 10, 2), row("y", 9, 3))
	n.Checkpoint("p")
	token := n.Append("s", row("x", 7, 7), row("y", 1, 0), row("x", 2, 1))

	failed := func(p *weirv1.Pipeline) {
		t.Helper()
		f := p.GetFailure()
		got := fmt.Sprintf("%s %s:%d:%d %s %v %s", f.GetReason(), f.GetView(), f.GetLine(), f.GetColumn(), f.GetStream(), f.GetHasRow(), f.GetRow())
		if want := `EXPRESSION_FAILED ratio:4:15 s true {"k":"y","a":1,"b":0}`; got != want {
			t.Errorf("failure: %s\nwant     %s\n%s", got, want, f)
		}
		if !strings.Contains(f.GetMessage(), "division by zero") {
			t.Errorf("failure: %s", f.GetMessage())
		}
		// The row is where the failure says.
		call, err := n.Ingest().ReadStream(ctx, &weirv1.ReadStreamRequest{Stream: "s", From: fmt.Sprintf("%d:%d", f.GetShard(), f.GetOffset()), Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := call.Recv(); err != nil || string(r.GetRows()[0].GetRow()) != f.GetRow() {
			t.Errorf("shard %d, offset %d holds %v (%v)", f.GetShard(), f.GetOffset(), r, err)
		}
	}
	failed(n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_FAILED))

	// Ingest and committed reads go on; a live read is the committed one.
	later := n.Append("s", row("z", 4, 2))
	for _, isolation := range []nodetest.Isolation{nodetest.Committed, nodetest.Live} {
		cut := wantTable(t, n, "p", "ratio", isolation, `{"k":"x","r":5}`, `{"k":"y","r":3}`)
		if cut.GetPipelineState() != weirv1.PipelineState_PIPELINE_STATE_FAILED || cut.GetSpeculative() || cut.GetBehindRows() != 4 {
			t.Errorf("cut of %s: %v", isolation, cut)
		}
	}
	if _, err := n.Pipelines().TriggerCheckpoint(ctx, &weirv1.TriggerCheckpointRequest{Pipeline: "p", Wait: true}); nodetest.Reason(err) != dataflow.ReasonPipelineState {
		t.Errorf("a checkpoint of a failed pipeline: %v", err)
	}

	// It stays so over a crash, and fails at the same row when it is resumed as it is.
	n.Crash(nodetest.LoseUnsynced)
	failed(n.Pipeline("p"))
	before := n.Pipeline("p").GetIncarnation()
	if _, err := n.Pipelines().ResumePipeline(ctx, &weirv1.ResumePipelineRequest{Pipeline: "p"}); err != nil {
		t.Fatal(err)
	}
	p := n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_FAILED)
	failed(p)
	if p.GetIncarnation() <= before {
		t.Errorf("incarnation %d after %d", p.GetIncarnation(), before)
	}

	// Without the row it goes on: no view has it, and every cut says so.
	if _, err := n.Pipelines().ResumePipeline(ctx, &weirv1.ResumePipelineRequest{Pipeline: "p", SkipFailedRow: true}); err != nil {
		t.Fatal(err)
	}
	n.WaitProcessed(token)
	n.WaitProcessed(later)
	n.Checkpoint("p")
	check := func() {
		t.Helper()
		cut := wantTable(t, n, "p", "ratio", nodetest.Committed, `{"k":"x","r":8}`, `{"k":"y","r":3}`, `{"k":"z","r":2}`)
		wantTable(t, n, "p", "n", nodetest.Committed, `{"k":"x","n":3}`, `{"k":"y","n":1}`, `{"k":"z","n":1}`)
		wantTable(t, n, "p", "of_n", nodetest.Live, `{"n":1,"ks":2}`, `{"n":3,"ks":1}`)
		if cut.GetSkippedRows() != 1 || cut.GetBehindRows() != 0 {
			t.Errorf("cut: %v", cut)
		}
	}
	check()
	n.Crash(nodetest.LoseUnsynced)
	check()
	n.CrashDataflow("p")
	n.WaitProcessed(n.Append("s", row("z", 0, 1)))
	n.Checkpoint("p")
	if cut := wantTable(t, n, "p", "n", nodetest.Committed, `{"k":"x","n":3}`, `{"k":"y","n":1}`, `{"k":"z","n":2}`); cut.GetSkippedRows() != 1 {
		t.Errorf("cut: %v", cut)
	}
	if _, err := n.Pipelines().ResumePipeline(ctx, &weirv1.ResumePipelineRequest{Pipeline: "p", SkipFailedRow: true}); nodetest.Reason(err) != dataflow.ReasonPipelineState {
		t.Errorf("skipping the failed row of a running pipeline: %v", err)
	}
}

func TestSeveralRowsThatFailAreSkippedOneByOne(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("p", "SET checkpoint.interval = '20 ms';"+ratios)
	token := n.Append("s", row("a", 1, 0), row("a", 6, 2), row("b", 2, 0), row("b", 5, 5), row("c", 3, 0))
	for i := range 3 {
		n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_FAILED)
		if _, err := n.Pipelines().ResumePipeline(t.Context(), &weirv1.ResumePipelineRequest{Pipeline: "p", SkipFailedRow: true}); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	n.WaitCommitted(token)
	if cut := wantTable(t, n, "p", "ratio", nodetest.Committed, `{"k":"a","r":3}`, `{"k":"b","r":1}`); cut.GetSkippedRows() != 3 {
		t.Errorf("cut: %v", cut)
	}
}

// TestSkippedRowsAreCountedInEveryCut appends rows, some of which fail, and breaks the node at random moments. Every cut
// on the way must hold exactly the rows that its positions cover, and count those that it leaves out.
func TestSkippedRowsAreCountedInEveryCut(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	n := nodetest.Open(t, nodetest.Options{Shards: 2, Tuning: nodetest.Restless()})
	n.Deploy("p", "SET checkpoint.interval = '10 ms'; SET on_error = 'skip';"+ratios)

	type appended struct {
		fails bool
		k     string
	}
	rows := map[string][]appended{} // by shard
	var token string
	check := func() *weirv1.Cut {
		t.Helper()
		got, cut := n.Scan("p", "n", nodetest.Committed)
		counts, skipped := map[string]int{}, uint64(0)
		for _, at := range cut.GetPositions() {
			for _, r := range rows[fmt.Sprint(at.GetShard())][:at.GetOffset()] {
				if r.fails {
					skipped++
				} else {
					counts[r.k]++
				}
			}
		}
		var want []string
		for _, k := range []string{"a", "b", "c"} {
			if counts[k] > 0 {
				want = append(want, fmt.Sprintf(`{"k":%q,"n":%d}`, k, counts[k]))
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") || cut.GetSkippedRows() != skipped {
			t.Fatalf("cut %d, incarnation %d holds %v and skipped %d; at its positions there are %v and %d to skip",
				cut.GetCheckpointId(), cut.GetIncarnation(), got, cut.GetSkippedRows(), want, skipped)
		}
		return cut
	}
	for range 60 {
		var batch []string
		var made []appended
		for range 1 + rng.IntN(20) {
			r := appended{fails: rng.IntN(4) == 0, k: string(rune('a' + rng.IntN(3)))}
			b := 1 + rng.IntN(5)
			if r.fails {
				b = 0
			}
			made, batch = append(made, r), append(batch, row(r.k, rng.IntN(100), b))
		}
		resp, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(strings.Join(batch, "\n")), PreviousToken: token})
		if err != nil {
			t.Fatal(err)
		}
		token = resp.GetToken()
		at := fmt.Sprint(resp.GetShards()[0].GetShard()) // a small append is one run, in one shard
		rows[at] = append(rows[at], made...)
		switch rng.IntN(20) {
		case 0:
			n.Crash(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
		case 1:
			n.CrashDataflow("p")
		case 2:
			n.Checkpoint("p")
		}
		check()
	}
	n.WaitCommitted(token)
	if cut := check(); cut.GetBehindRows() != 0 || cut.GetSkippedRows() == 0 {
		t.Errorf("cut: %v", cut)
	}
}

func TestAnExpressionOverATableFailsWithoutARow(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("p", `SET checkpoint.interval = 'off';
CREATE STREAM s (k TEXT);
CREATE MATERIALIZED VIEW n AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW part AS SELECT k, 12 / (3 - n) AS x FROM n;`)
	n.Append("s", `{"k":"a"}`, `{"k":"b"}`)
	n.Checkpoint("p")
	for range 2 {
		n.Append("s", `{"k":"a"}`)
	}
	f := n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_FAILED).GetFailure()
	if f.GetView() != "part" || f.GetLine() != 4 || f.GetColumn() != 44 || f.GetHasRow() || !strings.Contains(f.GetMessage(), `{"k":"a","n":3}`) {
		t.Errorf("failure: %v", f)
	}
	// There is no row of a stream to skip: the group as a whole has come to what fails.
	_, err := n.Pipelines().ResumePipeline(context.Background(), &weirv1.ResumePipelineRequest{Pipeline: "p", SkipFailedRow: true})
	if nodetest.Reason(err) != dataflow.ReasonPipelineState {
		t.Errorf("resume without a failed row: %v", err)
	}
	wantTable(t, n, "p", "part", nodetest.Committed, `{"k":"a","x":6}`, `{"k":"b","x":6}`)
}

// TestSkipLeavesOutARowOfATableWhileItFails counts a group past the value for which a view over it cannot be computed.
func TestSkipLeavesOutARowOfATableWhileItFails(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("p", `SET checkpoint.interval = 'off'; SET on_error = 'skip';
CREATE STREAM s (k TEXT);
CREATE MATERIALIZED VIEW n AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW part AS SELECT k, 12 / (3 - n) AS x FROM n;
CREATE MATERIALIZED VIEW parts AS SELECT count(*) AS n, sum(x) AS x FROM part;`)
	n.Append("s", `{"k":"b"}`)
	for i, want := range [][]string{
		{`{"k":"a","x":6}`, `{"k":"b","x":6}`}, {`{"k":"a","x":12}`, `{"k":"b","x":6}`}, {`{"k":"b","x":6}`}, {`{"k":"a","x":-12}`, `{"k":"b","x":6}`},
	} {
		n.WaitProcessed(n.Append("s", `{"k":"a"}`))
		if i == 2 {
			n.Checkpoint("p")
			n.Crash(nodetest.LoseUnsynced)
		}
		wantTable(t, n, "p", "part", nodetest.Live, want...)
	}
	wantTable(t, n, "p", "parts", nodetest.Live, `{"n":2,"x":-6}`)
}

// TestSkipHidesGroupsThatCannotBeComputed has expressions over aggregates that fail for some groups, in the select list and
// in HAVING, with views above: under 'skip' such a row is absent while it fails, for readers and for the views alike.
func TestSkipHidesGroupsThatCannotBeComputed(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 3})
	n.Deploy("p", `SET on_error = 'skip'; SET checkpoint.interval = 'off';
CREATE STREAM h (k TEXT, x BIGINT);
CREATE MATERIALIZED VIEW a AS SELECT k, (12 / sum(x))::bigint AS q FROM h GROUP BY k;
CREATE MATERIALIZED VIEW having_a AS SELECT k, count(*) AS n FROM h GROUP BY k HAVING 12 / sum(x) > 0;
CREATE MATERIALIZED VIEW above AS SELECT q, count(*) AS n FROM a GROUP BY q;
CREATE MATERIALIZED VIEW over_table AS SELECT q, sum(10 / (q - 4)) AS r FROM a GROUP BY q;`)
	append := func(rows ...string) {
		n.WaitProcessed(n.Append("h", rows...))
		n.Checkpoint("p")
	}
	check := func(a, havingA, above, overTable []string) {
		t.Helper()
		for _, isolation := range []nodetest.Isolation{nodetest.Committed, nodetest.Live} {
			wantTable(t, n, "p", "a", isolation, a...)
			wantTable(t, n, "p", "having_a", isolation, havingA...)
			wantTable(t, n, "p", "above", isolation, above...)
			wantTable(t, n, "p", "over_table", isolation, overTable...)
		}
	}
	append(`{"k":"x","x":2}`, `{"k":"y","x":0}`, `{"k":"z","x":3}`)
	check([]string{`{"k":"x","q":6}`, `{"k":"z","q":4}`}, []string{`{"k":"x","n":1}`, `{"k":"z","n":1}`},
		[]string{`{"q":4,"n":1}`, `{"q":6,"n":1}`}, []string{`{"q":6,"r":5}`})
	// y's group becomes computable, x's fails now.
	append(`{"k":"y","x":6}`, `{"k":"x","x":-2}`)
	check([]string{`{"k":"y","q":2}`, `{"k":"z","q":4}`}, []string{`{"k":"y","n":2}`, `{"k":"z","n":1}`},
		[]string{`{"q":2,"n":1}`, `{"q":4,"n":1}`}, []string{`{"q":2,"r":-5}`})
	n.Crash(nodetest.LoseUnsynced)
	n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_RUNNING)
	append(`{"k":"x","x":1}`)
	check([]string{`{"k":"x","q":12}`, `{"k":"y","q":2}`, `{"k":"z","q":4}`}, []string{`{"k":"x","n":3}`, `{"k":"y","n":2}`, `{"k":"z","n":1}`},
		[]string{`{"q":2,"n":1}`, `{"q":4,"n":1}`, `{"q":12,"n":1}`}, []string{`{"q":2,"r":-5}`, `{"q":12,"r":1}`})
}
