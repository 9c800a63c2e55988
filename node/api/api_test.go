package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/api/apitest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type harness struct {
	fake      *apitest.Fake
	conn      *grpc.ClientConn
	metrics   *prometheus.Registry
	ingest    weirv1.IngestServiceClient
	queries   weirv1.QueryServiceClient
	pipelines weirv1.PipelineServiceClient
}

// start serves a fake node over an in-memory connection until the test ends.
func start(t *testing.T, change func(*api.Config)) *harness {
	t.Helper()
	h := &harness{fake: apitest.New(), metrics: prometheus.NewRegistry()}
	cfg := api.Config{Group: apitest.Group(), Metrics: h.metrics}
	if change != nil {
		change(&cfg)
	}
	s, err := api.New(cfg, h.fake.Backends())
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	h.conn, err = grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.conn.Close(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Stop(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	h.ingest, h.queries, h.pipelines = weirv1.NewIngestServiceClient(h.conn), weirv1.NewQueryServiceClient(h.conn), weirv1.NewPipelineServiceClient(h.conn)
	return h
}

// reasonOf returns the reason and the cut of an RPC's error.
func reasonOf(t *testing.T, err error) (*dataflow.Error, *weirv1.Cut) {
	t.Helper()
	st, ok := status.FromError(err)
	if !ok || err == nil {
		t.Fatalf("got %v, want a status", err)
	}
	e, cut, ok := wire.ErrorOf(st.Proto())
	if !ok {
		t.Fatalf("got %v, want an error with a reason", err)
	}
	return e, cut
}

func wantReason(t *testing.T, err error, r dataflow.Reason, part string) {
	t.Helper()
	if e, _ := reasonOf(t, err); e.Reason != r || !strings.Contains(e.Error(), part) {
		t.Errorf("got %s: %s; want %s with %q", e.Reason, e.Error(), r, part)
	}
}

// lines returns rows of the stream lines.
func lines(words ...string) *weirv1.ColumnBatch {
	t := &weirv1.TextValues{}
	for _, w := range words {
		t.Data = append(t.Data, w...)
		t.Lengths = append(t.Lengths, uint32(len(w)))
	}
	return &weirv1.ColumnBatch{Rows: uint32(len(words)), Columns: []*weirv1.ColumnData{{Name: "line", Values: &weirv1.ColumnData_Texts{Texts: t}}}}
}

func counts() *apitest.Table {
	b := batch.NewBatch(dataflow.Schema{{Name: "word", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}})
	b.AppendRow(dataflow.Row{dataflow.Text("ahab"), dataflow.BigInt(math.MaxInt64)})
	b.AppendRow(dataflow.Row{dataflow.Text("whale"), dataflow.BigInt(1226)})
	b.AppendRow(dataflow.Row{dataflow.NullValue(dataflow.TypeText), dataflow.BigInt(3)})
	return &apitest.Table{Rows: b, KeyCols: 1}
}

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

func TestReadStreamShowsRowsAndSaysWhenItIsComplete(t *testing.T) {
	h := start(t, nil)
	if _, err := h.ingest.Append(t.Context(), &weirv1.AppendRequest{Stream: "lines", Batch: lines("a", "b", "c", "d", "e")}); err != nil {
		t.Fatal(err)
	}
	read := func(r *weirv1.ReadStreamRequest) (rows []string, end bool, err error) {
		call, err := h.ingest.ReadStream(t.Context(), r)
		if err != nil {
			return nil, false, err
		}
		for {
			m, err := call.Recv()
			if errors.Is(err, io.EOF) {
				return rows, end, nil
			}
			if err != nil {
				return rows, end, err
			}
			for _, x := range m.GetRows() {
				rows = append(rows, fmt.Sprintf("%d:%d %s", x.GetShard(), x.GetOffset(), x.GetRow()))
			}
			end = m.GetEnd()
		}
	}
	rows, end, err := read(&weirv1.ReadStreamRequest{Stream: "lines"})
	if err != nil || !end || len(rows) != 5 || rows[0] != `0:0 {"line":"a","n":null}` {
		t.Fatalf("got %v, %v, %v", rows, end, err)
	}
	if rows, _, err = read(&weirv1.ReadStreamRequest{Stream: "lines", From: "0:1,2:0"}); err != nil || strings.Join(rows, " ") != `0:1 {"line":"e","n":null} 2:0 {"line":"c","n":null}` {
		t.Fatalf("got %v, %v", rows, err)
	}
	if rows, end, err = read(&weirv1.ReadStreamRequest{Stream: "lines", From: "latest"}); err != nil || !end || len(rows) != 0 {
		t.Fatalf("got %v, %v", rows, err)
	}
	for _, from := range []string{"x", "1", "1:", ":1", "-1:0", "0:-1", "5000:0", "0:1,0:2", "99999999999:1", strings.Repeat("0:1,", 1000)} {
		_, _, err := read(&weirv1.ReadStreamRequest{Stream: "lines", From: from})
		wantReason(t, err, dataflow.ReasonRequestInvalid, "from")
	}
}

func TestAnswersCarryTheirCut(t *testing.T) {
	h := start(t, nil)
	h.fake.SetTable("p.counts", counts())
	key := wire.Key(dataflow.Row{{Type: dataflow.TypeUnknown, Str: "whale"}})
	g, err := h.queries.Get(t.Context(), &weirv1.GetRequest{Pipeline: "p", Table: "counts", Key: key})
	if err != nil || string(g.GetRow()) != `{"word":"whale","n":1226}` || g.GetCut().GetCheckpointId() != 42 || g.GetCut().GetSpeculative() ||
		g.GetCut().GetPositions()[0].GetStream() != "lines" {
		t.Fatalf("got %v, %v", g, err)
	}
	g, err = h.queries.Get(t.Context(), &weirv1.GetRequest{Pipeline: "p", Table: "counts", Key: key, Isolation: weirv1.Read_READ_UNCOMMITTED,
		SessionToken: g.GetCut().GetToken(), Numbers: weirv1.Numbers_NUMBERS_STRING})
	if err != nil || !g.GetCut().GetSpeculative() || string(g.GetRow()) != `{"word":"whale","n":"1226"}` {
		t.Fatalf("got %v, %v", g, err)
	}
	_, err = h.queries.Get(t.Context(), &weirv1.GetRequest{Pipeline: "p", Table: "counts", Key: wire.Key(dataflow.Row{dataflow.Text("no")})})
	if e, cut := reasonOf(t, err); e.Reason != dataflow.ReasonRowNotFound || cut.GetCheckpointId() != 42 || status.Code(err) != codes.NotFound {
		t.Fatalf("got %v with cut %v", err, cut)
	}
	b, err := h.queries.BatchGet(t.Context(), &weirv1.BatchGetRequest{Pipeline: "p", Table: "counts", Keys: []*weirv1.Key{
		wire.Key(dataflow.Row{dataflow.NullValue(dataflow.TypeUnknown)}), wire.Key(dataflow.Row{dataflow.Text("no")}), key, key}})
	if err != nil || len(b.GetRows()) != 4 || string(b.GetRows()[0]) != `{"word":null,"n":3}` || len(b.GetRows()[1]) != 0 || len(b.GetRows()[3]) == 0 {
		t.Fatalf("got %v, %v", b, err)
	}
	if b, err = h.queries.BatchGet(t.Context(), &weirv1.BatchGetRequest{Pipeline: "p", Table: "counts"}); err != nil || len(b.GetRows()) != 0 || b.GetCut() == nil {
		t.Fatalf("no keys: got %v, %v", b, err)
	}
	s, err := h.queries.Scan(t.Context(), &weirv1.ScanRequest{Pipeline: "p", Table: "counts", Limit: 2})
	if err != nil || len(s.GetRows()) != 2 || s.GetNextPageToken() == "" {
		t.Fatalf("got %v, %v", s, err)
	}
	if s, err = h.queries.Scan(t.Context(), &weirv1.ScanRequest{Pipeline: "p", Table: "counts", Limit: math.MaxInt32, PageToken: s.GetNextPageToken()}); err != nil || len(s.GetRows()) != 1 || s.GetNextPageToken() != "" {
		t.Fatalf("got %v, %v", s, err)
	}
	q, err := h.queries.Query(t.Context(), &weirv1.QueryRequest{Sql: "SELECT * FROM p.counts"})
	if err != nil || len(q.GetRows()) != 3 || len(q.GetColumns()) != 2 || q.GetCut() == nil {
		t.Fatalf("got %v, %v", q, err)
	}
}

func TestBadReadsAreRefused(t *testing.T) {
	h := start(t, nil)
	h.fake.SetTable("p.counts", counts())
	id := uint64(7)
	get := func(change func(*weirv1.GetRequest)) error {
		r := &weirv1.GetRequest{Pipeline: "p", Table: "counts", Key: wire.Key(dataflow.Row{dataflow.Text("whale")})}
		change(r)
		_, err := h.queries.Get(t.Context(), r)
		return err
	}
	for name, c := range map[string]struct {
		change func(*weirv1.GetRequest)
		reason dataflow.Reason
	}{
		"no pipeline":     {func(r *weirv1.GetRequest) { r.Pipeline = "" }, dataflow.ReasonRequestInvalid},
		"emoji":           {func(r *weirv1.GetRequest) { r.Pipeline = "🐋" }, dataflow.ReasonNameInvalid},
		"no table":        {func(r *weirv1.GetRequest) { r.Table = "nope" }, dataflow.ReasonTableNotFound},
		"isolation":       {func(r *weirv1.GetRequest) { r.Isolation = 9 }, dataflow.ReasonRequestInvalid},
		"numbers":         {func(r *weirv1.GetRequest) { r.Numbers = 9 }, dataflow.ReasonRequestInvalid},
		"token":           {func(r *weirv1.GetRequest) { r.MinToken = "nonsense" }, dataflow.ReasonTokenInvalid},
		"foreign":         {func(r *weirv1.GetRequest) { r.MinToken = dataflow.Token{}.String() }, dataflow.ReasonTokenForeign},
		"session":         {func(r *weirv1.GetRequest) { r.SessionToken = dataflow.Token{Group: apitest.Group()}.String() }, dataflow.ReasonTokenInvalid},
		"foreign session": {func(r *weirv1.GetRequest) { r.SessionToken = dataflow.SessionToken{}.String() }, dataflow.ReasonTokenForeign},
		"wait":            {func(r *weirv1.GetRequest) { r.MaxWait = durationpb.New(-time.Second) }, dataflow.ReasonRequestInvalid},
		"wild wait":       {func(r *weirv1.GetRequest) { r.MaxWait = &durationpb.Duration{Seconds: math.MaxInt64} }, dataflow.ReasonRequestInvalid},
		"live checkpoint": {func(r *weirv1.GetRequest) { r.CheckpointId, r.Isolation = &id, weirv1.Read_READ_UNCOMMITTED }, dataflow.ReasonRequestInvalid},
		"no key":          {func(r *weirv1.GetRequest) { r.Key = nil }, dataflow.ReasonKeyInvalid},
		"long key": {func(r *weirv1.GetRequest) {
			r.Key = wire.Key(dataflow.Row{dataflow.Text(strings.Repeat("x", dataflow.MaxKeyBytes))})
		}, dataflow.ReasonTooLarge},
		"numeric key": {func(r *weirv1.GetRequest) {
			r.Key = &weirv1.Key{Values: []*weirv1.Value{{Kind: &weirv1.Value_Numeric{Numeric: "1e"}}}}
		}, dataflow.ReasonKeyInvalid},
	} {
		t.Run(name, func(t *testing.T) { wantReason(t, get(c.change), c.reason, "") })
	}
	_, err := h.queries.BatchGet(t.Context(), &weirv1.BatchGetRequest{Pipeline: "p", Table: "counts", Keys: make([]*weirv1.Key, dataflow.MaxBatchGetKeys+1)})
	wantReason(t, err, dataflow.ReasonTooLarge, "10001 keys")
	_, err = h.queries.Scan(t.Context(), &weirv1.ScanRequest{Pipeline: "p", Table: "counts", Limit: -1})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "limit")
	_, err = h.queries.Query(t.Context(), &weirv1.QueryRequest{})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "sql")
	_, err = h.queries.Query(t.Context(), &weirv1.QueryRequest{Sql: strings.Repeat("(", dataflow.MaxSQLBytes+1)})
	wantReason(t, err, dataflow.ReasonTooLarge, "sql")
}

