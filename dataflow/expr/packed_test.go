package expr_test

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// packedTypes are the fields of the packed rows of these tests.
var packedTypes = []dataflow.Type{
	dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeText, dataflow.TypeTimestamp, dataflow.TypeNumeric, dataflow.TypeDate,
	dataflow.TypeInterval, dataflow.TypeJSONB, dataflow.TypeBytea, dataflow.TypeTextArray, dataflow.TypeBigIntArray,
}

func fieldsOf(row expr.Expr) []expr.Expr {
	fields := make([]expr.Expr, len(packedTypes))
	for i, t := range packedTypes {
		fields[i] = expr.NewField(row, i, "f", t)
	}
	return fields
}

func TestFieldsOfPackedRowsAreWhatWasPacked(t *testing.T) {
	texts := []string{"true", "-7", "-0", "é", "2026-11-29", "1.50", "1999-12-31", "24:00:00", `{"a": [1.0, null]}`, `\x00ff`, `{a,NULL,"b c"}`, "{}"}
	var values []expr.Expr
	for i, text := range texts {
		x, err := expr.NewCast(expr.NewConst(dataflow.Text(text)), packedTypes[i])
		if err != nil {
			t.Fatal(err)
		}
		null := expr.NewConst(dataflow.NullValue(packedTypes[i]))
		// Every other row is NULL.
		odd, err := expr.NewCase([]expr.When{{Cond: expr.NewColumn(0, "c", dataflow.TypeBool), Then: x}}, null)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, odd)
	}
	b := batch.NewBatch(dataflow.Schema{{Name: "c", Type: dataflow.TypeBool}})
	for i := range 6 {
		b.AppendRow(dataflow.Row{dataflow.Bool(i%2 == 0)})
	}
	env := &expr.Env{Fail: func(row int, err *dataflow.Error) { t.Errorf("row %d: %v", row, err) }}
	sel := expr.Sel{0, 1, 4, 5}
	for i, f := range fieldsOf(expr.NewPacked(values...)) {
		env.Begin(1 << 20)
		got, want := f.Eval(env, b, sel), values[i].Eval(env, b, sel)
		if got.Len() != b.N {
			t.Fatalf("%s: %d rows", packedTypes[i], got.Len())
		}
		for _, row := range sel {
			g, w := got.Value(int(row)), want.Value(int(row))
			if g.Null != w.Null || !g.Null && expr.FormatValue(g) != expr.FormatValue(w) {
				t.Errorf("%s, row %d: %v, want %v", packedTypes[i], row, g, w)
			}
		}
	}
}

// FuzzFields: whatever the bytes of a packed row are, its fields have a row or fail.
func FuzzFields(f *testing.F) {
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{2, 2, 2, 14, 9, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 'x'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, row []byte) {
		b := batch.NewBatch(dataflow.Schema{{Name: "r", Type: dataflow.TypeBytea}})
		b.Cols[0].AppendText(row)
		b.Cols[0].AppendNull()
		b.N = 2
		env := &expr.Env{}
		for _, field := range fieldsOf(expr.NewColumn(0, "r", dataflow.TypeBytea)) {
			env.Begin(1 << 26)
			if v := field.Eval(env, b, nil); v.Len() != 2 || !v.IsNull(1) {
				t.Fatalf("%s: %d rows", field, v.Len())
			}
		}
	})
}
