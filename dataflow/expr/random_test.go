package expr_test

import (
	"bytes"
	"fmt"
	"math/rand"
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
	switch g.Intn(26) {
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
	case 24:
		return g.text() + " like '" + g.pick("%a%", "a%", "%_", "_%b", "%a%b%", "%é%") + "'"
	}
	return g.pick("upper", "lower", "initcap", "reverse", "md5", "btrim", "length", "ascii") + "(" + g.text() + ")"
}