func TestDeployIsHandedOnAsAsked(t *testing.T) {
	h := start(t, nil)
	tok := dataflow.Token{Group: apitest.Group(), Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 5}}
	r := &weirv1.DeployPipelineRequest{Pipeline: "p", Sql: "CREATE …", Options: map[string]string{"b": "2", "a": "1"}, Start: tok.String()}
	d, err := h.pipelines.DeployPipeline(t.Context(), r)
	if err != nil || d.GetOutcome() != weirv1.DeployOutcome_DEPLOY_OUTCOME_CREATED || d.GetPipeline().GetCut().GetCheckpointId() != 42 {
		t.Fatalf("got %v, %v", d, err)
	}
	got := h.fake.Deploys()[0]
	if len(got.Options) != 2 || got.Options[0].Name != "a" || got.Start.Kind != api.StartToken || got.Start.Positions[dataflow.StreamShard{Stream: 1}] != 5 {
		t.Fatalf("got %+v", got)
	}
	if d, err = h.pipelines.DeployPipeline(t.Context(), r); err != nil || d.GetOutcome() != weirv1.DeployOutcome_DEPLOY_OUTCOME_UNCHANGED {
		t.Fatalf("got %v, %v", d, err)
	}
	if st := d.GetStreams(); len(st) != 1 || !st[0].GetRead() || st[0].RowsToRead != nil {
		t.Errorf("an unchanged pipeline has rows to read: %v", st)
	}
	r.Sql = "other"
	_, err = h.pipelines.DeployPipeline(t.Context(), r)
	wantReason(t, err, dataflow.ReasonPipelineExists, "")
	for start, want := range map[string]api.StartKind{"": api.StartEarliest, "latest": api.StartLatest, "2026-11-29T12:00:00Z": api.StartTime} {
		name := fmt.Sprint("s", len(h.fake.Deploys()))
		if _, err := h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: name, Sql: "x", Start: start}); err != nil {
			t.Fatal(err)
		}
		if ds := h.fake.Deploys(); ds[len(ds)-1].Start.Kind != want {
			t.Errorf("%q: got %v", start, ds[len(ds)-1].Start)
		}
	}
	_, err = h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: "word-count", Sql: "x"})
	wantReason(t, err, dataflow.ReasonNameInvalid, "word-count")
	_, err = h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: "q", Sql: "x", Start: "noon"})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "start")
	_, err = h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: "q", Sql: "x", Start: dataflow.Token{}.String()})
	wantReason(t, err, dataflow.ReasonTokenForeign, "")
}

