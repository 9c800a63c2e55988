package expr_test

import (
	"math/rand"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
)

// TestExpressionsAreSharedByGoroutines evaluates the same trees on four goroutines; the race detector is the judge.
func TestExpressionsAreSharedByGoroutines(t *testing.T) {
	var all []lifted
	for _, text := range recordedExpressions(t) {
		all = append(all, variants(text)...)
	}
	var wg sync.WaitGroup
	for g := int64(0); g < 4; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewSource(g))
			env := expr.Env{Fail: func(int, *dataflow.Error) {}}
			for _, l := range all {
				rows := l.randomRows(rng, 3)
				l.e.Eval(&env, columns(l.schema, rows), nil)
			}
		}()
	}
	wg.Wait()
}

// TestAFailedRowIsToldOnceAndBecomesNull: the error is the caller's own copy.
func TestAFailedRowIsToldOnceAndBecomesNull(t *testing.T) {
	schema := dataflow.Schema{{Name: "n", Type: dataflow.TypeBigInt}}
	e, err := expr.NewCall("/", expr.NewConst(dataflow.BigInt(10)), expr.NewColumn(0, "n", dataflow.TypeBigInt))
	if err != nil {
		t.Fatal(err)
	}
	b := columns(schema, []dataflow.Row{{dataflow.BigInt(0)}, {dataflow.BigInt(5)}, {dataflow.NullValue(dataflow.TypeBigInt)}, {dataflow.BigInt(0)}})
	var failed []int
	env := expr.Env{Fail: func(row int, err *dataflow.Error) {
		failed = append(failed, row)
		if err.Reason != dataflow.ReasonExpressionFailed || err.Message != "division by zero" || err.Metadata != nil {
			t.Errorf("row %d: %+v", row, err)
		}
		err.WithMeta("row", "mine")
	}}
	v := e.Eval(&env, b, nil)
	if len(failed) != 2 || failed[0] != 0 || failed[1] != 3 {
		t.Errorf("failed rows %v", failed)
	}
	if !v.IsNull(0) || v.IsNull(1) || !v.IsNull(2) || v.Ints[1] != 2 || v.Ints[0] != 0 {
		t.Errorf("result %+v", v)
	}
}

// TestNowIsTheRowsAppendTime in views, and the request's time in queries (P10).
func TestNowIsTheRowsAppendTime(t *testing.T) {
	e, err := expr.NewCall("now")
	if err != nil {
		t.Fatal(err)
	}
	b := columns(nil, []dataflow.Row{{}, {}})
	env := expr.Env{Now: 99}
	if v := e.Eval(&env, b, nil); v.Ints[0] != 99 || v.Ints[1] != 99 {
		t.Errorf("in a query: %v", v.Ints)
	}
	b.AppendTime = []int64{5, 7}
	if v := e.Eval(&env, b, nil); v.Ints[0] != 5 || v.Ints[1] != 7 {
		t.Errorf("in a view: %v", v.Ints)
	}
}

// TestCanonicalTextReadsBack: String gives SQL that means the same expression.
func TestCanonicalTextReadsBack(t *testing.T) {
	for _, text := range recordedExpressions(t) {
		for _, l := range variants(text) {
			p := parser{literal: constant, column: func(name string) (expr.Expr, bool) {
				i := l.schema.Index(name)
				if i < 0 {
					return nil, false
				}
				return expr.NewColumn(i, name, l.schema[i].Type), true
			}}
			again, err := p.parse(l.e.String())
			if err != nil {
				t.Errorf("%s reads as %v", l.e, err)
				continue
			}
			if again.String() != l.e.String() || again.Type() != l.e.Type() {
				t.Errorf("%s reads as %s", l.e, again)
			}
		}
	}
}
