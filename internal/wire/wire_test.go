package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/apd/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// everything has a column of each type that a stream can have.
var everything = dataflow.Schema{
	{Name: "id", Type: dataflow.TypeBigInt, NotNull: true},
	{Name: "ok", Type: dataflow.TypeBool},
	{Name: "x", Type: dataflow.TypeDouble},
	{Name: "s", Type: dataflow.TypeText},
	{Name: "at", Type: dataflow.TypeTimestamp},
	{Name: "d", Type: dataflow.TypeNumeric},
}

func drawBatch(t *rapid.T) *batch.Batch {
	b := batch.NewBatch(everything)
	nullable := func(v dataflow.Value) dataflow.Value {
		if rapid.IntRange(0, 3).Draw(t, "null") == 0 {
			return dataflow.NullValue(v.Type)
		}
		return v
	}
	for range rapid.IntRange(1, 200).Draw(t, "rows") {
		b.AppendRow(dataflow.Row{
			dataflow.BigInt(rapid.Int64().Draw(t, "id")),
			nullable(dataflow.Bool(rapid.Bool().Draw(t, "ok"))),
			nullable(dataflow.Double(rapid.Float64().Draw(t, "x"))),
			nullable(dataflow.Text(strings.ReplaceAll(strings.ToValidUTF8(rapid.String().Draw(t, "s"), "?"), "\x00", "0"))),
			nullable(dataflow.Timestamp(rapid.Int64Range(-60_000_000_000_000_000, 250_000_000_000_000_000).Draw(t, "at"))),
			nullable(dataflow.Numeric(apd.New(rapid.Int64().Draw(t, "d"), int32(-rapid.IntRange(0, 20).Draw(t, "scale"))))),
		})
	}
	return b
}

func sameRows(t rapid.TB, want, got *batch.Batch, offset int) {
	t.Helper()
	for i := range got.N {
		w := wire.AppendRowJSON(nil, want, i+offset, weirv1.Numbers_NUMBERS_STRING)
		if g := wire.AppendRowJSON(nil, got, i, weirv1.Numbers_NUMBERS_STRING); !bytes.Equal(w, g) {
			t.Fatalf("row %d: got %s, want %s", i, g, w)
		}
	}
}

func TestColumnsComeBackAsTheyWereSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		from := rapid.IntRange(0, b.N-1).Draw(t, "from")
		to := rapid.IntRange(from+1, b.N).Draw(t, "to")
		data, err := proto.Marshal(wire.EncodeColumns(b, from, to))
		if err != nil {
			t.Fatal(err)
		}
		var m weirv1.ColumnBatch
		if err := proto.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		got, err := wire.DecodeColumns(context.Background(), everything, &m, "batch")
		if err != nil {
			t.Fatal(err)
		}
		if got.N != to-from {
			t.Fatalf("got %d rows, want %d", got.N, to-from)
		}
		sameRows(t, b, got, from)
		if back, err := batch.Decode(everything, batch.Encode(nil, got)); err != nil {
			t.Fatalf("the decoded batch does not survive the log: %v", err)
		} else {
			sameRows(t, got, back, 0)
		}
	})
}

func TestJSONRowsComeBackAsTheyWereSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		numbers := weirv1.Numbers(rapid.IntRange(1, 2).Draw(t, "numbers"))
		array := rapid.Bool().Draw(t, "array")
		var text []byte
		for i, row := range wire.RowsJSON(b, numbers) {
			if !json.Valid(row) {
				t.Fatalf("not JSON: %s", row)
			}
			switch {
			case array && i > 0:
				text = append(text, ',', ' ')
			case i > 0:
				text = append(text, '\r', '\n')
			}
			text = append(text, row...)
		}
		if array {
			text = append(append([]byte("\xef\xbb\xbf["), text...), ']')
		}
		got, err := wire.DecodeJSONRows(context.Background(), everything, text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if got.N != b.N {
			t.Fatalf("got %d rows, want %d", got.N, b.N)
		}
		sameRows(t, b, got, 0)
	})
}

