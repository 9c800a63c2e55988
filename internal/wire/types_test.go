package wire_test

import (
	"context"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/internal/wire"
)

// newerTypes is a column of every type that has no kind of its own on the wire, and of NUMERIC(p, s) and BYTEA.
var newerTypes = dataflow.Schema{
	{Name: "j", Type: dataflow.TypeJSONB}, {Name: "n", Type: dataflow.TypeNumeric, Mod: dataflow.NumericMod{Precision: 6, Scale: 2}},
	{Name: "b", Type: dataflow.TypeBytea}, {Name: "d", Type: dataflow.TypeDate}, {Name: "i", Type: dataflow.TypeInterval},
	{Name: "t", Type: dataflow.TypeTextArray}, {Name: "l", Type: dataflow.TypeBigIntArray},
}

const newerRows = `{"j":{"b":1,"a":[1e2,null]},"n":1.005,"b":"AP8=","d":"2026-11-29","i":"26:00:00","t":["a b",null,""],"l":[1,null,"3"]}
{"j":"x","n":"-7","b":"","d":null,"i":"1 mon -1 day","t":"{x,y}","l":[]}
{}`

func TestRowsOfTheNewerTypesComeBackThroughColumns(t *testing.T) {
	b, err := wire.DecodeJSONRows(context.Background(), newerTypes, []byte(newerRows))
	if err != nil {
		t.Fatal(err)
	}
	back, err := wire.DecodeColumns(context.Background(), newerTypes, wire.EncodeColumns(b, 0, b.N), "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"a": [100, null], "b": 1}|1.01|\x00ff|2026-11-29|26:00:00|{"a b",NULL,""}|{1,NULL,3}|`,
		`"x"|-7.00|\x||1 mon -1 days|{x,y}|{}|`,
		`|||||||`,
	}
	for i, w := range want {
		got := ""
		for _, v := range back.Row(i) {
			got += expr.FormatValue(v) + "|"
		}
		if got != w {
			t.Errorf("row %d: %s, want %s", i, got, w)
		}
	}
	if s := wire.Schema(wire.Columns(newerTypes)); !s.Equal(newerTypes) {
		t.Errorf("the schema came back as %s", s)
	}
}

func TestWrongValuesOfTheNewerTypesAreNamed(t *testing.T) {
	for _, row := range []string{`{"j":[1,}`, `{"j":{"a":"\u0000"}}`, `{"j":[1e200000]}`, `{"n":12345.67}`, `{"b":"?"}`, `{"b":1}`, `{"d":"2026-02-30"}`, `{"d":1}`,
		`{"i":"soon"}`, `{"i":5}`, `{"t":[1]}`, `{"t":"x"}`, `{"t":{}}`, `{"l":[1,"x"]}`, `{"l":[1,2`, `{"l":[[1]]}`} {
		if _, err := wire.DecodeJSONRows(context.Background(), newerTypes, []byte(row)); dataflow.ReasonOf(err) != dataflow.ReasonRowInvalid {
			t.Errorf("%s: %v", row, err)
		}
	}
}

func TestShortNumbersCannotFillAnAppend(t *testing.T) {
	row := []byte(`{"j":[1e130000,1e130000,1e130000,1e130000]}` + "\n")
	var text []byte
	for range 1000 { // 43 kB that stand for 520 MB
		text = append(text, row...)
	}
	if _, err := wire.DecodeJSONRows(context.Background(), newerTypes, text); err == nil {
		t.Fatal("taken")
	}
}
