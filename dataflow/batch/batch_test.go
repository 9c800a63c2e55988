package batch_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/apd/v3"
	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

var allTypes = []dataflow.Type{dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeText,
	dataflow.TypeTimestamp, dataflow.TypeNumeric, dataflow.TypeTextArray, dataflow.TypeInterval, dataflow.TypeBytea, dataflow.TypeJSONB,
	dataflow.TypeDate, dataflow.TypeBigIntArray, dataflow.TypeNumericArray, dataflow.TypeIntervalArray}

func drawValue(t *rapid.T, typ dataflow.Type) dataflow.Value {
	if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
		return dataflow.NullValue(typ)
	}
	if e := typ.Elem(); e != dataflow.TypeUnknown && typ != dataflow.TypeTextArray {
		v := dataflow.Value{Type: typ, Arr: []dataflow.Value{}}
		for range rapid.IntRange(0, 3).Draw(t, "elems") {
			v.Arr = append(v.Arr, drawValue(t, e))
		}
		return v
	}
	switch typ {
	case dataflow.TypeInterval:
		return dataflow.Value{Type: typ, Ivl: dataflow.Interval{Months: rapid.Int32Range(-5, 5).Draw(t, "months"),
			Days: rapid.Int32Range(-40, 40).Draw(t, "days"), Micros: rapid.Int64Range(-1e12, 1e12).Draw(t, "micros")}}
	case dataflow.TypeBytea:
		return dataflow.Value{Type: typ, Str: string(rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "bytes"))}
	case dataflow.TypeJSONB:
		return dataflow.Value{Type: typ, Str: rapid.SampledFrom([]string{"{}", `"é"`, "[1, 2]"}).Draw(t, "json")}
	case dataflow.TypeBool:
		return dataflow.Bool(rapid.Bool().Draw(t, "bool"))
	case dataflow.TypeDouble:
		return dataflow.Double(rapid.Float64().Draw(t, "float"))
	case dataflow.TypeText:
		return dataflow.Text(drawText(t))
	case dataflow.TypeNumeric:
		if rapid.IntRange(0, 5).Draw(t, "form") == 0 {
			return dataflow.Numeric(&apd.Decimal{Form: apd.Infinite, Negative: rapid.Bool().Draw(t, "neg")})
		}
		return dataflow.Numeric(apd.New(rapid.Int64().Draw(t, "coeff"), rapid.Int32Range(-40, 40).Draw(t, "exp")))
	case dataflow.TypeTextArray:
		v := dataflow.Value{Type: typ, Arr: []dataflow.Value{}}
		for range rapid.IntRange(0, 3).Draw(t, "elems") {
			if rapid.IntRange(0, 4).Draw(t, "null elem") == 0 {
				v.Arr = append(v.Arr, dataflow.NullValue(dataflow.TypeText))
				continue
			}
			v.Arr = append(v.Arr, dataflow.Text(drawText(t)))
		}
		return v
	}
	return dataflow.Value{Type: typ, Int: rapid.OneOf(rapid.Int64(), rapid.Int64Range(100, 300), rapid.Just(int64(7))).Draw(t, "int")}
}

func drawText(t *rapid.T) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'é', 0x10FFFF, ' '}), 0, 6, -1).Draw(t, "text")
}

// drawBatch draws a batch and the rows it was made of.
func drawBatch(t *rapid.T) (*batch.Batch, []dataflow.Row) {
	var schema dataflow.Schema
	for i, typ := range rapid.SliceOfN(rapid.SampledFrom(allTypes), 0, 4).Draw(t, "types") {
		schema = append(schema, dataflow.Column{Name: fmt.Sprintf("c%d", i), Type: typ})
	}
	b := batch.NewBatch(schema)
	var rows []dataflow.Row
	for range rapid.IntRange(0, 70).Draw(t, "rows") {
		row := make(dataflow.Row, len(schema))
		for i, c := range schema {
			row[i] = drawValue(t, c.Type)
		}
		b.AppendRow(row)
		rows = append(rows, row)
	}
	b.FirstOffset = 1000
	return b, rows
}

func sameRow(a, b dataflow.Row) bool { return printRow(a) == printRow(b) }

