package agg

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow/batch"
)

// numSum is the sum of a multiset of NUMERIC. Beside the sum it counts the terms by display scale, and those that are
// not finite: the scale of PostgreSQL's sum is the largest scale of its terms, and an Infinity must leave no trace once
// it is taken back.
//
// Format: the number of classes as a varint; per class, ascending, the class as a varint and its count, not 0, as a
// zigzag varint; then the sum of the finite terms as batch.AppendDecimal has it. The sum of no terms is no bytes.
type numSum struct {
	classes []class
	sum     apd.BigInt
	scale   int32 // sum / 10^scale is the sum; ≥ 0
}

type class struct {
	id    uint32
	count int64
}

// Classes: three that are not finite, then one per display scale.
const (
	classNaN    = 0
	classPosInf = 1
	classNegInf = 2
	classScale0 = 3
)

// maxScale is the largest display scale: no exponent that batch.ReadDecimal takes gives more.
const maxScale = batch.MaxDecimalExponent

var errNumSum = errors.New("malformed NUMERIC sum")

func (s *numSum) load(b []byte) error {
	s.classes = nil
	s.sum.SetInt64(0)
	s.scale = 0
	if len(b) == 0 {
		return nil
	}
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)) {
		return errNumSum
	}
	b = b[k:]
	for range n {
		id, k := binary.Uvarint(b)
		if k <= 0 || id > classScale0+maxScale || len(s.classes) > 0 && id <= uint64(s.classes[len(s.classes)-1].id) {
			return errNumSum
		}
		b = b[k:]
		count, k := binary.Varint(b)
		if k <= 0 || count == 0 {
			return errNumSum
		}
		b = b[k:]
		s.classes = append(s.classes, class{uint32(id), count})
	}
	var d apd.Decimal
	rest, err := batch.ReadDecimal(b, &d)
	if err != nil || len(rest) != 0 || d.Form != apd.Finite || d.Exponent > 0 {
		return errNumSum
	}
	s.sum.Set(&d.Coeff)
	if d.Negative {
		s.sum.Neg(&s.sum)
	}
	s.scale = -d.Exponent
	return nil
}

func (s *numSum) append(dst []byte) []byte {
	if len(s.classes) == 0 && s.sum.Sign() == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.classes)))
	for _, c := range s.classes {
		dst = binary.AppendUvarint(dst, uint64(c.id))
		dst = binary.AppendVarint(dst, c.count)
	}
	d := apd.Decimal{Exponent: -s.scale, Negative: s.sum.Sign() < 0}
	d.Coeff.Abs(&s.sum)
	return batch.AppendDecimal(dst, &d)
}

// add adds d weight times.
func (s *numSum) add(d *apd.Decimal, weight int64) {
	switch {
	case d.Form == apd.Infinite && d.Negative:
		s.count(classNegInf, weight)
	case d.Form == apd.Infinite:
		s.count(classPosInf, weight)
	case d.Form != apd.Finite:
		s.count(classNaN, weight)
	default:
		scale := max(-d.Exponent, 0)
		s.count(classScale0+uint32(scale), weight)
		var term, w apd.BigInt
		term.Set(&d.Coeff)
		if d.Exponent > 0 {
			mulPow10(&term, d.Exponent)
		}
		w.SetInt64(weight)
		if d.Negative {
			w.Neg(&w)
		}
		term.Mul(&term, &w)
		s.addScaled(&term, scale)
	}
	s.normalize()
}

// merge adds the terms of o.
func (s *numSum) merge(o *numSum) {
	for _, c := range o.classes {
		s.count(c.id, c.count)
	}
	var term apd.BigInt
	term.Set(&o.sum)
	s.addScaled(&term, o.scale)
	s.normalize()
}

func (s *numSum) count(id uint32, n int64) {
	if n == 0 {
		return
	}
	i, found := slices.BinarySearchFunc(s.classes, id, func(c class, id uint32) int { return int(c.id) - int(id) })
	if !found {
		s.classes = slices.Insert(s.classes, i, class{id, n})
		return
	}
	if s.classes[i].count += n; s.classes[i].count == 0 {
		s.classes = slices.Delete(s.classes, i, i+1)
	}
}

// addScaled adds term / 10^scale; it may change term.
func (s *numSum) addScaled(term *apd.BigInt, scale int32) {
	if scale > s.scale {
		mulPow10(&s.sum, scale-s.scale)
		s.scale = scale
	} else if scale < s.scale {
		mulPow10(term, s.scale-scale)
	}
	s.sum.Add(&s.sum, term)
}

// normalize gives the sum the largest scale of its terms, or the next larger one that holds it exactly: in a partial the
// terms that gave the sum its digits may have cancelled out in the counts.
func (s *numSum) normalize() {
	want := int32(0)
	if n := len(s.classes); n > 0 && s.classes[n-1].id > classScale0 {
		want = int32(s.classes[n-1].id - classScale0)
	}
	if s.scale < want {
		mulPow10(&s.sum, want-s.scale)
		s.scale = want
		return
	}
	if s.sum.Sign() == 0 {
		s.scale = want
		return
	}
	var q, r, ten apd.BigInt
	ten.SetInt64(10)
	for s.scale > want {
		if q.QuoRem(&s.sum, &ten, &r); r.Sign() != 0 {
			return
		}
		s.sum.Set(&q)
		s.scale--
	}
}

func (s *numSum) has(id uint32) bool {
	for _, c := range s.classes {
		if c.id == id {
			return c.count > 0
		}
	}
	return false
}

// special returns the result that terms which are not finite give, or false when there are none.
func (s *numSum) special() (apd.Decimal, bool) {
	pos, neg := s.has(classPosInf), s.has(classNegInf)
	switch {
	case s.has(classNaN) || pos && neg:
		return apd.Decimal{Form: apd.NaN}, true
	case pos || neg:
		return apd.Decimal{Form: apd.Infinite, Negative: neg}, true
	}
	return apd.Decimal{}, false
}

// mulPow10 multiplies x by 10^k.
func mulPow10(x *apd.BigInt, k int32) {
	var m apd.BigInt
	for k > 0 {
		step := min(k, 18)
		if k > 200 { // one big power instead of many small ones
			step = k
			m.Exp(m.SetInt64(10), new(apd.BigInt).SetInt64(int64(k)), nil)
		} else {
			m.SetInt64(pow10(step))
		}
		x.Mul(x, &m)
		k -= step
	}
}

// pow10 returns 10^k for k ≤ 18.
func pow10(k int32) int64 {
	p := int64(1)
	for range k {
		p *= 10
	}
	return p
}
