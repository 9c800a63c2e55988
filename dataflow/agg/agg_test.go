package agg_test

import (
	"bytes"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/cockroachdb/apd/v3"
	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
)

// The input of every test here: one column per type.
var columns = dataflow.Schema{
	{Name: "i", Type: dataflow.TypeBigInt},
	{Name: "f", Type: dataflow.TypeDouble},
	{Name: "d", Type: dataflow.TypeNumeric},
	{Name: "t", Type: dataflow.TypeText},
	{Name: "ts", Type: dataflow.TypeTimestamp},
	{Name: "b", Type: dataflow.TypeBool},
}

// specsOf returns every aggregate of the given functions over every column that takes it.
func specsOf(t testing.TB, names ...string) []agg.Spec {
	t.Helper()
	specs := []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: dataflow.TypeBigInt}}
	for i, c := range columns {
		for _, name := range names {
			if name == "any" {
				specs = append(specs, agg.Spec{Fn: agg.Any, Arg: i, ArgType: c.Type, Out: c.Type})
				continue
			}
			if fn, out, err := agg.Resolve(name, false, c.Type); err == nil {
				specs = append(specs, agg.Spec{Fn: fn, Arg: i, ArgType: c.Type, Out: out})
			}
		}
	}
	return specs
}

// widen gives min_by and max_by something to go by, adds the aggregates with DISTINCT, and says whether rows are taken back.
func widen(specs []agg.Spec, retract bool) []agg.Spec {
	var out []agg.Spec
	for i, s := range specs {
		s.Retract = retract
		if s.Fn == agg.VarPop || s.Fn == agg.StddevSamp {
			if s.ArgType == dataflow.TypeDouble {
				continue // rounds: TestVarianceOfDoublesIsWithinRounding
			}
		}
		switch s.Fn {
		case agg.StringAgg:
			s.Sep = ", "
		case agg.ApproxPercentile, agg.PercentileCont, agg.PercentileDisc:
			s.P = []float64{0, 0.5, 0.95, 1}[i%4]
		}
		if s.Fn == agg.TopK {
			s.Limit = []int64{1, 2, 5, 100}[i%4]
			s.Order = []agg.Order{{Col: (s.Arg + 2) % len(columns), Type: columns[(s.Arg+2)%len(columns)].Type, Desc: i%2 == 0, NullsFirst: i%3 == 0}}
			s.Filtered, s.Filter = i%5 == 0, 5
		}
		if s.Fn == agg.ArrayAgg || s.Fn == agg.StringAgg {
			if s.Distinct = i%2 == 0; !s.Distinct {
				s.Order = []agg.Order{{Col: (s.Arg + 2) % len(columns), Desc: i%3 == 0, NullsFirst: i%3 == 0}}
			}
			s.Filtered, s.Filter = s.Fn == agg.ArrayAgg && i%3 == 0, 5
		}
		if s.Fn == agg.MinBy || s.Fn == agg.MaxBy {
			s.Order = []agg.Order{{Col: (s.Arg + 1) % len(columns), Desc: i%2 == 0}, {Col: 0, NullsFirst: i%3 == 0}}
		}
		out = append(out, s)
		if s.Fn == agg.Count || s.Fn == agg.Sum || s.Fn == agg.Avg {
			s.Distinct = true
			out = append(out, s)
		}
	}
	return out
}

func drawRow(t *rapid.T) dataflow.Row {
	row := make(dataflow.Row, len(columns))
	for i, c := range columns {
		if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
			row[i] = dataflow.NullValue(c.Type)
			continue
		}
		switch c.Type {
		case dataflow.TypeDouble:
			// Small whole numbers, whose sums are exact, and what is not finite.
			row[i] = dataflow.Double(rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -3, 1 << 40, math.NaN(), math.Inf(1), math.Inf(-1)}).Draw(t, "float"))
		case dataflow.TypeNumeric:
			row[i] = dataflow.Numeric(drawDecimal(t))
		case dataflow.TypeText:
			row[i] = dataflow.Text(rapid.StringOfN(rapid.SampledFrom([]rune("abé")), 0, 3, -1).Draw(t, "text"))
		case dataflow.TypeBool:
			row[i] = dataflow.Bool(rapid.Bool().Draw(t, "bool"))
		default:
			row[i] = dataflow.Value{Type: c.Type, Int: rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 2)).Draw(t, "int")}
		}
	}
	return row
}

