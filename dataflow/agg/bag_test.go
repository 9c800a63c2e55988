package agg_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
)

// TestBagsEqualANaiveModel compares what aggregates that keep all values give with a search through the rows that are left.
func TestBagsEqualANaiveModel(t *testing.T) {
	for _, retract := range []bool{false, true} {
		specs := widen(specsOf(t, "count", "sum", "min", "max", "bool_and", "bool_or", "min_by", "max_by",
			"string_agg", "array_agg", "top_k", "approx_percentile", "percentile_cont", "percentile_disc", "mode", "bit_and", "bit_or", "bit_xor"), retract)
		l := agg.NewLayout(specs)
		t.Run(fmt.Sprintf("retract=%v", retract), rapid.MakeCheck(func(t *rapid.T) {
			b, history, left := drawHistory(t, retract)
			acc := l.New(nil)
			for _, h := range history {
				acc = update(t, l, acc, b, h)
			}
			for i, s := range specs {
				out := batch.NewVector(s.Out, 1)
				if err := l.AppendResult(i, acc, out); err != nil {
					t.Fatal(err)
				}
				if problem := checkBag(s, out.Value(0), b, left); problem != "" {
					t.Fatalf("%s over rows %v is %s: %s", s, left, printValue(out.Value(0)), problem)
				}
			}
		}))
	}
}

func checkBag(s agg.Spec, got dataflow.Value, b *batch.Batch, left []int) string {
	if s.Fn == agg.CountStar {
		return ""
	}
	var args []dataflow.Value
	for _, row := range left {
		if v := b.Cols[s.Arg].Value(row); !v.Null {
			args = append(args, v)
		}
	}
	switch {
	case s.Fn == agg.BoolAnd || s.Fn == agg.BoolOr:
		n, trues := len(args), 0
		for _, v := range args {
			trues += int(v.Int)
		}
		if got.Null != (n == 0) || n > 0 && (got.Int != 0) != (s.Fn == agg.BoolAnd && trues == n || s.Fn == agg.BoolOr && trues > 0) {
			return fmt.Sprintf("%d of %d are true", trues, n)
		}
		return ""
	case s.Fn == agg.MinBy || s.Fn == agg.MaxBy:
		return checkPick(s, got, b, left)
	case s.Fn == agg.StringAgg || s.Fn == agg.ArrayAgg || s.Fn == agg.TopK:
		return checkCollected(s, got, b, left)
	case s.Fn == agg.BitAnd || s.Fn == agg.BitOr || s.Fn == agg.BitXor:
		return checkBits(s, got, args)
	case s.Fn == agg.Mode:
		return checkMode(got, args)
	case s.P > 0 || s.Fn == agg.ApproxPercentile || s.Fn == agg.PercentileCont || s.Fn == agg.PercentileDisc:
		return checkPercentile(s, got, args)
	case s.Distinct:
		var kinds []dataflow.Value
		for _, v := range args {
			known := false
			for i, k := range kinds {
				if compareValues(k, v) == 0 {
					known = true
					if v.Type == dataflow.TypeNumeric && v.Dec.Exponent < k.Dec.Exponent {
						kinds[i] = v // the longest spelling is the one that counts
					}
				}
			}
			if !known {
				kinds = append(kinds, v)
			}
		}
		s.Distinct = false
		return checkNaive(s, got, kinds)
	}
	return checkNaive(s, got, args)
}

// checkPick looks for a row that comes before the one whose value was given.
func checkPick(s agg.Spec, got dataflow.Value, b *batch.Batch, left []int) string {
	best := -1
	for _, row := range left {
		if b.Cols[s.Order[0].Col].IsNull(row) {
			continue
		}
		if best < 0 || (compareRows(s, b, row, best) < 0) == (s.Fn == agg.MinBy) {
			best = row
		}
	}
	if best < 0 {
		if !got.Null {
			return "no row counts"
		}
		return ""
	}
	if want := b.Cols[s.Arg].Value(best); got.Null != want.Null || !got.Null && compareValues(got, want) != 0 {
		return "want " + printValue(want)
	}
	return ""
}

