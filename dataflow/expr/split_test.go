package expr_test

import (
	"math/rand"
	"regexp"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
)

// TestTableSplitterSplitsAsTheExpression compares patterns that a table of bytes splits by with the same pattern
// written so that it does not.
func TestTableSplitterSplitsAsTheExpression(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	schema := dataflow.Schema{{Name: "s", Type: dataflow.TypeText}}
	letters := []rune("aZ09 _-,.\t\néß日\u00a0\u2003\u0663")
	for _, pattern := range []string{"[^a-z0-9]+", "[^a-z0-9]", `\s+`, `\s`, `\W+`, `\w+`, `\d`, ",", "[,.]", "[,.]+", "[[:space:][:punct:]]+", "é", "é+", "[^é]+", "(?i)[z]+", "(?n)[^a]+"} {
		fast, err := expr.NewCall("regexp_split_to_array", expr.NewColumn(0, "s", dataflow.TypeText), expr.NewConst(dataflow.Text(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		grouped := regexp.MustCompile(`^(\(\?.\))?(.*)$`).ReplaceAllString(pattern, "$1($2)")
		slow, err := expr.NewCall("regexp_split_to_array", expr.NewColumn(0, "s", dataflow.TypeText), expr.NewConst(dataflow.Text(grouped)))
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < 300; n++ {
			var b strings.Builder
			for k := rng.Intn(20); k > 0; k-- {
				max := len(letters)
				if n%2 == 0 {
					max = 11 // ASCII only
				}
				b.WriteRune(letters[rng.Intn(max)])
			}
			row := dataflow.Row{dataflow.Text(b.String())}
			x, err1 := expr.EvalRow(fast, schema, row, 0)
			y, err2 := expr.EvalRow(slow, schema, row, 0)
			if err1 != nil || err2 != nil || expr.FormatValue(x) != expr.FormatValue(y) {
				t.Fatalf("%q splits %q into %s, the expression into %s (%v, %v)", pattern, b.String(), expr.FormatValue(x), expr.FormatValue(y), err1, err2)
			}
		}
	}
}
