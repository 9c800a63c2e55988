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
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
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

func TestRowIsAPlainObjectWithItsCut(t *testing.T) {
	h := start(t)
	withCounts(h)
	a := h.get(table + "/whale")
	if want := `{"row":{"word":"whale","n":9223372036854775807},"cut":` + cut(false) + `}`; a.status != 200 || a.body != want {
		t.Fatalf("got  %d %s\nwant %s", a.status, a.body, want)
	}
	for name, want := range map[string]string{"ETag": `"42"`, "Weir-Cut": "42", "Weir-Incarnation": "3", "Weir-Speculative": "false",
		"Weir-Behind-Rows": "2", "Content-Type": "application/json"} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	a = h.get(table + "/whale?isolation=READ_UNCOMMITTED&numbers=string&max_wait=5s&session_token=" + a.header.Get("Weir-Session-Token"))
	if want := `{"row":{"word":"whale","n":"9223372036854775807"},"cut":` + cut(true) + `}`; a.body != want || a.header.Get("ETag") != "" {
		t.Fatalf("got  %d %s\nwant %s", a.status, a.body, want)
	}
}

func TestEveryKeyCanBeAPathSegment(t *testing.T) {
	h := start(t)
	withCounts(h)
	for i, w := range words {
		want := fmt.Sprintf(`"n":%d}`, math.MaxInt64-int64(i))
		if a := h.get(table + ":get?key=" + url.QueryEscape(w)); a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("rows:get of %q: got %d %s", w, a.status, a.body)
		}
		if w == "." || w == ".." {
			continue // clients resolve these as paths, encoded or not
		}
		if a := h.get(table + "/" + url.PathEscape(w)); a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("rows/%s: got %d %s", url.PathEscape(w), a.status, a.body)
		}
	}
}

func TestAbsentRowIs404WithItsCut(t *testing.T) {
	h := start(t)
	withCounts(h)
	a := h.get(table + "/nobody")
	h.refused(a, 404, dataflow.ReasonRowNotFound, "no row")
	if !strings.HasSuffix(a.body, `,"cut":`+cut(false)+`}`) || a.header.Get("Weir-Cut") != "42" {
		t.Fatalf("got %s", a.body)
	}
}

func TestSeveralKeysAndNullsAreReadAtOnce(t *testing.T) {
	h := start(t)
	b := batch.NewBatch(dataflow.Schema{{Name: "region", Type: dataflow.TypeText}, {Name: "id", Type: dataflow.TypeBigInt}, {Name: "n", Type: dataflow.TypeBigInt}})
	b.AppendRow(dataflow.Row{dataflow.Text("NZ"), dataflow.BigInt(9007199254740993), dataflow.BigInt(1)})
	b.AppendRow(dataflow.Row{dataflow.NullValue(dataflow.TypeText), dataflow.BigInt(7), dataflow.BigInt(2)})
	h.fake.SetTable("p.counts", &apitest.Table{Rows: b, KeyCols: 2})
	a := h.post(table+":batchGet", `{"keys":[["NZ",9007199254740993],[null,"7"],["NZ",1]],"isolation":"READ_COMMITTED"}`)
	want := `{"rows":[{"region":"NZ","id":9007199254740993,"n":1},{"region":null,"id":7,"n":2},null],"cut":` + cut(false) + `}`
	if a.status != 200 || a.body != want {
		t.Fatalf("got  %d %s\nwant %s", a.status, a.body, want)
	}
	if a = h.get(table + ":get?key=NZ&key=9007199254740993"); a.status != 200 || !strings.HasPrefix(a.body, `{"row":{"region":"NZ"`) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	h.refused(h.get(table+":get?key=NZ"), 400, dataflow.ReasonKeyInvalid, "2 columns")
	h.refused(h.get(table+"/NZ"), 400, dataflow.ReasonKeyInvalid, "2 columns")
	for _, body := range []string{`{"keys":[[{}]]}`, `{"keys":[[[]]]}`} {
		h.refused(h.post(table+":batchGet", body), 400, dataflow.ReasonRequestInvalid, "keys[0][0]")
	}
	h.refused(h.post(table+":batchGet", `{"keys":[`+strings.Repeat(`[1,1],`, dataflow.MaxBatchGetKeys)+`[1,1]]}`), 413, dataflow.ReasonTooLarge, "10001")
}