func drawDecimal(t *rapid.T) *apd.Decimal {
	switch rapid.IntRange(0, 12).Draw(t, "form") {
	case 0:
		return &apd.Decimal{Form: apd.NaN}
	case 1:
		return &apd.Decimal{Form: apd.Infinite, Negative: rapid.Bool().Draw(t, "neg")}
	}
	return apd.New(rapid.OneOf(rapid.Int64Range(-200, 200), rapid.Int64()).Draw(t, "coeff"), rapid.Int32Range(-25, 4).Draw(t, "exp"))
}

type change struct {
	row    int
	weight int64
}

// drawHistory draws rows and a history of inserting them and taking some back, each after its insertion. It returns the
// rows that are left.
func drawHistory(t *rapid.T, retract bool) (b *batch.Batch, history []change, left []int) {
	b = batch.NewBatch(columns)
	for range rapid.IntRange(0, 20).Draw(t, "rows") {
		b.AppendRow(drawRow(t))
	}
	in := map[int]bool{}
	for i := range b.N {
		history = append(history, change{i, 1})
		in[i] = true
		for retract && len(in) > 0 && rapid.IntRange(0, 2).Draw(t, "retract") == 0 {
			r := rapid.IntRange(0, i).Draw(t, "row")
			if !in[r] {
				break
			}
			delete(in, r)
			history = append(history, change{r, -1})
		}
	}
	for i := range b.N {
		if in[i] {
			left = append(left, i)
		}
	}
	return b, history, left
}

func update(t rapid.TB, l *agg.Layout, acc []byte, b *batch.Batch, c change) []byte {
	t.Helper()
	acc, err := l.Update(acc, b, c.row, c.weight)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Check(acc); err != nil {
		t.Fatal(err)
	}
	return acc
}

// TestAccumulatorsDependOnTheRowsAlone is rule A1: the same bytes whatever was taken back, and however the history was
// cut into partials.
func TestAccumulatorsDependOnTheRowsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		fns     []string
		retract bool
	}{
		"retractable": {[]string{"count", "sum", "avg", "min", "max", "bool_and", "bool_or", "min_by", "max_by",
			"string_agg", "array_agg", "top_k", "approx_percentile", "percentile_cont", "percentile_disc", "mode", "var_pop", "stddev_samp", "bit_and", "bit_or", "bit_xor"}, true},
		"insert-only": {[]string{"count", "sum", "avg", "min", "max", "bool_and", "bool_or", "min_by", "max_by",
			"string_agg", "array_agg", "top_k", "approx_count_distinct", "approx_percentile", "percentile_cont", "percentile_disc", "mode", "var_pop", "stddev_samp", "bit_and", "bit_or", "bit_xor"}, false},
	} {
		l := agg.NewLayout(widen(specsOf(t, c.fns...), c.retract))
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			b, history, left := drawHistory(t, c.retract)
			want := l.New(nil)
			for i := range rapid.Permutation(left).Draw(t, "order") {
				want = update(t, l, want, b, change{left[i], 1})
			}
			direct := l.New(nil)
			for _, h := range history {
				direct = update(t, l, direct, b, h)
			}
			if !bytes.Equal(direct, want) {
				t.Fatalf("after the history:\n%x\nover the rows left:\n%x", direct, want)
			}
			// Cut into partials anywhere, and merged.
			merged := l.New(nil)
			for at := 0; at < len(history); {
				part := l.New(nil)
				n := rapid.IntRange(1, len(history)-at).Draw(t, "partial")
				for _, h := range history[at : at+n] {
					part = update(t, l, part, b, h)
				}
				at += n
				before := bytes.Clone(part)
				var err error
				if merged, err = l.Merge(merged, part); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(part, before) {
					t.Fatal("Merge changed the partial")
				}
			}
			if !bytes.Equal(merged, want) {
				t.Fatalf("merged:\n%x\nover the rows left:\n%x", merged, want)
			}
			if l.Rows(merged) != int64(len(left)) {
				t.Fatalf("%d rows, want %d", l.Rows(merged), len(left))
			}
		}))
	}
}

