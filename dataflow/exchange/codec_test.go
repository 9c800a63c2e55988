package exchange_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/exchange"
)

var every = dataflow.Schema{
	{Name: "i", Type: dataflow.TypeBigInt}, {Name: "b", Type: dataflow.TypeBool}, {Name: "f", Type: dataflow.TypeDouble},
	{Name: "s", Type: dataflow.TypeText}, {Name: "d", Type: dataflow.TypeNumeric}, {Name: "l", Type: dataflow.TypeTextArray},
	{Name: "v", Type: dataflow.TypeInterval}, {Name: "u", Type: dataflow.TypeUnknown},
}

// rows returns a batch of n rows of all forms, with NULLs among them.
func rows(rng *rand.Rand, n int) *batch.Batch {
	b := batch.NewBatch(every)
	for range n {
		row := make(dataflow.Row, len(every))
		for c, col := range every {
			v := dataflow.Value{Type: col.Type, Null: col.Type == dataflow.TypeUnknown || rng.IntN(5) == 0}
			if !v.Null {
				switch col.Type {
				case dataflow.TypeBigInt:
					v.Int = rng.Int64() >> rng.IntN(64)
				case dataflow.TypeBool:
					v.Int = rng.Int64N(2)
				case dataflow.TypeDouble:
					v.Flt = rng.NormFloat64()
				case dataflow.TypeText:
					v.Str = strings.Repeat("ö", rng.IntN(9))
				case dataflow.TypeNumeric:
					v.Dec = apd.New(rng.Int64(), int32(rng.IntN(9))-4)
				case dataflow.TypeTextArray:
					for range rng.IntN(3) {
						v.Arr = append(v.Arr, dataflow.Text(fmt.Sprint(rng.IntN(99))))
					}
				case dataflow.TypeInterval:
					v.Ivl = dataflow.Interval{Months: int32(rng.IntN(9)), Days: -int32(rng.IntN(9)), Micros: rng.Int64N(1 << 40)}
				}
			}
			row[c] = v
		}
		b.AppendRow(row)
	}
	return b
}

// text prints all of a message that a receiver may look at.
func text(m exchange.Message) string {
	var out strings.Builder
	fmt.Fprint(&out, m)
	switch m.Kind {
	case exchange.KindRows:
		fmt.Fprintf(&out, " stream %d shard %d weighted %v\n", m.Rows.Stream, m.Rows.Shard, m.Rows.Weights != nil)
		for i := range m.Rows.N {
			fmt.Fprintf(&out, "%d: %x %+d %+v\n", m.Rows.OffsetOf(i), m.Hashes[i], m.Rows.Weight(i), show(m.Rows.Row(i)))
		}
	case exchange.KindPartials:
		for i := range m.Partials.Keys {
			fmt.Fprintf(&out, " %x %x=%x", m.Partials.Hashes[i], m.Partials.Keys[i], m.Partials.Accs[i])
		}
	}
	return out.String()
}

func show(row dataflow.Row) string {
	var out []string
	for _, v := range row {
		switch {
		case v.Null:
			out = append(out, "NULL")
		case v.Dec != nil:
			out = append(out, v.Dec.String())
		case v.Type == dataflow.TypeTextArray:
			out = append(out, show(v.Arr))
		default:
			out = append(out, fmt.Sprintf("%d/%v/%q/%v", v.Int, v.Flt, v.Str, v.Ivl))
		}
	}
	return strings.Join(out, ",")
}

// message returns a message at random.
func message(rng *rand.Rand) exchange.Message {
	switch rng.IntN(4) {
	case 0:
		return exchange.Message{Kind: exchange.KindBarrier, Barrier: dataflow.CheckpointID(rng.Uint64() | 1)}
	case 1:
		m := exchange.Message{Kind: exchange.KindMarker, Marker: rng.Uint64(), Positions: dataflow.Positions{}}
		for range rng.IntN(4) {
			m.Positions[dataflow.StreamShard{Stream: dataflow.StreamID(rng.Uint64()), Shard: dataflow.ShardID(rng.IntN(dataflow.MaxShards))}] = dataflow.Offset(rng.Uint64())
		}
		return m
	case 2:
		p := &exchange.Partials{}
		for range rng.IntN(5) {
			p.Hashes = append(p.Hashes, rng.Uint64())
			p.Keys = append(p.Keys, bytes.Repeat([]byte{7}, rng.IntN(5)))
			p.Accs = append(p.Accs, bytes.Repeat([]byte{9}, rng.IntN(300)))
		}
		return exchange.Message{Kind: exchange.KindPartials, Partials: p}
	}
	m := exchange.Message{Kind: exchange.KindRows, Rows: rows(rng, rng.IntN(6))}
	m.Rows.Stream, m.Rows.Shard, m.Rows.FirstOffset = 3, dataflow.ShardID(rng.IntN(8)), dataflow.Offset(rng.Uint64()>>1)
	origin, weights := rng.IntN(2) == 0, rng.IntN(2) == 0
	for range m.Rows.N {
		m.Hashes = append(m.Hashes, rng.Uint64())
		if origin {
			m.Rows.Origin = append(m.Rows.Origin, dataflow.Offset(rng.Uint64()>>rng.IntN(64)))
		}
		if weights {
			m.Rows.Weights = append(m.Rows.Weights, int8(2*rng.IntN(2)-1))
		}
	}
	return m
}

