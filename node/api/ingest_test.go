package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/api/apitest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestPlainAppendIsAcknowledgedWithAToken(t *testing.T) {
	h := start(t, nil)
	ctx := t.Context()
	a, err := h.ingest.Append(ctx, &weirv1.AppendRequest{Stream: "lines", Batch: lines("a", "b", "c", "d", "e")})
	if err != nil {
		t.Fatal(err)
	}
	if a.GetRows() != 5 || h.fake.Count("lines") != 5 {
		t.Fatalf("got %v with %d rows stored", a, h.fake.Count("lines"))
	}
	tok, err := dataflow.ParseToken(a.GetToken(), apitest.Group())
	if err != nil || tok.Positions[dataflow.StreamShard{Stream: 1, Shard: 0}] != 2 {
		t.Fatalf("got %v, %v", tok, err)
	}
	a, err = h.ingest.Append(ctx, &weirv1.AppendRequest{Stream: "lines", JsonRows: []byte(`{"line":"x","n":5}`), PreviousToken: a.GetToken()})
	if err != nil {
		t.Fatal(err)
	}
	next, err := dataflow.ParseToken(a.GetToken(), apitest.Group())
	if err != nil || !next.Positions.Covers(tok.Positions) || next.Positions[dataflow.StreamShard{Stream: 1, Shard: 0}] != 3 {
		t.Fatalf("got %v, %v: the token must cover the one before", next, err)
	}
	w, err := h.pipelines.WaitToken(ctx, &weirv1.WaitTokenRequest{Token: a.GetToken()})
	if err != nil || len(w.GetCuts()) != 1 {
		t.Fatalf("got %v, %v", w, err)
	}
}

func TestIdempotencyKeyIsAnsweredAsBefore(t *testing.T) {
	h := start(t, nil)
	r := &weirv1.AppendRequest{Stream: "lines", Batch: lines("a"), IdempotencyKey: "k"}
	for i, want := range []uint64{1, 0} {
		a, err := h.ingest.Append(t.Context(), r)
		if err != nil || a.GetRows() != want || a.GetDuplicates() != 1-want {
			t.Fatalf("call %d: got %v, %v", i, a, err)
		}
	}
	r.Batch = lines("b")
	_, err := h.ingest.Append(t.Context(), r)
	wantReason(t, err, dataflow.ReasonIdempotencyKeyReused, "")
}