func TestPipelinesAreListedPageByPage(t *testing.T) {
	h := start(t, nil)
	for _, n := range []string{"c", "a", "b"} {
		if _, err := h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: n, Sql: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	r := &weirv1.ListPipelinesRequest{PageSize: 2}
	for {
		m, err := h.pipelines.ListPipelines(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.GetPipelines() {
			names = append(names, p.GetName())
		}
		if r.PageToken = m.GetNextPageToken(); r.PageToken == "" {
			break
		}
	}
	if strings.Join(names, "") != "abc" {
		t.Fatalf("got %v", names)
	}
	_, err := h.pipelines.ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{PageSize: -1})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "page_")
	m, err := h.pipelines.ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{PageSize: 1})
	if err != nil || m.GetNextPageToken() == "" {
		t.Fatalf("got %v, %v", m, err)
	}
	for _, token := range []string{"!", "abc", "YWJj", m.GetNextPageToken() + "A", m.GetNextPageToken()[1:]} {
		_, err := h.pipelines.ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{PageToken: token})
		wantReason(t, err, dataflow.ReasonTokenInvalid, "page_token")
	}
	_, err = h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{PageToken: m.GetNextPageToken()})
	wantReason(t, err, dataflow.ReasonTokenInvalid, "another list")
}

func TestFaultInjectionIsRefusedUnlessAllowed(t *testing.T) {
	h := start(t, nil)
	_, err := h.pipelines.FailPipeline(t.Context(), &weirv1.FailPipelineRequest{Pipeline: "p"})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "--allow-fault-injection")
	h = start(t, func(c *api.Config) { c.FaultInjection = true })
	_, err = h.pipelines.FailPipeline(t.Context(), &weirv1.FailPipelineRequest{Pipeline: "p"})
	wantReason(t, err, dataflow.ReasonPipelineNotFound, "")
}

