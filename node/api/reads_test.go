package api_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	"github.com/weirdb/weir/node/api/apitest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

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
	packed, err := h.queries.BatchGet(t.Context(), &weirv1.BatchGetRequest{Pipeline: "p", Table: "counts", Packed: true, Keys: []*weirv1.Key{
		wire.Key(dataflow.Row{dataflow.Text("no")}), key}})
	if err != nil || string(packed.GetPackedRows().GetData()) != `{"word":"whale","n":1226}` || packed.GetRows() != nil ||
		!slices.Equal(packed.GetPackedRows().GetLengths(), []uint32{0, 25}) || packed.GetCut().GetToken() != b.GetCut().GetToken() {
		t.Fatalf("packed: got %v, %v", packed, err)
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
