package service_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	created   = weirv1.DeployOutcome_DEPLOY_OUTCOME_CREATED
	unchanged = weirv1.DeployOutcome_DEPLOY_OUTCOME_UNCHANGED
)

func TestDeployingTheSameProgramAgainChangesNothing(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	first := n.Deploy("wc", words)
	if first.GetOutcome() != created || !first.GetStreams()[0].GetCreated() || len(first.GetTables()) != 1 || first.GetTables()[0].GetKey()[0] != "word" {
		t.Errorf("%v", first)
	}
	again := n.Deploy("wc", "-- with a comment\n"+strings.ReplaceAll(words, "SELECT", "select"))
	if again.GetOutcome() != unchanged || again.GetPipeline().GetUid() != first.GetPipeline().GetUid() || again.GetStreams()[0].GetCreated() {
		t.Errorf("%v", again)
	}
	if got := again.GetPipeline().GetSql(); got != words {
		t.Errorf("the pipeline's text was replaced:\n%s", got)
	}
}

func TestAnotherProgramIsRefusedWithTheDifference(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words)
	for _, validate := range []bool{false, true} {
		_, err := deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", ValidateOnly: validate,
			Sql: words + "CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM words;"})
		refused(t, err, dataflow.ReasonPipelineExists, "materialized view total is new", "nothing was changed")
	}
	if p := n.Pipeline("wc"); len(p.GetTables()) != 1 || p.GetIncarnation() != 1 {
		t.Errorf("something was changed: %v", p)
	}
}

func TestOptionsBesideTheTextCountForTheDifference(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words)
	set := func(v string) (*weirv1.DeployPipelineResponse, error) {
		return deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: words, Options: map[string]string{"checkpoint.interval": v}})
	}
	if r, err := set("off"); err != nil || r.GetOutcome() != unchanged {
		t.Errorf("%v %v", r, err)
	}
	_, err := set("2 s")
	refused(t, err, dataflow.ReasonPipelineExists, "checkpoint.interval is off, not 2 s", "weir pipeline set wc checkpoint.interval='2 s'")
	_, err = set("soon")
	refused(t, err, dataflow.ReasonOptionInvalid)
	if r, err := n.Pipelines().SetPipelineOptions(t.Context(), &weirv1.SetPipelineOptionsRequest{Pipeline: "wc", Options: map[string]string{"checkpoint.interval": "2 s"}}); err != nil || r.GetPipeline().GetOptions()["checkpoint.interval"] != "2 s" {
		t.Errorf("%v %v", r, err)
	}
	if r, err := set("2 s"); err != nil || r.GetOutcome() != unchanged {
		t.Errorf("%v %v", r, err)
	}
}

func TestOptionsOfTheTextAreComparedWithThoseThatThePipelineHas(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	const off = "SET checkpoint.interval = 'off';"
	n.Deploy("wc", words) // it begins with off
	if _, err := n.Pipelines().SetPipelineOptions(t.Context(), &weirv1.SetPipelineOptionsRequest{Pipeline: "wc", Options: map[string]string{"checkpoint.interval": "5 s"}}); err != nil {
		t.Fatal(err)
	}
	again := func(set string) (*weirv1.DeployPipelineResponse, error) {
		return deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: strings.Replace(words, off, set, 1)})
	}
	if r, err := again("SET checkpoint.interval = '5 s';"); err != nil || r.GetOutcome() != unchanged {
		t.Errorf("the options that it has: %v %v", r, err)
	}
	_, err := again(off)
	refused(t, err, dataflow.ReasonPipelineExists, "checkpoint.interval is 5 s, not off", "weir pipeline set wc checkpoint.interval='off'")
	_, err = again("SET checkpoint.interval = '5 s'; SET on_error = 'skip';")
	refused(t, err, dataflow.ReasonPipelineExists, "on_error is fail, not skip", "weir pipeline set wc on_error='skip'")
	_, err = again("") // what the text does not set any more is wanted at its default
	refused(t, err, dataflow.ReasonPipelineExists, "checkpoint.interval is 5 s, not 1 s", "weir pipeline set wc checkpoint.interval='1 s'")
}

