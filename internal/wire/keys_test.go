package wire_test

import (
	"reflect"
	"testing"

	"github.com/cockroachdb/apd/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func value(t dataflow.Type, set func(*dataflow.Value)) dataflow.Value {
	v := dataflow.Value{Type: t}
	set(&v)
	return v
}

// keyParts returns a value of each type that keys in columns can have; n tells them apart.
func keyParts(n int64) dataflow.Row {
	return dataflow.Row{
		value(dataflow.TypeBigInt, func(v *dataflow.Value) { v.Int = -n }),
		value(dataflow.TypeText, func(v *dataflow.Value) { v.Str = "ä" + string(rune('a'+n)) }),
		value(dataflow.TypeBool, func(v *dataflow.Value) { v.Int = n % 2 }),
		value(dataflow.TypeDouble, func(v *dataflow.Value) { v.Flt = float64(n) / 4 }),
		value(dataflow.TypeTimestamp, func(v *dataflow.Value) { v.Int = n * 1e15 }),
		value(dataflow.TypeBytea, func(v *dataflow.Value) { v.Str = string([]byte{0, 0xff, byte(n)}) }),
		value(dataflow.TypeNumeric, func(v *dataflow.Value) { v.Dec = apd.New(n, -2) }),
	}
}

func TestKeysInColumnsReadBack(t *testing.T) {
	var keys []dataflow.Row
	for n := range int64(20) {
		keys = append(keys, keyParts(n))
	}
	m, ok := wire.KeyColumns(keys)
	if !ok {
		t.Fatal("they do not go into columns")
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	read := new(weirv1.ColumnBatch)
	if err := proto.Unmarshal(b, read); err != nil {
		t.Fatal(err)
	}
	got, err := wire.KeysFrom(t.Context(), read, "key_columns")
	if err != nil || got.N != len(keys) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range keys {
		for c, want := range keys[i] {
			if v := got.Cols[c].Value(i); want.Dec != nil && v.Dec.Cmp(want.Dec) == 0 {
				continue
			} else if !reflect.DeepEqual(v, want) {
				t.Errorf("key %d part %d is %+v, not %+v", i, c, v, want)
			}
		}
	}
}

func TestKeysThatDifferInShapeGoOneByOne(t *testing.T) {
	one := value(dataflow.TypeBigInt, func(v *dataflow.Value) { v.Int = 1 })
	for name, keys := range map[string][]dataflow.Row{
		"none":          nil,
		"no parts":      {{}},
		"lengths":       {{one}, {one, one}},
		"types":         {{one}, {value(dataflow.TypeText, func(*dataflow.Value) {})}},
		"a NULL":        {{one}, {dataflow.NullValue(dataflow.TypeBigInt)}},
		"to be parsed":  {{value(dataflow.TypeUnknown, func(v *dataflow.Value) { v.Str = "1" })}},
		"NULL at first": {{dataflow.NullValue(dataflow.TypeBigInt)}, {one}},
	} {
		if _, ok := wire.KeyColumns(keys); ok {
			t.Errorf("%s: they go into columns", name)
		}
	}
}

// Packed rows are the rows of RowsJSON, end to end.
func TestPackedRowsAreTheSameRows(t *testing.T) {
	b := batch.NewBatch(dataflow.Schema{{Name: `a"b`, Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}})
	for i := range int64(3) {
		b.AppendRow(dataflow.Row{
			value(dataflow.TypeText, func(v *dataflow.Value) { v.Str = string(rune('x' + i)) }),
			value(dataflow.TypeBigInt, func(v *dataflow.Value) { v.Int, v.Null = i-1, i == 2 }),
		})
	}
	found := []bool{false, true, true, false, true}
	for _, numbers := range []weirv1.Numbers{weirv1.Numbers_NUMBERS_JSON, weirv1.Numbers_NUMBERS_STRING} {
		m, want := wire.PackedRowsJSON(b, found, numbers), wire.RowsJSON(b, numbers)
		data := m.GetData()
		for i, n := range m.GetLengths() {
			row := data[:n]
			data = data[n:]
			if !found[i] {
				if n != 0 {
					t.Errorf("key %d has no row, and the row %s", i, row)
				}
				continue
			}
			if string(row) != string(want[0]) || string(row) != string(wire.AppendRowJSON(nil, b, 3-len(want), numbers)) {
				t.Errorf("row of key %d is %s, not %s", i, row, want[0])
			}
			want = want[1:]
		}
		if len(data) > 0 || len(want) > 0 {
			t.Errorf("%q and %d rows are left over", data, len(want))
		}
	}
	if m := wire.PackedRowsJSON(nil, make([]bool, 2), weirv1.Numbers_NUMBERS_JSON); len(m.GetLengths()) != 2 || len(m.GetData()) != 0 {
		t.Errorf("no rows are %v", m)
	}
}

func TestPartsOfKeysInColumnsAreBounded(t *testing.T) {
	m := &weirv1.ColumnBatch{Rows: dataflow.MaxBatchGetKeys}
	for range 11 {
		m.Columns = append(m.Columns, &weirv1.ColumnData{})
	}
	if _, err := wire.KeysFrom(t.Context(), m, "key_columns"); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Errorf("%v, want %s", err, dataflow.ReasonTooLarge)
	}
	m.Columns = m.Columns[:1]
	m.Rows = 3
	got, err := wire.KeysFrom(t.Context(), m, "key_columns")
	if err != nil || got.N != 3 || !got.Cols[0].IsNull(2) {
		t.Errorf("a column of NULLs gives %v, %v", got, err)
	}
}
