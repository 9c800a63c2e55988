package statequery_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/statequery"
)

// lit is a key value that came as text.
func lit(s string) dataflow.Value { return dataflow.Value{Type: dataflow.TypeUnknown, Str: s} }

func numeric(s string) dataflow.Value {
	d, _, err := apd.NewFromString(s)
	if err != nil {
		panic(err)
	}
	return dataflow.Numeric(d)
}

var (
	nullText = dataflow.NullValue(dataflow.TypeText)
	null     = dataflow.NullValue(dataflow.TypeUnknown)
)

// seeded has the groups x/1 (twice), x/2, y/NULL, NULL/7 and 7/7, committed as cut 1.
func seeded(t testing.TB) *world {
	w := newWorld(t, 4)
	w.add(g2("x", 1), 10)
	w.add(g2("x", 1), 5)
	w.add(g2("x", 2), 1)
	w.add(group2{a: "y", aOK: true}, 3)
	w.add(group2{b: 7, bOK: true}, 4)
	w.add(g2("7", 7), 9)
	w.commit()
	return w
}

func TestKeyValuesBecomeTheColumnsTypes(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	cases := []struct {
		name string
		key  dataflow.Row
		want string // the row, or the reason of the refusal
	}{
		{"as they are", dataflow.Row{dataflow.Text("x"), dataflow.BigInt(1)}, "1|x|2|15"},
		{"both from text", dataflow.Row{lit("x"), lit("2")}, "2|x|1|1"},
		{"a number for a TEXT column", dataflow.Row{dataflow.BigInt(7), dataflow.BigInt(7)}, "7|7|1|9"},
		{"text for a BIGINT column", dataflow.Row{lit("x"), dataflow.Text("1")}, "1|x|2|15"},
		{"a whole DOUBLE for a BIGINT column", dataflow.Row{lit("x"), dataflow.Double(2)}, "2|x|1|1"},
		{"a whole NUMERIC for a BIGINT column", dataflow.Row{lit("x"), numeric("2")}, "2|x|1|1"},
		{"NULL without a type", dataflow.Row{null, lit("7")}, "7|NULL|1|4"},
		{"NULL with a type", dataflow.Row{lit("y"), dataflow.NullValue(dataflow.TypeBigInt)}, "NULL|y|1|3"},
		{"no such row", dataflow.Row{lit("x"), lit("3")}, ""},
		{"the empty text is not NULL", dataflow.Row{lit(""), lit("7")}, ""},
		{"text that is no number", dataflow.Row{lit("x"), lit("one")}, "KEY_INVALID"},
		{"a fraction for a BIGINT column", dataflow.Row{lit("x"), numeric("1.5")}, "KEY_INVALID"},
		{"a number out of range", dataflow.Row{lit("x"), lit("9223372036854775808")}, "KEY_INVALID"},
		{"too few parts", dataflow.Row{lit("x")}, "KEY_INVALID"},
		{"too many parts", dataflow.Row{lit("x"), lit("1"), lit("2")}, "KEY_INVALID"},
		{"no part", nil, "KEY_INVALID"},
		{"a key over the limit", dataflow.Row{lit(strings.Repeat("x", dataflow.MaxKeyBytes)), lit("1")}, "TOO_LARGE"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
				rows, _, err := e.Get(t.Context(), pipelineName, "counts", c.key, dataflow.ReadOptions{Isolation: iso})
				got := string(dataflow.ReasonOf(err))
				if err == nil {
					got = strings.Join(text(rows), "\n")
				}
				if got != c.want {
					t.Errorf("%s: got %q (%v), want %q", iso, got, err, c.want)
				}
			}
			w.unpinned()
		})
	}
}