func TestResultsEqualANaiveModel(t *testing.T) {
	specs := specsOf(t, "count", "sum", "avg", "min", "max")
	l := agg.NewLayout(specs)
	rapid.Check(t, func(t *rapid.T) {
		b, history, left := drawHistory(t, false)
		acc := l.New(nil)
		for _, h := range history {
			acc = update(t, l, acc, b, h)
		}
		for i, s := range specs {
			out := batch.NewVector(s.Out, 1)
			if err := l.AppendResult(i, acc, out); err != nil {
				t.Fatal(err)
			}
			got := out.Value(0)
			var args []dataflow.Value
			for _, row := range left {
				if s.Arg < 0 {
					args = append(args, dataflow.BigInt(1))
				} else if v := b.Cols[s.Arg].Value(row); !v.Null {
					args = append(args, v)
				}
			}
			if problem := checkNaive(s, got, args); problem != "" {
				t.Fatalf("%s over %d rows is %s: %s", s, len(args), printValue(got), problem)
			}
		}
	})
}

// checkNaive says what is wrong with got as the result of s over args, which has no NULLs.
func checkNaive(s agg.Spec, got dataflow.Value, args []dataflow.Value) string {
	if s.Fn == agg.Count || s.Fn == agg.CountStar {
		if got.Null || got.Int != int64(len(args)) {
			return "wrong count"
		}
		return ""
	}
	if len(args) == 0 {
		if !got.Null {
			return "want NULL"
		}
		return ""
	}
	if got.Null {
		return "want a value"
	}
	if s.Fn == agg.Min || s.Fn == agg.Max {
		found := false
		for _, a := range args {
			c := compareValues(a, got)
			found = found || c == 0
			if s.Fn == agg.Min && c < 0 || s.Fn == agg.Max && c > 0 {
				return "a better value is " + printValue(a)
			}
		}
		if !found {
			return "it is none of the values"
		}
		return ""
	}
	if s.ArgType == dataflow.TypeDouble {
		sum := 0.0
		for _, a := range args {
			sum += a.Flt
		}
		if s.Fn == agg.Avg {
			sum /= float64(len(args))
		}
		if sum != got.Flt && !(math.IsNaN(sum) && math.IsNaN(got.Flt)) {
			return "want " + printValue(dataflow.Double(sum))
		}
		return ""
	}
	sum, special := new(big.Rat), ""
	scale := int32(0)
	for _, a := range args {
		if s.ArgType == dataflow.TypeBigInt {
			sum.Add(sum, new(big.Rat).SetInt64(a.Int))
			continue
		}
		switch {
		case a.Dec.Form == apd.NaN || special != "" && a.Dec.Form == apd.Infinite && special != a.Dec.String():
			special = "NaN"
		case special == "NaN":
		case a.Dec.Form == apd.Infinite:
			special = a.Dec.String()
		case a.Dec.Form == apd.Finite:
			scale = max(scale, -a.Dec.Exponent)
			sum.Add(sum, ratOf(a.Dec))
		}
	}
	if special != "" {
		if got.Dec.String() != special {
			return "want " + special
		}
		return ""
	}
	if s.Fn == agg.Sum {
		if got.Dec.Exponent != -scale || ratOf(got.Dec).Cmp(sum) != 0 {
			return "want " + sum.RatString()
		}
		return ""
	}
	// An average is within half a unit of its last place, and has at least 16 significant digits.
	sum.Quo(sum, new(big.Rat).SetInt64(int64(len(args))))
	diff := new(big.Rat).Sub(ratOf(got.Dec), sum)
	half := ratOf(apd.New(5, got.Dec.Exponent-1))
	if diff.Abs(diff).Cmp(half) > 0 {
		return "want about " + sum.FloatString(30)
	}
	if digits := got.Dec.NumDigits(); got.Dec.Exponent > -scale || sum.Sign() != 0 && digits < 16 && -got.Dec.Exponent < 1000 {
		return "too few digits"
	}
	return ""
}

