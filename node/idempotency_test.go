package node_test

import (
	"fmt"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// One shard's part of the second append is the same as before, and the other shard has never seen the key.
func TestAKeyThatComesAgainWithMoreRowsIsNoticed(t *testing.T) {
	t.Parallel()
	const shards = 4
	n := nodetest.Open(t, nodetest.Options{Shards: shards})
	n.Deploy("p", `CREATE STREAM s (k TEXT) PARTITION BY (k);
CREATE MATERIALIZED VIEW n AS SELECT k, count(*) AS n FROM s GROUP BY k;`)
	shardOf := func(k string) dataflow.ShardID {
		return dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(key.AppendValue(nil, dataflow.Text(k)))), shards)
	}
	first, other := "k0", ""
	for i := 1; other == ""; i++ {
		if k := fmt.Sprintf("k%d", i); shardOf(k) != shardOf(first) {
			other = k
		}
	}
	send := func(rows string) error {
		_, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(rows), IdempotencyKey: "once"})
		return err
	}
	one := fmt.Sprintf(`{"k":%q}`, first)
	for range 2 {
		if err := send(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := send(one + fmt.Sprintf(`{"k":%q}`, other)); nodetest.Reason(err) != dataflow.ReasonIdempotencyKeyReused {
		t.Errorf("the key with one row more: %v", err)
	}
	if err := send(one); err != nil {
		t.Errorf("the first rows again: %v", err)
	}
}
