package node_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirdb/weir/node/nodetest"
)

const redisProgram = `
CREATE STREAM s (k TEXT, b BIGINT, v BIGINT);
SET checkpoint.interval = 'off';
CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW wide AS SELECT k, b, count(*) AS n, max(v) AS m FROM s GROUP BY k, b HAVING count(*) < 100;
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM s;
`

// TestARedisClientReadsTables reads what a pipeline makes with a client library that knows nothing of Weir, in both versions
// of the protocol.
func TestARedisClientReadsTables(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 4, RESP: true})
	n.Deploy("p", redisProgram)
	for version := range 2 {
		rdb := redis.NewClient(&redis.Options{Addr: n.RESPAddr(), Protocol: 2 + version})
		t.Cleanup(func() { _ = rdb.Close() })
		t.Run(fmt.Sprintf("RESP%d", 2+version), func(t *testing.T) { readAsRedis(t, n, rdb, int64(version)) })
	}
}

func readAsRedis(t *testing.T, n *nodetest.Node, rdb *redis.Client, round int64) {
	ctx := t.Context()
	before, err := rdb.Get(ctx, "p.total:").Int64()
	if err != nil || before != 300*round {
		t.Fatal(before, err)
	}
	var rows []string
	for i := range 300 {
		rows = append(rows, fmt.Sprintf(`{"k":"key-%03d","b":%d,"v":%d}`, i%100, i%3, i))
	}
	token := n.Append("s", rows...)
	n.Checkpoint("p")
	if err := rdb.Do(ctx, "WEIR.WAIT", "COMMITTED", token, 60_000, "p").Err(); err != nil {
		t.Error(err)
	}
	each := strconv.FormatInt(3*(round+1), 10)
	if got, err := rdb.Get(ctx, "p.counts:key-007").Result(); got != each || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := rdb.Get(ctx, "p.counts:nope").Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := rdb.MGet(ctx, "p.counts:key-001", "p.counts:nope", "p.total:", "p.wide:key-001|1").Result(); err != nil ||
		fmt.Sprint(got) != fmt.Sprintf(`[%s <nil> %d {"k":"key-001","b":1,"n":%d,"m":1}]`, each, 300*(round+1)+round, round+1) { // with the live row of the round before
		t.Errorf("%v, %v", got, err)
	}
	if got, err := rdb.HGetAll(ctx, "p.wide:key-001|1").Result(); err != nil || !maps.Equal(got, map[string]string{"k": "key-001", "b": "1", "n": strconv.FormatInt(round+1, 10), "m": "1"}) {
		t.Errorf("%v, %v", got, err)
	}
	var keys []string
	for it := rdb.Scan(ctx, 0, "p.counts:key-0[12]*", 7).Iterator(); ; keys = append(keys, it.Val()) {
		if !it.Next(ctx) {
			if it.Err() != nil {
				t.Error(it.Err())
			}
			break
		}
	}
	if len(keys) != 20 || !slices.IsSorted(keys) || keys[0] != "p.counts:key-010" || keys[19] != "p.counts:key-029" {
		t.Errorf("%v", keys)
	}
	if err := rdb.Set(ctx, "p.counts:x", "1", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		t.Error(err)
	}
	if err := rdb.Get(ctx, "p.nope:x").Err(); err == nil || !strings.HasPrefix(err.Error(), "WEIR_TABLE_NOT_FOUND ") {
		t.Error(err)
	}
	// Live sees what no checkpoint has; a pipeline of commands is answered from one cut.
	n.WaitProcessed(n.Append("s", `{"k":"live","b":null,"v":1}`))
	pipe := rdb.Pipeline()
	committed, live, null := pipe.Get(ctx, "p.counts:live"), pipe.Get(ctx, "live:p.counts:live"), pipe.Get(ctx, `live:p.wide:live|\N`)
	_, _ = pipe.Exec(ctx) // its first error is that of committed
	if want := strconv.FormatInt(round+1, 10); live.Val() != want || live.Err() != nil {
		t.Errorf("live %q, %v", live.Val(), live.Err())
	}
	if want := fmt.Sprintf(`{"k":"live","b":null,"n":%d,"m":1}`, round+1); null.Val() != want {
		t.Errorf("%q, %v", null.Val(), null.Err())
	}
	if round == 0 && !errors.Is(committed.Err(), redis.Nil) {
		t.Errorf("committed %q, %v", committed.Val(), committed.Err())
	}
	if err := rdb.Info(ctx, "weir").Err(); err != nil {
		t.Error(err)
	}
}
