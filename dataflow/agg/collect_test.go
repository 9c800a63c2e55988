package agg_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
)

// checkCollected sorts the rows that are left.
func checkCollected(s agg.Spec, got dataflow.Value, b *batch.Batch, left []int) string {
	var rows []int
	for _, row := range left {
		switch cond := b.Cols[s.Filter].Value(row); {
		case s.Filtered && (cond.Null || cond.Int == 0):
		case s.Fn == agg.StringAgg && b.Cols[s.Arg].IsNull(row):
		default:
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(i, j int) int { return compareRows(s, b, i, j) })
	var want []string
	for i, row := range rows {
		v := b.Cols[s.Arg].Value(row)
		if s.Distinct && i > 0 && sameValue(v, b.Cols[s.Arg].Value(rows[i-1])) {
			continue
		}
		want = append(want, printKey(v))
	}
	if s.Limit > 0 {
		want = want[:min(int64(len(want)), s.Limit)]
	}
	if len(want) == 0 {
		if !got.Null {
			return "want NULL"
		}
		return ""
	}
	if got.Null {
		return "want a value"
	}
	if s.Fn == agg.StringAgg {
		for i := range want {
			want[i] = strings.Trim(want[i], "\"")
		}
		if w := strings.Join(want, s.Sep); w != got.Str {
			return "want " + w
		}
		return ""
	}
	v := batch.NewVector(s.Out, 1)
	v.AppendValue(got)
	var have []string
	for i := range v.Elems.Len() {
		have = append(have, printKey(v.Elems.Value(i)))
	}
	if !slices.Equal(have, want) {
		return fmt.Sprintf("have %v, want %v", have, want)
	}
	return ""
}

func sameValue(a, b dataflow.Value) bool {
	return a.Null == b.Null && (a.Null || compareValues(a, b) == 0)
}

// printKey prints equal values alike.
func printKey(v dataflow.Value) string {
	switch {
	case v.Null:
	case v.Type == dataflow.TypeDouble && v.Flt == 0:
		return "0"
	case v.Type == dataflow.TypeNumeric && v.Dec.Form == 0:
		return ratOf(v.Dec).RatString()
	}
	return printValue(v)
}

func checkBits(s agg.Spec, got dataflow.Value, args []dataflow.Value) string {
	var and, or, xor int64 = -1, 0, 0
	for _, v := range args {
		and, or, xor = and&v.Int, or|v.Int, xor^v.Int
	}
	want := map[agg.Fn]int64{agg.BitAnd: and, agg.BitOr: or, agg.BitXor: xor}[s.Fn]
	if got.Null != (len(args) == 0) || !got.Null && got.Int != want {
		return fmt.Sprintf("want %d of %d", want, len(args))
	}
	return ""
}

func checkMode(got dataflow.Value, args []dataflow.Value) string {
	if got.Null != (len(args) == 0) {
		return "wrong NULL"
	}
	if got.Null {
		return ""
	}
	count := func(of dataflow.Value) (n int) {
		for _, v := range args {
			if compareValues(v, of) == 0 {
				n++
			}
		}
		return n
	}
	for _, v := range args {
		if count(v) > count(got) || count(v) == count(got) && compareValues(v, got) < 0 {
			return "better is " + printValue(v)
		}
	}
	return ""
}

func checkPercentile(s agg.Spec, got dataflow.Value, args []dataflow.Value) string {
	if got.Null != (len(args) == 0) {
		return "wrong NULL"
	}
	if got.Null {
		return ""
	}
	slices.SortFunc(args, compareValues)
	if s.Fn == agg.PercentileCont {
		at := s.P * float64(len(args)-1)
		lo, hi := args[int(math.Floor(at))].Flt, args[int(math.Ceil(at))].Flt
		want := lo
		if math.Floor(at) != at {
			want += (at - math.Floor(at)) * (hi - lo)
		}
		if compareValues(dataflow.Double(want), got) != 0 {
			return fmt.Sprintf("want %v", want)
		}
		return ""
	}
	want := args[max(0, int(math.Ceil(s.P*float64(len(args))))-1)]
	if s.Fn == agg.PercentileDisc {
		if compareValues(want, got) != 0 {
			return "want " + printValue(want)
		}
		return ""
	}
	if math.IsNaN(want.Flt) && math.IsNaN(got.Flt) || want.Flt == got.Flt || math.Abs(got.Flt-want.Flt) <= math.Abs(want.Flt)/128 {
		return ""
	}
	return "want about " + printValue(want)
}

// TestApproximateCountsAreWithinTheirError: the standard error is 1.6 %, so four of them are 6.5 %; small counts are exact
// but for collisions.
func TestApproximateCountsAreWithinTheirError(t *testing.T) {
	l := agg.NewLayout([]agg.Spec{{Fn: agg.ApproxCount, ArgType: dataflow.TypeBigInt, Out: dataflow.TypeBigInt}})
	b := batch.NewBatch(dataflow.Schema{{Name: "i", Type: dataflow.TypeBigInt}})
	const most = 200_000
	for i := range int64(most) {
		b.AppendRow(dataflow.Row{dataflow.BigInt(i * 7)})
	}
	acc := l.New(nil)
	next := 1
	for i := range most {
		acc = updateQuietly(t, l, acc, b, i)
		if i%3 == 0 {
			acc = updateQuietly(t, l, acc, b, i/2) // seen before
		}
		if n := i + 1; n == next {
			next = next*5/4 + 1
			if err := l.Check(acc); err != nil {
				t.Fatal(err)
			}
			out := batch.NewVector(dataflow.TypeBigInt, 1)
			if err := l.AppendResult(0, acc, out); err != nil {
				t.Fatal(err)
			}
			if off := math.Abs(float64(out.Ints[0]-int64(n))) / float64(n); off > 0.065 || n <= 10 && off > 0 {
				t.Errorf("%d values: estimate %d", n, out.Ints[0])
			}
		}
	}
}

func updateQuietly(t *testing.T, l *agg.Layout, acc []byte, b *batch.Batch, row int) []byte {
	t.Helper()
	acc, err := l.Update(acc, b, row, 1)
	if err != nil {
		t.Fatal(err)
	}
	return acc
}

// TestSketchesDependOnTheValuesAlone merges sketches of every size that were cut at random.
func TestSketchesDependOnTheValuesAlone(t *testing.T) {
	l := agg.NewLayout([]agg.Spec{{Fn: agg.ApproxCount, ArgType: dataflow.TypeText, Out: dataflow.TypeBigInt}})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{1, 50, 1300, 1500, 2500, 9000} {
		b := texts(n, 0)
		want := ""
		for range 4 {
			acc, part := l.New(nil), l.New(nil)
			for i, row := range r.Perm(n) {
				part = updateQuietly(t, l, part, b, row)
				if r.IntN(1+n/3) == 0 || i == n-1 {
					if err := l.Check(part); err != nil {
						t.Fatal(err)
					}
					var err error
					if acc, err = l.Merge(acc, part); err != nil {
						t.Fatal(err)
					}
					part = l.New(nil)
				}
			}
			if want == "" {
				want = string(acc)
			}
			if want != string(acc) {
				t.Fatalf("%d values: the order shows", n)
			}
		}
	}
}

func TestVarianceOfDoublesIsWithinRounding(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	l := agg.NewLayout([]agg.Spec{{Fn: agg.VarSamp, ArgType: dataflow.TypeDouble, Out: dataflow.TypeDouble}})
	b := batch.NewBatch(dataflow.Schema{{Name: "f", Type: dataflow.TypeDouble}})
	acc, part := l.New(nil), l.New(nil)
	mean, values := 0.0, make([]float64, 1000)
	for i := range values {
		values[i] = 1e6 + r.NormFloat64()
		mean += values[i] / 1000
		b.AppendRow(dataflow.Row{dataflow.Double(values[i])})
		part = updateQuietly(t, l, part, b, i)
		if r.IntN(50) == 0 || i == 999 {
			var err error
			if acc, err = l.Merge(acc, part); err != nil {
				t.Fatal(err)
			}
			part = l.New(nil)
		}
	}
	want := 0.0
	for _, v := range values {
		want += (v - mean) * (v - mean) / 999
	}
	out := batch.NewVector(dataflow.TypeDouble, 1)
	if err := l.AppendResult(0, acc, out); err != nil || math.Abs(out.Floats[0]-want) > 1e-8 {
		t.Fatalf("%v, want %v: %v", out.Floats[0], want, err)
	}
}
