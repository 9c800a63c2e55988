package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// reasonOf finds the reason in an error's JSON body.
func reasonOf(body string) dataflow.Reason {
	var st struct {
		Details []struct{ Reason dataflow.Reason } `json:"details"`
	}
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		return "not JSON"
	}
	for _, d := range st.Details {
		if d.Reason != "" {
			return d.Reason
		}
	}
	return ""
}

func TestBadHTTPIsRefusedAndTheNodeGoesOn(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	v.WaitCommitted(v.Append("s", `{"k":"a/b","n":1,"f":1.5,"at":"2026-11-29T00:00:00Z"}`))
	v.rows = 1
	asJSON := map[string]string{"Content-Type": "application/json"}
	const (
		streams = "/v1/streams/"
		tables  = "/v1/pipelines/v/tables/"
	)
	for _, c := range []struct {
		name, method, path, body string
		header                   map[string]string
		status                   int
		reason                   dataflow.Reason
	}{
		{"a page", "GET", "/", "", nil, 404, dataflow.ReasonRequestInvalid},
		{"a wrong method", "PUT", "/v1/query", "{}", asJSON, 405, dataflow.ReasonRequestInvalid},
		{"a query without a body", "POST", "/v1/query", "", asJSON, 400, dataflow.ReasonRequestInvalid},
		{"a query that is no JSON", "POST", "/v1/query", "SELECT 1", asJSON, 400, dataflow.ReasonRequestInvalid},
		{"an unknown field", "POST", "/v1/query", `{"sql":"SELECT 1","sqll":""}`, asJSON, 400, dataflow.ReasonRequestInvalid},
		{"an unknown enum value", "POST", "/v1/query", `{"sql":"SELECT k FROM v.by_k","isolation":"SERIALIZABLE"}`, asJSON, 400, dataflow.ReasonRequestInvalid},
		{"JSON 100,000 deep", "POST", "/v1/query", strings.Repeat(`{"a":`, 100_000), asJSON, 400, dataflow.ReasonRequestInvalid},
		{"SQL of 10 MB", "POST", "/v1/query", `{"sql":"` + strings.Repeat("x", 10<<20) + `"}`, asJSON, 413, dataflow.ReasonTooLarge},
		{"an XML query", "POST", "/v1/query", "<sql/>", map[string]string{"Content-Type": "text/xml"}, 415, dataflow.ReasonRequestInvalid},
		{"XML rows", "POST", streams + "s:append", "<row/>", map[string]string{"Content-Type": "application/xml"}, 415, dataflow.ReasonRequestInvalid},
		{"a type that is none", "POST", streams + "s:append", "{}", map[string]string{"Content-Type": ";;;"}, 415, dataflow.ReasonRequestInvalid},
		{"rows for no stream", "POST", streams + "nothing:append", `{"k":"a"}`, asJSON, 404, dataflow.ReasonStreamNotFound},
		{"a stream that climbs", "POST", streams + "..%2f..%2fx:append", `{"k":"a"}`, asJSON, 400, dataflow.ReasonNameInvalid},
		{"a stream of emoji", "GET", streams + "%F0%9F%90%8B", "", nil, 400, dataflow.ReasonNameInvalid},
		{"a stream of 10,000 letters", "GET", streams + strings.Repeat("s", 10_000), "", nil, 400, dataflow.ReasonNameInvalid},
		{"a stream with NUL", "GET", streams + "a%00b", "", nil, 400, dataflow.ReasonNameInvalid},
		{"a bad row", "POST", streams + "s:append", `{"k":1}`, asJSON, 400, dataflow.ReasonRowInvalid},
		{"rows past the limit", "POST", streams + "s:append", strings.Repeat(`{"k":"`+strings.Repeat("x", 1000)+`"}`, 20_000), asJSON, 413, dataflow.ReasonTooLarge},
		{"a long idempotency key", "POST", streams + "s:append", `{"k":"a"}`, map[string]string{"Content-Type": "application/json", "Idempotency-Key": strings.Repeat("k", 5000)}, 400, dataflow.ReasonRequestInvalid},
		{"an absent row", "GET", tables + "by_k/rows/nothing", "", nil, 404, dataflow.ReasonRowNotFound},
		{"a row of an unknown table", "GET", tables + "nothing/rows/a", "", nil, 404, dataflow.ReasonTableNotFound},
		{"a row of an unknown pipeline", "GET", "/v1/pipelines/w/tables/by_k/rows/a", "", nil, 404, dataflow.ReasonPipelineNotFound},
		{"a key of the wrong type", "GET", tables + "by_f/rows/x", "", nil, 400, dataflow.ReasonKeyInvalid},
		{"a date that is none", "GET", tables + "by_at/rows/2026-02-30", "", nil, 400, dataflow.ReasonKeyInvalid},
		{"1e400 as a key", "GET", tables + "by_f/rows/1e400", "", nil, 400, dataflow.ReasonKeyInvalid},
		{"a key of 5,000 bytes", "GET", tables + "by_k/rows/" + strings.Repeat("k", 5000), "", nil, 413, dataflow.ReasonTooLarge},
		{"too many keys", "GET", tables + "by_k/rows:get?key=a&key=b", "", nil, 400, dataflow.ReasonKeyInvalid},
		{"an unknown parameter", "GET", tables + "by_k/rows?limti=1", "", nil, 400, dataflow.ReasonRequestInvalid},
		{"a parameter twice", "GET", tables + "by_k/rows?limit=1&limit=2", "", nil, 400, dataflow.ReasonRequestInvalid},
		{"limit -1", "GET", tables + "by_k/rows?limit=-1", "", nil, 400, dataflow.ReasonRequestInvalid},
		{"a limit past an integer", "GET", tables + "by_k/rows?limit=99999999999999999999", "", nil, 400, dataflow.ReasonRequestInvalid},
		{"an unknown isolation", "GET", tables + "by_k/rows?isolation=DIRTY", "", nil, 400, dataflow.ReasonRequestInvalid},
		{"a checkpoint that is no number", "GET", tables + "by_k/rows?checkpoint_id=last", "", nil, 400, dataflow.ReasonRequestInvalid},
		{"a checkpoint of the future", "GET", tables + "by_k/rows?checkpoint_id=99999", "", nil, 404, dataflow.ReasonCheckpointNotFound},
		{"a foreign token", "GET", tables + "by_k/rows?min_token=" + foreignToken(), "", nil, 400, dataflow.ReasonTokenForeign},
		{"a page token that is none", "GET", tables + "by_k/rows?page_token=x", "", nil, 400, dataflow.ReasonTokenInvalid},
		{"keys that are no lists", "POST", tables + "by_k/rows:batchGet", `{"keys":["a"]}`, asJSON, 400, ""},
		{"10,001 keys", "POST", tables + "by_k/rows:batchGet", `{"keys":[` + strings.Repeat(`["a"],`, 10_000) + `["a"]]}`, asJSON, 413, dataflow.ReasonTooLarge},
		{"an object as a key", "POST", tables + "by_k/rows:batchGet", `{"keys":[[{}]]}`, asJSON, 400, ""},
		{"a pipeline that climbs", "POST", "/v1/pipelines", `{"pipeline":"../../x","sql":"CREATE STREAM a (b TEXT)"}`, asJSON, 400, dataflow.ReasonNameInvalid},
		{"faults injected into nothing", "POST", "/v1/pipelines/w:fail", "{}", asJSON, 404, dataflow.ReasonPipelineNotFound},
		{"a seal of nothing", "POST", streams + "nothing:seal", "{}", asJSON, 404, dataflow.ReasonStreamNotFound},
		{"the end of a stream in use", "DELETE", streams + "s", "", nil, 400, dataflow.ReasonStreamInUse},
		{"reading past the end", "GET", streams + "s/rows?from=0:999999", "", nil, 400, dataflow.ReasonRequestInvalid},
		{"reading from a shard that is not there", "GET", streams + "s/rows?from=99:0", "", nil, 400, dataflow.ReasonRequestInvalid},
		{"reading from -1", "GET", streams + "s/rows?from=0:-1", "", nil, 400, dataflow.ReasonRequestInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, header, body := v.HTTP(c.method, c.path, c.body, c.header)
			if code != c.status || c.reason != "" && reasonOf(body) != c.reason {
				t.Errorf("got %d %s, want %d %s\n%.500s", code, reasonOf(body), c.status, c.reason, body)
			}
			if got := header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") && c.reason != "" {
				t.Errorf("the error comes as %s", got)
			}
			v.probe(c.name)
		})
	}

	t.Run("a body that never ends", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+v.HTTPAddr()+streams+"s:append", endless{})
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-ndjson")
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		resp, err := transport.RoundTrip(req)
		if err == nil { // otherwise the server hung up while the body was being written
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != 413 || reasonOf(string(body)) != dataflow.ReasonTooLarge {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
		}
		v.probe("an endless body")
	})
	t.Run("the row that is there", func(t *testing.T) {
		code, _, body := v.HTTP("GET", tables+"by_k/rows/a%2Fb", "", nil)
		if code != 200 || !strings.HasPrefix(body, `{"row":{"k":"a/b","n":1,"total":1},"cut":{`) {
			t.Errorf("%d %s", code, body)
		}
	})
	v.intact()
}

