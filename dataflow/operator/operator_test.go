package operator_test

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

const (
	text    = dataflow.TypeText
	bigint  = dataflow.TypeBigInt
	numeric = dataflow.TypeNumeric
)

func column(i int, name string, t dataflow.Type) expr.Expr { return expr.NewColumn(i, name, t) }

func constant(v dataflow.Value) expr.Expr { return expr.NewConst(v) }

func call(t testing.TB, name string, args ...expr.Expr) expr.Expr {
	t.Helper()
	e, err := expr.NewCall(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func cast(t testing.TB, e expr.Expr, typ dataflow.Type) expr.Expr {
	t.Helper()
	e, err := expr.NewCast(e, typ)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var lineSchema = dataflow.Schema{{Name: "line", Type: text}}

func lines(ss ...string) *batch.Batch {
	b := batch.NewBatch(lineSchema)
	for i, s := range ss {
		b.AppendRow(dataflow.Row{dataflow.Text(s)})
		b.AppendTime = append(b.AppendTime, int64(1000+i))
		b.Weights = append(b.Weights, int8(1-2*(i%2)))
	}
	b.Stream, b.Shard, b.FirstOffset = 3, 2, 500
	return b
}

// countWords is SELECT word, count(*) FROM lines, UNNEST(regexp_split_to_array(line, ' ')) AS t(word)
// WHERE word <> ” GROUP BY word, with sum(word::bigint) beside it if numbers is set.
func countWords(t testing.TB, numbers bool) (*plan.Stage, *plan.Input) {
	word := column(1, "word", text)
	project := &plan.Project{Exprs: []expr.Expr{word}, Schema: dataflow.Schema{{Name: "word", Type: text}}}
	st := &plan.Stage{
		Name: "counts", Kind: plan.StageAggregate, Key: dataflow.Schema{{Name: "word", Type: text}},
		Aggs:   []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: bigint}},
		Schema: dataflow.Schema{{Name: "word", Type: text}, {Name: "n", Type: bigint}},
		Output: []expr.Expr{column(0, "word", text), column(1, "n", bigint)},
	}
	if numbers {
		project.Exprs = append(project.Exprs, cast(t, word, bigint))
		project.Schema = append(project.Schema, dataflow.Column{Name: "v", Type: bigint})
		st.Aggs = append(st.Aggs, agg.Spec{Fn: agg.Sum, Arg: 1, ArgType: bigint, Out: numeric})
		st.Schema = append(st.Schema, dataflow.Column{Name: "total", Type: numeric})
		st.Output = append(st.Output, column(2, "total", numeric))
	}
	in := &plan.Input{Stream: "lines", Chain: []plan.Op{
		&plan.Unnest{
			Array:  call(t, "regexp_split_to_array", column(0, "line", text), constant(dataflow.Text(" "))),
			Column: dataflow.Column{Name: "word", Type: text},
		},
		&plan.Filter{Cond: call(t, "<>", word, constant(dataflow.Text("")))},
		project,
	}}
	st.Inputs = []*plan.Input{in}
	return st, in
}

func texts(b *batch.Batch, col int) []string {
	var out []string
	for i := range b.N {
		out = append(out, string(b.Cols[col].Text(i)))
	}
	return out
}

func TestChainKeepsWhatBelongsToTheSourceRow(t *testing.T) {
	st, in := countWords(t, false)
	b := lines("call me  ishmael", "", "the whale")
	out, failed, _ := operator.NewChainRunner(st, in).Run(b, nil, &expr.Env{})
	if len(failed) != 0 {
		t.Fatal(failed)
	}
	if got, want := texts(out, 0), []string{"call", "me", "ishmael", "the", "whale"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if out.Stream != 3 || out.Shard != 2 {
		t.Fatalf("from stream %d, shard %d", out.Stream, out.Shard)
	}
	for i, src := range []int{0, 0, 0, 2, 2} {
		if out.OffsetOf(i) != dataflow.Offset(500+src) || out.AppendTime[i] != int64(1000+src) || out.Weight(i) != int64(1-2*(src%2)) {
			t.Errorf("row %d: offset %d, append time %d, weight %d", i, out.OffsetOf(i), out.AppendTime[i], out.Weight(i))
		}
	}
}

func TestASourceRowIsLeftOutAsAWhole(t *testing.T) {
	st, in := countWords(t, true)
	b := lines("1 2", "3 x 4 y", "5", "z", "6 7")
	var outer []int
	env := &expr.Env{Fail: func(row int, _ *dataflow.Error) { outer = append(outer, row) }}
	out, failed, _ := operator.NewChainRunner(st, in).Run(b, nil, env)
	if got, want := texts(out, 0), []string{"1", "2", "5", "6", "7"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if len(failed) != 2 || failed[0].Row != 1 || failed[1].Row != 3 {
		t.Fatalf("failed: %v", failed)
	}
	for _, f := range failed {
		if f.Err == nil || f.Err.Reason != dataflow.ReasonExpressionFailed {
			t.Errorf("row %d: %v", f.Row, f.Err)
		}
	}
	if outer != nil {
		t.Fatalf("the caller's Fail was called for %v", outer)
	}
	if env.Fail(7, nil); len(outer) != 1 {
		t.Fatal("the caller's Fail was not put back")
	}
}

func TestRowsToSkipAreNotEvaluated(t *testing.T) {
	st, in := countWords(t, true)
	b := lines("1", "x", "2")
	skip := batch.NewBitmap(b.N)
	skip.Set(1)
	c := operator.NewChainRunner(st, in)
	for range 2 { // the runner is reused
		out, failed, _ := c.Run(b, skip, &expr.Env{})
		if len(failed) != 0 {
			t.Fatal(failed)
		}
		if got := texts(out, 0); !slices.Equal(got, []string{"1", "2"}) || out.OffsetOf(1) != 502 {
			t.Fatalf("got %q, offset %d", got, out.OffsetOf(1))
		}
	}
	if out, failed, _ := c.Run(b, nil, &expr.Env{}); out.N != 2 || len(failed) != 1 {
		t.Fatalf("%d rows, %v", out.N, failed)
	}
	all := batch.NewBitmap(b.N)
	all[0] = 7
	if out, failed, _ := c.Run(b, all, &expr.Env{}); out.N != 0 || len(failed) != 0 {
		t.Fatalf("%d rows, %v", out.N, failed)
	}
}

// TestLeavingOutFailingRowsIsAFunctionOfRows runs the same rows in batches cut anywhere: the same rows come out, the
// same rows fail, and a second run that skips the failed ones gives the same.
func TestLeavingOutFailingRowsIsAFunctionOfRows(t *testing.T) {
	st, in := countWords(t, true)
	c := operator.NewChainRunner(st, in)
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SampledFrom([]string{"1", "22", "x", ""})
		var all []string
		for range rapid.IntRange(0, 30).Draw(t, "rows") {
			all = append(all, strings.Join(rapid.SliceOfN(words, 0, 4).Draw(t, "line"), " "))
		}
		var want []string
		var bad []int
		for i, line := range all {
			if strings.Contains(line, "x") {
				bad = append(bad, i)
				continue
			}
			for _, w := range strings.Fields(line) {
				want = append(want, fmt.Sprintf("%s@%d", w, 500+i))
			}
		}
		b := lines(all...)
		var got []string
		var failed []int
		skip := batch.NewBitmap(b.N)
		for from := 0; from < b.N; {
			to := rapid.IntRange(from+1, b.N).Draw(t, "to")
			out, errs, _ := c.Run(b.Slice(from, to), nil, &expr.Env{})
			for i := range out.N {
				got = append(got, fmt.Sprintf("%s@%d", out.Cols[0].Text(i), out.OffsetOf(i)))
			}
			for _, e := range errs {
				failed = append(failed, from+e.Row)
				skip.Set(from + e.Row)
			}
			from = to
		}
		if !slices.Equal(got, want) || !slices.Equal(failed, bad) {
			t.Fatalf("got %q, failed %v; want %q, failed %v", got, failed, want, bad)
		}
		if out, errs, _ := c.Run(b, skip, &expr.Env{}); len(errs) != 0 || out.N != len(want) {
			t.Fatalf("with the failed rows skipped: %d rows, %v", out.N, errs)
		}
	})
}

func TestKeysAndValuesOverTheLimitsFailTheirRow(t *testing.T) {
	st, in := countWords(t, false)
	out, failed, _ := operator.NewChainRunner(st, in).Run(lines("a "+strings.Repeat("k", dataflow.MaxKeyBytes), "b "+strings.Repeat("k", dataflow.MaxKeyBytes-2)), nil, &expr.Env{})
	if len(failed) != 1 || failed[0].Row != 0 || failed[0].Err.Reason != dataflow.ReasonTooLarge || out.N != 2 {
		t.Fatalf("%d rows, failed %v", out.N, failed)
	}
	longest := &plan.Stage{Aggs: []agg.Spec{{Fn: agg.Max, Arg: 0, ArgType: text, Out: text}}}
	limit := agg.NewLayout(longest.Aggs).MaxArgBytes()
	out, failed, _ = operator.NewChainRunner(longest, &plan.Input{}).Run(lines("a", strings.Repeat("x", limit), strings.Repeat("x", limit+1)), nil, &expr.Env{})
	if len(failed) != 1 || failed[0].Row != 2 || failed[0].Err.Reason != dataflow.ReasonTooLarge || out.N != 2 {
		t.Fatalf("%d rows, failed %v", out.N, failed)
	}
}

func TestAnEmptyChainPassesTheBatchOn(t *testing.T) {
	b := lines("a", "b")
	st := &plan.Stage{Key: lineSchema}
	if out, failed, _ := operator.NewChainRunner(st, &plan.Input{}).Run(b, nil, &expr.Env{}); out != b || failed != nil {
		t.Fatalf("%v, %v", out, failed)
	}
}

// fold folds rows of (key, value) with weights without PreAgg.
func fold(t rapid.TB, st *plan.Stage, b *batch.Batch) map[string][]byte {
	t.Helper()
	l := agg.NewLayout(st.Aggs)
	accs := map[string][]byte{}
	for i := range b.N {
		k := string(key.AppendVector(nil, b.Cols[0], i))
		if accs[k] == nil {
			accs[k] = l.New(nil)
		}
		var err error
		if accs[k], err = l.Update(accs[k], b, i, b.Weight(i)); err != nil {
			t.Fatal(err)
		}
	}
	return accs
}

var pairs = dataflow.Schema{{Name: "k", Type: text}, {Name: "v", Type: bigint}, {Name: "s", Type: text}}

func TestPartialsStandForTheRowsOfTheBatch(t *testing.T) {
	for name, aggs := range map[string][]agg.Spec{
		"fixed": {{Fn: agg.CountStar, Arg: -1, Out: bigint}, {Fn: agg.Sum, Arg: 1, ArgType: bigint, Out: numeric}},
		"variable": {{Fn: agg.Max, Arg: 2, ArgType: text, Out: text}, {Fn: agg.Min, Arg: 2, ArgType: text, Out: text},
			{Fn: agg.Count, Arg: 1, ArgType: bigint, Out: bigint}},
	} {
		st := &plan.Stage{Key: pairs[:1], Aggs: aggs}
		p := operator.NewPreAgg(st)
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			b := batch.NewBatch(pairs)
			keys := rapid.SampledFrom([]string{"a", "b", "cc", "", "a longer key than the others"})
			for range rapid.IntRange(0, 200).Draw(t, "rows") {
				k := dataflow.Text(keys.Draw(t, "key"))
				if rapid.IntRange(0, 6).Draw(t, "null") == 0 {
					k = dataflow.NullValue(text)
				}
				b.AppendRow(dataflow.Row{k, dataflow.BigInt(rapid.Int64().Draw(t, "v")), dataflow.Text(keys.Draw(t, "s"))})
				w := int8(1)
				if name == "fixed" && rapid.Bool().Draw(t, "retract") {
					w = -1
				}
				b.Weights = append(b.Weights, w)
			}
			var hashes []uint64
			if rapid.Bool().Draw(t, "hashes") {
				hashes, _ = operator.HashKeys(nil, nil, b, 1)
			}
			outHashes, outKeys, accs, err := p.Combine(b, hashes)
			if err != nil {
				t.Fatal(err)
			}
			want := fold(t, st, b)
			if len(accs) != len(want) {
				t.Fatalf("%d keys, want %d", len(accs), len(want))
			}
			for i, k := range outKeys {
				if outHashes[i] != dataflow.HashKey(k) {
					t.Fatalf("key %x: hash %x", k, outHashes[i])
				}
				if !bytes.Equal(accs[i], want[string(k)]) {
					t.Fatalf("key %x: %x, want %x", k, accs[i], want[string(k)])
				}
			}
		}))
	}
}

