package gateway_test

import (
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

func TestHalfOfASurrogatePairIsRefusedWhereItStands(t *testing.T) {
	h := start(t)
	withCounts(h)
	for _, c := range []struct{ path, body, where string }{
		{table + ":batchGet", `{"keys":[["a"],["\ud800"]]}`, "keys[1][0]: half"},
		{table + ":batchGet", `{"keys":[["\ud83d\u0041"]]}`, "keys[0][0]: half"},
		{table + ":batchGet", `{"keys":[["\\\uDC00"]]}`, "keys[0][0]: half"},
		{"/v1/query", `{"sql":"SELECT '\udfff' FROM p.counts"}`, "sql: half"},
		{"/v1/pipelines", `{"pipeline":"q","sql":"\ud800"}`, "sql: half"},
		{"/v1/pipelines", `{"a":{"b\"":[{},"x",{"c":1,"d":"\ud800"}]}}`, `a.b"[2].d: half`},
		{"/v1/query", `{"a":{"\ud800":1}}`, "a: half"},
		{"/v1/query", `{"sql":"x","\ud800":1}`, "half"},
		{"/v1/query", strings.Repeat("[", 200) + `"\ud800"` + strings.Repeat("]", 200), strings.Repeat("[0]", 40) + "…: half"},
	} {
		h.refused(h.post(c.path, c.body), 400, dataflow.ReasonRequestInvalid, c.where)
	}
	for _, body := range []string{`{"sql":"\ud800"`, `{"sql":"\ud800`, `{"sql":"\ud800\`, `]"\ud800"`} {
		h.refused(h.post("/v1/query", body), 400, dataflow.ReasonRequestInvalid, "the body is not the JSON of this request")
	}
	for _, body := range []string{`{"keys":[["\ud83d\ude00"]]}`, `{"keys":[["\\ud800"]]}`} {
		if a := h.post(table+":batchGet", body); a.status != 200 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

func TestWhatDoesNotParseIsSaidInOwnWords(t *testing.T) {
	h := start(t)
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/v1/pipelines/p/checkpoints/abc", "", `checkpoint_id: "abc" is not a whole number in its range`},
		{"POST", "/v1/pipelines", `{"x":1}`, `line 1, column 2: unknown field "x"`},
		{"POST", "/v1/tokens:wait", `{"token":"x","max_wait":"abc"}`, `"abc" is not a length of time such as "10s"`},
	} {
		a := h.do(c.method, c.path, "application/json", strings.NewReader(c.body))
		h.refused(a, 400, dataflow.ReasonRequestInvalid, c.want)
	}
}