func ratOf(d *apd.Decimal) *big.Rat {
	r, ok := new(big.Rat).SetString(d.Text('f'))
	if !ok {
		panic(d.String())
	}
	return r
}

func compareValues(a, b dataflow.Value) int {
	switch a.Type {
	case dataflow.TypeText:
		return strings.Compare(a.Str, b.Str)
	case dataflow.TypeNumeric:
		return agg.CompareDecimals(a.Dec, b.Dec)
	case dataflow.TypeDouble:
		an, bn := math.IsNaN(a.Flt), math.IsNaN(b.Flt)
		switch {
		case an && bn || a.Flt == b.Flt:
			return 0
		case an || a.Flt > b.Flt:
			return 1
		}
		return -1
	}
	switch {
	case a.Int < b.Int:
		return -1
	case a.Int > b.Int:
		return 1
	}
	return 0
}

func TestAnyKeepsTheLastInsertedRow(t *testing.T) {
	specs := specsOf(t, "any")
	l := agg.NewLayout(specs)
	rapid.Check(t, func(t *rapid.T) {
		b := batch.NewBatch(columns)
		for range rapid.IntRange(1, 6).Draw(t, "rows") {
			b.AppendRow(drawRow(t))
		}
		// The changes of a table by key: the old row out, the new row in; cut into partials anywhere.
		acc, part := l.New(nil), l.New(nil)
		flush := func() {
			var err error
			if acc, err = l.Merge(acc, part); err != nil {
				t.Fatal(err)
			}
			part = l.New(nil)
		}
		for i := range b.N {
			if i > 0 {
				part = update(t, l, part, b, change{i - 1, -1})
				if rapid.Bool().Draw(t, "cut") {
					flush()
				}
			}
			part = update(t, l, part, b, change{i, 1})
		}
		flush()
		if l.Rows(acc) != 1 {
			t.Fatalf("%d rows", l.Rows(acc))
		}
		want := b.Row(b.N - 1)
		for i, s := range specs[1:] {
			out := batch.NewVector(s.Out, 1)
			if err := l.AppendResult(i+1, acc, out); err != nil {
				t.Fatal(err)
			}
			if got := out.Value(0); printValue(got) != printValue(want[s.Arg]) {
				t.Fatalf("%s is %s, want %s", s, printValue(got), printValue(want[s.Arg]))
			}
		}
	})
}

func TestAPartialWithoutRowsStillCounts(t *testing.T) {
	l := agg.NewLayout(specsOf(t, "sum"))
	b := batch.NewBatch(columns)
	row := func(i int64, d string) {
		dec, _, err := apd.NewFromString(d)
		if err != nil {
			t.Fatal(err)
		}
		b.AppendRow(dataflow.Row{dataflow.BigInt(i), dataflow.Double(float64(i)), dataflow.Numeric(dec),
			dataflow.NullValue(dataflow.TypeText), dataflow.NullValue(dataflow.TypeTimestamp), dataflow.NullValue(dataflow.TypeBool)})
	}
	row(3, "1.25")
	row(5, "2.5")
	acc := update(t, l, l.New(nil), b, change{0, 1})
	part := update(t, l, update(t, l, l.New(nil), b, change{0, -1}), b, change{1, 1})
	if l.Rows(part) != 0 {
		t.Fatalf("the partial has %d rows", l.Rows(part))
	}
	acc, err := l.Merge(acc, part)
	if err != nil {
		t.Fatal(err)
	}
	if want := update(t, l, l.New(nil), b, change{1, 1}); !bytes.Equal(acc, want) {
		t.Fatalf("got %x, want %x", acc, want)
	}
}