func TestBadAppendsAreRefusedWholeAndTheServerGoesOn(t *testing.T) {
	h := start(t, nil)
	p := &weirv1.ProducerSession{Name: "p", Epoch: 1}
	rows := func(sh uint32, first uint64) *weirv1.ShardRows {
		return &weirv1.ShardRows{Shard: sh, FirstSeq: first, Batch: lines("a")}
	}
	half := slices.Repeat([]string{strings.Repeat("x", dataflow.MaxBatchBytes/16)}, 8) // of what one append may have, and a little
	for name, c := range map[string]struct {
		r      *weirv1.AppendRequest
		reason dataflow.Reason
		part   string
	}{
		"no stream":       {&weirv1.AppendRequest{Batch: lines("a")}, dataflow.ReasonRequestInvalid, "stream: is missing"},
		"stream's name":   {&weirv1.AppendRequest{Stream: "../../x", Batch: lines("a")}, dataflow.ReasonNameInvalid, "../../x"},
		"long name":       {&weirv1.AppendRequest{Stream: strings.Repeat("x", 10_000), Batch: lines("a")}, dataflow.ReasonNameInvalid, "stream"},
		"unknown stream":  {&weirv1.AppendRequest{Stream: "nope", Batch: lines("a")}, dataflow.ReasonStreamNotFound, "nope"},
		"no rows":         {&weirv1.AppendRequest{Stream: "lines"}, dataflow.ReasonRequestInvalid, "at least one"},
		"empty batch":     {&weirv1.AppendRequest{Stream: "lines", Batch: &weirv1.ColumnBatch{}}, dataflow.ReasonRequestInvalid, "at least one"},
		"two forms":       {&weirv1.AppendRequest{Stream: "lines", Batch: lines("a"), JsonRows: []byte("{}")}, dataflow.ReasonRequestInvalid, "more than one form"},
		"bad json":        {&weirv1.AppendRequest{Stream: "lines", JsonRows: []byte(`{"line":7}`)}, dataflow.ReasonRowInvalid, "rows[0].line"},
		"not null":        {&weirv1.AppendRequest{Stream: "lines", JsonRows: []byte(`{"n":7}`)}, dataflow.ReasonRowInvalid, "NOT NULL"},
		"long key":        {&weirv1.AppendRequest{Stream: "lines", Batch: lines("a"), IdempotencyKey: strings.Repeat("k", 129)}, dataflow.ReasonRequestInvalid, "129 bytes"},
		"bad token":       {&weirv1.AppendRequest{Stream: "lines", Batch: lines("a"), PreviousToken: "x"}, dataflow.ReasonTokenInvalid, ""},
		"foreign token":   {&weirv1.AppendRequest{Stream: "lines", Batch: lines("a"), PreviousToken: dataflow.Token{Group: dataflow.GroupID{9}}.String()}, dataflow.ReasonTokenForeign, ""},
		"no producer":     {&weirv1.AppendRequest{Stream: "lines", Shards: []*weirv1.ShardRows{rows(0, 1)}}, dataflow.ReasonRequestInvalid, "producer"},
		"no shards":       {&weirv1.AppendRequest{Stream: "lines", Producer: p}, dataflow.ReasonRequestInvalid, "shards"},
		"no name":         {&weirv1.AppendRequest{Stream: "lines", Producer: &weirv1.ProducerSession{Epoch: 1}, Shards: []*weirv1.ShardRows{rows(0, 1)}}, dataflow.ReasonRequestInvalid, "producer.name"},
		"no epoch":        {&weirv1.AppendRequest{Stream: "lines", Producer: &weirv1.ProducerSession{Name: "p"}, Shards: []*weirv1.ShardRows{rows(0, 1)}}, dataflow.ReasonRequestInvalid, "producer.epoch"},
		"shard 2^31":      {&weirv1.AppendRequest{Stream: "lines", Producer: p, Shards: []*weirv1.ShardRows{rows(1<<31, 1)}}, dataflow.ReasonRequestInvalid, "no shard 2147483648"},
		"shard twice":     {&weirv1.AppendRequest{Stream: "lines", Producer: p, Shards: []*weirv1.ShardRows{rows(0, 1), rows(0, 2)}}, dataflow.ReasonRequestInvalid, "twice"},
		"seq 0":           {&weirv1.AppendRequest{Stream: "lines", Producer: p, Shards: []*weirv1.ShardRows{rows(0, 0)}}, dataflow.ReasonRequestInvalid, "numbered from 1"},
		"seq wrap":        {&weirv1.AppendRequest{Stream: "lines", Producer: p, Shards: []*weirv1.ShardRows{rows(0, math.MaxUint64)}}, dataflow.ReasonRequestInvalid, "past the largest"},
		"not opened":      {&weirv1.AppendRequest{Stream: "lines", Producer: p, Shards: []*weirv1.ShardRows{rows(0, 1)}}, dataflow.ReasonUnknownProducer, "not been opened"},
		"key and numbers": {&weirv1.AppendRequest{Stream: "lines", Producer: p, Shards: []*weirv1.ShardRows{rows(0, 1)}, IdempotencyKey: "k"}, dataflow.ReasonRequestInvalid, "idempotency_key"},
		"shard's rows": {&weirv1.AppendRequest{Stream: "lines", Producer: p, Shards: []*weirv1.ShardRows{{Shard: 0, FirstSeq: 1, Batch: lines("a", "b\xff")}}},
			dataflow.ReasonRowInvalid, "shards[0].batch.rows[1].line"},
		"shards that are too large together": {&weirv1.AppendRequest{Stream: "lines", Producer: p, Shards: []*weirv1.ShardRows{
			{Shard: 0, FirstSeq: 1, Batch: lines(half...)}, {Shard: 1, FirstSeq: 1, Batch: lines(half...)}}}, dataflow.ReasonTooLarge, "shards: rows of more than 8388608"},
		"too many rows": {&weirv1.AppendRequest{Stream: "lines", Batch: &weirv1.ColumnBatch{Rows: dataflow.MaxBatchRows + 1}}, dataflow.ReasonTooLarge, "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.ingest.Append(t.Context(), c.r)
			wantReason(t, err, c.reason, c.part)
		})
	}
	if n := h.fake.Count("lines"); n != 0 {
		t.Fatalf("%d rows of refused appends were written", n)
	}
	if _, err := h.ingest.Append(t.Context(), &weirv1.AppendRequest{Stream: "lines", Batch: lines("a")}); err != nil {
		t.Fatalf("the server no longer takes rows: %v", err)
	}
}

