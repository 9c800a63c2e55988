package node_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// victim is the node that all bad input goes to, with what it must go on doing.
type victim struct {
	*nodetest.Node
	t      *testing.T
	probes int
	rows   int // that were accepted by stream s
}

const victimSQL = `
SET checkpoint.interval = '50 ms';
SET on_error = 'skip';
CREATE STREAM s (k TEXT NOT NULL, n BIGINT, f DOUBLE PRECISION, b BOOLEAN, at TIMESTAMPTZ);
CREATE STREAM placed (k TEXT, v BIGINT) PARTITION BY (k);
CREATE STREAM probe (x BIGINT);
CREATE MATERIALIZED VIEW by_k AS SELECT k, count(*) AS n, sum(n) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW by_f AS SELECT f, count(*) AS n FROM s GROUP BY f;
CREATE MATERIALIZED VIEW by_at AS SELECT at, count(*) AS n FROM s GROUP BY at;
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM s;
CREATE MATERIALIZED VIEW probes AS SELECT count(*) AS n FROM probe;
`

func newVictim(t *testing.T) *victim {
	v := &victim{Node: nodetest.Open(t, nodetest.Options{Shards: 2}), t: t}
	v.Deploy("v", victimSQL)
	v.probe("the start")
	return v
}

// probe wants an append and a live read to work as if nothing had happened.
func (v *victim) probe(after string) {
	v.t.Helper()
	v.probes++
	token := v.Append("probe", fmt.Sprintf(`{"x":%d}`, v.probes))
	v.WaitProcessed(token)
	row, _, _ := v.Get("v", "probes", nodetest.Live)
	if want := fmt.Sprintf(`{"n":%d}`, v.probes); row != want {
		v.t.Fatalf("after %s the probe reads %s, want %s", after, row, want)
	}
}

// intact wants exactly the accepted rows in the stream and in the table, also after a crash.
func (v *victim) intact() {
	v.t.Helper()
	for range 2 {
		d, err := v.Ingest().DescribeStream(v.t.Context(), &weirv1.DescribeStreamRequest{Stream: "s"})
		if err != nil {
			v.t.Fatal(err)
		}
		if d.GetRows() != uint64(v.rows) {
			v.t.Errorf("the stream holds %d rows; %d were accepted", d.GetRows(), v.rows)
		}
		v.Checkpoint("v")
		row, cut, _ := v.Get("v", "total", nodetest.Committed)
		if want := fmt.Sprintf(`{"n":%d}`, v.rows-int(cut.GetSkippedRows())); row != want {
			v.t.Errorf("the table counts %s, want %s", row, want)
		}
		v.Crash(nodetest.LoseUnsynced)
	}
}

// badCall is a call that must end with one of the reasons; "" among them accepts it.
type badCall struct {
	name string
	call func(ctx context.Context) error
	want []dataflow.Reason
}

func reasons(r ...dataflow.Reason) []dataflow.Reason { return r }

func (v *victim) run(calls []badCall) {
	for _, c := range calls {
		v.t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := c.call(ctx)
			got := nodetest.Reason(err)
			ok := false
			for _, r := range c.want {
				ok = ok || r == got && (r != "" || err == nil)
			}
			if !ok {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if e := nodetest.Refusal(err); e != nil && (e.Message == "" || len(e.Message) > 4096) {
				t.Errorf("the message has %d bytes", len(e.Message))
			}
			v.probe(c.name)
		})
	}
}

// json appends JSON rows to s.
func (v *victim) json(text string) func(context.Context) error {
	return v.jsonTo("s", text)
}

func (v *victim) jsonTo(stream, text string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: stream, JsonRows: []byte(text)})
		if stream == "s" {
			v.rows += int(r.GetRows())
		}
		return err
	}
}

// columns appends a column batch to s.
func (v *victim) columns(b *weirv1.ColumnBatch) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", Batch: b})
		v.rows += int(r.GetRows())
		return err
	}
}

func texts(name string, values ...string) *weirv1.ColumnData {
	t := &weirv1.TextValues{Data: []byte(strings.Join(values, ""))}
	for _, s := range values {
		t.Lengths = append(t.Lengths, uint32(len(s)))
	}
	return &weirv1.ColumnData{Name: name, Values: &weirv1.ColumnData_Texts{Texts: t}}
}

