package agg

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

// An element is a value in a form whose bytes compare as the values do: that of a part of a key. Where the value is shown
// again, what the key does not keep follows: the scale of a NUMERIC (4 bytes big-endian, sign bit flipped), whether a DOUBLE
// is −0 (a byte, 0 if it is), an INTERVAL as it was (batch.AppendCell). So −0 comes before 0 and 1.0 before 1.00. A value
// that no key can have, JSONB or an array, is the byte 1 and its cell: it has some order.
const (
	scaleSize = 4
	signSize  = 1
	elemNull  = 1 // bytes of NULL
	elemCell  = 1
)

var errElem = errors.New("malformed value")

// elemWidth returns the size of a part of a key that is of type t and not NULL; 0 if there are several.
func elemWidth(t dataflow.Type) int {
	switch t {
	case dataflow.TypeBool:
		return 1 + 1
	case dataflow.TypeBigInt, dataflow.TypeTimestamp, dataflow.TypeDate, dataflow.TypeDouble:
		return 1 + 8
	}
	return 0
}

// appendElem appends row of v with all that is needed to show it.
func appendElem(dst []byte, v *batch.Vector, row int) []byte {
	switch {
	case v.IsNull(row):
		return key.AppendVector(dst, v, row)
	case !v.Type.Ordered():
		return batch.AppendCell(append(dst, elemCell), v, row)
	}
	dst = key.AppendVector(dst, v, row)
	switch v.Type {
	case dataflow.TypeNumeric:
		return appendScale(dst, &v.Decs[row])
	case dataflow.TypeDouble:
		if f := v.Floats[row]; f == 0 && math.Signbit(f) {
			return append(dst, 0)
		}
		return append(dst, 1)
	case dataflow.TypeInterval:
		return batch.AppendCell(dst, v, row)
	}
	return dst
}

func appendScale(dst []byte, d *apd.Decimal) []byte {
	scale := int32(0)
	if d.Form == apd.Finite {
		scale = -d.Exponent
	}
	return binary.BigEndian.AppendUint32(dst, uint32(scale)^1<<31)
}

// elemKey returns the part of an element of type t that says which value it is, without how it is shown.
func elemKey(t dataflow.Type, elem []byte) []byte {
	if len(elem) <= elemNull {
		return elem
	}
	switch t {
	case dataflow.TypeNumeric:
		return elem[:max(0, len(elem)-scaleSize)]
	case dataflow.TypeDouble:
		return elem[:max(0, len(elem)-signSize)]
	}
	return elem
}

// readElem appends an element to out, a vector of its type.
func readElem(elem []byte, out *batch.Vector) error {
	if len(elem) > elemNull && (!out.Type.Ordered() || out.Type == dataflow.TypeInterval) {
		return readCell(elem, out)
	}
	if err := key.DecodeInto(elemKey(out.Type, elem), []*batch.Vector{out}); err != nil {
		return err
	}
	if len(elem) <= elemNull {
		return nil
	}
	n := out.Len() - 1
	switch out.Type {
	case dataflow.TypeNumeric:
		return setScale(&out.Decs[n], int32(binary.BigEndian.Uint32(elem[len(elem)-scaleSize:])^1<<31))
	case dataflow.TypeDouble:
		switch sign := elem[len(elem)-1]; {
		case sign > 1 || sign == 0 && out.Floats[n] != 0:
			return errElem
		case sign == 0:
			out.Floats[n] = math.Copysign(0, -1)
		}
	}
	return nil
}

// readCell appends an element that has a cell.
func readCell(elem []byte, out *batch.Vector) error {
	const intervalKey = 1 + 16
	at := elemCell
	if out.Type == dataflow.TypeInterval {
		at = intervalKey
	} else if elem[0] != elemCell {
		return errElem
	}
	if len(elem) < at {
		return errElem
	}
	rest, err := batch.ReadCell(elem[at:], out)
	if err == nil && len(rest) != 0 {
		err = errElem
	}
	return err
}

// setScale gives a number without trailing zeros the scale that it is shown with.
func setScale(d *apd.Decimal, scale int32) error {
	if d.Form != apd.Finite {
		if scale != 0 {
			return errElem
		}
		return nil
	}
	if scale < -maxScale || scale > maxScale {
		return errElem
	}
	if d.Coeff.Sign() == 0 {
		d.Exponent = -scale
		return nil
	}
	for d.Exponent > -scale {
		step := min(d.Exponent+scale, maxScale)
		mulPow10(&d.Coeff, step)
		d.Exponent -= step
	}
	if d.Exponent == -scale {
		return nil
	}
	// An exponent above 0 was spread into zeros by the key.
	var q, r, p apd.BigInt
	p.SetInt64(1)
	mulPow10(&p, -scale-d.Exponent)
	if q.QuoRem(&d.Coeff, &p, &r); r.Sign() != 0 {
		return errElem
	}
	d.Coeff.Set(&q)
	d.Exponent = -scale
	return nil
}

// key appends what slot s keeps of a row: what it is ordered by, then the value, which begins at split. ok is false for a
// row that does not count.
func (s *slot) key(dst []byte, b *batch.Batch, row int) (k []byte, split int, ok bool) {
	at := len(dst)
	if s.spec.Filtered {
		if f := b.Cols[s.spec.Filter]; f.Type != dataflow.TypeBool || f.IsNull(row) || f.Ints[row] == 0 {
			return dst, 0, false
		}
	}
	for i, o := range s.spec.Order {
		v := b.Cols[o.Col]
		if i == 0 && v.IsNull(row) && s.spec.skipsNullOrder() {
			return dst, 0, false
		}
		from := len(dst)
		if v.IsNull(row) && o.NullsFirst != o.Desc {
			dst = append(dst, 0) // before every tag; what is descending is flipped
		} else {
			dst = key.AppendVector(dst, v, row)
		}
		if o.Desc {
			flip(dst[from:])
		}
	}
	split = len(dst) - at
	v := b.Cols[s.col]
	switch {
	case v.IsNull(row) && !s.spec.keepsNull():
		return dst, 0, false
	case s.bag.buckets:
		return appendBucket(dst, v, row), split, true
	case s.bag.exact:
		return appendElem(dst, v, row), split, true
	}
	return key.AppendVector(dst, v, row), split, true
}

func flip(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// appendValue appends the element of an entry to out, a vector of the argument's type.
func (s *slot) appendValue(elem []byte, out *batch.Vector) error {
	if s.bag.exact {
		return readElem(elem, out)
	}
	return key.DecodeInto(elem, []*batch.Vector{out})
}

// checkValue validates the element of an entry. v is scratch, a vector of the argument's type.
func (s *slot) checkValue(elem []byte, v *batch.Vector) error {
	switch {
	case s.bag.buckets:
		return checkBucket(elem)
	case len(elem) == 0:
		return errElem
	}
	v.Reset()
	return s.appendValue(elem, v)
}