func TestPreAggSwitchesOffWhereKeysDoNotRepeat(t *testing.T) {
	st := &plan.Stage{Key: pairs[:1], Aggs: []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: bigint}}}
	p := operator.NewPreAgg(st)
	combine := func(distinct int) {
		t.Helper()
		b := batch.NewBatch(pairs)
		for i := range 1000 {
			b.AppendRow(dataflow.Row{dataflow.Text(fmt.Sprint(i % distinct)), dataflow.BigInt(1), dataflow.Text("")})
		}
		_, keys, _, err := p.Combine(b, nil)
		if err != nil || len(keys) != distinct {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
	}
	for range 3 {
		if !p.Enabled() {
			t.Fatal("off while four of five rows are saved")
		}
		combine(200)
	}
	combine(900)
	off := 0
	for !p.Enabled() {
		off++
	}
	if off == 0 || off > 1000 {
		t.Fatalf("off for %d batches after one that saved 10 %%", off)
	}
	combine(10)
	if !p.Enabled() {
		t.Fatal("off after a batch that saved 99 %")
	}
}

func TestRowsOfAKeyedViewAreNotCombined(t *testing.T) {
	if operator.NewPreAgg(&plan.Stage{Kind: plan.StageUpsert, Aggs: []agg.Spec{{Fn: agg.Any, ArgType: text, Out: text}}}) != nil {
		t.Fatal("a PreAgg for an upsert stage")
	}
}