func TestValidatingChangesNothing(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	validate := func(sql string) (*weirv1.DeployPipelineResponse, error) {
		return deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: sql, ValidateOnly: true})
	}
	r, err := validate(words)
	if err != nil || r.GetOutcome() != created || r.GetPipeline() != nil || !r.GetStreams()[0].GetCreated() || len(r.GetTables()) != 1 {
		t.Errorf("%v %v", r, err)
	}
	if l, err := n.Ingest().ListStreams(t.Context(), &weirv1.ListStreamsRequest{}); err != nil || len(l.GetStreams()) != 0 {
		t.Errorf("streams %v %v", l, err)
	}
	if l, err := n.Pipelines().ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{}); err != nil || len(l.GetPipelines()) != 0 {
		t.Errorf("pipelines %v %v", l, err)
	}
	n.Deploy("wc", words)
	if r, err := validate(words); err != nil || r.GetOutcome() != unchanged || r.GetPipeline() == nil || r.GetStreams()[0].GetCreated() {
		t.Errorf("%v %v", r, err)
	}
	for _, validate := range []bool{true, false} {
		_, err = deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "other", ValidateOnly: validate,
			Sql: "CREATE STREAM fresh (x BIGINT); CREATE STREAM words (word TEXT, n BIGINT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM words;"})
		refused(t, err, dataflow.ReasonStreamConflict, "words", "n BIGINT")
	}
	if _, err := n.Ingest().DescribeStream(t.Context(), &weirv1.DescribeStreamRequest{Stream: "fresh"}); nodetest.Reason(err) != dataflow.ReasonStreamNotFound {
		t.Errorf("a refused file has created a stream: %v", err)
	}
}

func TestAPipelineStartsWhereItIsTold(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 3})
	n.Deploy("streams", "CREATE STREAM words (word TEXT);")
	// appendAfter returns a token that covers the rows of the previous one too.
	appendAfter := func(previous string, rows ...string) string {
		t.Helper()
		r, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "words", JsonRows: []byte(strings.Join(rows, "\n")), PreviousToken: previous})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetToken()
	}
	first := appendAfter("", word("a"), word("b"))
	between := time.Now()
	for between = between.Add(time.Microsecond); !time.Now().After(between); { // the log's clock counts microseconds
	}
	last := appendAfter(appendAfter(first, word("c")), word("d"))
	for start, want := range map[string][]string{
		"":                                  {"a", "b", "c", "d"},
		"earliest":                          {"a", "b", "c", "d"},
		"latest":                            {},
		between.Format(time.RFC3339Nano):    {"c", "d"},
		"2020-01-01T00:00:00Z":              {"a", "b", "c", "d"},
		time.Now().Format(time.RFC3339Nano): {},
		first:                               {"c", "d"},
		last:                                {},
	} {
		r, err := deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: words, Start: start})
		if err != nil {
			t.Fatalf("start %q: %v", start, err)
		}
		if got := r.GetStreams()[0]; got.GetRowsToRead() != uint64(len(want)) || !got.GetRead() || got.GetCreated() {
			t.Errorf("start %q: %v", start, got)
		}
		n.WaitProcessed(last)
		var rows []string
		for _, w := range want {
			rows = append(rows, `{"word":"`+w+`","n":1}`)
		}
		if got, _ := n.Scan("wc", "counts", nodetest.Live); strings.Join(got, " ") != strings.Join(rows, " ") {
			t.Errorf("start %q: %s", start, got)
		}
		if _, err := n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "wc"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: words, Start: dataflow.Token{Group: dataflow.GroupID{1}}.String()})
	refused(t, err, dataflow.ReasonTokenForeign)
	_, err = deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: words, Start: "tomorrow"})
	refused(t, err, dataflow.ReasonRequestInvalid, "start")
	_, err = deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: words, Start: "2999-01-01T00:00:00Z"})
	refused(t, err, dataflow.ReasonRequestInvalid, "start: 2999-01-01T00:00:00Z is in the future")
}

