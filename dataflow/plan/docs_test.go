package plan_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// TestDocumentedExamplesPlan plans every sql block of docs/sql.md, and checks that the options that it documents are those
// that exist.
func TestDocumentedExamplesPlan(t *testing.T) {
	data, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	blocks := strings.Split(text, "```sql\n")[1:]
	if len(blocks) < 5 {
		t.Fatalf("docs/sql.md has %d examples", len(blocks))
	}
	for _, b := range blocks {
		example, _, _ := strings.Cut(b, "```")
		f, err := sql.Parse(example)
		if err == nil {
			_, err = plan.Build(f, plan.Streams{})
		}
		if err != nil {
			t.Errorf("%s\n%v", example, err)
		}
	}
	for _, name := range agg.Names() {
		if !strings.Contains(text, "`"+name+"(") && !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/sql.md does not describe the aggregate %s", name)
		}
	}
	options := append(dataflow.DefaultPipelineOptions().List(), dataflow.DefaultStreamOptions().List()...)
	for _, o := range options {
		if !strings.Contains(text, "| `"+o.Name+"` |") {
			t.Errorf("docs/sql.md does not describe option %s", o.Name)
		}
	}
}

func TestTheTypesThatMinAndMaxAreDocumentedToTakeAreThoseThatTheyTake(t *testing.T) {
	data, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, found := strings.Cut(string(data), "| `min(x)`, `max(x)` | the type of x: ")
	if !found {
		t.Fatal("docs/sql.md has no such row")
	}
	row, _, _ = strings.Cut(row, " |")
	documented := strings.Split(strings.ReplaceAll(row, " or ", ", "), ", ")
	slices.Sort(documented)
	for _, name := range []string{"min", "max"} {
		var taken []string
		for typ := dataflow.TypeUnknown + 1; typ <= dataflow.LastType; typ++ {
			if _, _, err := agg.Resolve(name, false, typ); err == nil {
				taken = append(taken, typ.String())
			}
		}
		slices.Sort(taken)
		if !slices.Equal(taken, documented) {
			t.Errorf("%s takes %v, documented are %v", name, taken, documented)
		}
	}
}
