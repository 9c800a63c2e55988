package task

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
)

// kept is an edge that keeps what is sent.
type kept struct{ sent []exchange.Message }

func (k *kept) Send(_ context.Context, m exchange.Message) error {
	k.sent = append(k.sent, m)
	return nil
}

// countStage counts rows by a key.
func countStage(t dataflow.Type) *plan.Stage {
	return &plan.Stage{
		Key:    dataflow.Schema{{Name: "k", Type: t}},
		Aggs:   []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: dataflow.TypeBigInt}},
		Inputs: []*plan.Input{{Stream: "events"}},
	}
}

// keyedBatches returns batches of rows whose keys, of a type, are drawn evenly from so many.
func keyedBatches(t dataflow.Type, batches int, distinct int64) []*batch.Batch {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]*batch.Batch, batches)
	for i := range out {
		b := batch.NewBatch(dataflow.Schema{{Name: "k", Type: t}})
		for range batch.TargetRows {
			if k := rng.Int64N(distinct); t == dataflow.TypeText {
				b.Cols[0].AppendString(fmt.Sprintf("k%011d", k))
			} else {
				b.Cols[0].AppendInt(k)
			}
			b.N++
		}
		out[i] = b
	}
	return out
}

const benchShards = 8

// newBenchRoute returns a route of a stage and the edges it leads to.
func newBenchRoute(st *plan.Stage) (*route, []*kept) {
	edges, senders := make([]*kept, benchShards), make([]exchange.Sender, benchShards)
	for i := range edges {
		edges[i] = &kept{}
		senders[i] = edges[i]
	}
	r := &Run{cfg: Config{Shards: benchShards}}
	return newRoute(r, st, st.Inputs[0], 0, senders), edges
}

// TestWhatARouteSendsFoldsToTheSumOfItsRows: as partials and as rows, each key's accumulator is the one that its rows give one by
// one. What was sent is folded after everything has been sent: a route changes nothing that it has handed over.
func TestWhatARouteSendsFoldsToTheSumOfItsRows(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	schema := dataflow.Schema{{Name: "s", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}, {Name: "v", Type: dataflow.TypeText}}
	fixed := []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: dataflow.TypeBigInt}, {Fn: agg.Sum, Arg: 1, ArgType: dataflow.TypeBigInt, Out: dataflow.TypeNumeric}}
	for name, st := range map[string]*plan.Stage{
		"text":      {Key: schema[:1], Aggs: fixed},
		"two parts": {Key: schema[:2], Aggs: fixed},
		"varying":   {Key: schema[:1], Aggs: append(fixed[:2:2], agg.Spec{Fn: agg.Max, Arg: 2, ArgType: dataflow.TypeText, Out: dataflow.TypeText})},
	} {
		for _, partials := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/partials=%v", name, partials), func(t *testing.T) {
				st.Inputs = []*plan.Input{{Stream: "events"}}
				layout := agg.NewLayout(st.Aggs)
				rt, edges := newBenchRoute(st)
				if !partials {
					rt.pre = nil
				}
				want := map[string][]byte{}
				for range 5 {
					b := batch.NewBatch(schema)
					for range r.IntN(900) {
						text := dataflow.Text(strings.Repeat("k", r.IntN(40)))
						if r.IntN(9) == 0 {
							text = dataflow.NullValue(dataflow.TypeText)
						}
						b.AppendRow(dataflow.Row{text, dataflow.BigInt(r.Int64N(5)), dataflow.Text(fmt.Sprint(r.IntN(1000)))})
						k := string(key.AppendRow(nil, b.Row(b.N - 1)[:len(st.Key)]))
						want[k] = mustUpdate(t, layout, want[k], b)
					}
					if err := rt.send(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}
				got := 0
				for shard, e := range edges {
					table := state.NewTable(Shape(st), nil)
					defer table.Close()
					k := newKeyed(rt.run, st, dataflow.ShardID(shard), exchange.NewInbox(1, 1), table, nil)
					for _, m := range e.sent {
						if (m.Kind == exchange.KindPartials) != partials {
							t.Fatalf("seed %d: sent %s", seed, m)
						}
						if err := k.process(t.Context(), exchange.Envelope{Message: m}); err != nil {
							t.Fatal(err)
						}
					}
					got += table.Len()
					for enc, acc := range want {
						if dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey([]byte(enc))), benchShards) != dataflow.ShardID(shard) {
							continue
						}
						if val, _, _ := table.Get([]byte(enc), nil); !bytes.Equal(val, acc) {
							t.Errorf("seed %d, key %x: %x, want %x", seed, enc, val, acc)
						}
					}
				}
				if got != len(want) {
					t.Errorf("seed %d: %d keys, want %d", seed, got, len(want))
				}
			})
		}
	}
}

// mustUpdate folds the last row of b into acc; nil = an empty one.
func mustUpdate(t *testing.T, l *agg.Layout, acc []byte, b *batch.Batch) []byte {
	t.Helper()
	if acc == nil {
		acc = l.New(nil)
	}
	acc, err := l.Update(acc, b, b.N-1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return acc
}

var benchCases = []struct {
	typ  dataflow.Type
	keys int64
}{
	{dataflow.TypeText, 1000}, {dataflow.TypeText, 1_000_000}, {dataflow.TypeBigInt, 1000}, {dataflow.TypeBigInt, 1_000_000},
}

func BenchmarkRouteSend(b *testing.B) {
	for _, c := range benchCases {
		b.Run(fmt.Sprintf("%s/keys=%d", c.typ, c.keys), func(b *testing.B) {
			rows := keyedBatches(c.typ, 64, c.keys)
			rt, edges := newBenchRoute(countStage(c.typ))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if err := rt.send(b.Context(), rows[n%len(rows)]); err != nil {
					b.Fatal(err)
				}
				for _, e := range edges {
					e.sent = e.sent[:0]
				}
				n++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*batch.TargetRows), "ns/row")
		})
	}
}

// BenchmarkFold measures what a shard's task does with the messages that routes send it: partials of few keys, rows of many.
func BenchmarkFold(b *testing.B) {
	for _, c := range benchCases {
		b.Run(fmt.Sprintf("%s/keys=%d", c.typ, c.keys), func(b *testing.B) {
			st := countStage(c.typ)
			rt, edges := newBenchRoute(st)
			for _, rows := range keyedBatches(c.typ, 512, c.keys) {
				if err := rt.send(b.Context(), rows); err != nil {
					b.Fatal(err)
				}
			}
			sent := edges[0].sent
			table := state.NewTable(Shape(st), nil)
			defer table.Close()
			k := newKeyed(rt.run, st, 0, exchange.NewInbox(1, 1), table, nil)
			b.ReportAllocs()
			n, entries := 0, 0
			for b.Loop() {
				m := sent[n%len(sent)]
				n++
				entries += len(m.Hashes)
				if m.Kind == exchange.KindPartials {
					entries += len(m.Partials.Hashes)
				}
				if err := k.process(b.Context(), exchange.Envelope{Message: m}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(entries), "ns/entry")
		})
	}
}
