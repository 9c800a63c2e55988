package node_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestBadRowsAreRefusedWholeAndTheNodeGoesOn(t *testing.T) {
	t.Parallel()
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
