package agg_test

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
)

// TestGroupsAreFoldedAsTheirRowsAre: bytes and errors are those of Update, row after row.
func TestGroupsAreFoldedAsTheirRowsAre(t *testing.T) {
	specs := specsOf(t, "count", "sum", "avg", "min", "max", "any", "bool_and", "bit_or", "bit_xor", "var_pop")
	var fixed []agg.Spec
	for _, s := range specs {
		if _, ok := agg.NewLayout([]agg.Spec{s}).Fixed(); ok {
			fixed = append(fixed, s)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		l := agg.NewLayout(rapid.SliceOfN(rapid.SampledFrom(fixed), 0, 4).Draw(t, "aggregates"))
		size, _ := l.Fixed()
		const groups = 3
		weighted := rapid.Bool().Draw(t, "weighted")
		b := batch.NewBatch(columns)
		var of []int32
		for range rapid.IntRange(0, 30).Draw(t, "rows") {
			b.AppendRow(drawRow(t))
			of = append(of, rapid.Int32Range(0, groups-1).Draw(t, "group"))
			if weighted {
				b.Weights = append(b.Weights, rapid.SampledFrom([]int8{1, 1, 1, -1, 0, 3}).Draw(t, "weight"))
			}
		}
		var want, got []byte
		for range groups {
			want, got = l.New(want), l.New(got)
		}
		var failed error
		for row, g := range of {
			if _, failed = l.Update(want[int(g)*size:int(g+1)*size], b, row, b.Weight(row)); failed != nil {
				break
			}
		}
		err := l.UpdateGroups(got, of, b)
		if fmt.Sprint(err) != fmt.Sprint(failed) || dataflow.ReasonOf(err) != dataflow.ReasonOf(failed) {
			t.Fatalf("error %v, want %v", err, failed)
		}
		if err == nil && !bytes.Equal(got, want) {
			t.Fatalf("got %x\nwant %x", got, want)
		}
	})
}
