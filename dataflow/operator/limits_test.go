package operator_test

import (
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// TestOnlyKeysOverTheLimitFail: the longest values of two columns need not be in one row.
func TestOnlyKeysOverTheLimitFail(t *testing.T) {
	const limit = dataflow.MaxKeyBytes
	schema := dataflow.Schema{{Name: "a", Type: text}, {Name: "b", Type: text}, {Name: "n", Type: bigint}}
	st := &plan.Stage{Key: schema, Aggs: []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: bigint}}}
	const rest = 2 + 2 + 9 // of a key beside its texts
	for _, c := range []struct {
		name  string
		sizes [][2]int // of the texts of each row
		over  []int    // rows
	}{
		{"short", [][2]int{{0, 0}, {5, 5}}, nil},
		{"long in turns", [][2]int{{limit - rest - 1, 1}, {1, limit - rest - 1}, {limit / 2, limit/2 - rest}}, nil},
		{"long together", [][2]int{{limit - 100, 1}, {limit / 2, limit / 2}, {1, limit - 100}, {1, limit - rest}}, []int{1, 3}},
	} {
		b := batch.NewBatch(schema)
		for _, s := range c.sizes {
			b.AppendRow(dataflow.Row{dataflow.Text(strings.Repeat("x", s[0])), dataflow.Text(strings.Repeat("x", s[1])), dataflow.BigInt(1)})
		}
		_, failed, _ := operator.NewChainRunner(st, &plan.Input{}).Run(b, nil, &expr.Env{})
		if len(failed) != len(c.over) {
			t.Fatalf("%s: %v failed, want rows %v", c.name, failed, c.over)
		}
		for i, row := range c.over {
			if failed[i].Row != row || failed[i].Err.Reason != dataflow.ReasonTooLarge {
				t.Errorf("%s: row %d failed: %v, want row %d", c.name, failed[i].Row, failed[i].Err, row)
			}
		}
	}
}