func TestScansGoPageByPage(t *testing.T) {
	h := start(t)
	withCounts(h)
	seen, path := 0, table+"?limit=4&prefix="
	for token := ""; ; {
		a := h.get(path + "&page_token=" + token)
		var m struct {
			Rows          []map[string]any
			NextPageToken string `json:"next_page_token"`
			Cut           map[string]any
		}
		if err := json.Unmarshal([]byte(a.body), &m); err != nil || a.status != 200 || m.Cut == nil {
			t.Fatalf("%v: %d %s", err, a.status, a.body)
		}
		seen += len(m.Rows)
		if token = m.NextPageToken; token == "" {
			break
		}
	}
	if seen != len(words) {
		t.Fatalf("saw %d rows, want %d", seen, len(words))
	}
	if a := h.get(table + "?from=w&to=x&prefix=wh"); a.status != 200 || strings.Count(a.body, `"word"`) != 1 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	if a := h.get(table + "?from=x&to=w"); a.status != 200 || !strings.HasPrefix(a.body, `{"rows":[],"next_page_token":"",`) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	if a := h.get(table + "?limit=99999999999999"); a.status != 200 {
		t.Fatalf("a limit over the most is not clamped: %s", a.body)
	}
	if a := h.get(table + "?at_most=2"); a.status != 200 || strings.Count(a.body, `"word"`) != 2 || !strings.Contains(a.body, `"next_page_token":"",`) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	for query, part := range map[string]string{"limit=-1": "negative", "at_most=-1": "negative", "limit=x": "whole number", "limit=1&limit=2": "2 times", "nope=1": "no parameter",
		"isolation=SERIALIZABLE": "READ_COMMITTED", "numbers=roman": "json or string", "max_wait=soon": "length of time", "checkpoint_id=-1": "whole number", "%zz": "well formed"} {
		h.refused(h.get(table+"?"+query), 400, dataflow.ReasonRequestInvalid, part)
	}
	h.refused(h.get(table+"?page_token=x"), 400, dataflow.ReasonTokenInvalid, "damaged")
}

