package key_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/apd/v3"
	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

func TestGoldenVectorsHold(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden.txt", func(t *testing.T, d *datadriven.TestData) string {
		var row dataflow.Row
		var types []dataflow.Type
		if d.Input != "" {
			for _, line := range strings.Split(d.Input, "\n") {
				v := parse(t, line)
				row, types = append(row, v), append(types, v.Type)
			}
		}
		if d.Cmd == "prefix" {
			last := len(row) - 1
			p := key.AppendTextPrefix(key.AppendRow(nil, row[:last]), row[last].Str)
			return fmt.Sprintf("from %x\nto   %x\n", p, key.PrefixEnd(p))
		}
		enc := key.AppendRow(nil, row)
		back, err := key.Decode(types, enc)
		if err != nil {
			t.Fatal(err)
		}
		if again := key.AppendRow(nil, back); !bytes.Equal(again, enc) {
			t.Fatalf("decoded and encoded again: %x", again)
		}
		h := dataflow.HashKey(enc)
		kg := dataflow.KeyGroupOf(h)
		return fmt.Sprintf("%x\nhash %016x group %d shard %d\n", enc, h, kg, dataflow.ShardOf(kg, 8))
	})
}

func parse(t *testing.T, line string) dataflow.Value {
	typ, s, _ := strings.Cut(line, " ")
	must := func(err error) {
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	switch typ {
	case "NULL":
		return dataflow.NullValue(dataflow.TypeText)
	case "TEXT":
		s, err := strconv.Unquote(`"` + s + `"`)
		must(err)
		return dataflow.Text(s)
	case "BOOLEAN":
		return dataflow.Bool(s == "true")
	case "BIGINT", "TIMESTAMPTZ":
		n, err := strconv.ParseInt(s, 10, 64)
		must(err)
		if typ == "BIGINT" {
			return dataflow.BigInt(n)
		}
		return dataflow.Timestamp(n)
	case "DOUBLE":
		f, err := strconv.ParseFloat(s, 64)
		must(err)
		return dataflow.Double(f)
	case "DATE":
		n, err := strconv.ParseInt(s, 10, 64)
		must(err)
		return dataflow.Value{Type: dataflow.TypeDate, Int: n}
	case "BYTEA":
		b, err := hex.DecodeString(s)
		must(err)
		return dataflow.Value{Type: dataflow.TypeBytea, Str: string(b)}
	case "INTERVAL":
		v := dataflow.Value{Type: dataflow.TypeInterval}
		_, err := fmt.Sscan(s, &v.Ivl.Months, &v.Ivl.Days, &v.Ivl.Micros)
		must(err)
		return v
	case "NUMERIC":
		d, _, err := apd.NewFromString(s)
		must(err)
		return dataflow.Numeric(d)
	}
	t.Fatalf("%q: unknown type", line)
	return dataflow.Value{}
}

var keyTypes = []dataflow.Type{dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeText, dataflow.TypeTimestamp, dataflow.TypeNumeric,
	dataflow.TypeBytea, dataflow.TypeDate, dataflow.TypeInterval}

// drawValue draws a value that is often equal or close to others, so that order is tested where it is hard.
func drawValue(t *rapid.T, typ dataflow.Type) dataflow.Value {
	if rapid.IntRange(0, 9).Draw(t, "null") == 0 {
		return dataflow.NullValue(typ)
	}
	switch typ {
	case dataflow.TypeBool:
		return dataflow.Bool(rapid.Bool().Draw(t, "bool"))
	case dataflow.TypeBigInt:
		return dataflow.BigInt(rapid.Int64().Draw(t, "int"))
	case dataflow.TypeDate:
		return dataflow.Value{Type: typ, Int: rapid.Int64().Draw(t, "date")}
	case dataflow.TypeBytea:
		return dataflow.Value{Type: typ, Str: string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xFF}), 0, 4).Draw(t, "bytes"))}
	case dataflow.TypeInterval:
		return dataflow.Value{Type: typ, Ivl: dataflow.Interval{
			Months: rapid.SampledFrom([]int32{0, 1, -1, math.MaxInt32, -math.MaxInt32}).Draw(t, "months"),
			Days:   rapid.SampledFrom([]int32{0, 30, -30, 1, math.MaxInt32, -math.MaxInt32}).Draw(t, "days"),
			Micros: rapid.SampledFrom([]int64{0, 1, -1, 86400e6, -86400e6, math.MaxInt64, -math.MaxInt64}).Draw(t, "micros")}}
	case dataflow.TypeTimestamp:
		return dataflow.Timestamp(rapid.Int64().Draw(t, "time"))
	case dataflow.TypeDouble:
		return dataflow.Double(rapid.OneOf(rapid.Float64(),
			rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1, -1, math.SmallestNonzeroFloat64})).Draw(t, "float"))
	case dataflow.TypeText:
		return dataflow.Text(rapid.StringOf(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 'é', 0x10FFFF, 0x7F})).Draw(t, "text"))
	}
	return dataflow.Numeric(drawDecimal(t))
}