// endless is white space without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestBadNamesAndProgramsChangeNothing(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	deploy := func(name, sql string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := v.Pipelines().DeployPipeline(ctx, &weirv1.DeployPipelineRequest{Pipeline: name, Sql: sql})
			return err
		}
	}
	program := func(sql string) func(context.Context) error { return deploy("p", sql) }
	option := func(name, value string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := v.Pipelines().SetPipelineOptions(ctx, &weirv1.SetPipelineOptionsRequest{Pipeline: "v", Options: map[string]string{name: value}})
			return err
		}
	}
	const (
		nameBad = dataflow.ReasonNameInvalid
		optBad  = dataflow.ReasonOptionInvalid
		large   = dataflow.ReasonTooLarge
		okSQL   = "CREATE MATERIALIZED VIEW x AS SELECT k, count(*) AS n FROM s GROUP BY k;"
	)
	v.run([]badCall{
		{"a pipeline that climbs", deploy("../../x", okSQL), reasons(nameBad)},
		{"a pipeline without a name", deploy("", okSQL), reasons(nameBad, dataflow.ReasonRequestInvalid)},
		{"a pipeline of 10,000 letters", deploy(strings.Repeat("p", 10_000), okSQL), reasons(nameBad)},
		{"a pipeline of emoji", deploy("🐋", okSQL), reasons(nameBad)},
		{"CON", deploy("CON", okSQL), reasons(nameBad)},
		{"word-count", deploy("word-count", okSQL), reasons(nameBad)},
		{"a pipeline with a line break", deploy("a\nb", okSQL), reasons(nameBad)},
		{"no program", program(""), reasons(dataflow.ReasonRequestInvalid, dataflow.ReasonSQLSyntax)},
		{"nonsense", program("nonsense"), reasons(dataflow.ReasonSQLSyntax)},
		{"a program of 10 MB", program(strings.Repeat(" ", 10<<20)), reasons(large)},
		{"5,000 parentheses", program("CREATE MATERIALIZED VIEW x AS SELECT " + strings.Repeat("(", 5000) + "k" + strings.Repeat(")", 5000) + " AS k FROM s GROUP BY 1"), reasons(dataflow.ReasonSQLSyntax, dataflow.ReasonSQLUnsupported, large)},
		{"a view of nothing", program("CREATE MATERIALIZED VIEW x AS SELECT k, count(*) AS n FROM nothing GROUP BY k"), reasons(dataflow.ReasonStreamNotFound)},
		{"a view of itself", program("CREATE MATERIALIZED VIEW x AS SELECT k, count(*) AS n FROM x GROUP BY k"), reasons(dataflow.ReasonSQLType)},
		{"views in a circle", program("CREATE MATERIALIZED VIEW x AS SELECT k, count(*) AS n FROM y GROUP BY k; CREATE MATERIALIZED VIEW y AS SELECT k, n FROM x;"), reasons(dataflow.ReasonSQLType)},
		{"a stream with other columns", program("CREATE STREAM s (k BIGINT); CREATE MATERIALIZED VIEW x AS SELECT k, count(*) AS n FROM s GROUP BY k"), reasons(dataflow.ReasonStreamConflict)},
		{"a stream beside a view that fails", program("CREATE STREAM fresh (k TEXT); CREATE MATERIALIZED VIEW x AS SELECT nothing FROM fresh"), reasons(dataflow.ReasonSQLType)},
		{"another program of the same name", deploy("v", okSQL), reasons(dataflow.ReasonPipelineExists)},
		{"the same program", deploy("v", victimSQL), reasons("")},
		{"an interval of 0", option("checkpoint.interval", "0"), reasons(optBad)},
		{"a negative interval", option("checkpoint.interval", "-1 s"), reasons(optBad)},
		{"an interval of 1,000 years", option("checkpoint.interval", "365000 days"), reasons(optBad)},
		{"an interval of a nanosecond", option("checkpoint.interval", "1 ns"), reasons(optBad)},
		{"an unknown option", option("checkpoint.intervall", "1 s"), reasons(optBad)},
		{"an option without a name", option("", "1 s"), reasons(optBad)},
		{"a million retained cuts", option("checkpoint.retained", "1000000"), reasons(optBad)},
		{"an option in the file", program("SET checkpoint.interval = '0';" + okSQL), reasons(optBad)},
		{"retention 0", program("CREATE STREAM r (k TEXT) WITH (retention = '0');" + okSQL), reasons(optBad)},
		{"a negative size", program("CREATE STREAM r (k TEXT) WITH (max_bytes = '-1');" + okSQL), reasons(optBad)},
		{"a start that is none", func(ctx context.Context) error {
			_, err := v.Pipelines().DeployPipeline(ctx, &weirv1.DeployPipelineRequest{Pipeline: "p", Sql: okSQL, Start: "yesterday"})
			return err
		}, reasons(dataflow.ReasonTokenInvalid, dataflow.ReasonRequestInvalid)},
		{"a start of another group", func(ctx context.Context) error {
			_, err := v.Pipelines().DeployPipeline(ctx, &weirv1.DeployPipelineRequest{Pipeline: "p", Sql: okSQL, Start: foreignToken()})
			return err
		}, reasons(dataflow.ReasonTokenForeign)},
		{"deleting nothing", func(ctx context.Context) error {
			_, err := v.Pipelines().DeletePipeline(ctx, &weirv1.DeletePipelineRequest{Pipeline: "p"})
			return err
		}, reasons(dataflow.ReasonPipelineNotFound)},
		{"resuming what runs", func(ctx context.Context) error {
			_, err := v.Pipelines().ResumePipeline(ctx, &weirv1.ResumePipelineRequest{Pipeline: "v"})
			return err
		}, reasons("", dataflow.ReasonPipelineState)},
		{"a lease of a cut that never was", func(ctx context.Context) error {
			_, err := v.Pipelines().LeaseCheckpoint(ctx, &weirv1.LeaseCheckpointRequest{Pipeline: "v", CheckpointId: 1 << 50})
			return err
		}, reasons(dataflow.ReasonCheckpointNotFound)},
		{"a lease id that is none", func(ctx context.Context) error {
			_, err := v.Pipelines().LeaseCheckpoint(ctx, &weirv1.LeaseCheckpointRequest{Pipeline: "v", LeaseId: "x"})
			return err
		}, reasons(dataflow.ReasonRequestInvalid)},
	})
	// Nothing of it was left behind.
	list, err := v.Pipelines().ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{})
	if err != nil || len(list.GetPipelines()) != 1 {
		t.Errorf("pipelines: %v, %v", list, err)
	}
	streams, err := v.Ingest().ListStreams(t.Context(), &weirv1.ListStreamsRequest{})
	if err != nil || len(streams.GetStreams()) != 3 {
		t.Errorf("streams: %v, %v", streams, err)
	}
	v.intact()
}

func TestBadConfigurationIsReportedBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	n := nodetest.Open(t, nodetest.Options{FS: mem, Shards: 2})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := "127.0.0.1:0"
	for name, c := range map[string]struct {
		cfg  node.Config
		want string
	}{
		"no directory":                {node.Config{}, "data-dir"},
		"a node id that is none":      {node.Config{DataDir: "/other", NodeID: "../x"}, "node-id"},
		"-1 shards":                   {node.Config{DataDir: "/other", Shards: -1}, "shards"},
		"a million shards":            {node.Config{DataDir: "/other", Shards: 1_000_000}, "shards"},
		"an address without a port":   {node.Config{DataDir: "/other", GRPCAddr: "127.0.0.1"}, "grpc-addr"},
		"every address":               {node.Config{DataDir: "/other", HTTPAddr: ":7710"}, "loopback"},
		"an address off loopback":     {node.Config{DataDir: "/other", GRPCAddr: "192.0.2.1:7711"}, "loopback"},
		"a port in use":               {node.Config{DataDir: "/other", GRPCAddr: taken.Addr().String(), HTTPAddr: free}, "listen for gRPC"},
		"the other port in use":       {node.Config{DataDir: "/other", HTTPAddr: taken.Addr().String(), GRPCAddr: free}, "listen for HTTP"},
		"a directory in use":          {node.Config{DataDir: "/data", GRPCAddr: free, HTTPAddr: free}, "another node uses it"},
		"two things wrong, both told": {node.Config{NodeID: "X", HTTPAddr: "x"}, "http-addr"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.FS = mem
			nd, err := node.Open(t.Context(), c.cfg)
			if err == nil {
				_ = nd.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if _, err := mem.Stat("/other/node.json"); err == nil {
				t.Error("a refused node has written its data directory")
			}
		})
	}
	n.Close()
	for name, c := range map[string]struct {
		cfg  node.Config
		want string
	}{
		"another number of shards": {node.Config{Shards: 3}, "2 shards"},
		"another node":             {node.Config{NodeID: "n2"}, "belongs to node n1"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.FS, c.cfg.DataDir, c.cfg.GRPCAddr, c.cfg.HTTPAddr = mem, "/data", free, free
			nd, err := node.Open(t.Context(), c.cfg)
			if err == nil {
				_ = nd.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := writeFileAt(file); err != nil {
		t.Fatal(err)
	}
	if nd, err := node.Open(t.Context(), node.Config{DataDir: file, GRPCAddr: free, HTTPAddr: free}); err == nil {
		_ = nd.Close()
		t.Error("a file as data directory was accepted")
	}
}

func writeFileAt(path string) error {
	f, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	return f.Close()
}

func TestADirectoryOfSomebodyElseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "letter.txt"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	nd, err := node.Open(t.Context(), node.Config{DataDir: dir, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "letter.txt") {
		t.Errorf("opened: %v", err)
	}
	if nd != nil {
		_ = nd.Close()
	}
}
