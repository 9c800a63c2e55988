package gateway_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
)

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
