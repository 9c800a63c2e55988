package batch

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// NewVector returns an empty vector with room for n rows. TypeUnknown makes a vector whose rows are all NULL.
func NewVector(t dataflow.Type, n int) *Vector {
	v := &Vector{Type: t}
	switch t.Form() {
	case dataflow.FormBytes:
		v.Offs = make([]uint32, 1, n+1)
	case dataflow.FormList:
		v.Lists = make([]uint32, 1, n+1)
		v.Elems = NewVector(t.Elem(), n)
	default:
		v.reserve(n)
	}
	return v
}

// NewVectorLen returns a vector of n rows that all hold the zero of the type, for kernels that fill it in place. A
// vector of n empty texts or arrays is made only to be appended to elsewhere: kernels for them start from NewVector.
func NewVectorLen(t dataflow.Type, n int) *Vector {
	v := &Vector{Type: t}
	switch t.Form() {
	case dataflow.FormBytes:
		v.Offs = make([]uint32, n+1)
	case dataflow.FormList:
		v.Lists = make([]uint32, n+1)
		v.Elems = NewVector(t.Elem(), 0)
	default:
		v.reserve(n)
		v.extend(n)
	}
	return v
}

// reserve makes room for n more rows of a type with one element per row.
func (v *Vector) reserve(n int) {
	switch v.Type.Form() {
	case dataflow.FormFloat:
		v.Floats = grow(v.Floats, n)
	case dataflow.FormDecimal:
		v.Decs = grow(v.Decs, n)
	case dataflow.FormInterval:
		v.Ivls = grow(v.Ivls, n)
	case dataflow.FormBytes:
		v.Offs = grow(v.Offs, n)
	case dataflow.FormList:
		v.Lists = grow(v.Lists, n)
	default:
		v.Ints = grow(v.Ints, n)
	}
}

func grow[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	g := make([]T, len(s), len(s)+n)
	copy(g, s)
	return g
}

// extend adds n zero rows to a type with one element per row.
func (v *Vector) extend(n int) {
	switch v.Type.Form() {
	case dataflow.FormFloat:
		v.Floats = append(v.Floats, make([]float64, n)...)
	case dataflow.FormDecimal:
		v.Decs = append(v.Decs, make([]decimal, n)...)
	case dataflow.FormInterval:
		v.Ivls = append(v.Ivls, make([]dataflow.Interval, n)...)
	default:
		v.Ints = append(v.Ints, make([]int64, n)...)
	}
}

// Len returns the number of rows.
func (v *Vector) Len() int {
	switch v.Type.Form() {
	case dataflow.FormFloat:
		return len(v.Floats)
	case dataflow.FormDecimal:
		return len(v.Decs)
	case dataflow.FormInterval:
		return len(v.Ivls)
	case dataflow.FormBytes:
		return max(len(v.Offs)-1, 0)
	case dataflow.FormList:
		return max(len(v.Lists)-1, 0)
	}
	return len(v.Ints)
}

// Reset makes v empty and keeps its memory.
func (v *Vector) Reset() {
	v.Nulls = nil
	v.Ints, v.Floats, v.Decs, v.Ivls, v.Data = v.Ints[:0], v.Floats[:0], v.Decs[:0], v.Ivls[:0], v.Data[:0]
	switch v.Type.Form() {
	case dataflow.FormBytes:
		v.Offs = append(v.Offs[:0], 0)
	case dataflow.FormList:
		v.Lists = append(v.Lists[:0], 0)
		v.Elems.Reset()
	}
}

// SetNull marks row i, which exists, as NULL. Its element must be zero.
func (v *Vector) SetNull(i int) {
	for len(v.Nulls) <= i>>6 {
		v.Nulls = append(v.Nulls, 0)
	}
	v.Nulls.Set(i)
}

// AppendNull adds a NULL row.
func (v *Vector) AppendNull() {
	n := v.Len()
	switch v.Type.Form() {
	case dataflow.FormBytes:
		v.Offs = append(v.Offs, uint32(len(v.Data)))
	case dataflow.FormList:
		v.Lists = append(v.Lists, uint32(v.Elems.Len()))
	case dataflow.FormFloat:
		v.Floats = append(v.Floats, 0)
	case dataflow.FormDecimal:
		v.Decs = append(v.Decs, decimal{})
	case dataflow.FormInterval:
		v.Ivls = append(v.Ivls, dataflow.Interval{})
	default:
		v.Ints = append(v.Ints, 0)
	}
	v.SetNull(n)
}

// AppendInt adds a row to a BIGINT, TIMESTAMPTZ, DATE or BOOLEAN (0 or 1) vector.
func (v *Vector) AppendInt(x int64) { v.Ints = append(v.Ints, x); v.fit(len(v.Ints)) }

// AppendFloat adds a row to a DOUBLE PRECISION vector.
func (v *Vector) AppendFloat(x float64) { v.Floats = append(v.Floats, x); v.fit(len(v.Floats)) }