func encode(t testing.TB, m exchange.Message) []byte {
	t.Helper()
	data, err := exchange.AppendMessage(nil, every, m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWhatIsSentArrivesAsItWas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		m := message(rng)
		data := encode(t, m)
		got, err := exchange.DecodeMessage(every, data)
		if err != nil {
			t.Fatalf("%s: %v", text(m), err)
		}
		if text(got) != text(m) {
			t.Fatalf("sent %s\ngot %s", text(m), text(got))
		}
		if m.Kind == exchange.KindMarker && !reflect.DeepEqual(got.Positions, m.Positions) {
			t.Fatalf("sent %s, got %s", m.Positions, got.Positions)
		}
		// What is cut off or has more is refused.
		if cut := data[:rng.IntN(len(data))]; true {
			if _, err := exchange.DecodeMessage(every, cut); err == nil {
				t.Fatalf("%d of %d bytes of %s are taken", len(cut), len(data), text(m))
			}
		}
		if _, err := exchange.DecodeMessage(every, append(data, 0)); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Fatalf("a byte more: %v", err)
		}
	}
}

// A sender uses its buffers again as soon as Send has returned.
func TestAnEncodedMessageSharesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		m := message(rng)
		want, data := text(m), encode(t, m)
		if m.Rows != nil {
			for _, v := range m.Rows.Cols {
				clear(v.Ints)
				clear(v.Floats)
				clear(v.Data)
				clear(v.Decs)
			}
			clear(m.Rows.Origin)
			clear(m.Rows.Weights)
			clear(m.Hashes)
		}
		if m.Partials != nil {
			clear(m.Partials.Hashes)
			for _, b := range slices.Concat(m.Partials.Keys, m.Partials.Accs) {
				clear(b)
			}
		}
		if got, err := exchange.DecodeMessage(every, data); err != nil || text(got) != want {
			t.Fatalf("sent %s, got %s, %v", want, text(got), err)
		}
	}
}

// An expression that is NULL whatever the row is may give a column without a type.
func TestAColumnWithoutATypeArrivesAsNULLs(t *testing.T) {
	b := batch.NewBatch(every)
	b.N = 3
	for i := range b.Cols {
		b.Cols[i] = batch.NewVectorLen(dataflow.TypeUnknown, 3)
	}
	got, err := exchange.DecodeMessage(every, encode(t, exchange.Message{Kind: exchange.KindRows, Rows: b, Hashes: make([]uint64, 3)}))
	if err != nil {
		t.Fatal(err)
	}
	if s := show(got.Rows.Row(2)); s != "NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL" {
		t.Errorf("got %s", s)
	}
}

