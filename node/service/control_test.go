package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	running = weirv1.PipelineState_PIPELINE_STATE_RUNNING
	stopped = weirv1.PipelineState_PIPELINE_STATE_STOPPED
)

func stop(t *testing.T, n *nodetest.Node, name string) *weirv1.Pipeline {
	t.Helper()
	r, err := n.Pipelines().StopPipeline(t.Context(), &weirv1.StopPipelineRequest{Pipeline: name})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetPipeline()
}

func TestAStoppedPipelineHasCommittedWhatItReadAndGoesOnFromThere(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words)
	n.WaitProcessed(n.Append("words", word("a")))
	for range 2 { // the second time it is stopped already
		if p := stop(t, n, "wc"); p.GetState() != stopped || p.GetCut().GetBehindRows() != 0 {
			t.Errorf("%v", p)
		}
	}
	n.Append("words", word("a"))
	for _, iso := range []nodetest.Isolation{nodetest.Committed, nodetest.Live} {
		if row, cut, _ := n.Get("wc", "counts", iso, "a"); row != `{"word":"a","n":1}` || cut.GetSpeculative() || cut.GetPipelineState() != stopped || cut.GetBehindRows() != 1 {
			t.Errorf("%s: %s %v", iso, row, cut)
		}
	}
	_, err := n.Pipelines().TriggerCheckpoint(t.Context(), &weirv1.TriggerCheckpointRequest{Pipeline: "wc"})
	refused(t, err, dataflow.ReasonPipelineState, "STOPPED", "weir pipeline resume wc")
	_, err = n.Pipelines().ResumePipeline(t.Context(), &weirv1.ResumePipelineRequest{Pipeline: "wc", SkipFailedRow: true})
	refused(t, err, dataflow.ReasonPipelineState, "has not failed")
	for range 2 { // the second time it runs already
		if _, err := n.Pipelines().ResumePipeline(t.Context(), &weirv1.ResumePipelineRequest{Pipeline: "wc"}); err != nil {
			t.Fatal(err)
		}
		n.WaitState("wc", running)
	}
	n.Checkpoint("wc")
	if row, _, _ := n.Get("wc", "counts", nodetest.Committed, "a"); row != `{"word":"a","n":2}` {
		t.Errorf("after the resume: %s", row)
	}
}

func TestAFailureAtARowOfATableSaysWhatLetsThePipelineGoOn(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("p", `SET checkpoint.interval = 'off';
CREATE STREAM s (k TEXT, a BIGINT);
CREATE MATERIALIZED VIEW sums AS SELECT k, sum(a) AS a FROM s GROUP BY k;
CREATE MATERIALIZED VIEW shares AS SELECT 100 / a AS share, count(*) AS n FROM sums GROUP BY 100 / a;`)
	token := n.Append("s", `{"k":"x","a":0}`)
	n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_FAILED)
	_, err := n.Pipelines().ResumePipeline(t.Context(), &weirv1.ResumePipelineRequest{Pipeline: "p", SkipFailedRow: true})
	refused(t, err, dataflow.ReasonPipelineState, "weir pipeline set p on_error=skip", "weir pipeline resume p")
	if _, err := n.Pipelines().SetPipelineOptions(t.Context(), &weirv1.SetPipelineOptionsRequest{Pipeline: "p", Options: map[string]string{"on_error": "skip"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Pipelines().ResumePipeline(t.Context(), &weirv1.ResumePipelineRequest{Pipeline: "p"}); err != nil {
		t.Fatal(err)
	}
	n.WaitProcessed(token)
}

func TestAWaitForACommitSaysThatCheckpointsAreOff(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words) // it begins with off
	token := n.Append("words", word("a"))
	_, err := n.Pipelines().WaitToken(t.Context(), &weirv1.WaitTokenRequest{Token: token, MaxWait: durationpb.New(time.Millisecond)})
	refused(t, err, dataflow.ReasonTokenNotReached, "checkpoint.interval = 'off'", "weir checkpoint trigger wc")
}

func TestADeletedPipelineLeavesItsStreams(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words)
	n.Append("words", word("a"))
	n.Checkpoint("wc")
	_, err := n.Ingest().DeleteStream(t.Context(), &weirv1.DeleteStreamRequest{Stream: "words"})
	refused(t, err, dataflow.ReasonStreamInUse, "wc")
	_, session, _ := n.Get("wc", "counts", nodetest.Committed, "a")
	r, err := n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "wc"})
	if err != nil || strings.Join(r.GetKeptStreams(), " ") != "words" {
		t.Errorf("%v %v", r, err)
	}
	_, err = n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "wc"})
	refused(t, err, dataflow.ReasonPipelineNotFound)
	_, err = n.Queries().Get(t.Context(), &weirv1.GetRequest{Pipeline: "wc", Table: "counts", Key: &weirv1.Key{}})
	refused(t, err, dataflow.ReasonPipelineNotFound)
	n.Deploy("wc", words) // reads the stream again, from its beginning
	n.Checkpoint("wc")
	if row, _, _ := n.Get("wc", "counts", nodetest.Committed, "a"); row != `{"word":"a","n":1}` {
		t.Errorf("deployed again: %s", row)
	}
	_, err = n.Queries().Scan(t.Context(), &weirv1.ScanRequest{Pipeline: "wc", Table: "counts", SessionToken: session.GetToken()})
	refused(t, err, dataflow.ReasonTimelineChanged)
	if _, err := n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "wc"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Ingest().DeleteStream(t.Context(), &weirv1.DeleteStreamRequest{Stream: "words"}); err != nil {
		t.Error(err)
	}
}