// AppendText adds a row to a TEXT, JSONB or BYTEA vector.
func (v *Vector) AppendText(s []byte) {
	v.Data = append(v.Data, s...)
	v.Offs = append(v.Offs, uint32(len(v.Data)))
	v.fit(len(v.Offs) - 1)
}

// AppendString adds a row to a TEXT, JSONB or BYTEA vector.
func (v *Vector) AppendString(s string) {
	v.Data = append(v.Data, s...)
	v.Offs = append(v.Offs, uint32(len(v.Data)))
	v.fit(len(v.Offs) - 1)
}

// AppendDec adds a copy of x to a NUMERIC vector.
func (v *Vector) AppendDec(x *decimal) {
	v.Decs = append(v.Decs, decimal{})
	v.Decs[len(v.Decs)-1].Set(x)
	v.fit(len(v.Decs))
}

// AppendInterval adds a row to an INTERVAL vector.
func (v *Vector) AppendInterval(x dataflow.Interval) { v.Ivls = append(v.Ivls, x); v.fit(len(v.Ivls)) }

// fit keeps the bitmap of a vector that has NULLs as long as its n rows.
func (v *Vector) fit(n int) {
	if v.Nulls != nil && len(v.Nulls)*64 < n {
		v.Nulls = append(v.Nulls, 0)
	}
}

// AppendValue adds x, which must be NULL or have the vector's type.
func (v *Vector) AppendValue(x dataflow.Value) {
	if x.Null {
		v.AppendNull()
		return
	}
	if x.Type != v.Type {
		panic(fmt.Sprintf("batch: %s appended to a vector of %s", x.Type, v.Type)) // a broken plan, never input
	}
	switch v.Type.Form() {
	case dataflow.FormFloat:
		v.AppendFloat(x.Flt)
	case dataflow.FormBytes:
		v.AppendString(x.Str)
	case dataflow.FormDecimal:
		v.AppendDec(x.Dec)
	case dataflow.FormList:
		for _, e := range x.Arr {
			v.Elems.AppendValue(e)
		}
		v.CloseList()
	case dataflow.FormInterval:
		v.AppendInterval(x.Ivl)
	default:
		v.AppendInt(x.Int)
	}
}

// CloseList ends the current row of a vector of arrays: it holds what was appended to Elems since the row before.
func (v *Vector) CloseList() {
	v.Lists = append(v.Lists, uint32(v.Elems.Len()))
	v.fit(len(v.Lists) - 1)
}

// Value returns row i. A NUMERIC shares memory with the vector.
func (v *Vector) Value(i int) dataflow.Value {
	if v.Type == dataflow.TypeUnknown || v.IsNull(i) {
		return dataflow.NullValue(v.Type)
	}
	x := dataflow.Value{Type: v.Type}
	switch v.Type.Form() {
	case dataflow.FormFloat:
		x.Flt = v.Floats[i]
	case dataflow.FormBytes:
		x.Str = string(v.Text(i))
	case dataflow.FormDecimal:
		x.Dec = &v.Decs[i]
	case dataflow.FormList:
		x.Arr = make([]dataflow.Value, 0, v.Lists[i+1]-v.Lists[i])
		for j := int(v.Lists[i]); j < int(v.Lists[i+1]); j++ {
			x.Arr = append(x.Arr, v.Elems.Value(j))
		}
	case dataflow.FormInterval:
		x.Ivl = v.Ivls[i]
	default:
		x.Int = v.Ints[i]
	}
	return x
}

// AppendFrom adds row i of src, which has the same type.
func (v *Vector) AppendFrom(src *Vector, i int) {
	if src.IsNull(i) {
		v.AppendNull()
		return
	}
	switch v.Type.Form() {
	case dataflow.FormFloat:
		v.AppendFloat(src.Floats[i])
	case dataflow.FormBytes:
		v.AppendText(src.Text(i))
	case dataflow.FormDecimal:
		v.AppendDec(&src.Decs[i])
	case dataflow.FormList:
		for j := int(src.Lists[i]); j < int(src.Lists[i+1]); j++ {
			v.Elems.AppendFrom(src.Elems, j)
		}
		v.CloseList()
	case dataflow.FormInterval:
		v.AppendInterval(src.Ivls[i])
	default:
		v.AppendInt(src.Ints[i])
	}
}

// RowBytes returns about how many bytes row i takes when it is encoded.
func (v *Vector) RowBytes(i int) int {
	switch v.Type.Form() {
	case dataflow.FormBytes:
		return int(v.Offs[i+1] - v.Offs[i])
	case dataflow.FormDecimal:
		return 8 + v.Decs[i].Coeff.BitLen()/8
	case dataflow.FormList:
		n := 0
		for j := int(v.Lists[i]); j < int(v.Lists[i+1]); j++ {
			n += 4 + v.Elems.RowBytes(j)
		}
		return n
	case dataflow.FormInterval:
		return 16
	}
	if v.Type == dataflow.TypeBool {
		return 1
	}
	return 8
}
