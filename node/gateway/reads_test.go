package gateway_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/node/api/apitest"
)

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

func TestURLsThatAreNotUTF8AreRefused(t *testing.T) {
	h := start(t)
	for _, path := range []string{
		"/v1/pipelines/%ff", "/v1/pipelines/p/tables/t/rows/%ff", "/v1/pipelines/p/tables/t/rows:get?key=%ff", "/v1/streams/%c3",
		"/v1/pipelines/p/checkpoints?%ff=1",
	} {
		h.refused(h.do("GET", path, "", nil), 400, dataflow.ReasonRequestInvalid, "")
	}
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