func TestACrashedDataflowStepsBackAndCatchesUp(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words)
	n.Append("words", word("a"))
	n.Checkpoint("wc")
	token := n.Append("words", word("a"))
	n.WaitProcessed(token)
	r, err := n.Pipelines().FailPipeline(t.Context(), &weirv1.FailPipelineRequest{Pipeline: "wc"})
	if err != nil || r.GetIncarnation() != 1 {
		t.Fatalf("%v %v", r, err)
	}
	cuts := n.WaitProcessed(token) // through the recovery
	if got := cuts[0].GetIncarnation(); got > 2 {
		t.Errorf("incarnation %d", got)
	}
	n.WaitState("wc", running)
	n.Checkpoint("wc")
	if row, _, _ := n.Get("wc", "counts", nodetest.Committed, "a"); row != `{"word":"a","n":2}` {
		t.Errorf("after the crash: %s", row)
	}
	stop(t, n, "wc")
	_, err = n.Pipelines().FailPipeline(t.Context(), &weirv1.FailPipelineRequest{Pipeline: "wc"})
	refused(t, err, dataflow.ReasonPipelineState)
}

func TestWaitingForAToken(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words)
	n.Deploy("total", strings.ReplaceAll(words, "SELECT word, count(*) AS n FROM words GROUP BY word", "SELECT count(*) AS n FROM words"))
	n.Deploy("other", "SET checkpoint.interval = 'off'; CREATE STREAM x (x BIGINT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM x;")
	token := n.Append("words", word("a"))
	wait := func(processed bool, pipelines ...string) (string, error) {
		r := &weirv1.WaitTokenRequest{Token: token, Pipelines: pipelines, MaxWait: durationpb.New(30 * time.Second)}
		if processed {
			r.WaitFor = weirv1.WaitFor_WAIT_FOR_PROCESSED
		}
		resp, err := n.Pipelines().WaitToken(t.Context(), r)
		var names []string
		for _, c := range resp.GetCuts() {
			names = append(names, c.GetPipeline())
			if c.GetBehindRows() != 0 && c.GetPipeline() != "other" || c.GetSpeculative() != processed {
				t.Errorf("cut %v", c)
			}
		}
		return strings.Join(names, " "), err
	}
	if got, err := wait(true); got != "total wc" || err != nil {
		t.Errorf("processed by %s, %v", got, err)
	}
	if got, err := wait(true, "wc", "other"); got != "other wc" || err != nil {
		t.Errorf("processed by %s, %v", got, err)
	}
	_, err := n.Pipelines().WaitToken(t.Context(), &weirv1.WaitTokenRequest{Token: token, MaxWait: durationpb.New(time.Millisecond)})
	refused(t, err, dataflow.ReasonTokenNotReached, "committed", "1 rows")
	n.Checkpoint("wc")
	n.Checkpoint("total")
	if got, err := wait(false); got != "total wc" || err != nil {
		t.Errorf("committed by %s, %v", got, err)
	}
	_, err = wait(false, "wc", "nobody")
	refused(t, err, dataflow.ReasonPipelineNotFound)
	stop(t, n, "wc")
	token = n.Append("words", word("a"))
	n.Checkpoint("total")
	if got, err := wait(false); got != "total" || err != nil { // every running one
		t.Errorf("committed by %s, %v", got, err)
	}
	_, err = wait(false, "wc")
	refused(t, err, dataflow.ReasonPipelineState, "STOPPED")
	_, err = wait(true, "wc")
	refused(t, err, dataflow.ReasonPipelineState, "STOPPED")
}

