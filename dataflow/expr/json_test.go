package expr_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
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

func TestJSONKeepsAllDigits(t *testing.T) {
	strs := expr.JSONOptions{NumbersAsStrings: true}
	for _, c := range []struct {
		typ        dataflow.Type
		text, want string
		opts       expr.JSONOptions
	}{
		{dataflow.TypeBool, "true", "true", expr.JSONOptions{}},
		{dataflow.TypeBigInt, "9223372036854775807", "9223372036854775807", expr.JSONOptions{}},
		{dataflow.TypeBigInt, "9223372036854775807", `"9223372036854775807"`, strs},
		{dataflow.TypeNumeric, "123456789012345678901234567890.10", "123456789012345678901234567890.10", expr.JSONOptions{}},
		{dataflow.TypeNumeric, "1.50", `"1.50"`, strs},
		{dataflow.TypeNumeric, "NaN", `"NaN"`, expr.JSONOptions{}},
		{dataflow.TypeDouble, "0.1", "0.1", strs},
		{dataflow.TypeDouble, "1e300", "1e+300", expr.JSONOptions{}},
		{dataflow.TypeDouble, "NaN", `"NaN"`, expr.JSONOptions{}},
		{dataflow.TypeDouble, "-Infinity", `"-Infinity"`, expr.JSONOptions{}},
		{dataflow.TypeTimestamp, "2026-11-29 10:00:00.5+00", `"2026-11-29T10:00:00.5Z"`, expr.JSONOptions{}},
		{dataflow.TypeTimestamp, "0044-03-15 BC", `"-000043-03-15T00:00:00Z"`, expr.JSONOptions{}},
		{dataflow.TypeText, "a\"b\\c\n\x01é\u2028", `"a\"b\\c\n\u0001é` + "\u2028" + `"`, expr.JSONOptions{}},
		{dataflow.TypeTextArray, `{a,NULL,"b c"}`, `["a",null,"b c"]`, expr.JSONOptions{}},
		{dataflow.TypeInterval, "1 day", `"1 day"`, expr.JSONOptions{}},
	} {
		v := value(t, c.typ, c.text)
		got := string(expr.AppendJSON(nil, v, c.opts))
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.typ, c.text, got, c.want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s is not JSON", got)
		}
	}
	if got := string(expr.AppendJSON(nil, dataflow.NullValue(dataflow.TypeText), strs)); got != "null" {
		t.Errorf("NULL is %s", got)
	}
}

func TestJSONIsReadWithoutLoss(t *testing.T) {
	for _, c := range []struct {
		typ       dataflow.Type
		raw, want string
	}{
		{dataflow.TypeBigInt, `42`, "42"},
		{dataflow.TypeBigInt, ` -9223372036854775808 `, "-9223372036854775808"},
		{dataflow.TypeBigInt, `"9223372036854775807"`, "9223372036854775807"},
		{dataflow.TypeBigInt, `1e3`, "1000"},
		{dataflow.TypeBigInt, `5.0`, "5"},
		{dataflow.TypeDouble, `1.5`, "1.5"},
		{dataflow.TypeDouble, `"NaN"`, "NaN"},
		{dataflow.TypeDouble, `7`, "7"},
		{dataflow.TypeNumeric, `123456789012345678901234567890.10`, "123456789012345678901234567890.10"},
		{dataflow.TypeNumeric, `"1.50"`, "1.50"},
		{dataflow.TypeText, `"a\u00e9\ud83d\udc4d\n\"\/"`, "aé👍\n\"/"},
		{dataflow.TypeText, `""`, ""},
		{dataflow.TypeText, `"\\ud800"`, `\ud800`},
		{dataflow.TypeTimestamp, `"2026-11-29T10:00:00+01:00"`, "2026-11-29 09:00:00+00"},
		{dataflow.TypeBool, `true`, "true"},
		{dataflow.TypeBool, `false`, "false"},
		{dataflow.TypeTextArray, `["a", null, "b c"]`, `{a,NULL,"b c"}`},
	} {
		v, err := expr.ParseJSON(c.typ, []byte(c.raw))
		if err != nil {
			t.Errorf("%s as %s: %v", c.raw, c.typ, err)
			continue
		}
		if got := expr.FormatValue(v); got != c.want || v.Null || v.Type != c.typ {
			t.Errorf("%s as %s: %q, want %q", c.raw, c.typ, got, c.want)
		}
	}
	for _, typ := range []dataflow.Type{dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeText, dataflow.TypeTimestamp} {
		if v, err := expr.ParseJSON(typ, []byte("null")); err != nil || !v.Null || v.Type != typ {
			t.Errorf("null as %s: %v, %v", typ, v, err)
		}
	}
}

