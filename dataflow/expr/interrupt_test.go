package expr_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

var errEnough = errors.New("enough")

// lookedAt evaluates a call over 1,024 texts of 1 kB, and returns how often it was asked whether to go on. It is told to
// end at the last question, if that is not 0.
func lookedAt(t *testing.T, name string, last int, args ...expr.Expr) (looks int, env *expr.Env, v *batch.Vector) {
	t.Helper()
	e, err := expr.NewCall(name, append([]expr.Expr{expr.NewColumn(0, "x", dataflow.TypeText)}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	b := batch.NewBatch(dataflow.Schema{{Name: "x", Type: dataflow.TypeText}})
	for range 1024 {
		b.AppendRow(dataflow.Row{dataflow.Text(strings.Repeat("x", 1000))})
	}
	env = &expr.Env{
		Fail: func(row int, err *dataflow.Error) { t.Errorf("row %d: %v", row, err) },
		Interrupt: func() error {
			if looks++; looks == last {
				return errEnough
			}
			return nil
		},
	}
	v = e.Eval(env, b, nil)
	return looks, env, v
}

func TestAnEvaluationAsksAfterSomeWorkWhetherToGoOn(t *testing.T) {
	pattern := expr.NewConst(dataflow.Text("(x|y)*z$"))
	for name, args := range map[string][]expr.Expr{
		"~": {pattern}, "regexp_count": {pattern}, "regexp_replace": {pattern, pattern}, "like": {expr.NewConst(dataflow.Text("%z%z%"))},
		"md5": nil, "initcap": nil, "repeat": {expr.NewConst(dataflow.BigInt(2))}, "replace": {pattern, pattern},
	} {
		looks, env, _ := lookedAt(t, name, 0, args...)
		if looks < 1024/5 || env.Interrupted() != nil || env.Over() {
			t.Errorf("%s over 1 MB of text: asked %d times, %v", name, looks, env.Interrupted())
		}
	}
}

func TestAnInterruptedEvaluationGivesUpForGood(t *testing.T) {
	looks, env, v := lookedAt(t, "md5", 10)
	if looks != 10 || !errors.Is(env.Interrupted(), errEnough) || !env.Over() {
		t.Errorf("asked %d times, %v, over %v", looks, env.Interrupted(), env.Over())
	}
	if v.Len() != 1024 {
		t.Errorf("%d rows", v.Len()) // whoever reads them before it asks must not fail
	}
	env.Begin(1 << 20)
	if !env.Over() {
		t.Error("a smaller batch was begun") // which would come to nothing again and again
	}
}