func ints(name string, values ...int64) *weirv1.ColumnData {
	return &weirv1.ColumnData{Name: name, Values: &weirv1.ColumnData_Bigints{Bigints: &weirv1.Int64Values{Values: values}}}
}

func times(name string, values ...int64) *weirv1.ColumnData {
	return &weirv1.ColumnData{Name: name, Values: &weirv1.ColumnData_Timestamps{Timestamps: &weirv1.Int64Values{Values: values}}}
}

func doubles(name string, values ...float64) *weirv1.ColumnData {
	return &weirv1.ColumnData{Name: name, Values: &weirv1.ColumnData_Doubles{Doubles: &weirv1.DoubleValues{Values: values}}}
}

func cols(n uint32, c ...*weirv1.ColumnData) *weirv1.ColumnBatch {
	return &weirv1.ColumnBatch{Rows: n, Columns: c}
}

func TestBadRowsAreRefusedWholeAndTheNodeGoesOn(t *testing.T) {
	v := newVictim(t)
	const (
		rowBad = dataflow.ReasonRowInvalid
		reqBad = dataflow.ReasonRequestInvalid
		large  = dataflow.ReasonTooLarge
	)
	v.run([]badCall{
		{"no rows", v.json(""), reasons(reqBad)},
		{"white space", v.json(" \n\t "), reasons(reqBad)},
		{"an empty array", v.json("[]"), reasons(reqBad)},
		{"a batch of no rows", v.columns(cols(0)), reasons(reqBad)},
		{"an unknown stream", v.jsonTo("nothing", "{}"), reasons(dataflow.ReasonStreamNotFound)},
		{"no stream", v.jsonTo("", "{}"), reasons(reqBad)},
		{"NULL where NOT NULL is said", v.json(`{"k":null}`), reasons(rowBad)},
		{"a column left out where NOT NULL is said", v.json(`{"n":1}`), reasons(rowBad)},
		{"a bad row after good ones", v.json(`{"k":"a"} {"k":"b"} {"k":3}`), reasons(rowBad)},
		{"an empty text", v.json(`{"k":""}`), reasons("")},
		{"a key of 4 KiB and more", v.json(`{"k":"` + strings.Repeat("x", 5000) + `"}`), reasons("")}, // on_error says what becomes of it
		{"a value of 1 MiB and more", v.json(`{"k":"` + strings.Repeat("x", 1<<20+1) + `"}`), reasons(large)},
		{"a million tiny rows", v.json(strings.Repeat("{\"k\":\"\"}\n", 1_000_000)), reasons(large)},
		{"a declared million", v.columns(cols(1_000_000, texts("k", "a"))), reasons(large)},
		{"four billion declared", v.columns(cols(math.MaxUint32, texts("k", "a"))), reasons(large)},
		{"more rows than values", v.columns(cols(5, texts("k", "a", "b"))), reasons(rowBad)},
		{"more values than rows", v.columns(cols(1, texts("k", "a", "b"))), reasons(rowBad)},
		{"lengths that exceed the data", v.columns(cols(1, &weirv1.ColumnData{Name: "k", Values: &weirv1.ColumnData_Texts{Texts: &weirv1.TextValues{Data: []byte("a"), Lengths: []uint32{math.MaxUint32}}}})), reasons(rowBad, large)},
		{"lengths that wrap around", v.columns(cols(2, &weirv1.ColumnData{Name: "k", Values: &weirv1.ColumnData_Texts{Texts: &weirv1.TextValues{Data: []byte("a"), Lengths: []uint32{math.MaxUint32, 2}}}})), reasons(rowBad, large)},
		{"data that the lengths leave over", v.columns(cols(1, &weirv1.ColumnData{Name: "k", Values: &weirv1.ColumnData_Texts{Texts: &weirv1.TextValues{Data: []byte("abc"), Lengths: []uint32{1}}}})), reasons(rowBad)},
		{"nulls of the wrong size", v.columns(cols(9, &weirv1.ColumnData{Name: "n", Nulls: []byte{1}, Values: ints("n", make([]int64, 9)...).Values}, texts("k", "", "", "", "", "", "", "", "", ""))), reasons(rowBad)},
		{"invalid UTF-8", v.columns(cols(1, texts("k", "\xff\xfe"))), reasons(rowBad)},
		{"UTF-8 cut in two by the lengths", v.columns(cols(2, &weirv1.ColumnData{Name: "k", Values: &weirv1.ColumnData_Texts{Texts: &weirv1.TextValues{Data: []byte("é"), Lengths: []uint32{1, 1}}}})), reasons(rowBad)},
		{"invalid UTF-8 in JSON", v.json("{\"k\":\"\xff\"}"), reasons(rowBad)},
		{"NUL", v.json(`{"k":"a\u0000b"}`), reasons(rowBad)},
		{"half a surrogate pair", v.json(`{"k":"\ud800"}`), reasons(rowBad)},
		{"an unknown column", v.json(`{"k":"a","nothing":1}`), reasons(rowBad)},
		{"an unknown column in columns", v.columns(cols(1, texts("k", "a"), ints("nothing", 1))), reasons(rowBad)},
		{"a column twice", v.json(`{"k":"a","k":"b"}`), reasons(rowBad)},
		{"a column twice in columns", v.columns(cols(1, texts("k", "a"), texts("k", "b"))), reasons(rowBad)},
		{"the wrong type", v.json(`{"k":"a","n":"x"}`), reasons(rowBad)},
		{"the wrong type in columns", v.columns(cols(1, ints("k", 1))), reasons(rowBad)},
		{"a fraction for a BIGINT", v.json(`{"k":"a","n":1.5}`), reasons(rowBad)},
		{"a BIGINT past its end", v.json(`{"k":"a","n":9223372036854775808}`), reasons(rowBad)},
		{"1e400", v.json(`{"k":"a","f":1e400}`), reasons(rowBad)},
		{"a number of a megabyte", v.json(`{"k":"a","f":1` + strings.Repeat("0", 1<<20) + `}`), reasons(rowBad, large)},
		{"an object for a text", v.json(`{"k":{}}`), reasons(rowBad)},
		{"JSON 100,000 deep", v.json(`{"k":` + strings.Repeat("[", 100_000)), reasons(rowBad)},
		{"objects 100,000 deep", v.json(strings.Repeat(`{"k":`, 100_000)), reasons(rowBad)},
		{"JSON that ends early", v.json(`{"k":"a"`), reasons(rowBad)},
		{"no object", v.json(`"k"`), reasons(rowBad)},
		{"an array of arrays", v.json(`[[]]`), reasons(rowBad)},
		{"an array that goes on", v.json(`[{"k":"a"}] {"k":"b"}`), reasons(rowBad)},
		{"a BOM and CRLF", v.json("\xef\xbb\xbf{\"k\":\"bom\"}\r\n{\"k\":\"bom\"}\r\n"), reasons("")},
		{"timestamps at both ends", v.json(`{"k":"t","at":"0001-01-01T00:00:00Z"} {"k":"t","at":"9999-12-31T23:59:59.999999Z"} {"k":"t","at":"1970-01-01T00:00:00Z"}`), reasons("")},
		{"timestamps around 1970", v.columns(cols(2, texts("k", "t", "t"), times("at", 0, -1))), reasons("")},
		{"the largest timestamp", v.columns(cols(1, texts("k", "a"), times("at", math.MaxInt64))), reasons(rowBad)},
		{"the smallest timestamp", v.columns(cols(1, texts("k", "a"), times("at", math.MinInt64))), reasons(rowBad)},
		{"the year 10000", v.json(`{"k":"a","at":"10000-01-01T00:00:00Z"}`), reasons(rowBad)},
		{"the 30th of February", v.json(`{"k":"a","at":"2026-02-30T00:00:00Z"}`), reasons(rowBad)},
		{"NaN, infinities and -0 as keys", v.columns(cols(6, texts("k", "f", "f", "f", "f", "f", "f"), doubles("f", math.NaN(), math.Float64frombits(0x7ff8000000000abc), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1)))), reasons("")},
		{"the ends of BIGINT", v.json(`{"k":"ends","n":9223372036854775807} {"k":"ends","n":9223372036854775807} {"k":"ends","n":-9223372036854775808}`), reasons("")},
		{"rows in two forms", func(ctx context.Context) error {
			_, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(`{"k":"a"}`), Batch: cols(1, texts("k", "a"))})
			return err
		}, reasons(reqBad)},
		{"an idempotency key with other rows", func(ctx context.Context) error {
			for _, text := range []string{`{"k":"once"}`, `{"k":"once"}`, `{"k":"other"}`} {
				r, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(text), IdempotencyKey: "once"})
				if err != nil {
					return err
				}
				v.rows += int(r.GetRows())
			}
			return nil
		}, reasons(dataflow.ReasonIdempotencyKeyReused)},
		{"a long idempotency key", func(ctx context.Context) error {
			_, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(`{"k":"a"}`), IdempotencyKey: strings.Repeat("k", 10_000)})
			return err
		}, reasons(reqBad)},
		{"a token as previous_token that is none", func(ctx context.Context) error {
			_, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(`{"k":"a"}`), PreviousToken: "!"})
			return err
		}, reasons(dataflow.ReasonTokenInvalid)},
		{"another group's token as previous_token", func(ctx context.Context) error {
			_, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", JsonRows: []byte(`{"k":"a"}`), PreviousToken: foreignToken()})
			return err
		}, reasons(dataflow.ReasonTokenForeign)},
	})
	// NaN is one key, and so is zero; a key over the limit was left out and counted.
	wantTable(t, v.Node, "v", "by_f", nodetest.Live,
		`{"f":"-Infinity","n":1}`, `{"f":0,"n":2}`, `{"f":"Infinity","n":1}`, `{"f":"NaN","n":2}`, fmt.Sprintf(`{"f":null,"n":%d}`, v.rows-6-1))
	if row, _, _ := v.Get("v", "by_k", nodetest.Live, "ends"); row != `{"k":"ends","n":3,"total":9223372036854775806}` {
		t.Errorf("the sum of the ends of BIGINT: %s", row)
	}
	v.Checkpoint("v")
	if _, cut := v.Scan("v", "total", nodetest.Committed); cut.GetSkippedRows() != 1 {
		t.Errorf("skipped rows: %v", cut)
	}
	v.intact()
}