func TestCheckpointsAndLeases(t *testing.T) {
	h := start(t, nil)
	if _, err := h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: "p", Sql: "x"}); err != nil {
		t.Fatal(err)
	}
	c, err := h.pipelines.TriggerCheckpoint(t.Context(), &weirv1.TriggerCheckpointRequest{Pipeline: "p", Wait: true})
	if err != nil || c.GetCheckpoint().GetId() != 42 || c.GetCheckpoint().GetShards()[0].GetDigest() != "8000000000000000" {
		t.Fatalf("got %v, %v", c, err)
	}
	l, err := h.pipelines.LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "p"})
	if err != nil || l.GetLeaseId() == "" || l.GetExpiresAt().AsTime().Unix() != 60 {
		t.Fatalf("got %v, %v", l, err)
	}
	if _, err := h.pipelines.ReleaseLease(t.Context(), &weirv1.ReleaseLeaseRequest{Pipeline: "p", LeaseId: l.GetLeaseId()}); err != nil {
		t.Fatal(err)
	}
	if _, err = h.pipelines.LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "p", Ttl: durationpb.New(0)}); err != nil {
		t.Errorf("0 is not the default: %v", err)
	}
	for _, ttl := range []time.Duration{-1, 1, 999, 2 * time.Hour} {
		_, err = h.pipelines.LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "p", Ttl: durationpb.New(ttl)})
		wantReason(t, err, dataflow.ReasonRequestInvalid, "is not between 1µs and 1h0m0s; 0 is 1m0s")
	}
	_, err = h.pipelines.LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "p", Ttl: durationpb.New(2 * time.Hour)})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "ttl")
	_, err = h.pipelines.GetCheckpoint(t.Context(), &weirv1.GetCheckpointRequest{Pipeline: "p", CheckpointId: 1})
	wantReason(t, err, dataflow.ReasonCheckpointNotFound, "")
}