func printRow(row dataflow.Row) string {
	var s strings.Builder
	for _, v := range row {
		switch {
		case v.Null:
			fmt.Fprintf(&s, "|%s NULL", v.Type)
		case v.Type == dataflow.TypeNumeric:
			fmt.Fprintf(&s, "|%v %v %s %d", v.Dec.Form, v.Dec.Negative, v.Dec.Coeff.String(), v.Dec.Exponent)
		case v.Type == dataflow.TypeDouble:
			fmt.Fprintf(&s, "|%x", math.Float64bits(v.Flt))
		case v.Type == dataflow.TypeInterval:
			fmt.Fprintf(&s, "|%v", v.Ivl)
		case v.Arr != nil:
			for _, e := range v.Arr {
				if e.Null {
					s.WriteString("|-")
				} else {
					fmt.Fprintf(&s, "|%q %d %v %v", e.Str, e.Int, e.Dec, e.Ivl)
				}
			}
		default:
			fmt.Fprintf(&s, "|%d %q", v.Int, v.Str)
		}
	}
	return s.String()
}

func checkRows(t *rapid.T, what string, b *batch.Batch, rows []dataflow.Row) {
	t.Helper()
	if b.N != len(rows) {
		t.Fatalf("%s: %d rows, want %d", what, b.N, len(rows))
	}
	for i, want := range rows {
		if got := b.Row(i); !sameRow(got, want) {
			t.Fatalf("%s: row %d is %s, want %s", what, i, printRow(got), printRow(want))
		}
	}
	for i, v := range b.Cols {
		if v.Len() != b.N {
			t.Fatalf("%s: column %d has %d rows, want %d", what, i, v.Len(), b.N)
		}
	}
}

func TestDecodeReturnsTheEncodedRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, rows := drawBatch(t)
		enc := batch.Encode([]byte("before"), b)
		if again := batch.Encode([]byte("before"), b); !bytes.Equal(enc, again) {
			t.Fatal("two encodings of the same batch differ")
		}
		got, err := batch.Decode(b.Schema, enc[len("before"):])
		if err != nil {
			t.Fatal(err)
		}
		checkRows(t, "decoded", got, rows)

		from := rapid.IntRange(0, b.N).Draw(t, "from")
		to := rapid.IntRange(from, b.N).Draw(t, "to")
		part, err := batch.Decode(b.Schema, batch.Encode(nil, b.Slice(from, to)))
		if err != nil {
			t.Fatal(err)
		}
		checkRows(t, "decoded slice", part, rows[from:to])
	})
}

func TestSliceAndSelectKeepWhatBelongsToARow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, rows := drawBatch(t)
		b.AppendTime = make([]int64, b.N)
		b.Weights = make([]int8, b.N)
		for i := range b.N {
			b.AppendTime[i], b.Weights[i] = int64(i)*10, int8(i%2*2-1)
		}
		from := rapid.IntRange(0, b.N).Draw(t, "from")
		to := rapid.IntRange(from, b.N).Draw(t, "to")
		s := b.Slice(from, to)
		checkRows(t, "slice", s, rows[from:to])

		var sel []int32
		var want []dataflow.Row
		if s.N > 0 {
			for range rapid.IntRange(0, 10).Draw(t, "selected") {
				i := rapid.IntRange(0, s.N-1).Draw(t, "row")
				sel, want = append(sel, int32(i)), append(want, rows[from+i])
			}
		}
		g := s.Select(sel)
		checkRows(t, "selection", g, want)
		for i, r := range sel {
			row := from + int(r)
			if g.OffsetOf(i) != dataflow.Offset(1000+row) || g.AppendTime[i] != int64(row)*10 || g.Weight(i) != int64(row%2*2-1) {
				t.Fatalf("row %d of the selection is not row %d of the batch", i, row)
			}
		}
		// Appending to what shares memory leaves the original alone.
		for i, v := range s.Cols {
			v.AppendValue(drawValue(t, b.Schema[i].Type))
		}
		checkRows(t, "original", b, rows)

		out := batch.NewBatch(b.Schema)
		for i := range b.N {
			for c := range b.Cols {
				out.Cols[c].AppendFrom(b.Cols[c], i)
			}
			out.N++
		}
		checkRows(t, "copy", out, rows)
	})
}

