package expr_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"regexp"
	"strings"
	"testing"

	"github.com/weirdb/weir/internal/testkit/postgres"
)

// TestRandomExpressionsEqualPostgres compares with a PostgreSQL 15 of its own; it runs with -record only.
func TestRandomExpressionsEqualPostgres(t *testing.T) {
	if !*record {
		t.Skip("needs PostgreSQL: -record")
	}
	pg := postgres.Start(t)
	seed := rand.Int63()
	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewSource(seed))}
	const n, sep = 6000, "@@"
	exprs := make([]string, n)
	var script bytes.Buffer
	for i := range exprs {
		exprs[i] = g.expression()
		fmt.Fprintf(&script, "\\echo %s\n%s;\n", sep, pgQuery(exprs[i]))
	}
	cmd := pg.Psql("-F", pgSep, "-f", "-")
	cmd.Stdin = &script
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	answers := strings.Split(string(out), sep+"\n")[1:]
	if len(answers) != n {
		t.Fatalf("%d answers", len(answers))
	}
	for i, e := range exprs {
		if got, want := answerOf(e), pgAnswer(answers[i]); got != want {
			t.Errorf("%s: %s, PostgreSQL %s", e, got, want)
		}
	}
}

// generator makes expressions whose answers are worth comparing.
type generator struct{ *rand.Rand }

func (g generator) pick(xs ...string) string { return xs[g.Intn(len(xs))] }

func (g generator) numeric() string {
	digits := strings.TrimLeft(fmt.Sprint(g.Int63n(1<<(1+g.Intn(60)))), "-")
	point := g.Intn(len(digits) + 1)
	s := digits[:point] + "." + digits[point:]
	if point == 0 {
		s = "0." + strings.Repeat("0", g.Intn(8)) + digits
	}
	if g.Intn(5) == 0 {
		s += fmt.Sprintf("e%d", g.Intn(40)-20)
	}
	return "'" + g.pick("", "", "", "-") + s + "'::numeric"
}

func (g generator) small() string {
	return fmt.Sprintf("'%d.%d'::numeric", g.Intn(30)-10, g.Intn(1000))
}

func (g generator) double() string {
	scales := []float64{1, 1e10, 1e-10, 1e16, 1e21}
	f := g.NormFloat64() * scales[g.Intn(len(scales))]
	return fmt.Sprintf("'%v'::double precision", f)
}

func (g generator) time() string {
	return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d.%d'::timestamptz", g.Intn(4000)+1, g.Intn(12)+1, g.Intn(28)+1, g.Intn(24), g.Intn(60), g.Intn(60), g.Intn(1000000))
}

func (g generator) interval() string {
	return fmt.Sprintf("interval '%d mons %d days %d.%d seconds'", g.Intn(100)-50, g.Intn(100)-50, g.Intn(200000), g.Intn(1000))
}

func (g generator) text() string {
	var b strings.Builder
	for k := g.Intn(8); k > 0; k-- {
		b.WriteString(g.pick("a", "b", "c", "é", "日", " ", ",", "A", "1", "-", "_"))
	}
	return "'" + b.String() + "'"
}

