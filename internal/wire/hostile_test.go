package wire_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// longNumber is short and stands for 54 KB, which take milliseconds to compute.
const longNumber = "1e131071"

// hostile says how many values of longNumber rows are tried with: far more than fit an append, so that a reader of them all
// would not end in the time of a test.
const hostile = 100_000

var (
	numbers = dataflow.Schema{{Name: "n", Type: dataflow.TypeNumeric}}
	prices  = dataflow.Schema{{Name: "n", Type: dataflow.TypeNumeric, Mod: dataflow.NumericMod{Precision: 5, Scale: 2}}}
	lists   = dataflow.Schema{{Name: "n", Type: dataflow.TypeNumericArray}}
)

// endsEarly is an error's reason and the number of a row near the beginning.
func endsEarly(t *testing.T, what string, err error, want dataflow.Reason) {
	t.Helper()
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Reason != want || len(e.Violations) == 0 {
		t.Errorf("%s: got %v, want %s", what, err, want)
		return
	}
	var row int
	field := e.Violations[len(e.Violations)-1].Field
	if _, err := fmt.Sscanf(field, "rows[%d]", &row); err != nil || row > 1000 {
		t.Errorf("%s: read as far as %s", what, field)
	}
}

func TestReadingEndsAtTheFirstRowBeyondTheLimit(t *testing.T) {
	list := strings.Repeat(longNumber+",", hostile) + "1"
	few := strings.TrimSuffix(strings.Repeat(longNumber+",", 15), ",")
	for what, c := range map[string]struct {
		schema dataflow.Schema
		text   string
		want   dataflow.Reason
	}{
		"NDJSON":            {numbers, strings.Repeat(`{"n":`+longNumber+"}\n", hostile), dataflow.ReasonTooLarge},
		"JSON":              {numbers, "[" + strings.Repeat(`{"n":`+longNumber+"},", hostile) + "{}]", dataflow.ReasonTooLarge},
		"more digits":       {prices, strings.Repeat(`{"n":`+longNumber+"}\n", hostile), dataflow.ReasonRowInvalid},
		"a long array":      {lists, `{"n":[` + list + `]}`, dataflow.ReasonRowInvalid},
		"a long SQL array":  {lists, `{"n":"{` + list + `}"}`, dataflow.ReasonRowInvalid},
		"arrays":            {lists, strings.Repeat(`{"n":[`+few+`]}`, hostile/15), dataflow.ReasonTooLarge},
		"arrays of a wrong": {lists, strings.Repeat(`{"n":[`+few+`,"x"]}`, hostile/15), dataflow.ReasonRowInvalid},
	} {
		_, err := wire.DecodeJSONRows(t.Context(), c.schema, []byte(c.text))
		endsEarly(t, what, err, c.want)
	}
	column := func(value string, n int) *weirv1.TextValues {
		m := &weirv1.TextValues{Data: []byte(strings.Repeat(value, n)), Lengths: make([]uint32, n)}
		for i := range m.Lengths {
			m.Lengths[i] = uint32(len(value))
		}
		return m
	}
	for what, c := range map[string]struct {
		schema dataflow.Schema
		data   *weirv1.ColumnData
		want   dataflow.Reason
	}{
		"a column":           {numbers, &weirv1.ColumnData{Values: &weirv1.ColumnData_Numerics{Numerics: column(longNumber, hostile)}}, dataflow.ReasonTooLarge},
		"a column of prices": {prices, &weirv1.ColumnData{Values: &weirv1.ColumnData_Numerics{Numerics: column(longNumber, hostile)}}, dataflow.ReasonRowInvalid},
		"a column of arrays": {lists, &weirv1.ColumnData{Values: &weirv1.ColumnData_Texts{Texts: column("{"+few+"}", hostile/15)}}, dataflow.ReasonTooLarge},
	} {
		c.data.Name = "n"
		n := len(c.data.GetNumerics().GetLengths()) + len(c.data.GetTexts().GetLengths())
		_, err := wire.DecodeColumns(t.Context(), c.schema, &weirv1.ColumnBatch{Rows: uint32(n), Columns: []*weirv1.ColumnData{c.data}}, "")
		endsEarly(t, what, err, c.want)
	}
}

func TestReadingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := wire.DecodeJSONRows(ctx, numbers, []byte(`{"n":1}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("JSON: %v", err)
	}
	m := &weirv1.ColumnBatch{Rows: 1, Columns: []*weirv1.ColumnData{{Name: "n", Values: &weirv1.ColumnData_Numerics{Numerics: texts("1", 1)}}}}
	if _, err := wire.DecodeColumns(ctx, numbers, m, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("columns: %v", err)
	}
}