func TestAFileOfStreamsMakesNoPipeline(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	const file = "CREATE STREAM a (x BIGINT); CREATE STREAM b (y TEXT) PARTITION BY (y);"
	for i, want := range []weirv1.DeployOutcome{created, created, unchanged, unchanged} {
		r, err := deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "streams", Sql: file, ValidateOnly: i%2 == 0})
		if err != nil || r.GetOutcome() != want || r.GetPipeline() != nil || len(r.GetStreams()) != 2 || r.GetStreams()[1].GetCreated() != (want == created) {
			t.Errorf("deploy %d: %v %v", i+1, r, err)
		}
	}
	n.Append("b", `{"y":"there"}`)
	if l, err := n.Pipelines().ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{}); err != nil || len(l.GetPipelines()) != 0 {
		t.Errorf("pipelines %v %v", l, err)
	}
	if r := n.Deploy("more", file+"CREATE STREAM c (z BIGINT);"); r.GetOutcome() != created || r.GetStreams()[0].GetCreated() || !r.GetStreams()[2].GetCreated() {
		t.Errorf("%v", r)
	}
	n.Deploy("wc", words)
	for _, c := range []struct {
		name   string
		r      *weirv1.DeployPipelineRequest
		reason dataflow.Reason
		says   string
	}{
		{"another definition", &weirv1.DeployPipelineRequest{Sql: "CREATE STREAM d (x BIGINT); CREATE STREAM a (x TEXT);"}, dataflow.ReasonStreamConflict, "a"},
		{"a view that nobody reads", &weirv1.DeployPipelineRequest{Sql: file + "\nCREATE VIEW v AS SELECT x FROM a;"}, dataflow.ReasonSQLUnsupported, "CREATE MATERIALIZED VIEW"},
		{"an option in the file", &weirv1.DeployPipelineRequest{Sql: "SET checkpoint.interval = '1 s';" + file}, dataflow.ReasonOptionInvalid, "checkpoint.interval"},
		{"an option beside it", &weirv1.DeployPipelineRequest{Sql: file, Options: map[string]string{"checkpoint.interval": "1 s"}}, dataflow.ReasonOptionInvalid, "checkpoint.interval"},
		{"a start", &weirv1.DeployPipelineRequest{Sql: file, Start: "latest"}, dataflow.ReasonRequestInvalid, "start"},
		{"nothing at all", &weirv1.DeployPipelineRequest{Sql: "SET checkpoint.interval = '1 s';"}, dataflow.ReasonSQLUnsupported, "creates nothing"},
		{"the name of a pipeline", &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: file}, dataflow.ReasonPipelineExists, "materialized view counts is gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.r.Pipeline == "" {
				c.r.Pipeline = "streams"
			}
			_, err := deploy(t.Context(), n, c.r)
			refused(t, err, c.reason, c.says)
		})
	}
	if _, err := n.Ingest().DescribeStream(t.Context(), &weirv1.DescribeStreamRequest{Stream: "d"}); nodetest.Reason(err) != dataflow.ReasonStreamNotFound {
		t.Errorf("a refused file has created a stream: %v", err)
	}
}

func TestBadProgramsAreRefusedBeforeAnythingIsCreated(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	for sql, want := range map[string]dataflow.Reason{
		"CREATE STREAM s (x BIGINT); CREATE MATERIALIZED VIEW v AS SELECT x FROM s;":                                            dataflow.ReasonSQLUnsupported,
		"CREATE STREAM s (x BIGINT); CREATE MATERIALIZED VIEW v AS SELECT y, count(*) AS n FROM s GROUP BY y;":                  dataflow.ReasonSQLType,
		"CREATE STREAM s (x BIGINT) WITH (retention = 'soon'); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s;":      dataflow.ReasonOptionInvalid,
		"CREATE STREAM s (x BIGINT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM nope;":                             dataflow.ReasonStreamNotFound,
		"CREATE STREAM s (x BIGINT); SET checkpoint.mode = 'often'; CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s;": dataflow.ReasonOptionInvalid,
		"CREATE STREAM s (x BIGINT); INSERT INTO s VALUES (1);":                                                                 dataflow.ReasonSQLUnsupported,
		"CREATE STREAM": dataflow.ReasonSQLSyntax,
	} {
		_, err := deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "p", Sql: sql})
		if got := nodetest.Reason(err); got != want {
			t.Errorf("%s: %v (%s), want %s", sql, err, got, want)
		}
	}
	_, err := deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "word-count", Sql: words})
	refused(t, err, dataflow.ReasonNameInvalid, "word-count")
	if l, err := n.Ingest().ListStreams(t.Context(), &weirv1.ListStreamsRequest{}); err != nil || len(l.GetStreams()) != 0 {
		t.Errorf("streams %v %v", l, err)
	}
}

func TestDeploysAtOnceMakeOnePipeline(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	var mu sync.Mutex
	outcomes := make(map[string]int)
	var g sync.WaitGroup
	for i := range 12 {
		g.Go(func() {
			sql := words
			if i%3 == 0 {
				sql += "CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM words;"
			}
			r, err := deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: sql})
			what := r.GetOutcome().String()
			if err != nil {
				what = string(nodetest.Reason(err))
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[what]++
		})
	}
	g.Wait()
	rest := outcomes[unchanged.String()] + outcomes[string(dataflow.ReasonPipelineExists)]
	if outcomes[created.String()] != 1 || rest != 11 || outcomes[string(dataflow.ReasonPipelineExists)] == 0 {
		t.Errorf("outcomes %v", outcomes)
	}
}

func TestADeployDoesNotFailBecauseItsOwnStreamIsDroppedMeanwhile(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			// One of them or both come too early or too late, mostly.
			_, _ = n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "wc"})
			_, _ = n.Ingest().DeleteStream(t.Context(), &weirv1.DeleteStreamRequest{Stream: "words"})
		}
	})
	for range 300 {
		_, err := deploy(t.Context(), n, &weirv1.DeployPipelineRequest{Pipeline: "wc", Sql: words})
		if e := nodetest.Refusal(err); err != nil && (e == nil || e.Reason != dataflow.ReasonPipelineNotFound) {
			t.Errorf("%v", err)
		}
	}
	close(done)
	wg.Wait()
}