func TestMessagesOverTheLimitAreRefused(t *testing.T) {
	h := start(t, nil)
	_, err := h.ingest.Append(t.Context(), &weirv1.AppendRequest{Stream: "lines", JsonRows: make([]byte, api.MaxMessageBytes)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("got %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", 1<<20))
	if _, err := h.ingest.ListStreams(ctx, &weirv1.ListStreamsRequest{}); err == nil {
		t.Fatal("a header of a megabyte was taken")
	}
	if _, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{}); err != nil {
		t.Fatalf("the server no longer serves: %v", err)
	}
}

func TestSealedStreamTakesNoRows(t *testing.T) {
	h := start(t, nil)
	if _, err := h.ingest.SealStream(t.Context(), &weirv1.SealStreamRequest{Stream: "lines"}); err != nil {
		t.Fatal(err)
	}
	_, err := h.ingest.Append(t.Context(), &weirv1.AppendRequest{Stream: "lines", Batch: lines("a")})
	wantReason(t, err, dataflow.ReasonStreamSealed, "lines")
}

func openProducer(t *testing.T, h *harness) *weirv1.OpenProducerResponse {
	t.Helper()
	o, err := h.ingest.OpenProducer(t.Context(), &weirv1.OpenProducerRequest{Stream: "lines", Producer: "p"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAppendStreamAcknowledgesInOrderWithGrowingTokens(t *testing.T) {
	h := start(t, nil)
	o := openProducer(t, h)
	call, err := h.ingest.AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const n = 300 // more than may be in flight at once
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			r := &weirv1.AppendRequest{Shards: []*weirv1.ShardRows{{Shard: uint32(i % 2), FirstSeq: uint64(i/2 + 1), Batch: lines(fmt.Sprint("row ", i))}}}
			if i == 0 {
				r.Stream, r.Producer = "lines", &weirv1.ProducerSession{Name: "p", Epoch: o.GetEpoch()}
			}
			if err := call.Send(&weirv1.AppendStreamRequest{Append: r}); err != nil {
				sent <- err
				return
			}
		}
		sent <- call.CloseSend()
	}()
	covered := make(dataflow.Positions)
	for i := range n {
		m, err := call.Recv()
		if err != nil {
			t.Fatal(err)
		}
		x := m.GetAppended().GetShards()[0]
		if x.GetShard() != uint32(i%2) || x.GetFirstOffset() != uint64(i/2) || x.GetLastSeq() != uint64(i/2+1) {
			t.Fatalf("answer %d is %v", i, x)
		}
		tok, err := dataflow.ParseToken(m.GetAppended().GetToken(), apitest.Group())
		if err != nil || !tok.Positions.Covers(covered) || covered.Covers(tok.Positions) {
			t.Fatalf("answer %d: token %v does not grow from %v, %v", i, tok.Positions, covered, err)
		}
		covered = tok.Positions
	}
	if _, err := call.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want the end", err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestAppendStreamEndsAtTheFirstErrorAfterAnsweringWhatWasBefore(t *testing.T) {
	h := start(t, nil)
	o := openProducer(t, h)
	call, err := h.ingest.AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []uint64{1, 2, 9, 10} { // 3 is missing
		r := &weirv1.AppendRequest{Stream: "lines", Producer: &weirv1.ProducerSession{Name: "p", Epoch: o.GetEpoch()},
			Shards: []*weirv1.ShardRows{{Shard: 0, FirstSeq: first, Batch: lines("a")}}}
		if err := call.Send(&weirv1.AppendStreamRequest{Append: r}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := call.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = call.Recv()
	wantReason(t, err, dataflow.ReasonOutOfOrder, "wants 3")
	if n := h.fake.Count("lines"); n != 2 {
		t.Fatalf("%d rows are stored, want 2", n)
	}
}

func TestAppendStreamSurvivesNonsense(t *testing.T) {
	h := start(t, nil)
	for name, m := range map[string]*weirv1.AppendStreamRequest{
		"no append": {}, "no stream": {Append: &weirv1.AppendRequest{Batch: lines("a")}},
		"no rows": {Append: &weirv1.AppendRequest{Stream: "lines"}},
	} {
		call, err := h.ingest.AppendStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := call.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := call.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: got %v", name, err)
		}
	}
	h.fake.Crash(true)
	call, err := h.ingest.AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "lines", Batch: lines("a")}}); err != nil {
		t.Fatal(err)
	}
	_, err = call.Recv()
	wantReason(t, err, dataflow.ReasonInternal, "")
	h.fake.Crash(false)

	// A sender that goes away without a word leaves nothing behind: goleak watches.
	ctx, cancel := context.WithCancel(t.Context())
	if call, err = h.ingest.AppendStream(ctx); err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "lines", Batch: lines("a")}}); err != nil {
		t.Fatal(err)
	}
	cancel()
}

