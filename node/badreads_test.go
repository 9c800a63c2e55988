package node_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestBadReadsAreRefusedAndTheNodeGoesOn(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	token := v.Append("s", `{"k":"a","n":1}`, `{"k":"b","n":2}`, `{"k":"","n":3}`, `{"k":"b","n":4}`)
	v.rows = 4
	first := v.WaitCommitted(token)[0].GetCheckpointId() // a cut that has the rows: an earlier one has not
	text := func(s string) *weirv1.Value { return &weirv1.Value{Kind: &weirv1.Value_Text{Text: s}} }
	key := func(values ...*weirv1.Value) *weirv1.Key { return &weirv1.Key{Values: values} }
	get := func(f func(r *weirv1.GetRequest)) func(context.Context) error {
		return func(ctx context.Context) error {
			r := &weirv1.GetRequest{Pipeline: "v", Table: "by_k", Key: key(text("a"))}
			f(r)
			_, err := v.Queries().Get(ctx, r)
			return err
		}
	}
	scan := func(rows int, f func(r *weirv1.ScanRequest)) func(context.Context) error {
		return func(ctx context.Context) error {
			r := &weirv1.ScanRequest{Pipeline: "v", Table: "by_k"}
			f(r)
			resp, err := v.Queries().Scan(ctx, r)
			if err == nil && len(resp.GetRows()) != rows {
				return fmt.Errorf("the scan gave %d rows, want %d", len(resp.GetRows()), rows)
			}
			return err
		}
	}
	query := func(sql string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := v.Queries().Query(ctx, &weirv1.QueryRequest{Sql: sql})
			return err
		}
	}
	id := func(n uint64) *uint64 { return &n }
	const (
		reqBad = dataflow.ReasonRequestInvalid
		keyBad = dataflow.ReasonKeyInvalid
		large  = dataflow.ReasonTooLarge
		syntax = dataflow.ReasonSQLSyntax
	)
	v.run([]badCall{
		{"an unknown pipeline", get(func(r *weirv1.GetRequest) { r.Pipeline = "w" }), reasons(dataflow.ReasonPipelineNotFound)},
		{"an unknown table", get(func(r *weirv1.GetRequest) { r.Table = "by" }), reasons(dataflow.ReasonTableNotFound)},
		{"no table", get(func(r *weirv1.GetRequest) { r.Table = "" }), reasons(reqBad)},
		{"a stream as a table", get(func(r *weirv1.GetRequest) { r.Table = "s" }), reasons(dataflow.ReasonTableNotFound)},
		{"a path as a table", get(func(r *weirv1.GetRequest) { r.Table = "../../x" }), reasons(dataflow.ReasonNameInvalid)},
		{"an absent row", get(func(r *weirv1.GetRequest) { r.Key = key(text("nothing")) }), reasons(dataflow.ReasonRowNotFound)},
		{"an empty key", get(func(r *weirv1.GetRequest) { r.Key = key(text("")) }), reasons("")},
		{"no key", get(func(r *weirv1.GetRequest) { r.Key = nil }), reasons(keyBad)},
		{"a key of two", get(func(r *weirv1.GetRequest) { r.Key = key(text("a"), text("b")) }), reasons(keyBad)},
		{"a number for a TEXT key, which is taken as text", get(func(r *weirv1.GetRequest) { r.Key = key(&weirv1.Value{Kind: &weirv1.Value_Bigint{Bigint: 1}}) }), reasons(dataflow.ReasonRowNotFound)},
		{"a text for a DOUBLE key", get(func(r *weirv1.GetRequest) { r.Table, r.Key = "by_f", key(text("a")) }), reasons(keyBad)},
		{"a key of 4 KiB and a byte", get(func(r *weirv1.GetRequest) { r.Key = key(text(strings.Repeat("k", 4097))) }), reasons(large)},
		{"a key of 4 KiB", get(func(r *weirv1.GetRequest) { r.Key = key(text(strings.Repeat("k", 4095))) }), reasons(dataflow.ReasonRowNotFound, large)},
		{"a timestamp key out of range", get(func(r *weirv1.GetRequest) {
			r.Table, r.Key = "by_at", key(&weirv1.Value{Kind: &weirv1.Value_TimestampMicros{TimestampMicros: math.MaxInt64}})
		}), reasons(dataflow.ReasonRowNotFound, keyBad)},
		{"a literal that does not parse", get(func(r *weirv1.GetRequest) {
			r.Table, r.Key = "by_at", key(&weirv1.Value{Kind: &weirv1.Value_Literal{Literal: "soon"}})
		}), reasons(keyBad)},
		{"a numeric of a megabyte", get(func(r *weirv1.GetRequest) {
			r.Key = key(&weirv1.Value{Kind: &weirv1.Value_Numeric{Numeric: "1" + strings.Repeat("0", 1<<20)}})
		}), reasons(large)},
		{"a numeric with an exponent of a billion", get(func(r *weirv1.GetRequest) {
			r.Table, r.Key = "by_f", key(&weirv1.Value{Kind: &weirv1.Value_Numeric{Numeric: "1e999999999"}})
		}), reasons(keyBad, large, dataflow.ReasonRowNotFound)},
		{"an unknown isolation", get(func(r *weirv1.GetRequest) { r.Isolation = 99 }), reasons(reqBad)},
		{"unknown numbers", get(func(r *weirv1.GetRequest) { r.Numbers = -1 }), reasons(reqBad)},
		{"a cut of the future", get(func(r *weirv1.GetRequest) { r.CheckpointId = id(1 << 40) }), reasons(dataflow.ReasonCheckpointNotFound)},
		{"the largest cut", get(func(r *weirv1.GetRequest) { r.CheckpointId = id(math.MaxUint64) }), reasons(dataflow.ReasonCheckpointNotFound)},
		{"a cut of a live read", get(func(r *weirv1.GetRequest) { r.CheckpointId, r.Isolation = id(1), nodetest.Live }), reasons(reqBad)},
		{"a token that is none", get(func(r *weirv1.GetRequest) { r.MinToken = "nonsense" }), reasons(dataflow.ReasonTokenInvalid)},
		{"a token of a megabyte", get(func(r *weirv1.GetRequest) { r.MinToken = strings.Repeat("A", 1<<20) }), reasons(dataflow.ReasonTokenInvalid, large)},
		{"a session token as token", get(func(r *weirv1.GetRequest) { r.MinToken = v.Pipeline("v").GetCut().GetToken() }), reasons(dataflow.ReasonTokenInvalid)},
		{"a token as session token", get(func(r *weirv1.GetRequest) { r.SessionToken = token }), reasons(dataflow.ReasonTokenInvalid)},
		{"another group's token", get(func(r *weirv1.GetRequest) { r.MinToken = foreignToken() }), reasons(dataflow.ReasonTokenForeign)},
		{"another group's session", get(func(r *weirv1.GetRequest) {
			r.SessionToken = dataflow.SessionToken{Group: dataflow.GroupID{9}, Pipeline: 1, Timeline: 1, Checkpoint: 1}.String()
		}), reasons(dataflow.ReasonTokenForeign)},
		{"a negative wait", scan(0, func(r *weirv1.ScanRequest) { r.MaxWait = durationpb.New(-1) }), reasons(reqBad)},
		{"a negative limit", scan(0, func(r *weirv1.ScanRequest) { r.Limit = -1 }), reasons(reqBad)},
		{"limit 0", scan(3, func(r *weirv1.ScanRequest) { r.Limit = 0 }), reasons("")},
		{"the largest limit", scan(3, func(r *weirv1.ScanRequest) { r.Limit = math.MaxInt32 }), reasons("")},
		{"from after to", scan(0, func(r *weirv1.ScanRequest) { r.From, r.To = text("z"), text("a") }), reasons("", reqBad, keyBad)},
		{"from of the wrong type", scan(0, func(r *weirv1.ScanRequest) {
			r.Table, r.From = "by_f", &weirv1.Value{Kind: &weirv1.Value_Boolean{Boolean: true}}
		}), reasons(keyBad)},
		{"a prefix of 5,000 bytes", scan(0, func(r *weirv1.ScanRequest) { r.Prefix = strings.Repeat("p", 5000) }), reasons(large)},
		{"a prefix of a number", scan(0, func(r *weirv1.ScanRequest) { r.Table, r.Prefix = "by_f", "1" }), reasons(keyBad, reqBad)},
		{"a page token that is none", scan(0, func(r *weirv1.ScanRequest) { r.PageToken = "x" }), reasons(dataflow.ReasonTokenInvalid)},
		{"a page token of another request", func(ctx context.Context) error {
			r, err := v.Queries().Scan(ctx, &weirv1.ScanRequest{Pipeline: "v", Table: "by_k", Limit: 1})
			if err != nil || r.GetNextPageToken() == "" {
				return fmt.Errorf("the first page: %v, %w", r, err)
			}
			_, err = v.Queries().Scan(ctx, &weirv1.ScanRequest{Pipeline: "v", Table: "by_f", Limit: 1, PageToken: r.GetNextPageToken()})
			return err
		}, reasons(dataflow.ReasonTokenInvalid, reqBad)},
		{"10,000 keys, all the same", func(ctx context.Context) error {
			r := &weirv1.BatchGetRequest{Pipeline: "v", Table: "by_k"}
			for range dataflow.MaxBatchGetKeys {
				r.Keys = append(r.Keys, key(text("b")))
			}
			resp, err := v.Queries().BatchGet(ctx, r)
			if err == nil && (len(resp.GetRows()) != dataflow.MaxBatchGetKeys || string(resp.GetRows()[9999]) != `{"k":"b","n":2,"total":6}`) {
				return fmt.Errorf("%d rows", len(resp.GetRows()))
			}
			return err
		}, reasons("")},
		{"10,001 keys", func(ctx context.Context) error {
			r := &weirv1.BatchGetRequest{Pipeline: "v", Table: "by_k", Keys: make([]*weirv1.Key, dataflow.MaxBatchGetKeys+1)}
			for i := range r.Keys {
				r.Keys[i] = key(text("b"))
			}
			_, err := v.Queries().BatchGet(ctx, r)
			return err
		}, reasons(large)},
		{"no SQL", query(""), reasons(reqBad)},
		{"nonsense", query("nonsense"), reasons(syntax)},
		{"an unknown column", query("SELECT nothing FROM v.by_k"), reasons(dataflow.ReasonSQLType)},
		{"an unknown table in SQL", query("SELECT * FROM v.nothing"), reasons(dataflow.ReasonTableNotFound)},
		{"a stream in SQL", query("SELECT * FROM s"), reasons(dataflow.ReasonTableNotFound, dataflow.ReasonSQLUnsupported, dataflow.ReasonSQLType)},
		{"a write", query("DELETE FROM v.by_k"), reasons(dataflow.ReasonSQLUnsupported, syntax)},
		{"two statements", query("SELECT 1 FROM v.by_k; SELECT 2 FROM v.by_k"), reasons(syntax, dataflow.ReasonSQLUnsupported)},
		{"SQL of 10 MB", query("SELECT '" + strings.Repeat("x", 10<<20) + "' FROM v.by_k"), reasons(large)},
		{"5,000 parentheses", query("SELECT " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + " FROM v.by_k"), reasons(syntax, dataflow.ReasonSQLUnsupported, large)},
		{"5,000 NOTs", query("SELECT " + strings.Repeat("NOT ", 5000) + "true FROM v.by_k"), reasons(syntax, dataflow.ReasonSQLUnsupported, large)},
		{"100,000 additions", query("SELECT 1" + strings.Repeat("+1", 100_000) + " FROM v.by_k"), reasons("", syntax, dataflow.ReasonSQLUnsupported, large)},
		{"invalid UTF-8 in SQL", func(ctx context.Context) error {
			status, _, body := v.HTTP("POST", "/v1/query", "{\"sql\":\"SELECT '\xff' FROM v.by_k\"}", map[string]string{"Content-Type": "application/json"})
			if status != 400 {
				return fmt.Errorf("%d %s", status, body)
			}
			return nil
		}, reasons("")},
		{"a regexp of stars", query("SELECT k ~ '(a*)*b' FROM v.by_k"), reasons("")},
		{"a regexp of 900 KB", query("SELECT k ~ '" + strings.Repeat("(a*)*", 180_000) + "' FROM v.by_k"), reasons(dataflow.ReasonSQLType, dataflow.ReasonExpressionFailed, large)},
		{"a regexp that repeats repetitions", query("SELECT k ~ '((a{1,1000}){1,1000}){1,1000}' FROM v.by_k"), reasons(dataflow.ReasonSQLType, dataflow.ReasonExpressionFailed)},
		{"a text of a gigabyte", query("SELECT repeat(k || 'x', 1000000000) FROM v.by_k"), reasons(dataflow.ReasonExpressionFailed, large, dataflow.ReasonScanLimit)},
		{"a number of a billion digits", query("SELECT 10.0 ^ 1000000000 FROM v.by_k"), reasons(dataflow.ReasonExpressionFailed, dataflow.ReasonSQLType)},
		{"a negative LIMIT", query("SELECT k FROM v.by_k LIMIT -1"), reasons(syntax, dataflow.ReasonSQLType, reqBad)},
		{"the largest LIMIT", query("SELECT k FROM v.by_k LIMIT 9223372036854775807 OFFSET 9223372036854775807"), reasons("")},
		{"a LIMIT past BIGINT", query("SELECT k FROM v.by_k LIMIT 9223372036854775808"), reasons(syntax, dataflow.ReasonSQLType, reqBad)},
		{"a row that fails", query("SELECT 1 / (n - 1) FROM v.by_k"), reasons(dataflow.ReasonExpressionFailed)},
		{"a wait for what will never come", func(ctx context.Context) error {
			g, err := v.Cluster().GetStatus(ctx, &weirv1.GetStatusRequest{})
			if err != nil {
				return err
			}
			group, err := hex.DecodeString(g.GetClusterId())
			if err != nil {
				return err
			}
			ahead := dataflow.Token{Group: dataflow.GroupID(group), Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 1 << 40}}
			_, err = v.Pipelines().WaitToken(ctx, &weirv1.WaitTokenRequest{Token: ahead.String(), MaxWait: durationpb.New(20 * time.Millisecond)})
			return err
		}, reasons(dataflow.ReasonTokenNotReached)},
	})

	t.Run("a deadline of a nanosecond", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if _, err := v.Queries().Query(ctx, &weirv1.QueryRequest{Sql: "SELECT * FROM v.by_k"}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		v.probe("a deadline of a nanosecond")
	})

	t.Run("a cut that has expired", func(t *testing.T) {
		for range 4 { // more than are retained
			v.Append("s", `{"k":"more"}`)
			v.rows++
			v.Checkpoint("v")
		}
		_, err := v.Queries().Get(t.Context(), &weirv1.GetRequest{Pipeline: "v", Table: "by_k", Key: key(text("a")), CheckpointId: id(first)})
		if r := nodetest.Reason(err); r != dataflow.ReasonCheckpointExpired && err != nil {
			t.Errorf("got %v", err)
		}
		v.probe("an expired cut")
	})

	t.Run("a reader that never reads", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		big := `{"k":"` + strings.Repeat("x", 3000) + `"}`
		for range 8 {
			v.Append("s", strings.Split(strings.Repeat(big+"\n", 400), "\n")[:400]...)
			v.rows += 400
		}
		var calls []weirv1.IngestService_ReadStreamClient
		for range 20 {
			call, err := v.Ingest().ReadStream(ctx, &weirv1.ReadStreamRequest{Stream: "s", Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, call)
		}
		for _, call := range calls { // all have begun, and now hang
			if _, err := call.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		v.probe("twenty readers that do not read")
		cancel()
		v.probe("they have gone")
	})
	v.intact()
}