func TestVectorsOfAGivenLengthHoldZeros(t *testing.T) {
	for _, typ := range allTypes {
		v := batch.NewVectorLen(typ, 70)
		if v.Len() != 70 {
			t.Errorf("%s: %d rows", typ, v.Len())
		}
		v.SetNull(69)
		if v.IsNull(68) || !v.IsNull(69) || v.IsNull(70) {
			t.Errorf("%s: wrong NULLs", typ)
		}
		v.AppendNull()
		v.Reset()
		if v.Len() != 0 || v.IsNull(0) {
			t.Errorf("%s: not empty after Reset", typ)
		}
	}
}

// seal gives a payload a valid header.
func seal(payload []byte) []byte {
	data := append([]byte{1, 0, 0, 0, 0}, payload...)
	binary.LittleEndian.PutUint32(data[1:], crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)))
	return data
}

func TestDecodeRefusesDamage(t *testing.T) {
	text := dataflow.Schema{{Name: "line", Type: dataflow.TypeText}}
	notNull := dataflow.Schema{{Name: "line", Type: dataflow.TypeText, NotNull: true}}
	ints := dataflow.Schema{{Name: "n", Type: dataflow.TypeBigInt}}
	b := batch.NewBatch(text)
	b.AppendRow(dataflow.Row{dataflow.Text("call me")})
	b.AppendRow(dataflow.Row{dataflow.NullValue(dataflow.TypeText)})
	good := batch.Encode(nil, b)
	if _, err := batch.Decode(text, good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := batch.Decode(text, bad); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Errorf("byte %d flipped: %v", i, err)
		}
		if _, err := batch.Decode(text, good[:i]); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	const typeText, typeInt = byte(dataflow.TypeText), byte(dataflow.TypeBigInt)
	for name, c := range map[string]struct {
		schema dataflow.Schema
		data   []byte
	}{
		"another column type":       {ints, good},
		"NULL in NOT NULL":          {notNull, good},
		"more columns":              {append(ints, text...), good},
		"too many rows":             {dataflow.Schema{}, seal([]byte{0x81, 0x80, 0x08, 0})},
		"bytes after the columns":   {dataflow.Schema{}, seal([]byte{1, 0, 0})},
		"unknown null flag":         {ints, seal([]byte{1, 1, typeInt, 2, 0, 0})},
		"empty null bitmap":         {ints, seal([]byte{1, 1, typeInt, 1, 0, 0, 0})},
		"bit beyond the rows":       {ints, seal([]byte{1, 1, typeInt, 1, 3, 0, 0})},
		"value under NULL":          {ints, seal([]byte{1, 1, typeInt, 1, 1, 2, 0})},
		"width 3":                   {ints, seal([]byte{1, 1, typeInt, 0, 0, 3, 0, 0, 0})},
		"text length beyond data":   {text, seal([]byte{1, 1, typeText, 0, 10, 0, 'a'})},
		"negative text length":      {text, seal([]byte{1, 1, typeText, 0, 1, 0})},
		"zero byte in text":         {text, seal([]byte{1, 1, typeText, 0, 2, 0, 0})},
		"not UTF-8":                 {text, seal([]byte{1, 1, typeText, 0, 2, 0, 0xFF})},
		"character cut in two rows": {text, seal([]byte{2, 1, typeText, 0, 2, 0, 0xC3, 0xA9})},
	} {
		if _, err := batch.Decode(c.schema, c.data); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecimalsKeepTheirScale(t *testing.T) {
	for _, s := range []string{"0", "0.00", "-0.10", "1E+20", "123456789012345678901234567890.5", "NaN", "Infinity", "-Infinity"} {
		d, _, err := apd.NewFromString(s)
		if err != nil {
			t.Fatal(err)
		}
		var got apd.Decimal
		rest, err := batch.ReadDecimal(batch.AppendDecimal(nil, d), &got)
		if err != nil || len(rest) != 0 || got.String() != d.String() {
			t.Errorf("%s became %s, %d bytes left, %v", s, got.String(), len(rest), err)
		}
	}
	for name, b := range map[string][]byte{"empty": nil, "unknown form": {3}, "no exponent": {0}, "no length": {0, 0}, "no digits": {0, 0, 1},
		"leading zero": {0, 0, 1, 0}, "exponent without bounds": {0, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 0}} {
		if _, err := batch.ReadDecimal(b, new(apd.Decimal)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestRowsOverTheLimitAreRefused(t *testing.T) {
	b := batch.NewBatch(dataflow.Schema{{Name: "line", Type: dataflow.TypeText}})
	b.AppendRow(dataflow.Row{dataflow.Text(strings.Repeat("x", dataflow.MaxRowBytes))})
	if err := b.CheckRows(); err != nil {
		t.Fatal(err)
	}
	b.AppendRow(dataflow.Row{dataflow.Text(strings.Repeat("x", dataflow.MaxRowBytes+1))})
	if err := b.CheckRows(); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Fatalf("got %v", err)
	}
}

func fuzzSchema(kinds []byte) dataflow.Schema {
	var schema dataflow.Schema
	for i, k := range kinds {
		schema = append(schema, dataflow.Column{Name: fmt.Sprintf("c%d", i), Type: allTypes[int(k)%len(allTypes)]})
	}
	return schema
}

// FuzzDecode feeds payloads behind a valid checksum, which random bytes would never have.
func FuzzDecode(f *testing.F) {
	kinds := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	b := batch.NewBatch(fuzzSchema(kinds))
	b.AppendRow(dataflow.Row{dataflow.Bool(true), dataflow.BigInt(-5), dataflow.Double(1.5), dataflow.Text("é"), dataflow.Timestamp(9),
		dataflow.Numeric(apd.New(12345, -2)), {Type: dataflow.TypeTextArray, Arr: []dataflow.Value{dataflow.Text("x"), dataflow.NullValue(dataflow.TypeText)}},
		{Type: dataflow.TypeInterval, Ivl: dataflow.Interval{Months: 1, Days: -2, Micros: 3}}, {Type: dataflow.TypeBytea, Str: "\x00\xff"},
		{Type: dataflow.TypeJSONB, Str: `{"a": 1}`}, {Type: dataflow.TypeDate, Int: 20786}})
	row := make(dataflow.Row, len(kinds))
	for i, c := range b.Schema {
		row[i] = dataflow.NullValue(c.Type)
	}
	b.AppendRow(row)
	f.Add(kinds, batch.Encode(nil, b)[5:])
	f.Add([]byte{3}, []byte{1, 1, byte(dataflow.TypeText), 0, 2, 0, 'a'})
	f.Fuzz(func(t *testing.T, kinds, payload []byte) {
		if len(kinds) > 16 {
			return
		}
		schema := fuzzSchema(kinds)
		if _, err := batch.Decode(schema, payload); err != nil && dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Fatal(err)
		}
		b, err := batch.Decode(schema, seal(payload))
		if err != nil {
			return
		}
		again, err := batch.Decode(schema, batch.Encode(nil, b))
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.N {
			if !sameRow(b.Row(i), again.Row(i)) {
				t.Fatalf("row %d changed", i)
			}
		}
	})
}

func benchBatch() *batch.Batch {
	b := batch.NewBatch(dataflow.Schema{{Name: "line", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}})
	for i := range batch.TargetRows {
		b.AppendRow(dataflow.Row{dataflow.Text("the whiteness of the whale"), dataflow.BigInt(int64(i))})
	}
	return b
}

func BenchmarkEncode(b *testing.B) {
	rows := benchBatch()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = batch.Encode(buf[:0], rows)
	}
	b.SetBytes(int64(len(buf)))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows.N), "ns/row")
}

func BenchmarkDecode(b *testing.B) {
	rows := benchBatch()
	enc := batch.Encode(nil, rows)
	b.SetBytes(int64(len(enc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := batch.Decode(rows.Schema, enc); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows.N), "ns/row")
}

func TestEmptyBatchesSurvive(t *testing.T) {
	schema := fuzzSchema([]byte{0, 1, 2, 3, 4, 5, 6})
	b, err := batch.Decode(schema, batch.Encode(nil, batch.NewBatch(schema)))
	if err != nil || b.N != 0 || !reflect.DeepEqual(b.Schema, schema) {
		t.Fatalf("%v, %v", b, err)
	}
}
