package expr_test

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// recordedExpressions returns the expressions of testdata.
func recordedExpressions(t testing.TB) []string {
	files, err := filepath.Glob("testdata/postgres/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var out []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(data), "\n") {
			if text, _, ok := strings.Cut(line, "  →  "); ok {
				out = append(out, text)
			}
		}
	}
	return out
}

// lifted is an expression whose constants have become columns.
type lifted struct {
	e      expr.Expr
	schema dataflow.Schema
	values dataflow.Row // what stood in the text
}

// lift replaces the constants of an expression by columns: quoted literals too if quoted is set.
func lift(text string, quoted bool) (lifted, error) {
	var l lifted
	p := parser{literal: func(v dataflow.Value, typed bool) expr.Expr {
		if v.Null || !typed && !quoted {
			return expr.NewConst(v)
		}
		name := fmt.Sprintf("c%d", len(l.schema))
		l.schema = append(l.schema, dataflow.Column{Name: name, Type: v.Type})
		l.values = append(l.values, v)
		return expr.NewColumn(len(l.schema)-1, name, v.Type)
	}}
	var err error
	l.e, err = p.parse(text)
	return l, err
}

// variants returns the expression with all constants lifted, and with those that have a type of their own.
func variants(text string) []lifted {
	plain, err := parse(text)
	if err != nil {
		return nil
	}
	var out []lifted
	for _, quoted := range []bool{true, false} {
		if l, err := lift(text, quoted); err == nil && l.e.Type() == plain.Type() && len(l.schema) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// pool returns values of a type that are likely to be special.
func pool(t dataflow.Type) []dataflow.Value {
	texts := map[dataflow.Type][]string{
		dataflow.TypeBool:      {"true", "false"},
		dataflow.TypeBigInt:    {"0", "1", "-1", "2", "7", "9223372036854775807", "-9223372036854775808"},
		dataflow.TypeDouble:    {"0", "-0", "1.5", "-2.5", "NaN", "Infinity", "1e300"},
		dataflow.TypeNumeric:   {"0", "0.00", "1.5", "-2.25", "NaN", "Infinity", "123456789012345678901234567890.5"},
		dataflow.TypeText:      {"", "a", "é日 x", "Weir DB-2", "%", "1", "2026-11-29", "a,b,,c"},
		dataflow.TypeTimestamp: {"1970-01-01", "2026-11-29 10:20:30.5", "1969-12-31 23:59:59.999999", "0044-03-15 BC"},
		dataflow.TypeInterval:  {"1 day", "-1 mon 02:00:00", "0"},
		dataflow.TypeTextArray: {"{}", "{a,NULL,b}"},

		dataflow.TypeJSONB:          {"{}", "[]", "null", "1.50", `"a"`, `{"a": [1, {"b": null}], "n": 2}`, "[1, 2, \"a\"]"},
		dataflow.TypeBytea:          {"", "a", `\x00ff`, `\xc3a9`},
		dataflow.TypeDate:           {"1970-01-01", "2026-11-29", "2024-02-29", "0044-03-15 BC"},
		dataflow.TypeBigIntArray:    {"{}", "{1,NULL,2}", "{3}"},
		dataflow.TypeNumericArray:   {"{}", "{1.50,NULL}"},
		dataflow.TypeDoubleArray:    {"{}", "{1.5,NULL}"},
		dataflow.TypeBoolArray:      {"{}", "{t,NULL,f}"},
		dataflow.TypeDateArray:      {"{}", "{2026-11-29,NULL}"},
		dataflow.TypeTimestampArray: {"{}", "{2026-11-29,NULL}"},
		dataflow.TypeJSONBArray:     {"{}", "{1,NULL,\"[]\"}"},
		dataflow.TypeByteaArray:     {"{}", "{a,NULL}"},
		dataflow.TypeIntervalArray:  {"{}", "{1 day,NULL}"},
	}
	var out []dataflow.Value
	for _, s := range texts[t] {
		v, err := expr.ParseValue(t, s)
		if err != nil {
			panic(err)
		}
		out = append(out, v)
	}
	return out
}

// randomRows returns n rows like l's own, with NULLs and special values among them.
func (l *lifted) randomRows(rng *rand.Rand, n int) []dataflow.Row {
	rows := make([]dataflow.Row, n)
	for i := range rows {
		row := make(dataflow.Row, len(l.schema))
		for c, col := range l.schema {
			row[c] = l.values[c]
			switch k := rng.Intn(10); {
			case k == 0:
				row[c] = dataflow.NullValue(col.Type)
			case k < 4:
				p := pool(col.Type)
				row[c] = p[rng.Intn(len(p))]
			}
		}
		rows[i] = row
	}
	return rows
}

// columns puts rows into a batch. INTERVAL, which no stored column has, is filled by hand.
func columns(schema dataflow.Schema, rows []dataflow.Row) *batch.Batch {
	b := &batch.Batch{Schema: schema, N: len(rows)}
	for c, col := range schema {
		v := batch.NewVector(col.Type, len(rows))
		if col.Type == dataflow.TypeInterval {
			v = &batch.Vector{Type: col.Type, Nulls: batch.NewBitmap(len(rows)), Ivls: make([]dataflow.Interval, len(rows))}
			for i, row := range rows {
				if row[c].Null {
					v.Nulls.Set(i)
				} else {
					v.Ivls[i] = row[c].Ivl
				}
			}
		} else {
			for _, row := range rows {
				v.AppendValue(row[c])
			}
		}
		b.Cols = append(b.Cols, v)
	}
	return b
}

func hasInterval(s dataflow.Schema) bool {
	for _, c := range s {
		if c.Type == dataflow.TypeInterval {
			return true
		}
	}
	return false
}

// rowOf returns row i of v as EvalRow would.
func rowOf(v *batch.Vector, i int) dataflow.Value {
	if v.Type == dataflow.TypeInterval && !v.IsNull(i) {
		return dataflow.Value{Type: v.Type, Ivl: v.Ivls[i]}
	}
	if v.IsNull(i) {
		return dataflow.NullValue(v.Type)
	}
	return v.Value(i)
}

// TestBatchesEqualRows evaluates every recorded expression over columns of random values under random selections and
// compares each row with its evaluation alone. Rows that are not selected must not fail.
func TestBatchesEqualRows(t *testing.T) {
	seed := rand.Int63()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	tried := 0
	for _, text := range recordedExpressions(t) {
		for _, l := range variants(text) {
			tried++
			n := 1 + rng.Intn(150)
			rows := l.randomRows(rng, n)
			want := make([]dataflow.Value, n)
			wantErr := make([]string, n)
			for i, row := range rows {
				v, err := expr.EvalRow(l.e, l.schema, row, 0)
				want[i] = v
				if err != nil {
					wantErr[i] = err.Error()
				}
			}
			b := columns(l.schema, rows)
			if rng.Intn(3) == 0 && !hasInterval(l.schema) {
				// Rows in the middle of a larger batch, whose memory they share.
				more := append(append(l.randomRows(rng, 3), rows...), l.randomRows(rng, 2)...)
				b = columns(l.schema, more).Slice(3, 3+n)
			}
			before := columns(l.schema, rows)
			for round := 0; round < 3; round++ {
				var sel expr.Sel
				selected := make([]bool, n)
				for i := range selected {
					selected[i] = round == 0 || rng.Intn(3) > 0
					if selected[i] && round > 0 {
						sel = append(sel, int32(i))
					}
				}
				if round > 0 && sel == nil {
					sel = expr.Sel{}
				}
				got := make([]string, n)
				env := expr.Env{Fail: func(row int, err *dataflow.Error) {
					if got[row] == "" {
						got[row] = err.Error()
					}
				}}
				v := l.e.Eval(&env, b, sel)
				for i := range rows {
					if !selected[i] {
						if got[i] != "" {
							t.Fatalf("%s (%s): row %d is not selected and fails: %s", text, l.e, i, got[i])
						}
						continue
					}
					if got[i] != wantErr[i] {
						t.Fatalf("%s (%s): row %d %v fails with %q, alone with %q", text, l.e, i, rows[i], got[i], wantErr[i])
					}
					if wantErr[i] != "" {
						continue // what a row that has failed gives means nothing
					}
					if g, w := describe(rowOf(v, i)), describe(want[i]); g != w {
						t.Fatalf("%s (%s): row %d %v is %s, alone %s", text, l.e, i, rows[i], g, w)
					}
				}
			}
			if b.FirstOffset == 0 && !reflect.DeepEqual(b, before) {
				t.Fatalf("%s (%s): the batch was modified", text, l.e)
			}
		}
	}
	if tried < 1000 {
		t.Errorf("only %d variants tried", tried)
	}
}

// TestLiftedExpressionsAnswerAsRecorded checks the code paths of columns against the recorded answers of constants.
func TestLiftedExpressionsAnswerAsRecorded(t *testing.T) {
	for _, text := range recordedExpressions(t) {
		want := answerOf(text)
		for _, l := range variants(text) {
			v, err := expr.EvalRow(l.e, l.schema, l.values, 0)
			got := describe(v)
			if err != nil {
				got = "error: " + message(err)
			}
			if got != want {
				t.Errorf("%s as %s: %s, want %s", text, l.e, got, want)
			}
		}
	}
}