func TestWaitingForATokenEndsInTime(t *testing.T) {
	h := start(t, nil)
	tok := dataflow.Token{Group: apitest.Group(), Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 99}}.String()
	_, err := h.pipelines.WaitToken(t.Context(), &weirv1.WaitTokenRequest{Token: tok, MaxWait: durationpb.New(time.Millisecond)})
	wantReason(t, err, dataflow.ReasonTokenNotReached, "")
	if status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("got %v", err)
	}
	_, err = h.pipelines.WaitToken(t.Context(), &weirv1.WaitTokenRequest{Token: tok, WaitFor: 9})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "wait_for")
}

func TestCallsWithoutDeadlineGetOne(t *testing.T) {
	h := start(t, func(c *api.Config) { c.LongDeadline = 10 * time.Millisecond })
	tok := dataflow.Token{Group: apitest.Group(), Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 99}}.String()
	_, err := h.pipelines.WaitToken(t.Context(), &weirv1.WaitTokenRequest{Token: tok})
	wantReason(t, err, dataflow.ReasonTokenNotReached, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := h.ingest.ListStreams(ctx, &weirv1.ListStreamsRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("got %v", err)
	}
}

func TestPanicCostsOneRequest(t *testing.T) {
	h := start(t, nil)
	h.fake.Crash(true)
	_, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{})
	wantReason(t, err, dataflow.ReasonInternal, "")
	h.fake.Crash(false)
	if _, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{}); err != nil {
		t.Fatal(err)
	}
	mfs, err := h.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, mf := range mfs {
		found = found || mf.GetName() == "weir_rpc_panics_total" && mf.GetMetric()[0].GetCounter().GetValue() == 1
	}
	if !found {
		t.Error("the panic was not counted")
	}
}

func TestErrorsOfTheNodeLeaveWithTheirReason(t *testing.T) {
	h := start(t, nil)
	for _, r := range dataflow.Reasons() {
		h.fake.Fail(fmt.Errorf("somewhere inside: %w", dataflow.Errorf(r.Reason, "because").WithRetry(time.Second)))
		_, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{})
		if e, _ := reasonOf(t, err); e.Reason != r.Reason || e.Message != "because" || e.RetryAfter != time.Second {
			t.Errorf("%s: got %+v", r.Reason, e)
		}
	}
	h.fake.Fail(errors.New("open /secret: denied"))
	_, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{})
	if e, _ := reasonOf(t, err); e.Reason != dataflow.ReasonInternal || strings.Contains(e.Message, "secret") {
		t.Errorf("got %+v", e)
	}
}

func TestHealthFollowsReadiness(t *testing.T) {
	h := start(t, nil)
	c := healthpb.NewHealthClient(h.conn)
	check := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		m, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return m.GetStatus()
	}
	if check("") != healthpb.HealthCheckResponse_SERVING || check("weir.v1.QueryService") != healthpb.HealthCheckResponse_SERVING {
		t.Fatal("not serving")
	}
	h.fake.SetReady(errors.New("no committed cut"))
	if check("") != healthpb.HealthCheckResponse_SERVING || check("weir.v1.QueryService") != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatal("readiness is not shown")
	}
	if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nope"}); status.Code(err) != codes.NotFound {
		t.Fatalf("got %v", err)
	}
	w, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "weir.v1.QueryService"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := w.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("got %v, %v", m, err)
	}
	h.fake.SetReady(nil)
	if m, err := w.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("got %v, %v", m, err)
	}
}

func TestReflectionIsOffByDefault(t *testing.T) {
	for _, on := range []bool{false, true} {
		h := start(t, func(c *api.Config) { c.Reflection = on })
		call, err := h.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
		if err != nil {
			t.Fatal(err)
		}
		if err := call.CloseSend(); err != nil {
			t.Fatal(err)
		}
		err = call.RecvMsg(&healthpb.HealthCheckRequest{})
		if off := status.Code(err) == codes.Unimplemented; off == on {
			t.Errorf("reflection %v: got %v", on, err)
		}
	}
}