// foreignToken is a token of another node group.
func foreignToken() string {
	return dataflow.Token{Group: dataflow.GroupID{1, 2, 3}, Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 1}}.String()
}

func TestBadProducersAreRefusedAndNothingIsDoubled(t *testing.T) {
	v := newVictim(t)
	open := func(ctx context.Context, name string) (*weirv1.ProducerSession, error) {
		r, err := v.Ingest().OpenProducer(ctx, &weirv1.OpenProducerRequest{Stream: "s", Producer: name})
		return &weirv1.ProducerSession{Name: name, Epoch: r.GetEpoch()}, err
	}
	send := func(ctx context.Context, p *weirv1.ProducerSession, shard uint32, first uint64, keys ...string) (*weirv1.AppendResponse, error) {
		r, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{
			{Shard: shard, FirstSeq: first, Batch: cols(uint32(len(keys)), texts("k", keys...))}}})
		v.rows += int(r.GetRows())
		return r, err
	}
	// after opens a session, sends rows 1 and 2, and then what the case is about.
	after := func(f func(ctx context.Context, p *weirv1.ProducerSession) error) func(context.Context) error {
		return func(ctx context.Context) error {
			p, err := open(ctx, fmt.Sprintf("p%d", rand.Uint64()))
			if err != nil {
				return err
			}
			if _, err := send(ctx, p, 1, 1, "a", "b"); err != nil {
				return err
			}
			return f(ctx, p)
		}
	}
	just := func(shard uint32, first uint64, keys ...string) func(ctx context.Context, p *weirv1.ProducerSession) error {
		return func(ctx context.Context, p *weirv1.ProducerSession) error {
			_, err := send(ctx, p, shard, first, keys...)
			return err
		}
	}
	v.run([]badCall{
		{"a gap", after(just(1, 4, "d")), reasons(dataflow.ReasonOutOfOrder)},
		{"the same again", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			r, err := send(ctx, p, 1, 1, "a", "b")
			if err == nil && (r.GetRows() != 0 || r.GetDuplicates() != 2 || !r.GetShards()[0].GetDuplicate()) {
				return fmt.Errorf("the repetition was answered %v", r)
			}
			return err
		}), reasons("")},
		{"an overlap", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			r, err := send(ctx, p, 1, 2, "b", "c")
			if err == nil && (r.GetRows() != 0 || !r.GetShards()[0].GetOverlap() || r.GetShards()[0].GetLastSeq() != 2) {
				return fmt.Errorf("the overlap was answered %v", r)
			}
			return err
		}), reasons("")},
		{"the same numbers with other rows", after(just(1, 1, "a", "x")), reasons(dataflow.ReasonSequenceReused)},
		{"number 0", after(just(1, 0, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"the largest number", after(just(1, math.MaxUint64, "a")), reasons(dataflow.ReasonRequestInvalid, dataflow.ReasonOutOfOrder)},
		{"numbers that wrap around", after(just(1, math.MaxUint64, "a", "b")), reasons(dataflow.ReasonRequestInvalid)},
		{"a shard that is not there", after(just(2, 1, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"shard -1", after(just(math.MaxUint32, 1, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"shard 2^31", after(just(1<<31, 1, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"shard 2^32-1 that would be 65535 cut short", after(just(1<<16, 1, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"a shard twice", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			part := &weirv1.ShardRows{Shard: 0, FirstSeq: 1, Batch: cols(1, texts("k", "a"))}
			_, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{part, part}})
			return err
		}), reasons(dataflow.ReasonRequestInvalid)},
		{"a bad part beside a good one", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			_, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{
				{Shard: 0, FirstSeq: 1, Batch: cols(1, texts("k", "a"))}, {Shard: 1, FirstSeq: 3, Batch: cols(1, ints("k", 1))}}})
			return err
		}), reasons(dataflow.ReasonRowInvalid)},
		{"an unknown producer with number 7", func(ctx context.Context) error {
			_, err := send(ctx, &weirv1.ProducerSession{Name: "nobody", Epoch: 1}, 0, 7, "a")
			return err
		}, reasons(dataflow.ReasonUnknownProducer)},
		{"an unknown producer with number 1", func(ctx context.Context) error {
			_, err := send(ctx, &weirv1.ProducerSession{Name: "nobody", Epoch: 1}, 0, 1, "a")
			return err
		}, reasons(dataflow.ReasonUnknownProducer)},
		{"a session that was never opened", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			_, err := send(ctx, &weirv1.ProducerSession{Name: p.GetName(), Epoch: math.MaxUint64}, 1, 3, "c")
			if _, err := send(ctx, p, 1, 3, "c"); err != nil {
				return fmt.Errorf("the open session was fenced: %w", err)
			}
			again, oerr := open(ctx, p.GetName())
			if oerr != nil {
				return fmt.Errorf("the name was fenced for good: %w", oerr)
			}
			if _, err := send(ctx, again, 1, 4, "d"); err != nil {
				return fmt.Errorf("the next session was fenced: %w", err)
			}
			return err
		}), reasons(dataflow.ReasonUnknownProducer)},
		{"epoch 0", func(ctx context.Context) error {
			_, err := send(ctx, &weirv1.ProducerSession{Name: "nobody"}, 0, 1, "a")
			return err
		}, reasons(dataflow.ReasonRequestInvalid)},
		{"no name", func(ctx context.Context) error { _, err := open(ctx, ""); return err }, reasons(dataflow.ReasonRequestInvalid)},
		{"a name of 10,000 bytes", func(ctx context.Context) error {
			_, err := open(ctx, strings.Repeat("n", 10_000))
			return err
		}, reasons(dataflow.ReasonRequestInvalid)},
		{"two live clients of one name", func(ctx context.Context) error {
			older, err := open(ctx, "twice")
			if err != nil {
				return err
			}
			if _, err := send(ctx, older, 0, 1, "first"); err != nil {
				return err
			}
			newer, err := open(ctx, "twice")
			if err != nil {
				return err
			}
			if _, err := send(ctx, newer, 0, 2, "second"); err != nil {
				return err
			}
			_, err = send(ctx, older, 0, 2, "second")
			return err
		}, reasons(dataflow.ReasonProducerFenced)},
		{"a row in the wrong shard", func(ctx context.Context) error {
			r, err := v.Ingest().OpenProducer(ctx, &weirv1.OpenProducerRequest{Stream: "placed", Producer: "p"})
			if err != nil {
				return err
			}
			p := &weirv1.ProducerSession{Name: "p", Epoch: r.GetEpoch()}
			_, err = v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "placed", Producer: p, Shards: []*weirv1.ShardRows{
				{Shard: 0, FirstSeq: 1, Batch: cols(8, texts("k", "a", "b", "c", "d", "e", "f", "g", "h"))}}})
			return err
		}, reasons(dataflow.ReasonRowInvalid)},
	})

	t.Run("fifty batches in flight, sent again by a second session", func(t *testing.T) {
		for attempt := range 2 {
			p, err := open(t.Context(), "fifty")
			if err != nil {
				t.Fatal(err)
			}
			call, err := v.Ingest().AppendStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				if err := call.Send(&weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{
					{Shard: 0, FirstSeq: uint64(2*i + 1), Batch: cols(2, texts("k", fmt.Sprint(i), "fifty"))}}}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := call.CloseSend(); err != nil {
				t.Fatal(err)
			}
			var rows, duplicates uint64
			for {
				r, err := call.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				rows, duplicates = rows+r.GetAppended().GetRows(), duplicates+r.GetAppended().GetDuplicates()
			}
			if rows != 100*uint64(1-attempt) || duplicates != 100*uint64(attempt) {
				t.Errorf("attempt %d wrote %d rows and knew %d", attempt, rows, duplicates)
			}
			v.rows += int(rows)
		}
		v.probe("fifty batches")
	})

	t.Run("cancelled after sending, before the answer", func(t *testing.T) {
		p, err := open(t.Context(), "hasty")
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(20) {
			ctx, cancel := context.WithCancel(t.Context())
			call, err := v.Ingest().AppendStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := call.Send(&weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{
				{Shard: 1, FirstSeq: i + 1, Batch: cols(1, texts("k", "hasty"))}}}}); err != nil {
				t.Fatal(err)
			}
			cancel()
			r, err := send(t.Context(), p, 1, i+1, "hasty")
			if err != nil || r.GetRows()+r.GetDuplicates() != 1 {
				t.Fatalf("row %d sent again: %v, %v", i+1, r, err)
			}
			v.rows += int(r.GetDuplicates()) // the first try wrote it
		}
		v.Checkpoint("v")
		if row, _, _ := v.Get("v", "by_k", nodetest.Committed, "hasty"); row != `{"k":"hasty","n":20,"total":null}` {
			t.Errorf("twenty rows became %s", row)
		}
	})
	v.intact()
}

