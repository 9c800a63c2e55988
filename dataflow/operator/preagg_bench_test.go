package operator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// benchKeys are the key columns that benchmarks measure: texts of 12 bytes, numbers, and both.
var benchKeys = []struct {
	name  string
	types []dataflow.Type
}{
	{"text", []dataflow.Type{text}}, {"bigint", []dataflow.Type{bigint}}, {"bigint,text", []dataflow.Type{bigint, text}},
}

// benchBatch returns a full batch whose rows have one of so many keys, drawn evenly, and a number.
func benchBatch(types []dataflow.Type, distinct int64) *batch.Batch {
	rng := rand.New(rand.NewPCG(1, 2))
	var schema dataflow.Schema
	for i, t := range append(types[:len(types):len(types)], bigint) {
		schema = append(schema, dataflow.Column{Name: fmt.Sprint("c", i), Type: t})
	}
	b := batch.NewBatch(schema)
	for range batch.TargetRows {
		k := rng.Int64N(distinct)
		for c, t := range types {
			if t == text {
				b.Cols[c].AppendString(fmt.Sprintf("k%011d", k))
			} else {
				b.Cols[c].AppendInt(k * 1e9)
			}
		}
		b.Cols[len(types)].AppendInt(k)
		b.N++
	}
	return b
}

func BenchmarkHashKeys(b *testing.B) {
	for _, k := range benchKeys {
		b.Run(k.name, func(b *testing.B) {
			rows := benchBatch(k.types, 1000)
			var hashes []uint64
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				hashes, buf = operator.HashKeys(hashes[:0], buf, rows, len(k.types))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows.N), "ns/row")
		})
	}
}

func BenchmarkPreAggFold(b *testing.B) {
	for _, k := range benchKeys {
		arg := len(k.types)
		for _, a := range []struct {
			name string
			aggs []agg.Spec
		}{
			{"count", []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: bigint}}},
			{"count,sum,max", []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: bigint}, {Fn: agg.Sum, Arg: arg, ArgType: bigint, Out: numeric}, {Fn: agg.Max, Arg: arg, ArgType: bigint, Out: bigint}}},
		} {
			for _, distinct := range []int64{100, 1000, 100_000} {
				b.Run(fmt.Sprintf("%s/%s/keys=%d", k.name, a.name, distinct), func(b *testing.B) {
					rows := benchBatch(k.types, distinct)
					p := operator.NewPreAgg(&plan.Stage{Key: rows.Schema[:arg], Aggs: a.aggs})
					b.ReportAllocs()
					for b.Loop() {
						if _, err := p.Fold(rows); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows.N), "ns/row")
				})
			}
		}
	}
}

// BenchmarkLimits measures what a row costs in a chain that has nothing to do but to check it.
func BenchmarkLimits(b *testing.B) {
	rows := benchBatch([]dataflow.Type{text}, 1000)
	c := operator.NewChainRunner(&plan.Stage{Key: rows.Schema[:1], Aggs: []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: bigint}}}, &plan.Input{})
	env := &expr.Env{}
	b.ReportAllocs()
	for b.Loop() {
		c.Run(rows, nil, env)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows.N), "ns/row")
}