func TestMinAndMaxOfAStreamRefuseToTakeARowBack(t *testing.T) {
	l := agg.NewLayout(specsOf(t, "min"))
	b := batch.NewBatch(columns)
	b.AppendRow(dataflow.Row{dataflow.BigInt(1), dataflow.Double(1), dataflow.Numeric(apd.New(1, 0)), dataflow.Text("x"), dataflow.Timestamp(1), dataflow.Bool(true)})
	if _, err := l.Update(l.New(nil), b, 0, -1); dataflow.ReasonOf(err) != dataflow.ReasonInternal {
		t.Fatalf("got %v", err)
	}
}

func TestResolveRefusesWhatPostgreSQLDoes(t *testing.T) {
	for _, c := range []struct {
		name string
		star bool
		arg  dataflow.Type
		want dataflow.Reason
	}{
		{"min", false, dataflow.TypeBool, dataflow.ReasonSQLType},
		{"max", false, dataflow.TypeBool, dataflow.ReasonSQLType},
		{"sum", false, dataflow.TypeText, dataflow.ReasonSQLType},
		{"sum", true, dataflow.TypeUnknown, dataflow.ReasonSQLType},
		{"avg", false, dataflow.TypeUnknown, dataflow.ReasonSQLType},
		{"avg", false, dataflow.TypeInterval, dataflow.ReasonSQLUnsupported},
		{"max", false, dataflow.TypeTextArray, dataflow.ReasonSQLUnsupported},
		{"listagg", false, dataflow.TypeText, dataflow.ReasonSQLUnsupported},
		{"bool_or", false, dataflow.TypeBigInt, dataflow.ReasonSQLType},
		{"any", false, dataflow.TypeText, dataflow.ReasonSQLUnsupported},
	} {
		if _, _, err := agg.Resolve(c.name, c.star, c.arg); dataflow.ReasonOf(err) != c.want {
			t.Errorf("%s(%s): %v", c.name, c.arg, err)
		}
	}
	if fn, out, err := agg.Resolve("min", false, dataflow.TypeUnknown); fn != agg.Min || out != dataflow.TypeText || err != nil {
		t.Errorf("min(NULL): %s %s %v", fn, out, err)
	}
}

func TestTextsWithinTheLimitNeverOutgrowARow(t *testing.T) {
	specs := []agg.Spec{
		{Fn: agg.Min, Arg: 0, ArgType: dataflow.TypeText, Out: dataflow.TypeText},
		{Fn: agg.Max, Arg: 0, ArgType: dataflow.TypeText, Out: dataflow.TypeText},
	}
	l := agg.NewLayout(specs)
	b := batch.NewBatch(dataflow.Schema{{Name: "t", Type: dataflow.TypeText}})
	n := l.MaxArgBytes()
	for _, s := range []string{strings.Repeat("m", n), strings.Repeat("a", n), strings.Repeat("z", n), strings.Repeat("zz", n)} {
		b.AppendRow(dataflow.Row{dataflow.Text(s)})
	}
	acc := l.New(nil)
	for i := range 3 {
		acc = update(t, l, acc, b, change{i, 1})
	}
	if len(acc) > dataflow.MaxRowBytes {
		t.Fatalf("%d bytes", len(acc))
	}
	if _, err := l.Update(acc, b, 3, 1); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Fatalf("got %v", err)
	}
}