func drawDecimal(t *rapid.T) *apd.Decimal {
	switch rapid.IntRange(0, 15).Draw(t, "form") {
	case 0:
		return &apd.Decimal{Form: apd.NaN}
	case 1:
		return &apd.Decimal{Form: apd.Infinite, Negative: rapid.Bool().Draw(t, "neg")}
	case 2:
		s := rapid.StringMatching(`-?[1-9][0-9]{30,60}`).Draw(t, "long")
		d, _, err := apd.NewFromString(s)
		if err != nil {
			t.Fatal(err)
		}
		d.Exponent = rapid.Int32Range(-100, 100).Draw(t, "exp")
		return d
	}
	return apd.New(rapid.OneOf(rapid.Int64Range(-120, 120), rapid.Int64()).Draw(t, "coeff"), rapid.Int32Range(-70, 70).Draw(t, "exp"))
}

// compare is the order of PostgreSQL's ASC NULLS LAST, written down independently.
func compare(a, b dataflow.Value) int {
	switch {
	case a.Null && b.Null:
		return 0
	case a.Null:
		return 1
	case b.Null:
		return -1
	}
	switch a.Type {
	case dataflow.TypeText, dataflow.TypeBytea:
		return strings.Compare(a.Str, b.Str)
	case dataflow.TypeInterval:
		return intervalLength(a.Ivl).Cmp(intervalLength(b.Ivl))
	case dataflow.TypeDouble:
		an, bn := math.IsNaN(a.Flt), math.IsNaN(b.Flt)
		switch {
		case an && bn, a.Flt == b.Flt:
			return 0
		case an || a.Flt > b.Flt:
			return 1
		case bn || a.Flt < b.Flt:
			return -1
		}
	case dataflow.TypeNumeric:
		an, bn := a.Dec.Form == apd.NaN, b.Dec.Form == apd.NaN
		switch {
		case an && bn:
			return 0
		case an:
			return 1
		case bn:
			return -1
		}
		return a.Dec.Cmp(b.Dec)
	}
	switch {
	case a.Int < b.Int:
		return -1
	case a.Int > b.Int:
		return 1
	}
	return 0
}

// intervalLength is the length in microseconds, computed otherwise than Interval.Span.
func intervalLength(iv dataflow.Interval) *big.Int {
	days := big.NewInt(int64(iv.Months)*30 + int64(iv.Days))
	return days.Add(days.Mul(days, big.NewInt(86400e6)), big.NewInt(iv.Micros))
}

func TestBytesCompareAsTheValuesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SliceOfN(rapid.SampledFrom(keyTypes), 1, 3).Draw(t, "types")
		a, b := make(dataflow.Row, len(types)), make(dataflow.Row, len(types))
		want := 0
		for i, typ := range types {
			a[i], b[i] = drawValue(t, typ), drawValue(t, typ)
			if rapid.Bool().Draw(t, "same") {
				b[i] = a[i]
			}
			if want == 0 {
				want = compare(a[i], b[i])
			}
		}
		ea, eb := key.AppendRow(nil, a), key.AppendRow(nil, b)
		if got := bytes.Compare(ea, eb); got != want {
			t.Fatalf("compare(%v, %v) = %d, want %d\n%x\n%x", a, b, got, want, ea, eb)
		}
	})
}

func TestDecodeReturnsWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SliceOfN(rapid.SampledFrom(keyTypes), 0, 4).Draw(t, "types")
		row := make(dataflow.Row, len(types))
		var cols []*batch.Vector
		var enc []byte
		for i, typ := range types {
			row[i] = drawValue(t, typ)
			v := batch.NewVector(typ, 1)
			v.AppendValue(row[i])
			enc = key.AppendVector(enc, v, 0)
			cols = append(cols, batch.NewVector(typ, 1))
		}
		if want := key.AppendRow(nil, row); !bytes.Equal(enc, want) {
			t.Fatalf("AppendVector %x, AppendRow %x", enc, want)
		}
		got, err := key.Decode(types, enc)
		if err != nil {
			t.Fatal(err)
		}
		if err := key.DecodeInto(enc, cols); err != nil {
			t.Fatal(err)
		}
		for i := range row {
			if compare(got[i], row[i]) != 0 {
				t.Fatalf("part %d: %v, want %v", i, got[i], row[i])
			}
			if v := cols[i].Value(0); compare(v, row[i]) != 0 {
				t.Fatalf("part %d by vector: %v, want %v", i, v, row[i])
			}
			if !row[i].Null && types[i] == dataflow.TypeNumeric && got[i].Dec.Exponent > 0 {
				t.Fatalf("%s has a positive exponent", got[i].Dec)
			}
		}
	})
}

func TestPrefixRangeHoldsExactlyTheTextsThatBeginWithIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runes := []rune{'a', 'b', 0, 0x10FFFF}
		prefix := rapid.StringOfN(rapid.SampledFrom(runes), 0, 3, -1).Draw(t, "prefix")
		text := rapid.StringOfN(rapid.SampledFrom(runes), 0, 5, -1).Draw(t, "text")
		lead := dataflow.BigInt(rapid.Int64Range(0, 1).Draw(t, "lead"))
		from := key.AppendTextPrefix(key.AppendValue(nil, dataflow.BigInt(0)), prefix)
		to := key.PrefixEnd(from)
		k := key.AppendRow(nil, dataflow.Row{lead, dataflow.Text(text), dataflow.NullValue(dataflow.TypeText)})
		in := bytes.Compare(k, from) >= 0 && bytes.Compare(k, to) < 0
		if want := lead.Int == 0 && strings.HasPrefix(text, prefix); in != want {
			t.Fatalf("%q in the range of %q: %v, want %v", text, prefix, in, want)
		}
	})
}

func TestPrefixEndOfTheLastKeysIsNone(t *testing.T) {
	if end := key.PrefixEnd([]byte{0xFF, 0xFF}); end != nil {
		t.Fatalf("got %x", end)
	}
	if end := key.PrefixEnd([]byte{1, 0xFF}); !bytes.Equal(end, []byte{2}) {
		t.Fatalf("got %x", end)
	}
}