func TestAParameterWithoutAValueIsRefused(t *testing.T) {
	h := start(t)
	withCounts(h)
	for _, path := range []string{
		table + "?checkpoint_id=", table + "?limit=", table + "?to=", table + "?from=", table + "?isolation=", table + "?numbers=", table + "?max_wait=",
		table + ":get?key=a&checkpoint_id=", table + "/whale?checkpoint_id=", "/v1/streams/lines/rows?follow=", "/v1/streams/lines/rows?limit=",
		"/v1/streams/lines/rows?from=", "/v1/streams?page_size=", "/v1/pipelines?page_size=",
	} {
		h.refused(h.get(path), 400, dataflow.ReasonRequestInvalid, "is empty")
	}
	for _, path := range []string{table + "?prefix=&page_token=&min_token=&session_token=", "/v1/pipelines?page_token=", "/v1/tables?pipeline="} {
		if a := h.get(path); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestABodyIsOneRequestForWhatThePathNames(t *testing.T) {
	h := start(t)
	h.post("/v1/pipelines", `{"pipeline":"p","sql":"x"}`)
	for _, c := range []struct{ path, body, part string }{
		{"/v1/streams/lines:seal", `{}{}`, "more than one JSON value"},
		{"/v1/streams/lines:seal", `{} x`, "more than one JSON value"},
		{"/v1/pipelines", `{"pipeline":"p","sql":"x"}{"pipeline":"q"}`, "more than one JSON value"},
		{"/v1/query", `{"sql":"SELECT 1"}{}`, "more than one JSON value"},
		{"/v1/pipelines", `{"pipeline":"p","sql":`, "ends too soon"},
		{"/v1/pipelines", `{"pipeline":7}`, "not the JSON of this request"},
		{"/v1/streams/lines:seal", `{"stream":"other"}`, `the body says "other", the path "lines"`},
		{"/v1/pipelines/p:stop", `{"pipeline":"q"}`, `the body says "q"`},
		{"/v1/pipelines/p/checkpoints/42:lease", `{"checkpoint_id":"41"}`, `the body says "41"`},
		{"/v1/pipelines/p/checkpoints/42:lease", `{"checkpointId":41}`, `the body says "41"`},
	} {
		a := h.post(c.path, c.body)
		h.refused(a, 400, dataflow.ReasonRequestInvalid, c.part)
		if strings.Contains(a.body, "proto:") {
			t.Errorf("a message of the library: %s", a.body)
		}
	}
	for path, body := range map[string]string{"/v1/streams/lines:seal": ` {"stream":"lines"} `, "/v1/pipelines/p:stop": "", "/v1/pipelines/p/checkpoints/42:lease": `{"checkpoint_id":42}`} {
		if a := h.post(path, body); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestQueryAnswersWithColumnsRowsAndCut(t *testing.T) {
	h := start(t)
	withCounts(h)
	for _, ct := range []string{"application/json", "application/json; charset=utf-8", "", "application/x-www-form-urlencoded"} {
		a := h.do("POST", "/v1/query", ct, strings.NewReader(`{"sql":"SELECT * FROM p.counts","numbers":"string"}`))
		if a.status != 200 || !strings.HasPrefix(a.body, `{"columns":[{"name":"word","type":"TEXT","not_null":false},{"name":"n","type":"BIGINT","not_null":false}],"rows":[{"word":"whale","n":"9223372036854775807"},`) ||
			!strings.HasSuffix(a.body, `],"next_page_token":"","cut":`+cut(false)+`}`) {
			t.Fatalf("type %q: got %d %s", ct, a.status, a.body)
		}
	}
	for body, part := range map[string]string{"": "empty", "{": "too soon", "[]": "cannot be", `{"sql":5}`: `"sql" cannot be`, `{"sql":"x","typo":1}`: "typo",
		`{"sql":"x"} {}`: "more than one", `{"sql":""}`: "sql", `{"sql":"x","limit":-1}`: "negative", `{"sql":"x","isolation":"X"}`: "READ_COMMITTED",
		strings.Repeat(`{"a":`, 100_000): "not the JSON"} {
		h.refused(h.post("/v1/query", body), 400, dataflow.ReasonRequestInvalid, part)
	}
	h.refused(h.post("/v1/query?sql=x", `{"sql":"x"}`), 400, dataflow.ReasonRequestInvalid, "sql")
	h.refused(h.post("/v1/query", `{"sql":"`+strings.Repeat("(", dataflow.MaxSQLBytes)+`x"}`), 413, dataflow.ReasonTooLarge, "limit")
}

func TestRowsAreAppendedAsJSONAndNDJSON(t *testing.T) {
	h := start(t)
	for _, c := range []struct{ path, ct, body string }{
		{"/v1/streams/lines:append", "application/json", `{"line":"a","n":1}`},
		{"/v1/streams/lines:append", "", `[{"line":"b"},{"line":"c"}]`},
		{"/v1/streams/lines/rows", "application/x-ndjson", "{\"line\":\"d\"}\r\n\r\n{\"line\":\"e\"}\n"},
		{"/v1/streams/lines/rows", "application/x-www-form-urlencoded", `{"line":"f=&g"}`},
	} {
		a := h.do("POST", c.path, c.ct, strings.NewReader(c.body))
		if a.status != 200 || !strings.HasPrefix(a.body, `{"rows":`) || !strings.Contains(a.body, `"token":"`) {
			t.Fatalf("%s: got %d %s", c.body, a.status, a.body)
		}
	}
	if n := h.fake.Count("lines"); n != 6 {
		t.Fatalf("%d rows are stored, want 6", n)
	}
	for range 2 {
		if a := h.post("/v1/streams/lines:append", `{"line":"once"}`, "Idempotency-Key", "k1"); a.status != 200 {
			t.Fatalf("got %d %s", a.status, a.body)
		}
	}
	if n := h.fake.Count("lines"); n != 7 {
		t.Fatalf("%d rows are stored, want 7: the retry was counted", n)
	}
	h.refused(h.post("/v1/streams/lines:append", `{"line":"other"}`, "Idempotency-Key", "k1"), 400, dataflow.ReasonIdempotencyKeyReused, "")
	a := h.post("/v1/streams/lines:append", "{\"line\":\"x\"}\n{\"line\":5,\"typo\":1}")
	h.refused(a, 400, dataflow.ReasonRowInvalid, "rows[1].line")
	if !strings.Contains(a.body, "google.rpc.BadRequest") || !strings.Contains(a.body, `\"typo\"`) {
		t.Errorf("the violations are not listed: %s", a.body)
	}
	h.refused(h.post("/v1/streams/lines:append", ""), 400, dataflow.ReasonRequestInvalid, "at least one")
	h.refused(h.post("/v1/streams/nope:append", "{}"), 404, dataflow.ReasonStreamNotFound, "nope")
	h.refused(h.post("/v1/streams/..%2F..%2Fx:append", "{}"), 400, dataflow.ReasonNameInvalid, "")
	h.refused(h.post("/v1/streams/lines:append?stream=x", "{}"), 400, dataflow.ReasonRequestInvalid, "no parameter")
	if n := h.fake.Count("lines"); n != 7 {
		t.Fatalf("%d rows are stored: a refused append wrote some", n)
	}
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

func TestAnAppendWithoutRowsSaysWhatToSend(t *testing.T) {
	h := start(t)
	for _, body := range []string{"", " \n"} {
		h.refused(h.post("/v1/streams/lines/rows", body), 400, dataflow.ReasonRequestInvalid, "send a row as")
	}
}

func TestAnEnvelopeAroundRowsIsToldOfTheBodysForm(t *testing.T) {
	h := start(t)
	for _, body := range []string{`{"rows":[{"line":"a"}]}`, `{"row":{"line":"a"}}`} {
		h.refused(h.post("/v1/streams/lines/rows", body), 400, dataflow.ReasonRowInvalid, "without an envelope")
	}
}

func TestURLsThatAreNotUTF8AreRefused(t *testing.T) {
	h := start(t)
	for _, path := range []string{
		"/v1/pipelines/%ff", "/v1/pipelines/p/tables/t/rows/%ff", "/v1/pipelines/p/tables/t/rows:get?key=%ff", "/v1/streams/%c3",
		"/v1/pipelines/p/checkpoints?%ff=1",
	} {
		h.refused(h.do("GET", path, "", nil), 400, dataflow.ReasonRequestInvalid, "")
	}
}

func TestHealthIsAnsweredWithoutABody(t *testing.T) {
	h := start(t)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if r := h.do("HEAD", path, "", nil); r.status != 200 {
			t.Errorf("HEAD %s: %d", path, r.status)
		}
	}
}

func TestBodiesOfWrongTypeOrSizeAreRefused(t *testing.T) {
	h := start(t)
	for _, c := range []struct{ path, ct string }{
		{"/v1/query", "text/plain"}, {"/v1/query", "application/x-ndjson"}, {"/v1/query", "nonsense;;"}, {"/v1/query", "application/json; charset=latin1"},
		{"/v1/pipelines", "application/xml"}, {"/v1/streams/lines:append", "text/csv"}, {"/v1/streams/lines/rows", "application/vnd.apache.arrow.stream"},
	} {
		h.refused(h.do("POST", c.path, c.ct, strings.NewReader("{}")), 415, dataflow.ReasonRequestInvalid, "")
	}
	h.refused(h.post("/v1/query", "{}", "Content-Encoding", "gzip"), 415, dataflow.ReasonRequestInvalid, "Content-Encoding")
	h.refused(h.post("/v1/streams/lines:append", strings.Repeat(" ", wire.MaxJSONBytes+1)), 413, dataflow.ReasonTooLarge, "limit")
	h.refused(h.post("/v1/pipelines", `{"sql":"`+strings.Repeat("x", 8<<20)+`"}`), 413, dataflow.ReasonTooLarge, "limit")

	body := &endless{}
	r, err := http.NewRequestWithContext(t.Context(), "POST", h.url+"/v1/streams/lines:append", body)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := h.client.Do(r); err == nil { // the server may close before the client has read the answer
		if resp.StatusCode != 413 {
			t.Errorf("got %d", resp.StatusCode)
		}
		resp.Body.Close()
	}
	if n := body.read.Load(); n > 4*wire.MaxJSONBytes {
		t.Errorf("%d bytes were taken", n)
	}
	if a := h.post("/v1/streams/lines:append", `{"line":"still here"}`); a.status != 200 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
}

func TestLargestAppendFits(t *testing.T) {
	h := start(t)
	row := `{"line":"` + strings.Repeat("x", 1<<19) + `"}` + "\n"
	if a := h.post("/v1/streams/lines:append", strings.Repeat(row, 15)+strings.Repeat(" ", wire.MaxJSONBytes-15*len(row))); a.status != 200 {
		t.Fatalf("got %d %.300s", a.status, a.body)
	}
}

func TestStreamRowsAreLinesThatSayWhenTheyAreComplete(t *testing.T) {
	h := start(t)
	h.post("/v1/streams/lines:append", `[{"line":"a"},{"line":"b"},{"line":"c","n":9007199254740993}]`)
	a := h.get("/v1/streams/lines/rows")
	const want = `{"shard":0,"offset":0,"append_time":"1970-01-01T00:00:00.000001Z","row":{"line":"a","n":null}}
{"shard":1,"offset":0,"append_time":"1970-01-01T00:00:00.000001Z","row":{"line":"b","n":null}}
{"shard":2,"offset":0,"append_time":"1970-01-01T00:00:00.000001Z","row":{"line":"c","n":9007199254740993}}
{"rows":[],"end":true,"positions":{"lines":[1,1,1]}}`
	if a.status != 200 || a.header.Get("Content-Type") != "application/x-ndjson" || a.body != want {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	if a = h.get("/v1/streams/lines/rows?from=2:0&numbers=string&limit=5"); !strings.Contains(a.body, `"n":"9007199254740993"`) || strings.Contains(a.body, `"shard":0`) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	h.refused(h.get("/v1/streams/nope/rows"), 404, dataflow.ReasonStreamNotFound, "nope")
	h.refused(h.get("/v1/streams/lines/rows?from=x"), 400, dataflow.ReasonRequestInvalid, "from")
	h.refused(h.get("/v1/streams/lines/rows?follow=maybe"), 400, dataflow.ReasonRequestInvalid, "true or false")
	h.refused(h.get("/v1/streams/lines/rows?isolation=READ_COMMITTED"), 400, dataflow.ReasonRequestInvalid, "isolation")
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

func TestAWatchIsServerSentEvents(t *testing.T) {
	h := start(t)
	rows := batch.NewBatch(dataflow.Schema{{Name: "word", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}})
	rows.AppendRow(dataflow.Row{dataflow.Text("whale"), dataflow.BigInt(3)})
	h.fake.SetTable("p.counts", &apitest.Table{Rows: rows, KeyCols: 1})
	const path = "/v1/pipelines/p/tables/counts:watch"
	lines, header := h.watchLines(path, 14)
	if header.Get("Content-Type") != "text/event-stream" || header.Get("Cache-Control") != "no-cache" || header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("headers %v", header)
	}
	want := []string{
		"retry: 1000", "",
		"event: upsert", `data: {"op":"upsert","key":{"word":"whale"},"row":{"word":"whale","n":3},"checkpoint_id":42,"snapshot":true}`, "",
		"event: cut", "id: ", `data: {"op":"cut","snapshot":true,"cut":{"pipeline":"p",`, "",
		"event: delete", `data: {"op":"delete","key":{"word":"whale"},"checkpoint_id":43}`, "",
		"event: cut", "id: ",
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for i, l := range lines {
		if l != want[i] && (want[i] == "" || !strings.HasPrefix(l, want[i])) {
			t.Errorf("line %d is %s, want %s", i, l, want[i])
		}
	}
	token := strings.TrimPrefix(lines[6], "id: ")
	for _, resumed := range [][]string{{path, "Last-Event-ID", token}, {path + "?resume_token=" + url.QueryEscape(token)}} {
		if lines, _ := h.watchLines(resumed[0], 3, resumed[1:]...); !slices.Equal(lines, []string{"retry: 1000", "", "event: delete"}) {
			t.Errorf("resumed: %q", lines)
		}
	}
	h.refused(h.get("/v1/pipelines/p/tables/nope:watch"), 404, dataflow.ReasonTableNotFound, "nope")
	h.refused(h.get(path+"?resume_token=x"), 400, dataflow.ReasonTokenInvalid, "token")
	h.refused(h.get(path+"?changes_only=perhaps"), 400, dataflow.ReasonRequestInvalid, "true or false")
	h.refused(h.get(path+"?checkpoint_id=5"), 400, dataflow.ReasonRequestInvalid, "checkpoint_id")
	h.refused(h.get(path+"?max_wait=soon"), 400, dataflow.ReasonRequestInvalid, "max_wait")
	h.refused(h.get(path+"?max_staleness=-1s"), 400, dataflow.ReasonRequestInvalid, "max_staleness")
	h.refused(h.get(path+"?session_token=x"), 400, dataflow.ReasonTokenInvalid, "session token")
	h.refused(h.get(path+"?isolation=READ_UNCOMMITTED&resume_token="+url.QueryEscape(token)), 400, dataflow.ReasonRequestInvalid, "READ_COMMITTED")
}

func TestAQueryIsExplained(t *testing.T) {
	h := start(t)
	a := h.post("/v1/query", `{"sql":"SELECT 1","isolation":"READ_UNCOMMITTED","explain":true}`)
	const want = `"explanation":{"node":"n1","isolation":"UNCOMMITTED","why":"it was asked","shards":[{"shard":0,"node":"n1","source":"LIVE_HERE","why":"here"},{"shard":1,"node":"n2","source":"LIVE_REMOTE","why":"there"}]},"cut":{`
	if a.status != 200 || !strings.Contains(a.body, `"rows":[{"plan":"scan t"}]`) || !strings.Contains(a.body, want) {
		t.Errorf("got %d %s", a.status, a.body)
	}
	h.refused(h.post("/v1/query", `{"sql":"SELECT 1","explain":true,"page_token":"x"}`), 400, dataflow.ReasonRequestInvalid, "page_token")
	if a := h.post("/v1/query", `{"sql":"SELECT 1"}`); strings.Contains(a.body, "explanation") {
		t.Errorf("a query that is not explained: %s", a.body)
	}
}

func TestStalenessIsChecked(t *testing.T) {
	h := start(t)
	withCounts(h)
	if a := h.get(table + "?max_staleness=5s"); a.status != 200 {
		t.Errorf("got %d %s", a.status, a.body)
	}
	for query, part := range map[string]string{"max_staleness=soon": "length of time", "max_staleness=-1s": "negative", "max_staleness=1ms": "less than", "max_staleness=1s&checkpoint_id=5": "checkpoint_id"} {
		h.refused(h.get(table+"?"+query), 400, dataflow.ReasonRequestInvalid, part)
	}
}

func TestOptionsOfAStreamAreChanged(t *testing.T) {
	h := start(t)
	a := h.post("/v1/streams/lines:setOptions", `{"options":{"retention":"1 day"}}`)
	if a.status != 200 || !strings.Contains(a.body, `"retention":"1 day"`) {
		t.Errorf("got %d %s", a.status, a.body)
	}
	h.refused(h.post("/v1/streams/lines:setOptions", `{"options":{}}`), 400, dataflow.ReasonRequestInvalid, "options")
	h.refused(h.post("/v1/streams/lines:setOptions", `{"options":{"retention":"soon"}}`), 400, dataflow.ReasonOptionInvalid, "soon")
	h.refused(h.post("/v1/streams/nope:setOptions", `{"options":{"retention":"1 day"}}`), 404, dataflow.ReasonStreamNotFound, "nope")
}

func TestTheNodesOfTheGroupAreListed(t *testing.T) {
	h := start(t)
	a := h.get("/v1/cluster/nodes")
	if a.status != 200 || !strings.Contains(a.body, `{"node":"n1","state":"active","grpc_addr":"10.0.0.1:7711","http_addr":"10.0.0.1:7710"}`) {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

func TestFollowerThatGoesAwayEndsItsRead(t *testing.T) {
	h := start(t)
	h.post("/v1/streams/lines:append", `{"line":"a"}`)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", h.url+"/v1/streams/lines/rows?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"line":"a"`) {
		t.Fatalf("got %q, %v", line, err)
	}
	cancel() // goleak watches that nothing stays
	resp.Body.Close()
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
