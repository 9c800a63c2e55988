package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/api/apitest"
	"github.com/weirdb/weir/node/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type harness struct {
	*testing.T
	fake   *apitest.Fake
	url    string
	client *http.Client
}

// start serves a fake node over HTTP until the test ends.

func start(t *testing.T) *harness {
	t.Helper()
	fake, reg := apitest.New(), prometheus.NewRegistry()
	s, err := api.New(api.Config{Group: apitest.Group(), Metrics: reg}, fake.Backends())
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.Open(gateway.Config{Serve: s.Serve, Ready: fake.Ready, Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = g.Server()
	srv.Start()
	h := &harness{T: t, fake: fake, url: srv.URL, client: srv.Client()}
	t.Cleanup(func() {
		srv.Close()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Stop(ctx)
		g.Wait()
	})
	return h
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (h *harness) do(method, path, contentType string, body io.Reader, headers ...string) answer {
	h.Helper()
	r, err := http.NewRequestWithContext(h.Context(), method, h.url+path, body)
	if err != nil {
		h.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.client.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, strings.TrimSuffix(string(b), "\n")}
}

func (h *harness) get(path string) answer { h.Helper(); return h.do("GET", path, "", nil) }

func (h *harness) post(path, body string, headers ...string) answer {
	h.Helper()
	return h.do("POST", path, "application/json", strings.NewReader(body), headers...)
}

// refused checks that an answer is a google.rpc.Status with a reason.

func (h *harness) refused(a answer, status int, r dataflow.Reason, part string) {
	h.Helper()
	var st struct {
		Code    int
		Message string
		Details []struct {
			Type   string `json:"@type"`
			Reason string
			Domain string
		}
	}
	if err := json.Unmarshal([]byte(a.body), &st); err != nil {
		h.Errorf("not a status: %v: %s", err, a.body)
		return
	}
	if a.status != status || st.Code == 0 || len(st.Details) == 0 || st.Details[0].Type != "type.googleapis.com/google.rpc.ErrorInfo" ||
		st.Details[0].Reason != string(r) || st.Details[0].Domain != "weir" || !strings.Contains(st.Message, part) {
		h.Errorf("got %d %s, want %d %s with %q", a.status, a.body, status, r, part)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		h.Errorf("an error of type %q", ct)
	}
}

const cutJSON = `{"pipeline":"p","pipeline_uid":1,"timeline":1,"checkpoint_id":42,"incarnation":3,"guarantee":"exactly_once",` +
	`"triggered_at":"1970-01-01T00:00:00.000001Z","committed_at":"1970-01-01T00:00:00.000002Z","age_ms":7,"positions":{"lines":[5]},` +
	`"behind_rows":2,"behind_ms":9,"speculative":%v,"catching_up":false,"node":"n1","role":"leader","pipeline_state":"RUNNING","skipped_rows":0,"token":"%s"}`

func cut(speculative bool) string {
	tok := dataflow.SessionToken{Group: apitest.Group(), Pipeline: 1, Timeline: 1, Checkpoint: 42}
	return fmt.Sprintf(cutJSON, speculative, tok)
}

const table = "/v1/pipelines/p/tables/counts/rows"

// words are keys that a path must carry.

var words = []string{"whale", "a/b", "100%", "a b", "é€😀", "a:b", "x:get", "", ".", "..", "?q=1&r", "+", "%2F", "#", "-1"}

func withCounts(h *harness) {
	b := batch.NewBatch(dataflow.Schema{{Name: "word", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}})
	for i, w := range words {
		b.AppendRow(dataflow.Row{dataflow.Text(w), dataflow.BigInt(math.MaxInt64 - int64(i))})
	}
	h.fake.SetTable("p.counts", &apitest.Table{Rows: b, KeyCols: 1})
}

// endless is a chunked body without an end.

type endless struct{ read atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read.Add(int64(len(p)))
	return len(p), nil
}

func TestHealthIsAnsweredWithoutABody(t *testing.T) {
	h := start(t)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if r := h.do("HEAD", path, "", nil); r.status != 200 {
			t.Errorf("HEAD %s: %d", path, r.status)
		}
	}
}

// watchLines reads the first n lines of a watch, and then leaves.

func (h *harness) watchLines(path string, n int, headers ...string) (lines []string, header http.Header) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", h.url+path, nil)
	if err != nil {
		h.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.client.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was left in the middle
	for s := bufio.NewScanner(resp.Body); len(lines) < n && s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines, resp.Header
}

func TestTheNodesOfTheGroupAreListed(t *testing.T) {
	h := start(t)
	a := h.get("/v1/cluster/nodes")
	if a.status != 200 || !strings.Contains(a.body, `{"node":"n1","state":"active","grpc_addr":"10.0.0.1:7711","http_addr":"10.0.0.1:7710"}`) {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

func TestPipelinesArePlainJSON(t *testing.T) {
	h := start(t)
	a := h.post("/v1/pipelines", `{"pipeline":"p","sql":"x","options":{"checkpoint.interval":"100 ms"}}`)
	if a.status != 200 || !strings.HasPrefix(a.body, `{"outcome":"CREATED","pipeline":{"name":"p","uid":1,"sql":"x","options":{"checkpoint.interval":"100 ms"},"state":"RUNNING",`) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	a = h.get("/v1/pipelines/p")
	if a.status != 200 || !strings.Contains(a.body, `"cut":`+cut(false)) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	if a = h.get("/v1/pipelines/p/checkpoints/42"); a.status != 200 || !strings.Contains(a.body, `"positions":{"lines":[5]},"shards":[{"shard":0,"delta_seq":1,"digest":"8000000000000000","log_index":9,"acknowledged_after":"1.5ms"}]`) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	if a = h.do("POST", "/v1/pipelines/p:stop", "", nil); a.status != 200 || !strings.Contains(a.body, `"state":"STOPPED"`) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	if a = h.post("/v1/pipelines/p:resume", `{"skip_failed_row":true}`); a.status != 200 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	h.refused(h.post("/v1/pipelines/p:setOptions", `{"options":{"nope":"1"}}`), 400, dataflow.ReasonOptionInvalid, "nope")
	h.refused(h.post("/v1/pipelines", `{"pipeline":"p","sql":"y"}`), 409, dataflow.ReasonPipelineExists, "")
	h.refused(h.post("/v1/pipelines", `{"pipeline":"p","sql":"y","typo":1}`), 400, dataflow.ReasonRequestInvalid, "typo")
	h.refused(h.post("/v1/tokens:wait", `{"token":"x","wait_for":"WAIT_FOR_GODOT"}`), 400, dataflow.ReasonRequestInvalid, "GODOT")
	h.refused(h.get("/v1/pipelines?typo=1"), 400, dataflow.ReasonRequestInvalid, "typo")
	h.refused(h.get("/v1/pipelines/p/checkpoints/x"), 400, dataflow.ReasonRequestInvalid, "checkpoint_id")
	h.refused(h.get("/v1/pipelines/nope"), 404, dataflow.ReasonPipelineNotFound, "nope")
	h.refused(h.do("POST", "/v1/pipelines/p:fail", "", nil), 400, dataflow.ReasonRequestInvalid, "--allow-fault-injection")
	if a = h.do("DELETE", "/v1/pipelines/p", "", nil); a.status != 200 || a.body != `{"kept_streams":["lines"]}` {
		t.Fatalf("got %d %s", a.status, a.body)
	}
}

func TestEveryReasonHasItsHTTPStatus(t *testing.T) {
	h := start(t)
	want := map[dataflow.Kind]int{dataflow.KindInvalid: 400, dataflow.KindNotFound: 404, dataflow.KindExists: 409, dataflow.KindPrecondition: 400,
		dataflow.KindOverloaded: 429, dataflow.KindUnavailable: 503, dataflow.KindUnknown: 503, dataflow.KindDeadline: 504, dataflow.KindCorrupt: 500, dataflow.KindInternal: 500}
	for _, r := range dataflow.Reasons() {
		h.fake.Fail(dataflow.Errorf(r.Reason, "because").WithRetry(1500 * time.Millisecond))
		a, status := h.get("/v1/streams"), want[r.Kind]
		if r.Reason == dataflow.ReasonTooLarge {
			status = 413
		}
		h.refused(a, status, r.Reason, "because")
		if retry := a.header.Get("Retry-After"); (status == 429 || status == 503) != (retry == "2") {
			t.Errorf("%s: Retry-After is %q", r.Reason, retry)
		}
	}
}

func TestUnknownPathsAndMethodsAreTyped(t *testing.T) {
	h := start(t)
	h.refused(h.get("/v1/nope"), 404, dataflow.ReasonRequestInvalid, "no such path")
	h.refused(h.get("/"), 404, dataflow.ReasonRequestInvalid, "no such path")
	h.refused(h.get("/v1/query"), 405, dataflow.ReasonRequestInvalid, "GET")
	h.refused(h.do("PUT", "/v1/streams/lines/rows", "application/json", strings.NewReader("{}")), 405, dataflow.ReasonRequestInvalid, "PUT")
	h.refused(h.post(table+"/whale", "{}"), 405, dataflow.ReasonRequestInvalid, "POST")
}

func TestPanicsAreTypedAndTheServerGoesOn(t *testing.T) {
	h := start(t)
	h.fake.Crash(true)
	h.refused(h.get("/v1/streams"), 500, dataflow.ReasonInternal, "internal error")
	h.fake.Crash(false)
	if a := h.get("/v1/streams"); a.status != 200 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
}

func TestHealthReadinessMetricsAndDescription(t *testing.T) {
	h := start(t)
	for _, p := range []string{"/healthz", "/livez"} {
		if a := h.get(p); a.status != 200 || a.body != "ok" {
			t.Errorf("%s: got %d %s", p, a.status, a.body)
		}
	}
	if a := h.get("/readyz"); a.status != 200 {
		t.Errorf("got %d %s", a.status, a.body)
	}
	h.fake.SetReady(errors.New("pipeline p has no committed cut"))
	if a := h.get("/readyz"); a.status != 503 || !strings.Contains(a.body, "no committed cut") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := h.get("/healthz"); a.status != 200 {
		t.Error("a node that is not ready must not be restarted")
	}
	h.get("/v1/streams")
	if a := h.get("/metrics"); a.status != 200 || !strings.Contains(a.body, `weir_rpc_requests_total{code="OK",method="/weir.v1.IngestService/ListStreams"} 1`) {
		t.Errorf("got %d %s", a.status, a.body)
	}
	a := h.get("/openapi.json")
	var doc struct {
		Paths       map[string]map[string]json.RawMessage
		Definitions map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatal(err)
	}
	for path, method := range map[string]string{"/v1/query": "post", "/v1/pipelines/{pipeline}/tables/{table}/rows/{key}": "get",
		"/v1/pipelines/{pipeline}/tables/{table}/rows:batchGet": "post", "/v1/streams/{stream}/rows": "post"} {
		if doc.Paths[path][method] == nil {
			t.Errorf("the description lacks %s %s", method, path)
		}
	}
	if bytes.Contains(doc.Definitions["Cut"], []byte(`"string","format":"uint64"`)) {
		t.Error("the description has integers as strings")
	}
}

func TestLargeHeaderIsRefused(t *testing.T) {
	h := start(t)
	r, err := http.NewRequestWithContext(t.Context(), "GET", h.url+"/v1/streams", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Large", strings.Repeat("x", 1<<20))
	if resp, err := h.client.Do(r); err == nil {
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %d", resp.StatusCode)
		}
		resp.Body.Close()
	}
	if a := h.get("/healthz"); a.status != 200 {
		t.Fatal("the server no longer serves")
	}
}