func TestCheckpointsAreListedLeasedAndReleased(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", "SET checkpoint.retained = '2';"+words)
	var ids []uint64
	for range 3 {
		n.Append("words", word("a"))
		ids = append(ids, n.Checkpoint("wc").GetId())
	}
	list, err := n.Pipelines().ListCheckpoints(t.Context(), &weirv1.ListCheckpointsRequest{Pipeline: "wc"})
	if err != nil || len(list.GetCheckpoints()) != 4 || list.GetCheckpoints()[0].GetId() != ids[2] { // superseded ones stay for a while
		t.Fatalf("%v %v", list, err)
	}
	lease := func(r *weirv1.LeaseCheckpointRequest) (*weirv1.LeaseCheckpointResponse, error) {
		r.Pipeline = "wc"
		return n.Pipelines().LeaseCheckpoint(t.Context(), r)
	}
	newest, err := lease(&weirv1.LeaseCheckpointRequest{Ttl: durationpb.New(time.Minute)})
	if err != nil || newest.GetCheckpointId() != ids[2] {
		t.Errorf("%v %v", newest, err)
	}
	first, err := lease(&weirv1.LeaseCheckpointRequest{CheckpointId: ids[0], Ttl: durationpb.New(time.Minute)})
	if err != nil || first.GetCheckpointId() != ids[0] {
		t.Errorf("%v %v", first, err)
	}
	later, err := lease(&weirv1.LeaseCheckpointRequest{LeaseId: first.GetLeaseId(), Ttl: durationpb.New(time.Hour)})
	if err != nil || !later.GetExpiresAt().AsTime().After(first.GetExpiresAt().AsTime()) {
		t.Errorf("%v %v", later, err)
	}
	if c, err := n.Pipelines().GetCheckpoint(t.Context(), &weirv1.GetCheckpointRequest{Pipeline: "wc", CheckpointId: ids[0]}); err != nil || c.GetCheckpoint().GetLeases() != 1 {
		t.Errorf("%v %v", c, err)
	}
	for range 2 {
		if _, err := n.Pipelines().ReleaseLease(t.Context(), &weirv1.ReleaseLeaseRequest{Pipeline: "wc", LeaseId: first.GetLeaseId()}); err != nil {
			t.Error(err)
		}
	}
	_, err = lease(&weirv1.LeaseCheckpointRequest{LeaseId: first.GetLeaseId(), Ttl: durationpb.New(time.Hour)})
	refused(t, err, dataflow.ReasonCheckpointExpired)
	_, err = lease(&weirv1.LeaseCheckpointRequest{LeaseId: "seven", Ttl: durationpb.New(time.Hour)})
	refused(t, err, dataflow.ReasonRequestInvalid)
	_, err = lease(&weirv1.LeaseCheckpointRequest{Ttl: durationpb.New(1000 * time.Hour)})
	refused(t, err, dataflow.ReasonRequestInvalid, "ttl")
	_, err = lease(&weirv1.LeaseCheckpointRequest{CheckpointId: 99, Ttl: durationpb.New(time.Minute)})
	refused(t, err, dataflow.ReasonCheckpointNotFound)
	_, err = n.Pipelines().GetCheckpoint(t.Context(), &weirv1.GetCheckpointRequest{Pipeline: "wc", CheckpointId: 99})
	refused(t, err, dataflow.ReasonCheckpointNotFound)
}

func TestTablesAreDescribed(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words)
	n.Deploy("b", "CREATE STREAM x (x BIGINT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM x;")
	n.WaitProcessed(n.Append("words", word("a"), word("b")))
	all, err := n.Pipelines().ListTables(t.Context(), &weirv1.ListTablesRequest{})
	if err != nil || len(all.GetTables()) != 2 || all.GetTables()[0].GetName() != "v" {
		t.Errorf("%v %v", all, err)
	}
	d, err := n.Pipelines().DescribeTable(t.Context(), &weirv1.DescribeTableRequest{Pipeline: "wc", Table: "counts"})
	if err != nil || d.GetTable().GetRows() != 2 || d.GetTable().GetBytes() == 0 || d.GetCut().GetBehindRows() != 2 {
		t.Errorf("%v %v", d, err)
	}
	_, err = n.Pipelines().DescribeTable(t.Context(), &weirv1.DescribeTableRequest{Pipeline: "wc", Table: "nope"})
	refused(t, err, dataflow.ReasonTableNotFound, "counts")
	_, err = n.Pipelines().ListTables(t.Context(), &weirv1.ListTablesRequest{Pipeline: "nope"})
	refused(t, err, dataflow.ReasonPipelineNotFound)
	s, err := n.Cluster().GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if err != nil || s.GetPipelines() != 2 || s.GetStreams() != 2 || len(s.GetShardLogs()) != 2 {
		t.Errorf("%v %v", s, err)
	}
}

func TestATriggeredCheckpointCoversWhatWasAppendedBefore(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	const batches, rows = 8, 20_000 // more than the tasks read at once
	many := slices.Repeat([]string{word("a")}, rows)
	n.Deploy("wc", words)
	for i := range batches {
		n.Append("words", many...)
		n.Checkpoint("wc")
		want := fmt.Sprintf(`{"word":"a","n":%d}`, (i+1)*rows)
		if row, _, _ := n.Get("wc", "counts", nodetest.Committed, "a"); row != want {
			t.Errorf("after %d batches: %s, want %s", i+1, row, want)
		}
	}
	if _, err := n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "wc"}); err != nil {
		t.Fatal(err)
	}
	n.Deploy("wc", words) // its tasks are not there yet
	n.Checkpoint("wc")
	if row, _, _ := n.Get("wc", "counts", nodetest.Committed, "a"); row != fmt.Sprintf(`{"word":"a","n":%d}`, batches*rows) {
		t.Errorf("deployed again: %s", row)
	}
}
