package expr_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

func value(t testing.TB, typ dataflow.Type, text string) dataflow.Value {
	t.Helper()
	v, err := expr.ParseValue(typ, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// cellJSON prints a value as a column's cell does.
func cellJSON(v dataflow.Value, numbersAsStrings bool) string {
	vec := batch.NewVector(v.Type, 1)
	vec.AppendValue(v)
	return string(expr.AppendCellJSON(nil, vec, 0, numbersAsStrings))
}

func TestJSONKeepsAllDigits(t *testing.T) {
	for _, c := range []struct {
		typ        dataflow.Type
		text, want string
		strings    bool
	}{
		{dataflow.TypeBool, "true", "true", false},
		{dataflow.TypeBigInt, "9223372036854775807", "9223372036854775807", false},
		{dataflow.TypeBigInt, "9223372036854775807", `"9223372036854775807"`, true},
		{dataflow.TypeNumeric, "123456789012345678901234567890.10", "123456789012345678901234567890.10", false},
		{dataflow.TypeNumeric, "1.50", `"1.50"`, true},
		{dataflow.TypeNumeric, "NaN", `"NaN"`, false},
		{dataflow.TypeDouble, "0.1", "0.1", true},
		{dataflow.TypeDouble, "1e300", "1e+300", false},
		{dataflow.TypeDouble, "NaN", `"NaN"`, false},
		{dataflow.TypeDouble, "-Infinity", `"-Infinity"`, false},
		{dataflow.TypeTimestamp, "2026-11-29 10:00:00.5+00", `"2026-11-29T10:00:00.5Z"`, false},
		{dataflow.TypeTimestamp, "0044-03-15 BC", `"-000043-03-15T00:00:00Z"`, false},
		{dataflow.TypeTimestamp, "12026-11-29", `"+012026-11-29T00:00:00Z"`, false},
		{dataflow.TypeText, "a\"b\\c\n\x01é\u2028", `"a\"b\\c\n\u0001é` + "\u2028" + `"`, false},
		{dataflow.TypeTextArray, `{a,NULL,"b c"}`, `["a",null,"b c"]`, false},
	} {
		got := cellJSON(value(t, c.typ, c.text), c.strings)
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.typ, c.text, got, c.want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s is not JSON", got)
		}
	}
	if got := cellJSON(dataflow.NullValue(dataflow.TypeText), true); got != "null" {
		t.Errorf("NULL is %s", got)
	}
}

var storedTypes = []dataflow.Type{
	dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeText, dataflow.TypeTimestamp,
	dataflow.TypeNumeric, dataflow.TypeTextArray, dataflow.TypeInterval,
}

// same compares values by their text form, where -0 and 0 differ and NaN equals NaN.
func same(a, b dataflow.Value) bool {
	if a.Type == dataflow.TypeDouble {
		return math.Float64bits(a.Flt) == math.Float64bits(b.Flt) || a.Flt != a.Flt && b.Flt != b.Flt
	}
	return a.Type == b.Type && a.Null == b.Null && expr.FormatValue(a) == expr.FormatValue(b)
}

// FuzzValueText: what parses prints as text that parses to the same value, and as JSON.
func FuzzValueText(f *testing.F) {
	for _, s := range []string{"", "1", "-1.50", "1e400", "NaN", "true", "2026-11-29 10:00:00.5+01", "0044-03-15 BC", "1 day -02:03:04.5", "1-2", "P1Y2M", `{a,"b c",NULL}`, "é", "\xff", "Nov 29 2026 10:00 PM"} {
		for i := range storedTypes {
			f.Add(uint8(i), s)
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, s string) {
		v, err := expr.ParseValue(storedTypes[int(typ)%len(storedTypes)], s)
		if err != nil {
			if dataflow.ReasonOf(err) != dataflow.ReasonExpressionFailed {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		again, err := expr.ParseValue(v.Type, expr.FormatValue(v))
		if err != nil || !same(v, again) {
			t.Fatalf("%q is %q and then %v (%v)", s, expr.FormatValue(v), again, err)
		}
		if v.Type == dataflow.TypeInterval {
			return // columns have none
		}
		if raw := cellJSON(v, len(s)%2 == 0); !json.Valid([]byte(raw)) {
			t.Fatalf("%q is %s", s, raw)
		}
	})
}

// FuzzPattern: any pattern compiles or is refused; none panics.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{`a(b|c)*`, `[^a-z0-9]+`, `[[:alpha:]\d\]]`, `\y\w+\Y`, `(?i)x{2,3}?`, `\x41\u00e9`, `[a`, `(`, `a**`, `(?=a)`, "[\x00-\xff]"} {
		f.Add(s, "hello World 42")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if !utf8.ValidString(pattern) || !utf8.ValidString(text) {
			return
		}
		for _, name := range []string{"~", "~*", "like", "ilike", "regexp_split_to_array", "regexp_match"} {
			e, err := expr.NewCall(name, expr.NewColumn(0, "s", dataflow.TypeText), expr.NewConst(dataflow.Text(pattern)))
			if err != nil {
				continue
			}
			schema := dataflow.Schema{{Name: "s", Type: dataflow.TypeText}}
			_, _ = expr.EvalRow(e, schema, dataflow.Row{dataflow.Text(text)}, 0)
		}
	})
}

func TestFarYearsAreReadAsTheyAreWritten(t *testing.T) {
	for _, text := range []string{"0044-03-15 10:00:00.5+00 BC", "0001-01-01 00:00:00+00 BC", "4714-11-24 00:00:00+00 BC", "12026-11-29 23:59:59+00", "0001-12-31 00:00:00+00", "9999-12-31 00:00:00+00"} {
		v := value(t, dataflow.TypeTimestamp, text)
		if got := expr.FormatValue(v); got != text {
			t.Errorf("%s as text: %s", text, got)
		}
		written := cellJSON(v, false)
		again, err := expr.ParseValue(dataflow.TypeTimestamp, strings.Trim(written, `"`))
		if err != nil || again.Int != v.Int {
			t.Errorf("%s as JSON: %s, which is read as %s (%v)", text, written, expr.FormatValue(again), err)
		}
	}
	for _, text := range []string{"-000043-13-15", "-00043-03-15", "-000043-03-15 BC", "-000043-03-32T00:00:00Z", "+999999-01-01", "10:00 -000043-03-15"} {
		if v, err := expr.ParseValue(dataflow.TypeTimestamp, text); err == nil {
			t.Errorf("%s is read as %s", text, expr.FormatValue(v))
		}
	}
}
