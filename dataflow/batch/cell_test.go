package batch_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

func TestCellsComeBackAsTheyWereAppended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom(allTypes).Draw(t, "type")
		v, back := batch.NewVector(typ, 1), batch.NewVector(typ, 1)
		x := drawValue(t, typ)
		if x.Null {
			return
		}
		v.AppendValue(x)
		cell := batch.AppendCell(nil, v, 0)
		rest, err := batch.ReadCell(append(cell, 7), back)
		if err != nil || len(rest) != 1 {
			t.Fatalf("%x: %v, %d bytes left", cell, err, len(rest))
		}
		if again := batch.AppendCell(nil, back, 0); string(again) != string(cell) {
			t.Fatalf("%x came back as %x", cell, again)
		}
	})
}

func FuzzReadCell(f *testing.F) {
	f.Add(byte(dataflow.TypeTextArray), []byte{2, 1, 1, 'a', 0})
	f.Add(byte(dataflow.TypeInterval), []byte{2, 3, 4})
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		typ := allTypes[int(kind)%len(allTypes)]
		v := batch.NewVector(typ, 1)
		if _, err := batch.ReadCell(b, v); err == nil && v.Len() != 1 {
			t.Fatalf("%d rows", v.Len())
		}
	})
}
