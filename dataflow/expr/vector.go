package expr

import (
	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// newVector returns a vector of type t with room for n rows, all of them zero and not NULL. TEXT and TEXT[] rows are
// appended by textBuilder and listBuilder, so their offsets are left empty.
func newVector(t dataflow.Type, n int) *batch.Vector {
	v := &batch.Vector{Type: t}
	switch t {
	case dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeTimestamp:
		v.Ints = make([]int64, n)
	case dataflow.TypeDouble:
		v.Floats = make([]float64, n)
	case dataflow.TypeNumeric:
		v.Decs = make([]apd.Decimal, n)
	case dataflow.TypeInterval:
		v.Ivls = make([]dataflow.Interval, n)
	case dataflow.TypeText:
		v.Offs = make([]uint32, 1, n+1)
	case dataflow.TypeTextArray:
		v.Lists = make([]uint32, 1, n+1)
		v.Elems = &batch.Vector{Type: dataflow.TypeText, Offs: make([]uint32, 1, n+1)}
	}
	return v
}

// nullVector returns n NULLs of type t.
func nullVector(t dataflow.Type, n int) *batch.Vector {
	v := newVector(t, n)
	fillTo(v, n)
	v.Nulls = batch.NewBitmap(n)
	for i := range v.Nulls {
		v.Nulls[i] = ^uint64(0)
	}
	return v
}

// fillTo appends empty rows to a TEXT or TEXT[] vector until it has n rows; other vectors have their length already.
func fillTo(v *batch.Vector, n int) {
	switch v.Type {
	case dataflow.TypeText:
		for end := uint32(len(v.Data)); len(v.Offs) <= n; {
			v.Offs = append(v.Offs, end)
		}
	case dataflow.TypeTextArray:
		for end := uint32(len(v.Elems.Offs) - 1); len(v.Lists) <= n; {
			v.Lists = append(v.Lists, end)
		}
		if e := v.Elems; e.Nulls != nil {
			for len(e.Nulls) < len(batch.NewBitmap(len(e.Offs)-1)) {
				e.Nulls = append(e.Nulls, 0)
			}
		}
	}
}

// setNull marks row i of a vector of n rows NULL.
func setNull(v *batch.Vector, i, n int) {
	if v.Nulls == nil {
		v.Nulls = batch.NewBitmap(n)
	}
	v.Nulls.Set(i)
}

// singleton returns a vector of type t that holds x alone.
func singleton(t dataflow.Type, x dataflow.Value) *batch.Vector {
	if x.Null || t == dataflow.TypeUnknown {
		return nullVector(t, 1)
	}
	v := newVector(t, 1)
	switch t {
	case dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeTimestamp:
		v.Ints[0] = x.Int
	case dataflow.TypeDouble:
		v.Floats[0] = x.Flt
	case dataflow.TypeNumeric:
		v.Decs[0].Set(x.Dec)
	case dataflow.TypeInterval:
		v.Ivls[0] = x.Ivl
	case dataflow.TypeText:
		v.Data = append(v.Data, x.Str...)
		v.Offs = append(v.Offs, uint32(len(v.Data)))
	case dataflow.TypeTextArray:
		for _, e := range x.Arr {
			appendElem(v.Elems, e)
		}
		v.Lists = append(v.Lists, uint32(len(v.Elems.Offs)-1))
	}
	return v
}

// appendElem appends an element to the elements of a TEXT[] vector; nil is NULL.
func appendElem(elems *batch.Vector, e *string) {
	n := len(elems.Offs) - 1
	if e != nil {
		elems.Data = append(elems.Data, *e...)
	} else {
		for len(elems.Nulls) <= n>>6 {
			elems.Nulls = append(elems.Nulls, 0)
		}
		elems.Nulls.Set(n)
	}
	elems.Offs = append(elems.Offs, uint32(len(elems.Data)))
}

// elemNull reports whether element j is NULL. The bitmap of growing elements may be shorter than the elements.
func elemNull(elems *batch.Vector, j int) bool {
	return j>>6 < len(elems.Nulls) && elems.Nulls.Get(j)
}

// valueAt returns row i of v as a Value that shares nothing with v.
func valueAt(v *batch.Vector, i int) dataflow.Value {
	if v.IsNull(i) || v.Type == dataflow.TypeUnknown {
		return dataflow.NullValue(v.Type)
	}
	x := dataflow.Value{Type: v.Type}
	switch v.Type {
	case dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeTimestamp:
		x.Int = v.Ints[i]
	case dataflow.TypeDouble:
		x.Flt = v.Floats[i]
	case dataflow.TypeNumeric:
		x.Dec = new(apd.Decimal).Set(&v.Decs[i])
	case dataflow.TypeInterval:
		x.Ivl = v.Ivls[i]
	case dataflow.TypeText:
		x.Str = string(v.Text(i))
	case dataflow.TypeTextArray:
		x.Arr = []*string{}
		for j := int(v.Lists[i]); j < int(v.Lists[i+1]); j++ {
			var e *string
			if !elemNull(v.Elems, j) {
				s := string(v.Elems.Text(j))
				e = &s
			}
			x.Arr = append(x.Arr, e)
		}
	}
	return x
}

// repeatRow returns n copies of the only row of v.
func repeatRow(v *batch.Vector, n int) *batch.Vector {
	if v.IsNull(0) {
		return nullVector(v.Type, n)
	}
	out := newVector(v.Type, n)
	for i := 0; i < n; i++ {
		copyRow(out, i, v, 0)
	}
	return out
}

// copyRow sets row i of dst to row j of src, of the same type. Rows of TEXT and TEXT[] must be set in ascending order;
// rows left out become empty. NULLs are the caller's.
func copyRow(dst *batch.Vector, i int, src *batch.Vector, j int) {
	switch dst.Type {
	case dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeTimestamp:
		dst.Ints[i] = src.Ints[j]
	case dataflow.TypeDouble:
		dst.Floats[i] = src.Floats[j]
	case dataflow.TypeNumeric:
		dst.Decs[i].Set(&src.Decs[j])
	case dataflow.TypeInterval:
		dst.Ivls[i] = src.Ivls[j]
	case dataflow.TypeText:
		fillTo(dst, i)
		dst.Data = append(dst.Data, src.Text(j)...)
		dst.Offs = append(dst.Offs, uint32(len(dst.Data)))
	case dataflow.TypeTextArray:
		fillTo(dst, i)
		for k := int(src.Lists[j]); k < int(src.Lists[j+1]); k++ {
			if elemNull(src.Elems, k) {
				appendElem(dst.Elems, nil)
				continue
			}
			dst.Elems.Data = append(dst.Elems.Data, src.Elems.Text(k)...)
			dst.Elems.Offs = append(dst.Elems.Offs, uint32(len(dst.Elems.Data)))
		}
		dst.Lists = append(dst.Lists, uint32(len(dst.Elems.Offs)-1))
	}
}

// orNulls returns the union of two null bitmaps; it may share memory with one of them.
func orNulls(a, b batch.Bitmap) batch.Bitmap {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	out := make(batch.Bitmap, len(a))
	for i := range a {
		out[i] = a[i] | b[i]
	}
	return out
}