func (g generator) expression() string {
	timeFields := []string{"week", "isoyear", "doy", "isodow", "dow", "julian", "epoch", "century", "decade", "quarter", "milliseconds", "second"}
	switch g.Intn(40) {
	case 0:
		return g.numeric() + g.pick(" + ", " - ", " * ", " / ", " % ") + g.numeric()
	case 1:
		return g.pick("sqrt", "ln", "log", "abs", "ceil", "floor", "round", "trunc", "sign") + "(" + g.numeric() + ")"
	case 2:
		return "exp(" + g.small() + ")"
	case 3:
		return "power(abs(" + g.numeric() + "), " + g.small() + ")"
	case 4:
		return fmt.Sprintf("power(%s, '%d'::numeric)", g.numeric(), g.Intn(40)-20)
	case 5:
		return "log(abs(" + g.numeric() + "), abs(" + g.numeric() + "))"
	case 6:
		return fmt.Sprintf("%s(%s, %d)", g.pick("round", "trunc"), g.numeric(), g.Intn(20)-8)
	case 7:
		return g.numeric() + g.pick("::double precision", "::bigint", "::double precision::numeric", "::double precision::text")
	case 8:
		return g.double() + g.pick("::text", "::numeric", "::bigint")
	case 9:
		return g.double() + g.pick(" + ", " - ", " * ", " / ") + g.double()
	case 10:
		return "date_trunc('" + g.pick("week", "month", "quarter", "year", "decade", "century", "millennium", "day", "hour", "milliseconds") + "', " + g.time() + ")"
	case 11:
		return "extract(" + g.pick(timeFields...) + " from " + g.time() + ")"
	case 12:
		return "date_part('" + g.pick(timeFields...) + "', " + g.time() + ")"
	case 13:
		return g.time() + g.pick(" + ", " - ") + g.interval()
	case 14:
		return g.time() + " - " + g.time()
	case 15:
		return g.interval() + g.pick(" + ", " - ") + g.interval()
	case 16:
		return fmt.Sprintf("%s%s'%.3f'::double precision", g.interval(), g.pick(" * ", " / "), g.NormFloat64()*3)
	case 17:
		return "extract(" + g.pick("epoch", "hour", "minute", "second", "month", "year", "day", "quarter", "decade") + " from " + g.interval() + ")"
	case 18:
		return fmt.Sprintf("date_bin('%d seconds', %s, %s)", g.Intn(10000)+1, g.time(), g.time())
	case 19:
		return "to_char(" + g.time() + ", '" + g.pick("YYYY-MM-DD HH12:MI:SS.US AM", "IYYY-IW-ID", "DDD Q WW D", "FMMonth FMDay FMDD YY", "Mon Dy MS") + "')"
	case 20:
		return fmt.Sprintf("substr(%s, %d, %d)", g.text(), g.Intn(12)-4, g.Intn(8))
	case 21:
		return "regexp_split_to_array(" + g.text() + ", '" + g.pick("[^a-z0-9]+", " ", "\\s+", "\\W+", "a|b", "", "[ab]*", "(a)(b)?", ",", "é", "a?", "[[:punct:]]") + "')"
	case 22:
		return "regexp_replace(" + g.text() + ", '" + g.pick("a", "(a|b)+", "\\w+", "[^a]", "a.*b", "a.*?b", "\\s", "^.", "(.)(.)") + "', '" + g.pick("x", "<\\&>", "\\1", "") + "'" + g.pick("", ", 'g'", ", 'gi'") + ")"
	case 23:
		return "regexp_match(" + g.text() + ", '" + g.pick("(a)(b)?", "(a|ab)(c|bc)?", "(.)(.)", "a*b*", "([a-c]+)(\\w*)", "(a*)(a|b)*") + "')"
	case 34, 35:
		return g.fromChar()
	case 36:
		return "to_char(" + g.interval() + ", '" + isoPatterns.ReplaceAllString(g.dateFormat(), "MI") + "')"
	case 37:
		return "to_number(" + g.numberText() + ", '" + g.numberFormat() + "')"
	case 38:
		return "to_char(" + g.time() + ", '" + g.dateFormat() + "')"
	case 25, 26, 27:
		return g.json()
	case 28, 29, 30:
		return g.array()
	case 31:
		return g.small() + "::text || to_char(" + g.numeric() + ", '" + g.numberFormat() + "')"
	case 24:
		return g.text() + " like '" + g.pick("%a%", "a%", "%_", "_%b", "%a%b%", "%é%") + "'"
	}
	return g.pick("upper", "lower", "initcap", "reverse", "md5", "btrim", "length", "ascii") + "(" + g.text() + ")"
}