func TestBadJSONRowsAreRefusedByRowAndColumn(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	for _, c := range []struct{ text, field, why string }{
		{"", "", "no rows"},
		{"  \n ", "", "no rows"},
		{"[]", "", "no rows"},
		{`{"id":1}` + "\n" + `{"id":"x"}`, "rows[1].id", "not a whole number"},
		{`{"id":1.5}`, "rows[0].id", "not a whole number"},
		{`{"id":9223372036854775808}`, "rows[0].id", "not a whole number"},
		{`{"id":null}`, "rows[0].id", "NOT NULL"},
		{`{}`, "rows[0].id", "NOT NULL and missing"},
		{`{"id":1,"nope":2}`, "rows[0]", `no column "nope"`},
		{`{"id":1,"id":2}`, "rows[0].id", "twice"},
		{`{"id":1,"s":{"a":[1,"}"]}}`, "rows[0].s", "found an object"},
		{`{"id":1,"s":5}`, "rows[0].s", "found a number"},
		{`{"id":1,"s":"a\u0000b"}`, "rows[0].s", "NUL"},
		{"{\"id\":1,\"s\":\"a\xffb\"}", "rows[0].s", "not valid UTF-8"},
		{`{"id":1,"s":"\ud800"}`, "rows[0]", "surrogate"},
		{`{"id":1,"ok":"true"}`, "rows[0].ok", "found a string"},
		{`{"id":1,"x":1e400}`, "rows[0].x", "out of range"},
		{`{"id":1,"x":"one"}`, "rows[0].x", "found a string"},
		{`{"id":1,"at":1700000000}`, "rows[0].at", "write it as a string"},
		{`{"id":1,"at":"yesterday"}`, "rows[0].at", "invalid input syntax"},
		{`{"id":1,"at":"19999-01-01T00:00:00Z"}`, "rows[0].at", "outside the years"},
		{`{"id":1,"at":"+010000-01-01T00:00:00Z"}`, "rows[0].at", "outside the years"},
		{`{"id":1,"at":"+000000-12-31T23:59:59Z"}`, "rows[0].at", "outside the years"},
		{`{"id":1,"d":"1e"}`, "rows[0].d", "invalid input syntax"},
		{`{"id":1,"d":1e999999999}`, "rows[0].d", "overflow"},
		{`{"id":1,"d":` + strings.Repeat("9", 5000) + `}`, "rows[0].d", "over the limit"},
		{`{"id":01}`, "rows[0]", "not a JSON number"},
		{`{"id":+1}`, "rows[0]", "expected a value"},
		{`{"id":1,}`, "rows[0]", "expected a column name"},
		{`{"id":1`, "rows[0]", "found the end"},
		{`{"id":1}x`, "rows[1]", "expected '{'"},
		{`[{"id":1}`, "rows[1]", "found the end"},
		{`[{"id":1}] {"id":2}`, "rows[1]", "after the array"},
		{`{'id':1}`, "rows[0]", "expected a column name"},
		{`{"id":NaN}`, "rows[0]", "expected a value"},
		{`{"id":1,"s":"` + "\n" + `"}`, "rows[0]", "control character"},
		{`{"id":1,"s":` + deep, "rows[0]", "nested deeper"},
		{deep, "rows[0]", "expected '{'"},
		{`"text"`, "rows[0]", "expected '{'"},
	} {
		b, err := wire.DecodeJSONRows(context.Background(), everything, []byte(c.text))
		var e *dataflow.Error
		if !errors.As(err, &e) {
			t.Errorf("%.60s: got %v, %v", c.text, b, err)
			continue
		}
		if !strings.Contains(e.Error(), c.why) {
			t.Errorf("%.60s: got %q, want something with %q", c.text, e.Error(), c.why)
		}
		if c.field == "" && len(e.Violations) == 0 {
			continue
		}
		if len(e.Violations) == 0 || e.Violations[0].Field != c.field || e.Reason != dataflow.ReasonRowInvalid {
			t.Errorf("%.60s: got %s %v, want ROW_INVALID for %s", c.text, e.Reason, e.Violations, c.field)
		}
	}
}

func TestLimitsOfJSONRowsAreNamed(t *testing.T) {
	text := dataflow.Schema{{Name: "s", Type: dataflow.TypeText}}
	row := func(n int) string { return `{"s":"` + strings.Repeat("x", n) + `"}` }
	for name, c := range map[string]string{
		"row":   row(dataflow.MaxRowBytes + 1),
		"batch": strings.Repeat(row(dataflow.MaxRowBytes/2), 17),
		"rows":  strings.Repeat("{}", dataflow.MaxBatchRows+1),
		"json":  strings.Repeat(" ", wire.MaxJSONBytes+1),
	} {
		if _, err := wire.DecodeJSONRows(context.Background(), text, []byte(c)); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
			t.Errorf("%s: got %v, want TOO_LARGE", name, err)
		}
	}
	if _, err := wire.DecodeJSONRows(context.Background(), text, []byte(row(dataflow.MaxRowBytes))); err != nil {
		t.Errorf("a row at the limit is refused: %v", err)
	}
}