func TestBadReadsAreRefusedAndTheNodeGoesOn(t *testing.T) {
	v := newVictim(t)
	token := v.Append("s", `{"k":"a","n":1}`, `{"k":"b","n":2}`, `{"k":"","n":3}`, `{"k":"b","n":4}`)
	v.rows = 4
	v.WaitCommitted(token)
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
		_, err := v.Queries().Get(t.Context(), &weirv1.GetRequest{Pipeline: "v", Table: "by_k", Key: key(text("a")), CheckpointId: id(1)})
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

func TestBadCallsEndThemselvesAlone(t *testing.T) {
	v := newVictim(t)
	raw := func(method string, message []byte, opts ...grpc.CallOption) func(context.Context) error {
		return func(ctx context.Context) error {
			var out []byte
			return v.Conn().Invoke(ctx, method, message, &out, append(opts, grpc.ForceCodec(bytesCodec{}))...)
		}
	}
	wantCode := func(f func(context.Context) error, want ...codes.Code) func(context.Context) error {
		return func(ctx context.Context) error {
			err := f(ctx)
			for _, c := range want {
				if status.Code(err) == c {
					return nil
				}
			}
			return fmt.Errorf("want %v, got %w", want, err)
		}
	}
	const appendMethod = "/weir.v1.IngestService/Append"
	var nested []byte // groups within groups
	for range 20_000 {
		nested = protowire.AppendTag(nested, 99, protowire.StartGroupType)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	header := func(name, value string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := v.Cluster().GetVersion(metadata.AppendToOutgoingContext(ctx, name, value), &weirv1.GetVersionRequest{})
			return err
		}
	}
	v.run([]badCall{
		{"bytes that are no message", wantCode(raw(appendMethod, noise), codes.Internal, codes.InvalidArgument), reasons("")},
		{"a message that is cut short", wantCode(raw(appendMethod, []byte{0x0a, 0x7f, 'x'}), codes.Internal, codes.InvalidArgument), reasons("")},
		{"20,000 groups", wantCode(raw(appendMethod, nested), codes.Internal, codes.InvalidArgument), reasons("")},
		{"unknown fields", wantCode(raw("/weir.v1.ClusterService/GetVersion", protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "x")), codes.OK), reasons("")},
		{"an unknown method", wantCode(raw("/weir.v1.IngestService/Nothing", nil), codes.Unimplemented), reasons("")},
		{"an unknown service", wantCode(raw("/nothing.v1.Nothing/Nothing", nil), codes.Unimplemented), reasons("")},
		{"a message over the limit", wantCode(raw(appendMethod, make([]byte, 20<<20)), codes.ResourceExhausted), reasons("")},
		{"a header of a megabyte", wantCode(header("x-large", strings.Repeat("h", 1<<20)), codes.Internal, codes.Unavailable, codes.ResourceExhausted, codes.Unknown), reasons("")},
		{"a forged deadline", wantCode(header("grpc-timeout-x", "99999999H"), codes.OK), reasons("")},
		{"reflection, which is off", wantCode(func(ctx context.Context) error {
			call, err := reflectionpb.NewServerReflectionClient(v.Conn()).ServerReflectionInfo(ctx)
			if err != nil {
				return err
			}
			_, err = call.Recv()
			return err
		}, codes.Unimplemented), reasons("")},
		{"ten thousand headers", wantCode(func(ctx context.Context) error {
			var pairs []string
			for i := range 10_000 {
				pairs = append(pairs, fmt.Sprintf("x-%d", i), "v")
			}
			_, err := v.Cluster().GetVersion(metadata.AppendToOutgoingContext(ctx, pairs...), &weirv1.GetVersionRequest{})
			return err
		}, codes.Internal, codes.Unavailable, codes.ResourceExhausted, codes.Unknown), reasons("")},
	})

	t.Run("calls that are cancelled at once", func(t *testing.T) {
		for range 2000 {
			ctx, cancel := context.WithCancel(t.Context())
			call, err := v.Ingest().ReadStream(ctx, &weirv1.ReadStreamRequest{Stream: "s", Follow: true})
			cancel()
			if err == nil {
				_, err = call.Recv()
			}
			if status.Code(err) != codes.Canceled {
				t.Fatalf("got %v", err)
			}
		}
		v.probe("two thousand resets")
	})

	// Raw connections: what no client library sends.
	for name, c := range map[string]struct{ addr, text, want string }{
		"a path without a slash":                     {v.HTTPAddr(), "GET v1/pipelines HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
		"a path that climbs":                         {v.HTTPAddr(), "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404"},
		"a broken escape":                            {v.HTTPAddr(), "GET /v1/pipelines/v/tables/by_k/rows/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "400"},
		"no host":                                    {v.HTTPAddr(), "GET /v1/pipelines HTTP/1.1\r\n\r\n", "400"},
		"a length that the body has not":             {v.HTTPAddr(), "POST /v1/streams/s:append HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"k\":\"a\"}", ""},
		"two lengths":                                {v.HTTPAddr(), "POST /v1/streams/s:append HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "400"},
		"a negative length":                          {v.HTTPAddr(), "POST /v1/streams/s:append HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
		"a chunk size that is none":                  {v.HTTPAddr(), "POST /v1/streams/s:append HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
		"a header of a megabyte over HTTP":           {v.HTTPAddr(), "GET /v1/pipelines HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("h", 1<<20) + "\r\n\r\n", "431"},
		"noise":                                      {v.HTTPAddr(), string(noise), "400"},
		"HTTP/1.1 on the gRPC port":                  {v.GRPCAddr(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""},
		"noise on the gRPC port":                     {v.GRPCAddr(), string(noise), ""},
		"half a preface":                             {v.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\n", ""},
		"a frame of 16 MB":                           {v.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x01", ""},
		"a flood of pings":                           {v.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + strings.Repeat("\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping", 10_000), ""},
		"a flood of resets of calls that never were": {v.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + strings.Repeat("\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08", 10_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer := talk(t, c.addr, c.text)
			if c.want != "" && !strings.HasPrefix(answer, "HTTP/1.1 "+c.want) && !strings.HasPrefix(answer, "HTTP/1.0 "+c.want) {
				t.Errorf("the answer is %.200q, want %s", answer, c.want)
			}
			v.probe(name)
		})
	}
	v.intact()
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (bytesCodec) Name() string                    { return "proto" }

// talk sends text on a connection of its own, ends its sending side, and returns what comes back.
func talk(t *testing.T, addr, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() { // the server may stop reading before it has everything
		defer close(sent)
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	b, _ := io.ReadAll(conn) // a reset is an answer too
	<-sent
	return string(b)
}