// document returns a JSON text.
func (g generator) document(depth int) string {
	switch n := g.Intn(7); {
	case n == 0 || depth == 0:
		return g.pick("null", "true", "false", "0", "1", "-2.50", "1e3", `""`, `"a"`, `"b c"`, `"é"`, "12345678901234567890")
	case n < 4:
		var parts []string
		for range g.Intn(4) {
			parts = append(parts, `"`+g.pick("a", "b", "aa", "", "é", "1")+`": `+g.document(depth-1))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	var parts []string
	for range g.Intn(4) {
		parts = append(parts, g.document(depth-1))
	}
	return "[" + strings.Join(parts, " , ") + "]"
}

func (g generator) jsonb() string { return "'" + g.document(3) + "'::jsonb" }

// path returns an array of keys and numbers.
func (g generator) path() string {
	var steps []string
	for range g.Intn(4) {
		steps = append(steps, g.pick("a", "b", "aa", `""`, "0", "1", "-1", "2", "-3", "7", "é", "NULL"))
	}
	return "'{" + strings.Join(steps, ",") + "}'::text[]"
}

func (g generator) json() string {
	doc := g.jsonb()
	switch g.Intn(14) {
	case 0:
		return doc + g.pick(" -> ", " ->> ", " ? ", " - ") + "'" + g.pick("a", "b", "aa", "", "é", "x") + "'::text"
	case 1:
		return fmt.Sprintf("%s%s%d", doc, g.pick(" -> ", " ->> ", " - "), g.Intn(6)-3)
	case 2:
		return doc + g.pick(" #> ", " #>> ", " #- ", " ?| ", " ?& ", " - ") + g.path()
	case 3:
		return doc + g.pick(" @> ", " <@ ") + g.jsonb()
	case 4:
		return doc + " || " + g.jsonb()
	case 5, 6:
		return "jsonb_set(" + doc + ", " + g.path() + ", " + g.jsonb() + g.pick("", ", true", ", false") + ")"
	case 7:
		return "jsonb_insert(" + doc + ", " + g.path() + ", " + g.jsonb() + g.pick("", ", true", ", false") + ")"
	case 8:
		return "jsonb_build_array(" + doc + ", " + g.numeric() + ", " + g.text() + "::text, " + g.array() + ")"
	case 9:
		return "jsonb_build_object(" + g.text() + "::text, " + doc + ", " + g.text() + "::text, " + g.time() + ")"
	case 10:
		return doc + g.pick(" = ", " <> ", " is not distinct from ") + g.jsonb()
	case 11:
		return doc + g.pick("::text", "::numeric", "::boolean", "::bigint", "::double precision")
	case 12:
		return "to_jsonb(" + g.pick(g.double(), g.time(), g.interval(), g.numeric(), g.text()+"::text", g.list("bigint")) + ")"
	}
	return g.pick("jsonb_typeof", "jsonb_strip_nulls", "jsonb_pretty", "jsonb_array_length", "to_jsonb") + "(" + doc + ")"
}

// list returns an array of the type.
func (g generator) list(of string) string {
	var elems []string
	for range g.Intn(5) {
		switch {
		case g.Intn(6) == 0:
			elems = append(elems, "NULL")
		case of == "text":
			elems = append(elems, g.pick("a", "b", `""`, `"b c"`, "é", "ab", `"null"`, `"x,y"`))
		case of == "numeric":
			elems = append(elems, g.pick("1.0", "1.00", "-2", "NaN", "3.14", "0"))
		default:
			elems = append(elems, fmt.Sprint(g.Intn(5)-1))
		}
	}
	return "'{" + strings.Join(elems, ",") + "}'::" + of + "[]"
}

func (g generator) array() string {
	of := g.pick("bigint", "text", "numeric")
	a, elem := g.list(of), "'"+g.pick("1", "2", "0", "-1")+"'::"+of
	if g.Intn(8) == 0 {
		elem = "null::" + of
	}
	switch g.Intn(13) {
	case 0:
		return fmt.Sprintf("(%s)[%d]", a, g.Intn(7)-1)
	case 1:
		return fmt.Sprintf("(%s)[%d:%d]", a, g.Intn(7)-2, g.Intn(7)-1)
	case 2:
		return g.pick("array_append", "array_remove", "array_position", "array_positions") + "(" + a + ", " + elem + ")"
	case 3:
		return "array_prepend(" + elem + ", " + a + ")"
	case 4:
		return "array_replace(" + a + ", " + elem + ", " + g.pick(elem, "null::"+of, "'3'::"+of) + ")"
	case 5:
		return a + g.pick(" || ", " @> ", " <@ ", " && ", " = ", " <> ", " < ", " >= ") + g.list(of)
	case 6:
		return elem + g.pick(" = ", " <> ", " < ", " >= ") + g.pick("any", "all") + " (" + a + ")"
	case 7:
		return "array_to_string(" + a + ", '" + g.pick(",", "", "--") + "'" + g.pick("", ", '?'") + ")"
	case 8:
		return fmt.Sprintf("trim_array(%s, %d)", a, g.Intn(4))
	case 9:
		return "string_to_array(" + g.text() + ", '" + g.pick(",", " ", "a", "") + "'" + g.pick("", ", 'b'") + ")"
	case 10:
		return a + "::text"
	case 11:
		return g.pick("array_length(", "array_upper(", "array_lower(") + a + ", 1)"
	}
	return g.pick("cardinality", "array_ndims") + "(" + a + ")"
}

// numberFormat returns a format of to_char.
func (g generator) numberFormat() string {
	var b strings.Builder
	for range 1 + g.Intn(8) {
		b.WriteString(g.pick("9", "9", "9", "0", "9", ".", "0", ",", "D", "G", "MI", "PL", "SG", "FM", " ", "x"))
	}
	return b.String()
}

// isoPatterns are those that an interval has in PostgreSQL only.
var isoPatterns = regexp.MustCompile("I+YYY|I+Y|IW|ID+|J")

// dateFormat returns a format of to_char of times.
func (g generator) dateFormat() string {
	var b strings.Builder
	for range 1 + g.Intn(6) {
		b.WriteString(g.pick("", "", "", "FM"))
		b.WriteString(g.pick("YYYY", "MM", "DD", "HH24", "HH12", "HH", "MI", "SS", "MS", "US", "FF1", "FF4", "AM", "P.M.", "Mon", "MONTH", "month", "Day", "dy", "DDD", "D", "Q", "CC",
			"WW", "W", "IW", "IYYY", "ID", "IDDD", "J", "RM", "rm", "SSSS", "YY", "Y", "YYY", "Y,YYY", "BC", "a.d.", "TZH", "TZM", "TZ", "OF", "IY"))
		b.WriteString(g.pick("", "", "", "TH", "th"))
		b.WriteString(g.pick("", "-", " ", "/", ":", ", ", `"x y"`, "x", ".", "1"))
	}
	return b.String()
}

// fromChar returns a text that is nearly in a format, to be read.
func (g generator) fromChar() string {
	var text, format strings.Builder
	if g.Intn(8) == 0 {
		format.WriteString("FX")
	}
	n := func(most int) string { return fmt.Sprint(g.Intn(most)) }
	for range 1 + g.Intn(5) {
		p := g.pick("YYYY", "YYYY", "MM", "MM", "DD", "DD", "HH24", "MI", "SS", "MS", "US", "Mon", "Month", "Day", "Dy", "HH12", "AM", "DDD", "YY", "BC", "FF3", "TZH", "Y,YYY", "IYYY", "IW", "ID", "J", "Q", "CC", "RM", "W", "WW", "SSSS", "D", "Y")
		value := n(13)
		switch p {
		case "YYYY", "IYYY":
			value = n(3000)
		case "DD":
			value = fmt.Sprintf("%02d", g.Intn(32))
		case "MI", "SS", "YY", "IW":
			value = n(62)
		case "MS", "US", "FF3", "DDD":
			value = n(400)
		case "Mon", "Month", "RM":
			value = g.pick("jan", "Feb", "MARCH", "May", "sept", "December", "XII", "iv", "x")
		case "Day", "Dy":
			value = g.pick("Monday", "tue", "sunday", "x")
		case "AM", "BC":
			value = g.pick("am", "PM", "bc", "AD", "p.m.")
		case "TZH":
			value = g.pick("+02", "-5", "16", "-11")
		case "Y,YYY":
			value = g.pick("2,026", "1,999", "1999")
		case "J":
			value = n(2500000)
		case "SSSS":
			value = n(90000)
		}
		sep := g.pick("-", " ", "/", ":", ", ", "", "  ", "x", ".")
		format.WriteString(g.pick("", "", "", "", "FM") + p + g.pick("", "", "", "", "", "TH"))
		text.WriteString(g.pick("", "", "", " ") + value)
		format.WriteString(sep)
		text.WriteString(g.pick(sep, sep, sep, sep, " ", "-", ""))
	}
	return g.pick("to_timestamp", "to_timestamp", "to_date") + "('" + text.String() + "', '" + format.String() + "')"
}

// numberText returns a text that may be a number.
func (g generator) numberText() string {
	return "'" + g.pick("", "", "-", "+", " ", "<", "x") + g.pick("1", "12", "1,234", "1234.5", "0.05", ".5", "12 345", "x1", "") + g.pick("", "", "-", "+", ">", ".25", " 5") + "'"
}