func TestATableWithoutKeyHasTheEmptyKey(t *testing.T) {
	w := newWorld(t, 4)
	e := w.engine()
	get := func(table string, iso dataflow.Isolation) string {
		t.Helper()
		rows, _, err := e.Get(t.Context(), pipelineName, table, nil, dataflow.ReadOptions{Isolation: iso})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(text(rows), ",")
	}
	for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
		if got := get("total", iso); got != "0|NULL" {
			t.Errorf("%s: the row before any input is %q", iso, got)
		}
		if got := get("large", iso); got != "" {
			t.Errorf("%s: the view over it has %q", iso, got)
		}
	}
	for range 6 {
		w.add(g2("x", 1), 2)
	}
	if got := get("total", dataflow.ReadUncommitted) + " " + get("total", dataflow.ReadCommitted) + " " + get("large", dataflow.ReadUncommitted); got != "6|12 0|NULL 6" {
		t.Errorf("live, committed and the view: %s", got)
	}
	w.commit()
	for table, want := range map[string]string{"total": "6|12", "large": "6"} {
		rows, next, _, err := e.Scan(t.Context(), pipelineName, table, dataflow.ScanRange{}, dataflow.Page{}, dataflow.ReadOptions{})
		if err != nil || next != "" || strings.Join(text(rows), ",") != want {
			t.Errorf("scan of %s: %v %q %v", table, text(rows), next, err)
		}
	}
	_, _, err := e.Get(t.Context(), pipelineName, "total", dataflow.Row{lit("x")}, dataflow.ReadOptions{})
	if refused(t, err, dataflow.ReasonKeyInvalid); !strings.Contains(err.Error(), "no columns") {
		t.Errorf("the refusal says %q", err)
	}
	w.unpinned()
}

