package expr

import (
	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// newVector returns a vector of type t with room for n rows, all of them zero and not NULL. Rows of texts and
// arrays are appended, so their offsets are left empty.
func newVector(t dataflow.Type, n int) *batch.Vector {
	v := &batch.Vector{Type: t}
	switch t.Form() {
	case dataflow.FormInt:
		v.Ints = make([]int64, n)
	case dataflow.FormFloat:
		v.Floats = make([]float64, n)
	case dataflow.FormDecimal:
		v.Decs = make([]apd.Decimal, n)
	case dataflow.FormInterval:
		v.Ivls = make([]dataflow.Interval, n)
	case dataflow.FormBytes:
		v.Offs = make([]uint32, 1, n+1)
	case dataflow.FormList:
		v.Lists = make([]uint32, 1, n+1)
		v.Elems = batch.NewVector(t.Elem(), n)
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

// fillTo appends empty rows to a vector of texts or arrays until it has n rows; other vectors have their length already.
func fillTo(v *batch.Vector, n int) {
	switch v.Type.Form() {
	case dataflow.FormBytes:
		for end := uint32(len(v.Data)); len(v.Offs) <= n; {
			v.Offs = append(v.Offs, end)
		}
	case dataflow.FormList:
		for end := uint32(v.Elems.Len()); len(v.Lists) <= n; {
			v.Lists = append(v.Lists, end)
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
	switch t.Form() {
	case dataflow.FormInt:
		v.Ints[0] = x.Int
	case dataflow.FormFloat:
		v.Floats[0] = x.Flt
	case dataflow.FormDecimal:
		v.Decs[0].Set(x.Dec)
	case dataflow.FormInterval:
		v.Ivls[0] = x.Ivl
	case dataflow.FormBytes:
		v.Data = append(v.Data, x.Str...)
		v.Offs = append(v.Offs, uint32(len(v.Data)))
	case dataflow.FormList:
		for _, e := range x.Arr {
			v.Elems.AppendValue(e)
		}
		v.Lists = append(v.Lists, uint32(v.Elems.Len()))
	}
	return v
}

// appendElem appends an element to the elements of a TEXT[] vector; nil is NULL.
func appendElem(elems *batch.Vector, e *string) {
	if e == nil {
		elems.AppendNull()
		return
	}
	elems.AppendString(*e)
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
	switch v.Type.Form() {
	case dataflow.FormInt:
		x.Int = v.Ints[i]
	case dataflow.FormFloat:
		x.Flt = v.Floats[i]
	case dataflow.FormDecimal:
		x.Dec = new(apd.Decimal).Set(&v.Decs[i])
	case dataflow.FormInterval:
		x.Ivl = v.Ivls[i]
	case dataflow.FormBytes:
		x.Str = string(v.Text(i))
	case dataflow.FormList:
		x.Arr = []dataflow.Value{}
		for j := int(v.Lists[i]); j < int(v.Lists[i+1]); j++ {
			x.Arr = append(x.Arr, valueAt(v.Elems, j))
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

// copyRow sets row i of dst to row j of src, of the same type. Rows of texts and arrays must be set in ascending order;
// rows left out become empty. NULLs are the caller's.
func copyRow(dst *batch.Vector, i int, src *batch.Vector, j int) {
	switch dst.Type.Form() {
	case dataflow.FormInt:
		dst.Ints[i] = src.Ints[j]
	case dataflow.FormFloat:
		dst.Floats[i] = src.Floats[j]
	case dataflow.FormDecimal:
		dst.Decs[i].Set(&src.Decs[j])
	case dataflow.FormInterval:
		dst.Ivls[i] = src.Ivls[j]
	case dataflow.FormBytes:
		fillTo(dst, i)
		dst.Data = append(dst.Data, src.Text(j)...)
		dst.Offs = append(dst.Offs, uint32(len(dst.Data)))
	case dataflow.FormList:
		fillTo(dst, i)
		for k := int(src.Lists[j]); k < int(src.Lists[j+1]); k++ {
			dst.Elems.AppendFrom(src.Elems, k)
		}
		dst.Lists = append(dst.Lists, uint32(dst.Elems.Len()))
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