// FuzzCheck: what Check takes, every method can work with.
func FuzzCheck(f *testing.F) {
	specs := append(widen(specsOf(f, "count", "sum", "min_by", "array_agg", "top_k", "string_agg", "approx_count_distinct", "approx_percentile", "mode", "bit_and"), false),
		widen(specsOf(f, "count", "sum", "min", "bool_and", "max_by", "array_agg", "top_k", "percentile_cont", "percentile_disc", "var_pop", "stddev_samp", "bit_or", "bit_xor"), true)...)
	specs = append(specs, agg.Spec{Fn: agg.VarSamp, Arg: 1, ArgType: dataflow.TypeDouble, Out: dataflow.TypeDouble})
	specs = append(specs, specsOf(f, "count", "sum", "avg", "min", "max", "any")...)
	l := agg.NewLayout(specs)
	b := batch.NewBatch(columns)
	b.AppendRow(dataflow.Row{dataflow.BigInt(7), dataflow.Double(1.5), dataflow.Numeric(apd.New(125, -2)), dataflow.Text("whale"), dataflow.Timestamp(9), dataflow.Bool(true)})
	empty := l.New(nil)
	f.Add(empty)
	one, err := l.Update(l.New(nil), b, 0, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(one)
	f.Add(one[:len(one)-1])
	f.Fuzz(func(t *testing.T, acc []byte) {
		if err := l.Check(acc); err != nil {
			if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
				t.Fatal(err)
			}
			return
		}
		l.Rows(acc)
		for i, s := range specs {
			out := batch.NewVector(s.Out, 1)
			if err := l.AppendResult(i, acc, out); err != nil && dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
				t.Fatal(err)
			}
			if out.Len() != 1 {
				t.Fatalf("%s gave %d rows", s, out.Len())
			}
		}
		merged, err := l.Merge(l.New(nil), acc)
		if err != nil {
			t.Fatal(err)
		}
		if merged, err = l.Update(merged, b, 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := l.Check(merged); err != nil {
			t.Fatal(err)
		}
	})
}

func benchRows() *batch.Batch {
	b := batch.NewBatch(columns)
	for i := range int64(1024) {
		b.AppendRow(dataflow.Row{dataflow.BigInt(i), dataflow.Double(float64(i)), dataflow.Numeric(apd.New(i, -2)),
			dataflow.Text(strings.Repeat("x", int(i%16))), dataflow.Timestamp(i), dataflow.Bool(i%2 == 0)})
	}
	return b
}

func BenchmarkUpdate(b *testing.B) {
	rows := benchRows()
	for _, c := range []struct {
		name string
		spec agg.Spec
	}{
		{"count", agg.Spec{Fn: agg.CountStar, Arg: -1, Out: dataflow.TypeBigInt}},
		{"sum-bigint", agg.Spec{Fn: agg.Sum, Arg: 0, ArgType: dataflow.TypeBigInt, Out: dataflow.TypeNumeric}},
		{"sum-double", agg.Spec{Fn: agg.Sum, Arg: 1, ArgType: dataflow.TypeDouble, Out: dataflow.TypeDouble}},
		{"sum-numeric", agg.Spec{Fn: agg.Sum, Arg: 2, ArgType: dataflow.TypeNumeric, Out: dataflow.TypeNumeric}},
		{"max-text", agg.Spec{Fn: agg.Max, Arg: 3, ArgType: dataflow.TypeText, Out: dataflow.TypeText}},
		{"max-timestamp", agg.Spec{Fn: agg.Max, Arg: 4, ArgType: dataflow.TypeTimestamp, Out: dataflow.TypeTimestamp}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := agg.NewLayout([]agg.Spec{c.spec})
			acc := l.New(nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				acc, _ = l.Update(acc, rows, i&1023, 1)
			}
		})
	}
}

func TestUpdateOfFixedAccumulatorsDoesNotAllocate(t *testing.T) {
	rows := benchRows()
	specs := []agg.Spec{
		{Fn: agg.CountStar, Arg: -1, Out: dataflow.TypeBigInt},
		{Fn: agg.Avg, Arg: 0, ArgType: dataflow.TypeBigInt, Out: dataflow.TypeNumeric},
		{Fn: agg.Sum, Arg: 1, ArgType: dataflow.TypeDouble, Out: dataflow.TypeDouble},
		{Fn: agg.Min, Arg: 4, ArgType: dataflow.TypeTimestamp, Out: dataflow.TypeTimestamp},
	}
	l := agg.NewLayout(specs)
	acc := l.New(nil)
	i := 0
	if got := testing.AllocsPerRun(100, func() {
		acc, _ = l.Update(acc, rows, i&1023, 1)
		i++
	}); got != 0 {
		t.Fatalf("%v allocations per row", got)
	}
}