func TestAtMostTwentyViolationsAreListed(t *testing.T) {
	_, err := wire.DecodeJSONRows(context.Background(), everything, []byte(strings.Repeat(`{"id":"x","no":1}`, 500)))
	var e *dataflow.Error
	if !errors.As(err, &e) || len(e.Violations) != 20 || !strings.Contains(e.Message, "980 more") && !strings.Contains(e.Message, "999 more") {
		t.Fatalf("got %v", err)
	}
}

func i64(v ...int64) *weirv1.ColumnData_Bigints {
	return &weirv1.ColumnData_Bigints{Bigints: &weirv1.Int64Values{Values: v}}
}

func texts(data string, lengths ...uint32) *weirv1.TextValues {
	return &weirv1.TextValues{Data: []byte(data), Lengths: lengths}
}

func TestBadColumnsAreRefusedByRowAndColumn(t *testing.T) {
	id := &weirv1.ColumnData{Name: "id", Values: i64(1, 2)}
	for name, c := range map[string]struct {
		m          *weirv1.ColumnBatch
		field, why string
	}{
		"no batch":     {nil, "", "at least one row"},
		"no rows":      {&weirv1.ColumnBatch{}, "", "at least one row"},
		"missing":      {&weirv1.ColumnBatch{Rows: 2}, "batch.rows[0].id", "NOT NULL and missing"},
		"unknown":      {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "no", Values: i64(1, 2)}}}, "batch.columns[1]", "no column"},
		"twice":        {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, id}}, "batch.columns[1]", "twice"},
		"wrong type":   {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Values: i64(1, 2)}}}, "batch.columns[1]", "column s is TEXT"},
		"wrong count":  {&weirv1.ColumnBatch{Rows: 3, Columns: []*weirv1.ColumnData{id}}, "batch.columns[0]", "2 values for 3 rows"},
		"null id":      {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{{Name: "id", Nulls: []byte{2}, Values: i64(1, 0)}}}, "batch.rows[1].id", "NOT NULL"},
		"all null id":  {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{{Name: "id"}}}, "batch.rows[0].id", "NOT NULL"},
		"null bits":    {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{{Name: "id", Nulls: []byte{4}, Values: i64(1, 0)}}}, "batch.columns[0]", "row 2 of 2"},
		"null length":  {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{{Name: "id", Nulls: []byte{0, 0}, Values: i64(1, 0)}}}, "batch.columns[0]", "2 bytes, 2 rows need 1"},
		"short data":   {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Values: &weirv1.ColumnData_Texts{Texts: texts("abc", 1, 3)}}}}, "batch.columns[1]", "more than its 3 bytes"},
		"long data":    {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Values: &weirv1.ColumnData_Texts{Texts: texts("abcd", 1, 2)}}}}, "batch.columns[1]", "add up to 3"},
		"huge length":  {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Values: &weirv1.ColumnData_Texts{Texts: texts("ab", math.MaxUint32, 3)}}}}, "batch.columns[1]", "more than its 2 bytes"},
		"bad utf8":     {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Values: &weirv1.ColumnData_Texts{Texts: texts("a\xffb", 1, 2)}}}}, "batch.rows[1].s", "byte 0 (0xff)"},
		"split rune":   {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Values: &weirv1.ColumnData_Texts{Texts: texts("€", 1, 2)}}}}, "batch.rows[0].s", "not valid UTF-8"},
		"nul":          {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Values: &weirv1.ColumnData_Texts{Texts: texts("a\x00", 1, 1)}}}}, "batch.rows[1].s", "NUL"},
		"null text":    {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Nulls: []byte{1}, Values: &weirv1.ColumnData_Texts{Texts: texts("ab", 1, 1)}}}}, "batch.rows[0].s", "is NULL and has 1"},
		"time":         {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "at", Values: &weirv1.ColumnData_Timestamps{Timestamps: &weirv1.Int64Values{Values: []int64{0, math.MaxInt64}}}}}}, "batch.rows[1].at", "outside the years"},
		"numeric":      {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "d", Values: &weirv1.ColumnData_Numerics{Numerics: texts("1x", 1, 1)}}}}, "batch.rows[1].d", "invalid input syntax"},
		"numeric bomb": {&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "d", Values: &weirv1.ColumnData_Numerics{Numerics: texts("11e999999999", 1, 11)}}}}, "batch.rows[1].d", "overflow"},
	} {
		b, err := wire.DecodeColumns(context.Background(), everything, c.m, "batch")
		var e *dataflow.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, c.why) {
			t.Errorf("%s: got %v, %v; want something with %q", name, b, err, c.why)
			continue
		}
		if c.field != "" && (len(e.Violations) == 0 || e.Violations[0].Field != c.field) {
			t.Errorf("%s: got %v, want %s", name, e.Violations, c.field)
		}
	}
	if _, err := wire.DecodeColumns(context.Background(), everything, &weirv1.ColumnBatch{Rows: math.MaxUint32}, ""); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Errorf("got %v, want TOO_LARGE", err)
	}
	big := &weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{id, {Name: "s", Values: &weirv1.ColumnData_Texts{
		Texts: texts(strings.Repeat("x", dataflow.MaxRowBytes+1), dataflow.MaxRowBytes+1, 0)}}}}
	if _, err := wire.DecodeColumns(context.Background(), everything, big, ""); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Errorf("got %v, want TOO_LARGE", err)
	}
	huge := &weirv1.ColumnBatch{Rows: 1, Columns: []*weirv1.ColumnData{{Name: "d", Values: &weirv1.ColumnData_Texts{
		Texts: &weirv1.TextValues{Data: make([]byte, 2*dataflow.MaxBatchBytes), Lengths: []uint32{2 * dataflow.MaxBatchBytes}}}}}}
	if _, err := wire.DecodeColumns(context.Background(), everything, huge, ""); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Errorf("one column over the limit: %v", err)
	}
}

