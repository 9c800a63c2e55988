package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// places prints where rows went: shard:first-next, + for a duplicate.
func places(r *weirv1.AppendResponse) string {
	var out []string
	for _, s := range r.GetShards() {
		p := fmt.Sprintf("%d:%d-%d", s.GetShard(), s.GetFirstOffset(), s.GetNextOffset())
		if s.GetDuplicate() {
			p += "+"
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func numbers(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"x":%d}`+"\n", i)
	}
	return []byte(b.String())
}

func TestARetryWithItsIdempotencyKeyIsAnsweredAsBefore(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 4})
	n.Deploy("streams", "CREATE STREAM s (x BIGINT); CREATE STREAM k (x BIGINT) PARTITION BY (x);")
	for _, stream := range []string{"s", "k"} {
		rows := numbers(10_000) // enough for several shards either way
		send := func(key string, rows []byte) (*weirv1.AppendResponse, error) {
			return n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: stream, JsonRows: rows, IdempotencyKey: key})
		}
		first, err := send("k1", rows)
		if err != nil {
			t.Fatal(err)
		}
		if len(first.GetShards()) < 3 || first.GetRows() != 10_000 || first.GetDuplicates() != 0 {
			t.Errorf("%s: %s", stream, places(first))
		}
		n.Append(stream, `{"x":1}`) // others append in between
		again, err := send("k1", rows)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.ReplaceAll(places(again), "+", ""), places(first); got != want || again.GetDuplicates() != 10_000 || again.GetRows() != 0 {
			t.Errorf("%s: the retry went to %s, the first try to %s", stream, got, want)
		}
		if again.GetToken() != first.GetToken() {
			t.Errorf("%s: the retry has another token", stream)
		}
		n.Restart()
		if again, err = send("k1", rows); err != nil || again.GetDuplicates() != 10_000 {
			t.Errorf("%s: after a restart %v, %v", stream, again, err)
		}
		other := slices.Clone(rows)
		other[5] = '7'
		_, err = send("k1", other)
		refused(t, err, dataflow.ReasonIdempotencyKeyReused)
		if fresh, err := send("k2", rows); err != nil || fresh.GetRows() != 10_000 {
			t.Errorf("%s: another key: %v, %v", stream, fresh, err)
		}
	}
}

func TestRowsWithoutAPartitionAreSpreadInRuns(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 3})
	n.Deploy("streams", "CREATE STREAM s (x BIGINT);")
	perShard := make(map[uint32]uint64)
	for range 9 { // small appends take the shards in turn
		r, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "s", JsonRows: numbers(2)})
		if err != nil || len(r.GetShards()) != 1 {
			t.Fatalf("%v %v", r, err)
		}
		perShard[r.GetShards()[0].GetShard()] += r.GetRows()
	}
	for s := range uint32(3) {
		if perShard[s] != 6 {
			t.Errorf("shard %d got %d rows of 18", s, perShard[s])
		}
	}
	r, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "s", JsonRows: numbers(3 * 4096)})
	if err != nil || len(r.GetShards()) != 3 {
		t.Fatalf("%v %v", r, err)
	}
	for _, s := range r.GetShards() {
		if got := s.GetNextOffset() - s.GetFirstOffset(); got != 4096 {
			t.Errorf("shard %d got %d rows", s.GetShard(), got)
		}
	}
}

func TestRowsWithAPartitionGoWhereTheirHashSays(t *testing.T) {
	const shards = 4
	n := nodetest.Open(t, nodetest.Options{Shards: shards})
	n.Deploy("streams", "CREATE STREAM k (a TEXT, x BIGINT, b BIGINT) PARTITION BY (b, a);")
	want := make(map[string]dataflow.ShardID)
	var rows []string
	for i := range 100 {
		a, b := dataflow.Text(fmt.Sprint(i%10)), dataflow.BigInt(int64(i%7))
		text := fmt.Sprintf(`{"a":%q,"x":%d,"b":%d}`, a.Str, i, b.Int)
		if i%10 == 9 {
			a, text = dataflow.NullValue(dataflow.TypeText), fmt.Sprintf(`{"a":null,"x":%d,"b":%d}`, i, b.Int)
		}
		want[text] = dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(key.AppendRow(nil, dataflow.Row{b, a}))), shards)
		rows = append(rows, text)
	}
	n.Append("k", rows...)
	got, _, err := read(t, n, &weirv1.ReadStreamRequest{Stream: "k"})
	if err != nil || len(got) != len(rows) {
		t.Fatalf("%d rows, %v", len(got), err)
	}
	for _, r := range got {
		place, text, _ := strings.Cut(r, " ")
		if shard, _, _ := strings.Cut(place, ":"); shard != want[text].String() {
			t.Errorf("row %s is in shard %s, want %d", text, shard, want[text])
		}
	}
}

func TestNumberedRowsAreTakenOnceAndOnlyWhereTheyBelong(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	n.Deploy("streams", "CREATE STREAM s (x BIGINT); CREATE STREAM k (x BIGINT) PARTITION BY (x);")
	open := func(stream string) *weirv1.ProducerSession {
		t.Helper()
		r, err := n.Ingest().OpenProducer(t.Context(), &weirv1.OpenProducerRequest{Stream: stream, Producer: "me"})
		if err != nil {
			t.Fatal(err)
		}
		return &weirv1.ProducerSession{Name: "me", Epoch: r.GetEpoch()}
	}
	send := func(p *weirv1.ProducerSession, stream string, shard uint32, first uint64, values ...int64) (*weirv1.AppendResponse, error) {
		b := &weirv1.ColumnBatch{Rows: uint32(len(values)), Columns: []*weirv1.ColumnData{{Name: "x", Values: &weirv1.ColumnData_Bigints{Bigints: &weirv1.Int64Values{Values: values}}}}}
		return n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: stream, Producer: p, Shards: []*weirv1.ShardRows{{Shard: shard, FirstSeq: first, Batch: b}}})
	}
	p := open("s")
	if r, err := send(p, "s", 1, 1, 10, 11); err != nil || places(r) != "1:0-2" {
		t.Fatalf("%v %v", r, err)
	}
	if r, err := send(p, "s", 1, 1, 10, 11); err != nil || places(r) != "1:0-2+" || r.GetDuplicates() != 2 {
		t.Errorf("%v %v", r, err)
	}
	_, err := send(p, "s", 1, 4, 13)
	refused(t, err, dataflow.ReasonOutOfOrder, "3")
	_, err = send(p, "s", 7, 1, 10)
	refused(t, err, dataflow.ReasonRequestInvalid, "shard 7")
	next := open("s")
	_, err = send(p, "s", 1, 3, 12)
	refused(t, err, dataflow.ReasonProducerFenced)
	if r, err := send(next, "s", 1, 3, 12); err != nil || places(r) != "1:2-3" {
		t.Errorf("%v %v", r, err)
	}
	p = open("k")
	at := uint32(dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(key.AppendValue(nil, dataflow.BigInt(5)))), 2))
	_, err = send(p, "k", 1-at, 1, 5)
	refused(t, err, dataflow.ReasonRowInvalid, "PARTITION BY")
	if r, err := send(p, "k", at, 1, 5); err != nil || r.GetRows() != 1 {
		t.Errorf("%v %v", r, err)
	}
}

func TestASealedStreamTakesNoRows(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", words)
	n.Append("words", word("a"))
	for range 2 {
		if r, err := n.Ingest().SealStream(t.Context(), &weirv1.SealStreamRequest{Stream: "words"}); err != nil || !r.GetStream().GetSealed() {
			t.Fatalf("%v %v", r, err)
		}
	}
	_, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "words", JsonRows: []byte(word("b"))})
	refused(t, err, dataflow.ReasonStreamSealed)
	n.Checkpoint("wc")
	if row, _, _ := n.Get("wc", "counts", nodetest.Committed, "a"); row != `{"word":"a","n":1}` {
		t.Errorf("its rows count on: %s", row)
	}
}

func TestAStreamOverItsSizeIsTrimmedOrRefusesRows(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Tuning: nodetest.Restless()})
	n.Deploy("wc", `SET checkpoint.interval = '50 ms'; SET checkpoint.retained = '1';
CREATE STREAM words (word TEXT) WITH (max_bytes = '20 kB');
CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM words GROUP BY word;`)
	extent := func() *weirv1.DescribeStreamResponse {
		t.Helper()
		r, err := n.Ingest().DescribeStream(t.Context(), &weirv1.DescribeStreamRequest{Stream: "words"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	long := word(strings.Repeat("x", 500))
	// fill appends until the stream is over its size, or refuses.
	fill := func() (err error) {
		for range 200 {
			if _, err = n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "words", JsonRows: []byte(long)}); err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := n.Pipelines().StopPipeline(t.Context(), &weirv1.StopPipelineRequest{Pipeline: "wc"}); err != nil {
		t.Fatal(err)
	}
	err := fill()
	refused(t, err, dataflow.ReasonOverloaded, "wc", "STOPPED", "max_bytes", "weir pipeline resume wc", "ends by itself at 20")
	if e := nodetest.Refusal(err); e.RetryAfter == 0 {
		t.Error("no RetryInfo")
	}
	if r := extent(); r.GetBytes() < 20_000 || len(r.GetHolders()) != 1 || r.GetHolders()[0].GetBytes() == 0 {
		t.Errorf("%v", r)
	}
	if _, err := n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "wc"}); err != nil {
		t.Fatal(err)
	}
	// Nobody needs the rows now: they are trimmed.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(50 * time.Second); extent().GetBytes() > 20_000; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("it is not trimmed: %v", extent())
		}
	}
	if _, err := n.Ingest().Append(t.Context(), &weirv1.AppendRequest{Stream: "words", JsonRows: []byte(long)}); err != nil {
		t.Errorf("a trimmed stream refuses rows: %v", err)
	}
	_, _, err = read(t, n, &weirv1.ReadStreamRequest{Stream: "words", From: "0:0"})
	refused(t, err, dataflow.ReasonPositionsExpired)
	if rows, _, err := read(t, n, &weirv1.ReadStreamRequest{Stream: "words"}); err != nil || len(rows) == 0 {
		t.Errorf("%d rows from the earliest kept: %v", len(rows), err)
	}
}