func TestDecodeRefusesWhatIsNotCanonical(t *testing.T) {
	num, txt, dbl := dataflow.TypeNumeric, dataflow.TypeText, dataflow.TypeDouble
	for name, c := range map[string]struct {
		typ dataflow.Type
		b   string
	}{
		"empty":                        {txt, ""},
		"another type":                 {txt, "\x12\x80\x00\x00\x00\x00\x00\x00\x00"},
		"text without end":             {txt, "\x14a"},
		"text that is not UTF-8":       {txt, "\x14\xff\x00"},
		"bytes after the key":          {txt, "\x14a\x00\x00"},
		"boolean 2":                    {dataflow.TypeBool, "\x11\x02"},
		"short bigint":                 {dataflow.TypeBigInt, "\x12\x80\x00"},
		"another NaN":                  {dbl, "\x13\xff\xf8\x00\x00\x00\x00\x00\x01"},
		"negative zero":                {dbl, "\x13\x7f\xff\xff\xff\xff\xff\xff\xff"},
		"numeric of unknown class":     {num, "\x16\x07"},
		"numeric with leading zero":    {num, "\x16\x04\x81\x02\x00"},
		"numeric with trailing zeros":  {num, "\x16\x04\x81\x0b\x01\x00"},
		"numeric without digits":       {num, "\x16\x04\x81\x00"},
		"numeric pair over 99":         {num, "\x16\x04\x81\x66\x00"},
		"numeric without end":          {num, "\x16\x04\x81\x0b"},
		"long form of a near exponent": {num, "\x16\x04\xff\x80\x00\x00\x01\x0b\x00"},
		"exponent without bounds":      {num, "\x16\x04\xff\xff\xff\xff\xff\x0b\x00"},
	} {
		if row, err := key.Decode([]dataflow.Type{c.typ}, []byte(c.b)); dataflow.ReasonOf(err) != dataflow.ReasonKeyInvalid {
			t.Errorf("%s: %v, %v", name, row, err)
		}
		if err := key.DecodeInto([]byte(c.b), []*batch.Vector{batch.NewVector(c.typ, 1)}); dataflow.ReasonOf(err) != dataflow.ReasonKeyInvalid {
			t.Errorf("%s by vector: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	all := append([]dataflow.Type{}, keyTypes...)
	f.Add([]byte{5}, key.AppendValue(nil, dataflow.Numeric(apd.New(-12345, -3))))
	f.Add([]byte{3, 4}, key.AppendRow(nil, dataflow.Row{dataflow.Text("a\x00b"), dataflow.Timestamp(1)}))
	f.Add([]byte{2}, key.AppendValue(nil, dataflow.Double(math.NaN())))
	f.Fuzz(func(t *testing.T, kinds, b []byte) {
		var types []dataflow.Type
		var cols []*batch.Vector
		for _, k := range kinds {
			types = append(types, all[int(k)%len(all)])
			cols = append(cols, batch.NewVector(types[len(types)-1], 1))
		}
		row, err := key.Decode(types, b)
		if err2 := key.DecodeInto(b, cols); (err == nil) != (err2 == nil) {
			t.Fatalf("Decode: %v, DecodeInto: %v", err, err2)
		}
		if err != nil {
			return
		}
		if again := key.AppendRow(nil, row); !bytes.Equal(again, b) {
			t.Fatalf("%x was taken, its canonical form is %x", b, again)
		}
	})
}

func BenchmarkAppendVector(b *testing.B) {
	words := batch.NewVector(dataflow.TypeText, 4)
	ints := batch.NewVector(dataflow.TypeBigInt, 4)
	nums := batch.NewVector(dataflow.TypeNumeric, 4)
	for i, w := range []string{"whale", "the", "of", "light"} {
		words.AppendString(w)
		ints.AppendInt(int64(i) * 1e9)
		nums.AppendDec(apd.New(int64(i)*12345, -2))
	}
	for _, c := range []struct {
		name string
		v    *batch.Vector
	}{{"text", words}, {"bigint", ints}, {"numeric", nums}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for i := 0; b.Loop(); i++ {
				buf = key.AppendVector(buf[:0], c.v, i&3)
			}
		})
	}
}

func TestAppendVectorDoesNotAllocate(t *testing.T) {
	v := batch.NewVector(dataflow.TypeText, 1)
	v.AppendString("whale")
	n := batch.NewVector(dataflow.TypeNumeric, 1)
	n.AppendDec(apd.New(123456, -2))
	buf := make([]byte, 0, 64)
	if got := testing.AllocsPerRun(100, func() {
		buf = key.AppendVector(buf[:0], v, 0)
		buf = key.AppendVector(buf, n, 0)
	}); got != 0 {
		t.Fatalf("%v allocations per key", got)
	}
}