func sortedRows(b *batch.Batch, visible batch.Bitmap) []string {
	var out []string
	for i := range b.N {
		if !visible.Get(i) {
			continue
		}
		var parts []string
		for _, v := range b.Row(i) {
			if v.Null {
				parts = append(parts, "NULL")
			} else {
				parts = append(parts, expr.FormatValue(v))
			}
		}
		out = append(out, strings.Join(parts, "|"))
	}
	sort.Strings(out)
	return out
}

func TestChainPartialsAndFinalizerCountWords(t *testing.T) {
	st, in := countWords(t, true)
	b := lines("1 2 1", "3 1", "oops", "2")
	b.Weights = nil
	out, failed, _ := operator.NewChainRunner(st, in).Run(b, nil, &expr.Env{})
	if len(failed) != 1 {
		t.Fatal(failed)
	}
	_, keys, accs, err := operator.NewPreAgg(st).Combine(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, visible, _, err := operator.NewFinalizer(st).Batch(keys, accs, dataflow.OnErrorFail)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sortedRows(rows, visible), []string{"1|3|3", "2|2|4", "3|1|3"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestHavingAndEmptyGroupsHideRows(t *testing.T) {
	st, _ := countWords(t, false)
	st.Having = call(t, ">", column(1, "n", bigint), constant(dataflow.BigInt(1)))
	l := agg.NewLayout(st.Aggs)
	b := batch.NewBatch(st.Key)
	b.AppendRow(dataflow.Row{dataflow.Text("w")})
	var keys, accs [][]byte
	for i, n := range []int64{2, 1, 0} {
		acc, err := l.Update(l.New(nil), b, 0, n)
		if err != nil {
			t.Fatal(err)
		}
		keys, accs = append(keys, key.AppendValue(nil, dataflow.Text(fmt.Sprint("w", i)))), append(accs, acc)
	}
	keys, accs = append(keys, key.AppendValue(nil, dataflow.NullValue(text))), append(accs, nil)
	rows, visible, _, err := operator.NewFinalizer(st).Batch(keys, accs, dataflow.OnErrorFail)
	if err != nil {
		t.Fatal(err)
	}
	if got := sortedRows(rows, visible); !slices.Equal(got, []string{"w0|2"}) {
		t.Fatalf("got %q", got)
	}
	if rows, visible, _, err = operator.NewFinalizer(st).Batch(nil, nil, dataflow.OnErrorFail); err != nil || rows.N != 0 || visible.Any() {
		t.Fatalf("over no keys: %d rows, %v", rows.N, err)
	}
}

func TestTheEmptyKeyHasItsRowBeforeAnyInput(t *testing.T) {
	st := &plan.Stage{
		Name: "total", Aggs: []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: bigint}, {Fn: agg.Sum, Arg: 0, ArgType: bigint, Out: numeric}},
		Schema: dataflow.Schema{{Name: "n", Type: bigint}, {Name: "s", Type: numeric}},
		Output: []expr.Expr{column(0, "n", bigint), column(1, "s", numeric)},
	}
	f := operator.NewFinalizer(st)
	rows, visible, _, err := f.Batch([][]byte{{}}, [][]byte{agg.NewLayout(st.Aggs).New(nil)}, dataflow.OnErrorFail)
	if err != nil {
		t.Fatal(err)
	}
	if got := sortedRows(rows, visible); !slices.Equal(got, []string{"0|NULL"}) {
		t.Fatalf("got %q", got)
	}
	if _, visible, _, err = f.Batch([][]byte{{}}, [][]byte{nil}, dataflow.OnErrorFail); err != nil || visible.Any() {
		t.Fatalf("an absent row is visible, or %v", err)
	}
}

// TestAGroupWithTooManyValuesFailsAlone: its row fails under its key, or is absent; other rows are as they are.
func TestAGroupWithTooManyValuesFailsAlone(t *testing.T) {
	st := &plan.Stage{
		Name: "kinds", Key: dataflow.Schema{{Name: "word", Type: text}},
		Aggs:   []agg.Spec{{Fn: agg.Count, Arg: 1, ArgType: bigint, Out: bigint, Distinct: true}},
		Schema: dataflow.Schema{{Name: "word", Type: text}, {Name: "n", Type: bigint}}, KeyCols: []int{0},
		Output: []expr.Expr{column(0, "word", text), column(1, "n", bigint)},
	}
	l := agg.NewLayout(st.Aggs)
	b := batch.NewBatch(dataflow.Schema{{Name: "word", Type: text}, {Name: "x", Type: bigint}})
	const most = 1 << 20 / 9 // values that fit
	for i := range int64(most + 1) {
		b.AppendRow(dataflow.Row{dataflow.Text("w"), dataflow.BigInt(i)})
	}
	one, full := l.New(nil), l.New(nil)
	var err error
	for row := b.N - 1; row >= 0; row-- { // descending, so that each goes to the front
		if full, err = l.Update(full, b, row, 1); err != nil {
			t.Fatal(err)
		}
	}
	if one, err = l.Update(one, b, 0, 1); err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{key.AppendValue(nil, dataflow.Text("one")), key.AppendValue(nil, dataflow.Text("full"))}
	f := operator.NewFinalizer(st)
	_, _, _, err = f.Batch(keys, [][]byte{one, full}, dataflow.OnErrorFail)
	if dataflow.ReasonOf(err) != dataflow.ReasonTooLarge || !strings.Contains(err.Error(), "kinds, key (full): count(DISTINCT …)") {
		t.Fatalf("got %v", err)
	}
	rows, visible, _, err := f.Batch(keys, [][]byte{one, full}, dataflow.OnErrorSkip)
	if err != nil || !visible.Get(0) || visible.Get(1) || rows.Cols[1].Ints[0] != 1 {
		t.Fatalf("visible %v: %v", visible, err)
	}
}

func TestFinalizerNamesTheKeyOfARowThatFails(t *testing.T) {
	st, _ := countWords(t, false)
	st.Output[1] = call(t, "/", constant(dataflow.BigInt(1)), call(t, "-", column(1, "n", bigint), constant(dataflow.BigInt(1))))
	l := agg.NewLayout(st.Aggs)
	b := batch.NewBatch(st.Key)
	b.AppendRow(dataflow.Row{dataflow.Text("w")})
	once, err := l.Update(l.New(nil), b, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{key.AppendValue(nil, dataflow.Text("gone")), key.AppendValue(nil, dataflow.Text("whale"))}
	_, _, _, err = operator.NewFinalizer(st).Batch(keys, [][]byte{l.New(nil), once}, dataflow.OnErrorFail)
	if dataflow.ReasonOf(err) != dataflow.ReasonExpressionFailed || !strings.Contains(err.Error(), "counts, key (whale)") {
		t.Fatalf("got %v", err)
	}
}

func TestFinalizerReportsDamage(t *testing.T) {
	st, _ := countWords(t, false)
	f := operator.NewFinalizer(st)
	good := key.AppendValue(nil, dataflow.Text("w"))
	for name, c := range map[string][2][]byte{
		"key":         {[]byte{1, 2}, agg.NewLayout(st.Aggs).New(nil)},
		"accumulator": {good, {1, 2, 3}},
	} {
		if _, _, _, err := f.Batch([][]byte{c[0]}, [][]byte{c[1]}, dataflow.OnErrorFail); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func benchLines() *batch.Batch {
	words := []string{"the", "whale", "light", "of", "prism", "colour", "ray", "refracted", "and", "glass"}
	b := batch.NewBatch(lineSchema)
	for i := range 512 {
		var line []string
		for j := range 8 {
			line = append(line, words[(i*7+j*3)%len(words)])
		}
		b.AppendRow(dataflow.Row{dataflow.Text(strings.Join(line, " "))})
	}
	b.AppendTime = make([]int64, b.N)
	return b
}

func BenchmarkChain(b *testing.B) {
	st, in := countWords(b, false)
	c := operator.NewChainRunner(st, in)
	rows, env := benchLines(), &expr.Env{}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		out, _, _ := c.Run(rows, nil, env)
		n = out.N
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/row")
}

func BenchmarkPreAgg(b *testing.B) {
	st, in := countWords(b, false)
	out, _, _ := operator.NewChainRunner(st, in).Run(benchLines(), nil, &expr.Env{})
	p := operator.NewPreAgg(st)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := p.Combine(out, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*out.N), "ns/row")
}

func BenchmarkFinalizer(b *testing.B) {
	st, _ := countWords(b, false)
	l := agg.NewLayout(st.Aggs)
	var keys, accs [][]byte
	for i := range 1000 {
		keys = append(keys, key.AppendValue(nil, dataflow.Text(fmt.Sprint("word", i))))
		acc := l.New(nil)
		acc[0] = 1
		accs = append(accs, acc)
	}
	f := operator.NewFinalizer(st)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := f.Batch(keys, accs, dataflow.OnErrorFail); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/row")
}
