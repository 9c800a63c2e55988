package sql_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/sql"
)

// TestHugeTextsAreRefusedAndNotRunInto feeds what overflows a careless parser: deep nesting in every construct that
// nests, long chains, huge texts.
func TestHugeTextsAreRefusedAndNotRunInto(t *testing.T) {
	deep := func(open, close string, n int) string {
		return "SELECT " + strings.Repeat(open, n) + "a" + strings.Repeat(close, n) + " FROM p.t"
	}
	for name, c := range map[string]struct {
		text string
		want dataflow.Reason
	}{
		"parentheses":      {deep("(", ")", 5000), dataflow.ReasonSQLSyntax},
		"calls":            {deep("f(", ")", 5000), dataflow.ReasonSQLSyntax},
		"position":         {deep("position(", " in a)", 5000), dataflow.ReasonSQLSyntax},
		"trim":             {deep("trim(", ")", 5000), dataflow.ReasonSQLSyntax},
		"not":              {deep("NOT ", "", 5000), dataflow.ReasonSQLSyntax},
		"minus":            {deep("- ", "", 5000), dataflow.ReasonSQLSyntax},
		"case":             {deep("CASE WHEN ", " THEN 1 END", 5000), dataflow.ReasonSQLSyntax},
		"cast":             {deep("CAST(", " AS TEXT)", 5000), dataflow.ReasonSQLSyntax},
		"in":               {deep("a IN (", ")", 5000), dataflow.ReasonSQLSyntax},
		"chain":            {"SELECT a" + strings.Repeat("+a", 20_000) + " FROM p.t", dataflow.ReasonSQLSyntax},
		"casts":            {"SELECT a" + strings.Repeat("::text", 20_000) + " FROM p.t", dataflow.ReasonSQLSyntax},
		"subqueries":       {strings.Repeat("SELECT a FROM (", 5000), dataflow.ReasonSQLSyntax},
		"open parentheses": {"SELECT " + strings.Repeat("(", 100_000), dataflow.ReasonSQLSyntax},
		"open comments":    {strings.Repeat("/*", 100_000), dataflow.ReasonSQLSyntax},
		"10 MB":            {"SELECT '" + strings.Repeat("x", 10<<20) + "' FROM p.t", dataflow.ReasonTooLarge},
		"not UTF-8":        {"SELECT '\xff' FROM p.t", dataflow.ReasonSQLSyntax},
		"zero byte":        {"SELECT \x00 FROM p.t", dataflow.ReasonSQLSyntax},
		"150 parentheses":  {deep("(", ")", 150), ""},
		"4,000 operators":  {"SELECT a" + strings.Repeat("+a", 4_000) + " FROM p.t", ""},
		"a long list":      {"SELECT a FROM p.t WHERE a IN (1" + strings.Repeat(",1", 100_000) + ")", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sql.ParseQuery(c.text)
			if got := dataflow.ReasonOf(err); got != c.want {
				t.Fatalf("got %q (%.300v), want %q", got, err, c.want)
			}
			if err != nil && len(err.Error()) > 2000 {
				t.Fatalf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestTooManyStatementsAreRefused bounds what one deploy can ask for.
func TestTooManyStatementsAreRefused(t *testing.T) {
	if _, err := sql.Parse(strings.Repeat("SET a = 1;", 1000)); err != nil {
		t.Fatal(err)
	}
	if _, err := sql.Parse(strings.Repeat("SET a = 1;", 1001)); dataflow.ReasonOf(err) != dataflow.ReasonSQLSyntax {
		t.Fatalf("got %v", err)
	}
}

// TestErrorsCarryTheirPlace checks the metadata that programs read.
func TestErrorsCarryTheirPlace(t *testing.T) {
	_, err := sql.ParseQuery("SELECT a\nFROM\tt WEHRE b")
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Metadata["line"] != "2" || e.Metadata["column"] != "8" {
		t.Fatalf("got %v %v", err, e.Metadata)
	}
	src := sql.NewSource("SELECT a")
	below := dataflow.Errorf(dataflow.ReasonSQLType, "no such thing").WithHint("do another").WithMeta("k", "v")
	placed := src.At(below, sql.Span{From: 7, To: 8})
	if placed.Metadata["k"] != "v" || placed.Metadata["column"] != "8" || below.Metadata["line"] != "" {
		t.Fatalf("got %v, below %v", placed.Metadata, below.Metadata)
	}
	if again := src.At(placed, sql.Span{}); again != placed {
		t.Fatal("an error that has a place was placed again")
	}
}