func TestValuesOfNullRowsAreDropped(t *testing.T) {
	b, err := wire.DecodeColumns(context.Background(), dataflow.Schema{{Name: "n", Type: dataflow.TypeBigInt}},
		&weirv1.ColumnBatch{Rows: 2, Columns: []*weirv1.ColumnData{{Name: "n", Nulls: []byte{1}, Values: i64(7, 8)}}}, "")
	if err != nil || !reflect.DeepEqual(b.Cols[0].Ints, []int64{0, 8}) || !b.Cols[0].IsNull(0) {
		t.Fatalf("got %+v, %v", b, err)
	}
}

func FuzzDecodeColumns(f *testing.F) {
	b := batch.NewBatch(everything)
	b.AppendRow(dataflow.Row{dataflow.BigInt(1), dataflow.Bool(true), dataflow.Double(1.5), dataflow.Text("é"), dataflow.Timestamp(1), dataflow.Numeric(apd.New(125, -2))})
	b.AppendRow(dataflow.Row{dataflow.BigInt(2), dataflow.NullValue(dataflow.TypeBool), dataflow.NullValue(dataflow.TypeDouble), dataflow.NullValue(dataflow.TypeText), dataflow.NullValue(dataflow.TypeTimestamp), dataflow.NullValue(dataflow.TypeNumeric)})
	seed, err := proto.Marshal(wire.EncodeColumns(b, 0, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{8, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m weirv1.ColumnBatch
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		got, err := wire.DecodeColumns(context.Background(), everything, &m, "batch")
		if err != nil {
			if dataflow.ReasonOf(err) == dataflow.ReasonInternal {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		back, err := wire.DecodeColumns(context.Background(), everything, wire.EncodeColumns(got, 0, got.N), "")
		if err != nil {
			t.Fatal(err)
		}
		sameRows(t, got, back, 0)
	})
}

func FuzzDecodeJSONRows(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"ok":true,"x":1.5,"s":"é\n\ud83d\ude00","at":"2026-11-29T12:00:00Z","d":"12.50"}`, `[{"id":"1"},{"id":2,"x":"NaN"}]`,
		"\xef\xbb\xbf{\"id\":1}\r\n\r\n{\"id\":2}", `{"id":1,"s":{"a":[]}}`, `[`, `{"id":1e3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := wire.DecodeJSONRows(context.Background(), everything, data)
		if err != nil {
			if dataflow.ReasonOf(err) == dataflow.ReasonInternal {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		var text []byte
		for _, row := range wire.RowsJSON(b, weirv1.Numbers_NUMBERS_JSON) {
			if !json.Valid(row) {
				t.Fatalf("not JSON: %s", row)
			}
			text = append(text, row...)
		}
		back, err := wire.DecodeJSONRows(context.Background(), everything, text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		sameRows(t, b, back, 0)
	})
}

func TestErrorsCrossTheWireWhole(t *testing.T) {
	e := dataflow.Errorf(dataflow.ReasonStreamNotFound, "no stream %q", "a\xffb").WithHint("see %s", "weir stream list").
		WithMeta("stream", "ab").WithRetry(2 * time.Second)
	e.Violations = []dataflow.Violation{{Field: "rows[3].amount", Description: "too large"}}
	cut := &weirv1.Cut{Pipeline: "p", CheckpointId: 7}
	data, err := proto.Marshal(wire.Status(e, cut))
	if err != nil {
		t.Fatal(err)
	}
	st := wire.Status(e, nil)
	if err := proto.Unmarshal(data, st); err != nil {
		t.Fatal(err)
	}
	got, gotCut, ok := wire.ErrorOf(st)
	if !ok || !errors.Is(got, e) || got.Message != "no stream \"a\\xffb\"" || got.Hint != e.Hint || got.RetryAfter != e.RetryAfter ||
		!reflect.DeepEqual(got.Violations, e.Violations) || got.Metadata["stream"] != "ab" || gotCut.GetCheckpointId() != 7 {
		t.Fatalf("got %+v, %v, %v", got, gotCut, ok)
	}
}

func TestEveryReasonHasItsKindsCodeAndComesBack(t *testing.T) {
	for _, r := range dataflow.Reasons() {
		st := wire.Status(dataflow.Errorf(r.Reason, "x"), nil)
		e, _, ok := wire.ErrorOf(st)
		if !ok || e.Reason != r.Reason || st.Code != int32(wire.CodeOf(r.Kind)) || st.Code == 0 {
			t.Errorf("%s: got %v, %v", r.Reason, st, ok)
		}
	}
}

func TestForeignErrorsShowNothingOfTheInside(t *testing.T) {
	st := wire.Status(errors.New("open /secret/path: denied"), nil)
	if strings.Contains(st.String(), "secret") || st.Code != 13 {
		t.Fatalf("got %v", st)
	}
	if st := wire.Status(context.DeadlineExceeded, nil); st.Code != 4 {
		t.Fatalf("got %v", st)
	}
	if st := wire.Status(context.Canceled, nil); st.Code != 1 {
		t.Fatalf("got %v", st)
	}
}

func TestRowsAreWrittenPlainly(t *testing.T) {
	b := batch.NewBatch(everything)
	b.AppendRow(dataflow.Row{dataflow.BigInt(math.MinInt64), dataflow.Bool(false), dataflow.Double(math.Inf(-1)), dataflow.Text("a\"\\\n\x01<é>"),
		dataflow.Timestamp(1_500_000), dataflow.Numeric(apd.New(1250, -2))})
	const want = `{"id":-9223372036854775808,"ok":false,"x":"-Infinity","s":"a\"\\\n\u0001<é>","at":"1970-01-01T00:00:01.5Z","d":12.50}`
	if got := string(wire.AppendRowJSON(nil, b, 0, weirv1.Numbers_NUMBERS_JSON)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const wantText = `{"id":"-9223372036854775808","ok":false,"x":"-Infinity","s":"a\"\\\n\u0001<é>","at":"1970-01-01T00:00:01.5Z","d":"12.50"}`
	if got := string(wire.AppendRowJSON(nil, b, 0, weirv1.Numbers_NUMBERS_STRING)); got != wantText {
		t.Errorf("got  %s\nwant %s", got, wantText)
	}
}

func ts(micros int64) *timestamppb.Timestamp { return timestamppb.New(time.UnixMicro(micros)) }

// fullCut has every field set.
func fullCut() *weirv1.Cut {
	return &weirv1.Cut{
		Pipeline: "wordcount", PipelineUid: 3, Timeline: 1, CheckpointId: 1<<63 + 1, Incarnation: 2, Guarantee: weirv1.Guarantee_GUARANTEE_EXACTLY_ONCE,
		TriggeredAt: ts(1), CommittedAt: ts(2_000_000), AgeMs: 5, Watermark: ts(3), BehindRows: 6, BehindMs: 7, Speculative: true, CatchingUp: true,
		Node: "n1", Role: "leader", PipelineState: weirv1.PipelineState_PIPELINE_STATE_RUNNING, SkippedRows: 8, Token: "t",
		Positions: []*weirv1.Position{{Stream: "lines", Shard: 2, Offset: 9}, {Stream: "lines", Shard: 0, Offset: 4}, {Stream: "a", Shard: 1 << 30, Offset: 1}},
	}
}

func TestCutsAreWrittenPlainlyAndWhole(t *testing.T) {
	const want = `{"pipeline":"wordcount","pipeline_uid":3,"timeline":1,"checkpoint_id":9223372036854775809,"incarnation":2,` +
		`"guarantee":"exactly_once","triggered_at":"1970-01-01T00:00:00.000001Z","committed_at":"1970-01-01T00:00:02Z","age_ms":5,` +
		`"positions":{"lines":[4,0,9]},"watermark":"1970-01-01T00:00:00.000003Z","behind_rows":6,"behind_ms":7,"speculative":true,` +
		`"catching_up":true,"node":"n1","role":"leader","pipeline_state":"RUNNING","skipped_rows":8,"token":"t"}`
	got := wire.AppendCutJSON(nil, fullCut())
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	fields := fullCut().ProtoReflect().Descriptor().Fields()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(got, &members); err != nil {
		t.Fatal(err)
	}
	for i := range fields.Len() {
		if _, ok := members[string(fields.Get(i).Name())]; !ok {
			t.Errorf("the plain cut lacks %s", fields.Get(i).Name())
		}
	}
}

func TestMessagesAreWrittenPlainly(t *testing.T) {
	m := &weirv1.GetPipelineResponse{Pipeline: &weirv1.Pipeline{Name: "p", Uid: 1 << 60, State: weirv1.PipelineState_PIPELINE_STATE_FAILED,
		Options: map[string]string{"b": "2", "a": "1"}, Tables: []string{"t"}}}
	const want = `{"pipeline":{"name":"p","uid":1152921504606846976,"sql":"","options":{"a":"1","b":"2"},"state":"FAILED","timeline":0,"incarnation":0,"tables":["t"],"streams":[]}}`
	if got := string(wire.AppendJSON(nil, m)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	c := &weirv1.Column{Name: "x", Type: weirv1.Type_TYPE_TIMESTAMPTZ, NotNull: true}
	if got := string(wire.AppendJSON(nil, c)); got != `{"name":"x","type":"TIMESTAMPTZ","not_null":true}` {
		t.Errorf("got %s", got)
	}
}

func TestValuesComeBackAsTheyWereGiven(t *testing.T) {
	row := dataflow.Row{dataflow.BigInt(-1), dataflow.Bool(true), dataflow.Double(2.5), dataflow.Text(""), dataflow.Timestamp(5),
		dataflow.Numeric(apd.New(1250, -2)), {Type: dataflow.TypeUnknown, Str: "lit"}, dataflow.NullValue(dataflow.TypeUnknown)}
	got, err := wire.KeyFrom(wire.Key(row))
	if err != nil || len(got) != len(row) {
		t.Fatalf("got %v, %v", got, err)
	}
	for i := range row {
		if got[i].Type != row[i].Type || got[i].Null != row[i].Null || got[i].Str != row[i].Str || got[i].Int != row[i].Int || got[i].Flt != row[i].Flt ||
			row[i].Dec != nil && got[i].Dec.Cmp(row[i].Dec) != 0 {
			t.Errorf("part %d: got %+v, want %+v", i, got[i], row[i])
		}
	}
}

// benchRows returns rows as they come from a real producer: a number, a short text, a time.
func benchRows(n int) *batch.Batch {
	b := batch.NewBatch(dataflow.Schema{{Name: "id", Type: dataflow.TypeBigInt, NotNull: true}, {Name: "s", Type: dataflow.TypeText}, {Name: "at", Type: dataflow.TypeTimestamp}})
	for i := range n {
		b.AppendRow(dataflow.Row{dataflow.BigInt(int64(i)), dataflow.Text("call me ishmael"), dataflow.Timestamp(int64(i) * 1_000_000)})
	}
	return b
}

func BenchmarkDecodeColumns(b *testing.B) {
	rows := benchRows(4096)
	m := wire.EncodeColumns(rows, 0, rows.N)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.DecodeColumns(context.Background(), rows.Schema, m, ""); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkDecodeJSONRows(b *testing.B) {
	rows := benchRows(4096)
	text := bytes.Join(wire.RowsJSON(rows, weirv1.Numbers_NUMBERS_JSON), []byte("\n"))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.DecodeJSONRows(context.Background(), rows.Schema, text); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds(), "rows/s")
}