// TestSplitKeepsEveryRowAndFits cuts messages that are too large in one of the ways that there are.
func TestSplitKeepsEveryRowAndFits(t *testing.T) {
	one := func(typ dataflow.Type) dataflow.Schema { return dataflow.Schema{{Name: "x", Type: typ}} }
	long := batch.NewBatch(one(dataflow.TypeText))
	for range 300 {
		long.Cols[0].AppendString(strings.Repeat("x", 10_000))
	}
	long.N = 300
	many := batch.NewBatch(one(dataflow.TypeBigInt))
	for i := range dataflow.MaxBatchRows + 10 {
		many.Cols[0].AppendInt(int64(i & 1))
	}
	many.N = dataflow.MaxBatchRows + 10
	lists := batch.NewBatch(one(dataflow.TypeBoolArray))
	for range 40 {
		for range 1 << 16 {
			lists.Cols[0].Elems.AppendInt(1)
		}
		lists.Cols[0].CloseList()
	}
	lists.N = 40
	for _, b := range []*batch.Batch{long, many, lists} {
		m := exchange.Message{Kind: exchange.KindRows, Rows: b}
		for i := range b.N {
			m.Hashes = append(m.Hashes, uint64(i))
		}
		next, messages := 0, 0
		if err := exchange.Split(m, func(part exchange.Message) error {
			data, err := exchange.AppendMessage(nil, b.Schema, part)
			if err != nil {
				return err
			}
			got, err := exchange.DecodeMessage(b.Schema, data)
			if err != nil {
				return err
			}
			for i, h := range got.Hashes {
				if h != uint64(next) || got.Rows.OffsetOf(i) != dataflow.Offset(next) {
					t.Fatalf("row %d came as number %d", h, next)
				}
				next++
			}
			messages++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if next != b.N || messages < 2 {
			t.Errorf("%d of %d rows came, in %d messages", next, b.N, messages)
		}
	}

	p := &exchange.Partials{}
	for i := range 5000 {
		p.Hashes, p.Keys, p.Accs = append(p.Hashes, uint64(i)), append(p.Keys, []byte{1}), append(p.Accs, make([]byte, 1000))
	}
	next, messages := 0, 0
	if err := exchange.Split(exchange.Message{Kind: exchange.KindPartials, Partials: p}, func(part exchange.Message) error {
		for i, h := range part.Partials.Hashes {
			if h != uint64(next) || len(part.Partials.Keys[i]) != 1 || len(part.Partials.Accs[i]) != 1000 {
				t.Fatalf("key %d came as number %d", h, next)
			}
			next++
		}
		messages++
		return nil
	}); err != nil || next != 5000 || messages < 4 {
		t.Errorf("%d keys came, in %d messages: %v", next, messages, err)
	}
	boom := errors.New("boom")
	if err := exchange.Split(exchange.Message{Kind: exchange.KindPartials, Partials: p}, func(exchange.Message) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("Split hides an error: %v", err)
	}
}

func TestWhatCannotArriveIsNotSent(t *testing.T) {
	schema := dataflow.Schema{{Name: "x", Type: dataflow.TypeBoolArray}}
	b := batch.NewBatch(schema)
	for range 1<<20 + 1 {
		b.Cols[0].Elems.AppendInt(1)
	}
	b.Cols[0].CloseList()
	b.N = 1
	if _, err := exchange.AppendMessage(nil, schema, exchange.Message{Kind: exchange.KindRows, Rows: b, Hashes: []uint64{1}}); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Errorf("an array that is too long: %v", err)
	}
	for _, other := range []dataflow.Schema{nil, {{Name: "x", Type: dataflow.TypeText}}} {
		if _, err := exchange.AppendMessage(nil, other, exchange.Message{Kind: exchange.KindRows, Rows: b, Hashes: []uint64{1}}); dataflow.ReasonOf(err) != dataflow.ReasonInternal {
			t.Errorf("rows for %v: %v", other, err)
		}
	}
	if _, err := exchange.AppendMessage(nil, schema, exchange.Message{Kind: 9}); err == nil {
		t.Error("a message of no kind is encoded")
	}
}

func TestALieAboutACountTakesNoMemory(t *testing.T) {
	for _, data := range [][]byte{
		{byte(exchange.KindPartials), 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
		{byte(exchange.KindRows), 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0},
		{byte(exchange.KindMarker), 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
		{byte(exchange.KindBarrier), 0},
		{200, 1},
		{},
	} {
		if _, err := exchange.DecodeMessage(every, data); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Errorf("% x: %v", data, err)
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		f.Add(encode(f, message(rng)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := exchange.DecodeMessage(every, data)
		if err != nil {
			if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
				t.Fatal(err)
			}
			return
		}
		if m.Rows != nil && m.Rows.N > 0 && m.Rows.Cols[2].Floats[0] != m.Rows.Cols[2].Floats[0] {
			return // NaN has many forms
		}
		again, err := exchange.DecodeMessage(every, encode(t, m))
		if err != nil || text(again) != text(m) {
			t.Fatalf("%s came back as %s, %v", text(m), text(again), err)
		}
	})
}

// Blocked edges: a sender without a credit waits, its siblings do not (X1 to X4), wherever the sender is.
func TestADeliveryNeedsACredit(t *testing.T) {
	in := exchange.NewInbox(2, 2)
	released := 0
	in.Edge(1).OnRelease(func() { released++ })
	barrier := exchange.Message{Kind: exchange.KindBarrier, Barrier: 1}
	for i := range 2 {
		if err := in.Edge(1).Deliver(barrier); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := in.Edge(1).Deliver(barrier); err == nil {
		t.Fatal("a message without a credit was delivered")
	}
	if err := in.Edge(0).Send(t.Context(), barrier); err != nil { // the sibling has credits of its own
		t.Fatal(err)
	}
	in.Release(0)
	if env := <-in.C(); env.Edge != 1 || released != 0 {
		t.Fatalf("got %+v, %d credits", env, released)
	}
	in.Release(1)
	if released != 1 {
		t.Fatalf("%d credits returned, want 1", released)
	}
	if err := in.Edge(1).Deliver(barrier); err != nil {
		t.Fatal(err)
	}
}

var benchmarkBytes int

func BenchmarkCodec(b *testing.B) {
	schema := dataflow.Schema{{Name: "k", Type: dataflow.TypeBigInt}}
	rng := rand.New(rand.NewPCG(1, 1))
	ints := batch.NewBatch(schema)
	for range batch.TargetRows {
		ints.Cols[0].AppendInt(rng.Int64N(math.MaxInt32))
	}
	ints.N = batch.TargetRows
	m := exchange.Message{Kind: exchange.KindRows, Rows: ints, Hashes: make([]uint64, ints.N)}
	var buf []byte
	b.Run("op=encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = exchange.AppendMessage(buf[:0], schema, m)
		}
		b.ReportMetric(float64(b.N)*batch.TargetRows/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("op=decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			got, err := exchange.DecodeMessage(schema, buf)
			if err != nil {
				b.Fatal(err)
			}
			benchmarkBytes += got.Rows.N
		}
		b.ReportMetric(float64(b.N)*batch.TargetRows/b.Elapsed().Seconds(), "rows/s")
	})
}
