package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestAStreamIsReadFromWhereItIsAsked(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	n.Deploy("streams", "CREATE STREAM words (word TEXT);")
	n.Append("words", word("a"), word("b"), word("c")) // shard 0: appends take turns
	n.Append("words", word("d"), word("e"))            // shard 1
	n.Append("words", word("f"))                       // shard 0
	const all = `0:0 {"word":"a"} 0:1 {"word":"b"} 0:2 {"word":"c"} 0:3 {"word":"f"} 1:0 {"word":"d"} 1:1 {"word":"e"}`
	for _, c := range []struct {
		from  string
		limit uint64
		want  string
		end   string
	}{
		{"", 0, all, "map[0:4 1:2]"},
		{"earliest", 100, all, "map[0:4 1:2]"},
		{"earliest", 2, `0:0 {"word":"a"} 0:1 {"word":"b"}`, "map[0:2 1:0]"},
		{"earliest", 5, `0:0 {"word":"a"} 0:1 {"word":"b"} 0:2 {"word":"c"} 0:3 {"word":"f"} 1:0 {"word":"d"}`, "map[0:4 1:1]"},
		{"latest", 0, "", "map[0:4 1:2]"},
		{"0:1", 0, `0:1 {"word":"b"} 0:2 {"word":"c"} 0:3 {"word":"f"}`, "map[0:4]"}, // within an append
		{"0:2,1:1", 0, `0:2 {"word":"c"} 0:3 {"word":"f"} 1:1 {"word":"e"}`, "map[0:4 1:2]"},
		{"0:1", 1, `0:1 {"word":"b"}`, "map[0:2]"},
		{"1:2", 0, "", "map[1:2]"},
	} {
		rows, positions, err := read(t, n, &weirv1.ReadStreamRequest{Stream: "words", From: c.from, Limit: c.limit})
		if err != nil || strings.Join(rows, " ") != c.want || fmt.Sprint(positions) != c.end {
			t.Errorf("from %q, limit %d: %v\ngot  %s, %v\nwant %s, %s", c.from, c.limit, err, strings.Join(rows, " "), positions, c.want, c.end)
		}
	}
	for from, want := range map[string]dataflow.Reason{"0:5": dataflow.ReasonRequestInvalid, "9": dataflow.ReasonRequestInvalid, "0:1,0:2": dataflow.ReasonRequestInvalid} {
		_, _, err := read(t, n, &weirv1.ReadStreamRequest{Stream: "words", From: from})
		refused(t, err, want)
	}
	_, _, err := read(t, n, &weirv1.ReadStreamRequest{Stream: "nope"})
	refused(t, err, dataflow.ReasonStreamNotFound)
}

func TestAReaderThatFollowsSeesRowsAsTheyCome(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	n.Deploy("streams", "CREATE STREAM words (word TEXT);")
	n.Append("words", word("before"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := func(r *weirv1.ReadStreamRequest) weirv1.IngestService_ReadStreamClient {
		t.Helper()
		r.Stream, r.Follow = "words", true
		call, err := n.Ingest().ReadStream(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return call
	}
	next := func(call weirv1.IngestService_ReadStreamClient) string {
		t.Helper()
		m, err := call.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return string(m.GetRows()[0].GetRow())
	}
	all := follow(&weirv1.ReadStreamRequest{})
	if got := next(all); got != word("before") {
		t.Errorf("first %s", got)
	}
	limited := follow(&weirv1.ReadStreamRequest{Limit: 3})
	next(limited)
	for i := range 2 {
		n.Append("words", word(fmt.Sprint(i)))
		for _, call := range []weirv1.IngestService_ReadStreamClient{all, limited} {
			if got := next(call); got != word(fmt.Sprint(i)) {
				t.Errorf("row %d is %s", i, got)
			}
		}
	}
	if m, err := limited.Recv(); err != nil || !m.GetEnd() {
		t.Errorf("a reader with a limit goes on: %v %v", m, err)
	}
	gone := follow(&weirv1.ReadStreamRequest{})
	next(gone)
	cancel()
	for {
		if _, err := gone.Recv(); err != nil {
			if status.Code(err) != codes.Canceled {
				t.Error(err)
			}
			break
		}
	}
}

func TestAReaderThatFollowsEndsWithItsStream(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	n.Deploy("streams", "CREATE STREAM empty (x BIGINT); CREATE STREAM words (word TEXT);")
	n.Append("words", word("a"))
	for _, stream := range []string{"empty", "words"} {
		call, err := n.Ingest().ReadStream(t.Context(), &weirv1.ReadStreamRequest{Stream: stream, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if stream == "words" {
			if _, err := call.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.Ingest().DeleteStream(t.Context(), &weirv1.DeleteStreamRequest{Stream: stream}); err != nil {
			t.Fatal(err)
		}
		_, err = call.Recv()
		refused(t, err, dataflow.ReasonStreamNotFound, stream)
	}
}
