package expr

import (
	"math"

	"github.com/weirdb/weir/dataflow"
)

// castFor returns the conversion between two types, nil if there is none.
func castFor(from, to dataflow.Type) castFunc {
	switch {
	case to == dataflow.TypeText:
		return toText
	case from == dataflow.TypeText:
		return fromText(to)
	case from == dataflow.TypeJSONB:
		return fromJSON(to)
	case from == dataflow.TypeDate && to == dataflow.TypeTimestamp:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error { f.out.Ints[i] = a.int(i) * microsPerDay; return nil })
		}
	case from == dataflow.TypeTimestamp && to == dataflow.TypeDate:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error { f.out.Ints[i] = floorDiv(a.int(i), microsPerDay); return nil })
		}
	case from.Form() == dataflow.FormList && to.Form() == dataflow.FormList:
		return castList(to.Elem())
	case from == dataflow.TypeBigInt && to == dataflow.TypeNumeric:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error { f.out.Decs[i].SetInt64(a.int(i)); return nil })
		}
	case from == dataflow.TypeBigInt && to == dataflow.TypeDouble:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error { f.out.Floats[i] = float64(a.int(i)); return nil })
		}
	case from == dataflow.TypeBigInt && to == dataflow.TypeBool:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error { f.out.Ints[i] = boolInt(a.int(i) != 0); return nil })
		}
	case from == dataflow.TypeBool && to == dataflow.TypeBigInt:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error { f.out.Ints[i] = a.int(i); return nil })
		}
	case from == dataflow.TypeNumeric && to == dataflow.TypeBigInt:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) (err *dataflow.Error) { f.out.Ints[i], err = numericToInt(a.dec(i)); return err })
		}
	case from == dataflow.TypeNumeric && to == dataflow.TypeDouble:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) (err *dataflow.Error) { f.out.Floats[i], err = numericToFloat(a.dec(i)); return err })
		}
	case from == dataflow.TypeDouble && to == dataflow.TypeBigInt:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) (err *dataflow.Error) { f.out.Ints[i], err = floatToInt(a.flt(i)); return err })
		}
	case from == dataflow.TypeDouble && to == dataflow.TypeNumeric:
		return func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error { return numericFromFloat(&f.out.Decs[i], a.flt(i)) })
		}
	}
	return nil
}

// castList converts arrays element by element, through their text.
func castList(to dataflow.Type) castFunc {
	return func(f *frame) {
		a, out := f.args[0], f.out
		f.each(func(i int) *dataflow.Error {
			fillTo(out, i)
			from, end := a.list(i)
			values := make([]dataflow.Value, 0, end-from)
			for j := from; j < end; j++ {
				if elemNull(a.v.Elems, j) {
					values = append(values, dataflow.NullValue(to))
					continue
				}
				v, err := parseValue(to, string(appendVector(nil, a.v.Elems, j)))
				if err != nil {
					return err
				}
				values = append(values, v)
			}
			return f.set(i, dataflow.Value{Type: out.Type, Arr: values})
		})
	}
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// floatToInt rounds half to even.
func floatToInt(f float64) (int64, *dataflow.Error) {
	f = math.RoundToEven(f)
	if !(f >= math.MinInt64 && f < math.MaxInt64) {
		return 0, errBigIntRange
	}
	return int64(f), nil
}

func toText(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) { return a.appendText(dst, i), nil })
}

func fromText(to dataflow.Type) castFunc {
	return func(f *frame) {
		a, out := f.args[0], f.out
		if to == dataflow.TypeBigInt {
			f.each(func(i int) *dataflow.Error {
				n, err := parseBigInt(a.text(i))
				if err == nil {
					out.Ints[i] = n
				}
				return err
			})
			return
		}
		if to == dataflow.TypeJSONB {
			f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) { return appendJSONB(dst, a.text(i)) })
			return
		}
		f.each(func(i int) *dataflow.Error {
			v, err := parseValue(to, string(a.text(i)))
			if err != nil {
				return err
			}
			return f.set(i, v)
		})
	}
}
