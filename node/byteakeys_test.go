package node_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
)

func TestAByteaKeyIsFoundInEachOfItsFormsAndRefusedInOthers(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 1, RESP: true})
	n.Deploy("p", `CREATE STREAM s (k BYTEA); CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM s GROUP BY k;`)
	n.WaitCommitted(n.Append("s", `{"k":"AP8="}`, `{"k":""}`))
	const rows = "/v1/pipelines/p/tables/v/rows"
	const stored = `{"k":"AP8=","n":1}`
	for _, body := range []string{`"AP8="`, `"\\x00ff"`, `"\\x00FF"`} {
		if status, _, got := n.HTTP("POST", rows+":batchGet", `{"keys":[[`+body+`]]}`, map[string]string{"Content-Type": "application/json"}); status != 200 || !strings.Contains(got, `"rows":[`+stored+`]`) {
			t.Errorf("key %s in a body: %d %s", body, status, got)
		}
	}
	if _, _, got := n.HTTP("POST", rows+":batchGet", `{"keys":[[""],["AAA="],[null]]}`, map[string]string{"Content-Type": "application/json"}); !strings.Contains(got, `"rows":[{"k":"","n":1},null,null]`) {
		t.Errorf("the empty key and two that no row has: %s", got)
	}
	for _, body := range []string{`"AP8"`, `"\\x0"`, `"\\000\\377"`, `"AP\n8="`, `"a b"`, `7`, `true`} {
		status, _, got := n.HTTP("POST", rows+":batchGet", `{"keys":[[`+body+`]]}`, map[string]string{"Content-Type": "application/json"})
		if status != 400 || reasonOf(got) != dataflow.ReasonKeyInvalid || !strings.Contains(got, "hexadecimal") {
			t.Errorf("key %s in a body: %d %s", body, status, got)
		}
	}

	paths := func(text string) []string {
		e := url.QueryEscape(text)
		return []string{rows + "/" + url.PathEscape(text), rows + ":get?key=" + e, rows + "?key=" + e, rows + "?from=" + e}
	}
	for _, path := range paths(`\x00ff`) {
		if status, _, got := n.HTTP("GET", path, "", nil); status != 200 || !strings.Contains(got, stored) {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
	for _, text := range []string{"AP8=", `\000\377`, `\x0`, "x00ff"} {
		for _, path := range paths(text) {
			if status, _, got := n.HTTP("GET", path, "", nil); status != 400 || reasonOf(got) != dataflow.ReasonKeyInvalid || !strings.Contains(got, `\\x00ff`) {
				t.Errorf("%s: %d %s", path, status, got)
			}
		}
	}

	rdb := redis.NewClient(&redis.Options{Addr: n.RESPAddr()})
	t.Cleanup(func() { _ = rdb.Close() })
	if got, err := rdb.Get(t.Context(), `p.v:\\x00ff`).Result(); got != "1" || err != nil {
		t.Errorf("over RESP: %q, %v", got, err)
	}
	if got, err := rdb.Get(t.Context(), "p.v:AP8=").Result(); err == nil || !strings.Contains(err.Error(), string(dataflow.ReasonKeyInvalid)) {
		t.Errorf("base64 over RESP: %q, %v", got, err)
	}
}