func TestJSONThatDoesNotFitSaysWhy(t *testing.T) {
	for _, c := range []struct {
		typ       dataflow.Type
		raw, want string
	}{
		{dataflow.TypeBigInt, `9223372036854775808`, `value "9223372036854775808" is out of range for type bigint`},
		{dataflow.TypeBigInt, `1e400`, `value "1e400" is out of range for type bigint`},
		{dataflow.TypeBigInt, `1.5`, "got the fraction 1.5"},
		{dataflow.TypeBigInt, `"x"`, `invalid input syntax for type bigint: "x"`},
		{dataflow.TypeBigInt, `true`, "expected an integer, as a number or a string of digits (BIGINT), got true"},
		{dataflow.TypeBigInt, `[1]`, "got an array"},
		{dataflow.TypeBigInt, `{}`, "got an object"},
		{dataflow.TypeDouble, `1e400`, `"1e400" is out of range for type double precision`},
		{dataflow.TypeDouble, `false`, "got false"},
		{dataflow.TypeText, `5`, "expected a string (TEXT), got a number"},
		{dataflow.TypeText, "\"\xff\"", "not valid UTF-8"},
		{dataflow.TypeText, `"\ud800"`, "half of a surrogate pair"},
		{dataflow.TypeText, `"\ud800\u0041"`, "half of a surrogate pair"},
		{dataflow.TypeText, `"\udc00"`, "half of a surrogate pair"},
		{dataflow.TypeText, `"a\u0000b"`, `\u0000`},
		{dataflow.TypeText, "\"a\nb\"", "control character"},
		{dataflow.TypeText, `"`, "malformed JSON string"},
		{dataflow.TypeText, `"a"b"`, "malformed JSON string"},
		{dataflow.TypeTimestamp, `1764374400`, "expected a string such as"},
		{dataflow.TypeTimestamp, `"soon"`, `invalid input syntax for type timestamp with time zone: "soon"`},
		{dataflow.TypeBool, `1`, "expected true or false (BOOLEAN), got a number"},
		{dataflow.TypeBool, `"true"`, "got a string"},
		{dataflow.TypeBool, `nul`, "malformed JSON value"},
		{dataflow.TypeBigInt, ``, "malformed JSON value"},
		{dataflow.TypeBigInt, `-`, "malformed number"},
		{dataflow.TypeBigInt, `01`, "malformed number"},
		{dataflow.TypeTextArray, `["a", 1]`, "got a number"},
	} {
		_, err := expr.ParseJSON(c.typ, []byte(c.raw))
		if dataflow.ReasonOf(err) != dataflow.ReasonRowInvalid || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %s: %v, want ROW_INVALID with %q", c.raw, c.typ, err, c.want)
		}
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

// FuzzValueText: what parses prints as text, and as JSON, that parses to the same value.
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
		raw := expr.AppendJSON(nil, v, expr.JSONOptions{NumbersAsStrings: len(s)%2 == 0})
		if !json.Valid(raw) {
			t.Fatalf("%q is %s", s, raw)
		}
		if v.Type == dataflow.TypeTimestamp && (v.Int < -62135596800e6 || v.Int > 253402300799e6) {
			return // years that RFC 3339 has no form for
		}
		if again, err := expr.ParseJSON(v.Type, raw); err != nil || !same(v, again) {
			t.Fatalf("%q is %s and then %v (%v)", s, raw, again, err)
		}
	})
}

// FuzzJSON: any bytes give a value or a typed error.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`"a\u00e9"`, `"\ud800"`, `12`, `1e400`, `-0.0`, `true`, `null`, `["a",null]`, `{"a":1}`, "\"\xff\"", `"`, ``} {
		for i := range storedTypes {
			f.Add(uint8(i), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, raw []byte) {
		v, err := expr.ParseJSON(storedTypes[int(typ)%len(storedTypes)], raw)
		if err != nil {
			if dataflow.ReasonOf(err) != dataflow.ReasonRowInvalid {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if !v.Null && !json.Valid(raw) {
			t.Fatalf("%q is no JSON and was read as %s", raw, expr.FormatValue(v))
		}
		if v.Type == dataflow.TypeText && !utf8.ValidString(v.Str) {
			t.Fatalf("%q is not UTF-8", v.Str)
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