func compareRows(s agg.Spec, b *batch.Batch, i, j int) int {
	for _, o := range s.Order {
		v, w := b.Cols[o.Col].Value(i), b.Cols[o.Col].Value(j)
		c := 0
		switch {
		case v.Null && w.Null:
		case v.Null || w.Null:
			if c = 1; v.Null == o.NullsFirst {
				c = -1
			}
			if c != 0 {
				return c
			}
		default:
			if c = compareValues(v, w); o.Desc {
				c = -c
			}
		}
		if c != 0 {
			return c
		}
	}
	v, w := b.Cols[s.Arg].Value(i), b.Cols[s.Arg].Value(j)
	switch {
	case v.Null && w.Null:
		return 0
	case v.Null:
		return 1
	case w.Null:
		return -1
	}
	return compareValues(v, w)
}

func texts(n, size int) *batch.Batch {
	b := batch.NewBatch(dataflow.Schema{{Name: "t", Type: dataflow.TypeText}})
	for i := range n {
		b.AppendRow(dataflow.Row{dataflow.Text(fmt.Sprintf("%06d", i) + strings.Repeat("x", size))})
	}
	return b
}

// TestAFullBagIsFullInAnyOrder: whether a group of a stream has too many values follows from the values.
func TestAFullBagIsFullInAnyOrder(t *testing.T) {
	l := agg.NewLayout([]agg.Spec{
		{Fn: agg.Count, ArgType: dataflow.TypeText, Out: dataflow.TypeBigInt, Distinct: true},
		{Fn: agg.Max, ArgType: dataflow.TypeText, Out: dataflow.TypeText},
	})
	const size = 1000
	limit := dataflow.MaxRowBytes / 16 * 15 / (size + 10) // the value of max has a sixteenth
	b := texts(2*limit, size)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{limit - 1, limit + 5} {
		var want []byte
		for range 3 {
			acc, part := l.New(nil), l.New(nil)
			for i, row := range r.Perm(n) {
				part = update(t, l, part, b, change{row, 1})
				if i%97 == 0 || i == n-1 {
					var err error
					if acc, err = l.Merge(acc, part); err != nil {
						t.Fatal(err)
					}
					part = l.New(nil)
				}
			}
			if want == nil {
				want = acc
			}
			if !bytes.Equal(acc, want) {
				t.Fatal("the order of the rows shows")
			}
			out := batch.NewVector(dataflow.TypeBigInt, 1)
			err := l.AppendResult(0, acc, out)
			switch full := n > limit; {
			case full && dataflow.ReasonOf(err) != dataflow.ReasonTooLarge:
				t.Fatalf("%d values: %v", n, err)
			case !full && (err != nil || out.Ints[0] != int64(n)):
				t.Fatalf("%d values: %d, %v", n, out.Ints[0], err)
			}
		}
	}
}

func BenchmarkBag(b *testing.B) {
	rows := batch.NewBatch(columns)
	r := rand.New(rand.NewPCG(1, 2))
	for range 4096 {
		rows.AppendRow(dataflow.Row{dataflow.BigInt(r.Int64N(2000)), dataflow.NullValue(dataflow.TypeDouble), dataflow.NullValue(dataflow.TypeNumeric),
			dataflow.Text(fmt.Sprint("user-", r.Int64N(2000))), dataflow.NullValue(dataflow.TypeTimestamp), dataflow.NullValue(dataflow.TypeBool)})
	}
	for _, c := range []struct {
		name string
		spec agg.Spec
	}{
		{"distinct-bigint", agg.Spec{Fn: agg.Count, Arg: 0, ArgType: dataflow.TypeBigInt, Out: dataflow.TypeBigInt, Distinct: true}},
		{"distinct-text", agg.Spec{Fn: agg.Count, Arg: 3, ArgType: dataflow.TypeText, Out: dataflow.TypeBigInt, Distinct: true}},
		{"min-over-table", agg.Spec{Fn: agg.Min, Arg: 0, ArgType: dataflow.TypeBigInt, Out: dataflow.TypeBigInt, Retract: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := agg.NewLayout([]agg.Spec{c.spec})
			acc := l.New(nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				acc, _ = l.Update(acc, rows, i&4095, 1)
			}
		})
	}
}
