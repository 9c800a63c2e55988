package key_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

func TestKeysOfManyRowsAreThoseOfEachRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Often only types that have kernels, which a column of another type switches off.
		types := rapid.SliceOfN(rapid.SampledFrom(keyTypes), 0, 3)
		if rapid.Bool().Draw(t, "kernels") {
			types = rapid.SliceOfN(rapid.SampledFrom([]dataflow.Type{dataflow.TypeBigInt, dataflow.TypeText, dataflow.TypeDate}), 1, 3)
		}
		var cols []*batch.Vector
		n := rapid.IntRange(0, 12).Draw(t, "rows")
		for _, typ := range types.Draw(t, "types") {
			v := batch.NewVector(typ, n+2)
			v.AppendValue(drawValue(t, typ))
			for range n {
				switch {
				case typ == dataflow.TypeText && rapid.Bool().Draw(t, "plain"):
					v.AppendString(rapid.StringMatching(`[a-c]{0,20}`).Draw(t, "text"))
				default:
					v.AppendValue(drawValue(t, typ))
				}
			}
			cols = append(cols, v.Slice(1, n+1)) // whose texts do not begin at 0
		}
		var rows []int32
		for row := range n {
			if rapid.IntRange(0, 3).Draw(t, "in") > 0 {
				rows = append(rows, int32(row))
			}
		}
		before := []byte("before")
		want, ends := bytes.Clone(before), make([]uint32, len(rows))
		for i := range ends {
			ends[i] = rapid.Uint32().Draw(t, "left over")
		}
		got := key.AppendKeys(before, ends, cols, rows)
		for i, row := range rows {
			for _, v := range cols {
				want = key.AppendVector(want, v, int(row))
			}
			if int(ends[i]) != len(want) {
				t.Fatalf("key %d ends at %d, want %d", i, ends[i], len(want))
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got %x\nwant %x", got, want)
		}
	})
}

func BenchmarkAppendKeys(b *testing.B) {
	words, ints := batch.NewVector(dataflow.TypeText, 256), batch.NewVector(dataflow.TypeBigInt, 256)
	rows, ends := make([]int32, 256), make([]uint32, 256)
	for i := range rows {
		rows[i] = int32(i)
		words.AppendString([]string{"whale", "the", "of", "light"}[i%4])
		ints.AppendInt(int64(i) * 1e9)
	}
	for _, c := range []struct {
		name string
		cols []*batch.Vector
	}{{"text", []*batch.Vector{words}}, {"bigint", []*batch.Vector{ints}}, {"bigint,text", []*batch.Vector{ints, words}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf = key.AppendKeys(buf[:0], ends, c.cols, rows)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/row")
		})
	}
}