func TestABatchOfKeysKeepsTheirOrderAndSaysWhichExist(t *testing.T) {
	w := seeded(t)
	keys := []dataflow.Row{{lit("x"), lit("2")}, {lit("nobody"), lit("0")}, {null, lit("7")}, {lit("x"), lit("2")}}
	rows, found, cut, err := w.engine().BatchGet(t.Context(), pipelineName, "counts", keys, dataflow.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(text(rows), ","); got != "2|x|1|1,7|NULL|1|4,2|x|1|1" {
		t.Errorf("rows %s", got)
	}
	for i, want := range []bool{true, false, true, true} {
		if found[i] != want {
			t.Errorf("key %d: found %v", i, found[i])
		}
	}
	if cut.Checkpoint != 1 || cut.Speculative {
		t.Errorf("cut %+v", cut)
	}
	rows, found, _, err = w.engine().BatchGet(t.Context(), pipelineName, "counts", nil, dataflow.ReadOptions{})
	if err != nil || rows.N != 0 || len(found) != 0 {
		t.Errorf("no keys: %d rows, %v", rows.N, err)
	}
	_, _, _, err = w.engine().BatchGet(t.Context(), pipelineName, "counts", make([]dataflow.Row, dataflow.MaxBatchGetKeys+1), dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonTooLarge)
	w.unpinned()
}

func TestABatchOfKeysIsBoundedInBytes(t *testing.T) {
	w := seeded(t)
	e := w.engine(func(c *statequery.Config) { c.MaxBytes = 40 })
	_, _, _, err := e.BatchGet(t.Context(), pipelineName, "counts", []dataflow.Row{{lit("x"), lit("1")}, {lit("x"), lit("2")}, {null, lit("7")}}, dataflow.ReadOptions{})
	if e := refused(t, err, dataflow.ReasonScanLimit); e.Metadata["limit"] != "bytes" {
		t.Errorf("metadata %v", e.Metadata)
	}
	w.unpinned()
}

func TestAHiddenRowIsNoRow(t *testing.T) {
	w := seeded(t)
	rows, found, _, err := w.engine().BatchGet(t.Context(), pipelineName, "uneven", []dataflow.Row{{lit("x"), lit("1")}, {lit("x"), lit("2")}}, dataflow.ReadOptions{})
	if err != nil || found[0] || !found[1] || strings.Join(text(rows), ",") != "x|2|1" {
		t.Errorf("%v %v %v", text(rows), found, err)
	}
	w.unpinned()
}

func TestUnknownNamesAreRefused(t *testing.T) {
	e := seeded(t).engine()
	_, _, err := e.Get(t.Context(), "nope", "counts", nil, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonPipelineNotFound)
	_, _, err = e.Get(t.Context(), pipelineName, "nope", nil, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonTableNotFound)
	_, _, _, err = e.Scan(t.Context(), pipelineName, "nope", dataflow.ScanRange{}, dataflow.Page{}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonTableNotFound)
	_, _, _, err = e.Query(t.Context(), "SELECT * FROM p.nope", dataflow.Page{}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonTableNotFound)
	_, _, _, err = e.Query(t.Context(), "SELECT * FROM nope.counts", dataflow.Page{}, dataflow.ReadOptions{})
	refused(t, err, dataflow.ReasonPipelineNotFound)
}

// What keys in columns say is what they say as rows.
func TestKeysInColumnsAreThoseOfRows(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	for name, keys := range map[string][]dataflow.Row{
		"of the types of the key":  {{dataflow.Text("x"), dataflow.BigInt(2)}, {dataflow.Text("x"), dataflow.BigInt(1)}, {dataflow.Text("z"), dataflow.BigInt(1)}},
		"with NULLs":               {{nullText, dataflow.BigInt(7)}, {dataflow.Text("y"), dataflow.NullValue(dataflow.TypeBigInt)}},
		"of other types":           {{dataflow.BigInt(7), dataflow.Double(7)}, {dataflow.BigInt(8), dataflow.Double(7)}},
		"NULL of another type":     {{nullText, nullText}, {dataflow.Text("y"), nullText}},
		"one":                      {{dataflow.Text("x"), dataflow.BigInt(1)}},
		"the same one twice":       {{dataflow.Text("x"), dataflow.BigInt(1)}, {dataflow.Text("x"), dataflow.BigInt(1)}},
		"no number":                {{dataflow.Text("x"), dataflow.Double(1.5)}, {dataflow.Text("x"), dataflow.Double(1)}},
		"too few parts":            {{dataflow.Text("x")}, {dataflow.Text("y")}},
		"too many parts":           {{dataflow.Text("x"), dataflow.BigInt(1), dataflow.BigInt(1)}},
		"longer than a key may be": {{dataflow.Text(strings.Repeat("x", dataflow.MaxKeyBytes+1)), dataflow.BigInt(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			schema := make(dataflow.Schema, len(keys[0]))
			for i, v := range keys[0] {
				schema[i].Type = v.Type
			}
			columns := batch.NewBatch(schema)
			for _, k := range keys {
				for i, v := range k {
					columns.Cols[i].AppendValue(v)
				}
				columns.N++
			}
			for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
				o := dataflow.ReadOptions{Isolation: iso}
				rows, found, _, err := e.BatchGet(t.Context(), pipelineName, "counts", keys, o)
				got, gotFound, _, gotErr := e.BatchGetColumns(t.Context(), pipelineName, "counts", columns, o)
				if fmt.Sprint(gotErr) != fmt.Sprint(err) || !slices.Equal(gotFound, found) {
					t.Fatalf("%s: %v, %v; as rows %v, %v", iso, gotFound, gotErr, found, err)
				}
				if err != nil {
					continue
				}
				if got.N != rows.N {
					t.Fatalf("%s: %d rows; as rows %d", iso, got.N, rows.N)
				}
				for i := range rows.N {
					for c := range rows.Cols {
						if a, b := got.Cols[c].Value(i), rows.Cols[c].Value(i); !reflect.DeepEqual(a, b) {
							t.Errorf("%s: row %d has %v; as rows %v", iso, i, a, b)
						}
					}
				}
			}
		})
	}
	w.unpinned()
}

// The memory of a batch of look-ups is used again by the next one: no answer may lie in it.
func TestAnAnswerStaysWhenOthersAreGiven(t *testing.T) {
	w := newWorld(t, 2)
	keys := make([]dataflow.Row, 200)
	for i := range keys {
		keys[i] = dataflow.Row{dataflow.Text(fmt.Sprint("key ", i)), dataflow.BigInt(int64(i))}
		w.add(g2(keys[i][0].Str, keys[i][1].Int), int64(1000+i))
	}
	w.commit()
	e := w.engine()
	first, _, _, err := e.BatchGet(t.Context(), pipelineName, "counts", keys[:100], dataflow.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, _, _, err := e.BatchGet(t.Context(), pipelineName, "counts", keys[100:], dataflow.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range first.N {
		if a := first.Cols[1].Value(i).Str; a != keys[i][0].Str {
			t.Errorf("row %d is now that of %s", i, a)
		}
	}
	w.unpinned()
}