func TestProducerGoesOnWhereItWas(t *testing.T) {
	h := start(t, nil)
	o := openProducer(t, h)
	if o.GetShards() != apitest.Shards || o.GetStream().GetName() != "lines" || len(o.GetLastSeqs()) != 0 {
		t.Fatalf("got %v", o)
	}
	send := func(epoch, first uint64, words ...string) (*weirv1.AppendResponse, error) {
		return h.ingest.Append(t.Context(), &weirv1.AppendRequest{Stream: "lines", Producer: &weirv1.ProducerSession{Name: "p", Epoch: epoch},
			Shards: []*weirv1.ShardRows{{Shard: 3, FirstSeq: first, Batch: lines(words...)}}})
	}
	if _, err := send(o.GetEpoch(), 1, "a", "b"); err != nil {
		t.Fatal(err)
	}
	again := openProducer(t, h)
	if len(again.GetLastSeqs()) != 1 || again.GetLastSeqs()[0].GetShard() != 3 || again.GetLastSeqs()[0].GetLastSeq() != 2 {
		t.Fatalf("got %v", again)
	}
	_, err := send(o.GetEpoch(), 3, "c")
	wantReason(t, err, dataflow.ReasonProducerFenced, "")
	a, err := send(again.GetEpoch(), 2, "b", "c")
	if err != nil || !a.GetShards()[0].GetOverlap() || a.GetShards()[0].GetLastSeq() != 2 || a.GetRows() != 0 {
		t.Fatalf("got %v, %v", a, err)
	}
	if a, err = send(again.GetEpoch(), 1, "a"); err != nil || !a.GetShards()[0].GetDuplicate() || a.GetDuplicates() != 1 {
		t.Fatalf("got %v, %v", a, err)
	}
}
