package agg

import (
	"math"

	"github.com/weirdb/weir/dataflow/batch"
)

// percentile appends percentile_disc, percentile_cont, approx_percentile or mode of the values of a bag.
func (s *slot) percentile(tail []byte, out *batch.Vector) {
	total := int64(0)
	s.each(tail, func(_ []byte, count int64) bool {
		total += count
		return true
	})
	if total == 0 {
		out.AppendNull()
		return
	}
	switch s.spec.Fn {
	case Mode:
		s.mode(tail, out)
		return
	case PercentileCont:
		// Between the two values around the place, as PostgreSQL computes it.
		at := s.spec.P * float64(total-1)
		lo, hi := math.Floor(at), math.Ceil(at)
		first, ok := s.numberAt(tail, int64(lo))
		if !ok {
			out.AppendNull()
			return
		}
		if lo != hi {
			second, _ := s.numberAt(tail, int64(hi))
			first += (at - lo) * (second - first)
		}
		out.AppendFloat(first)
		return
	}
	elem := s.at(tail, max(0, int64(math.Ceil(s.spec.P*float64(total)))-1))
	switch {
	case elem == nil:
		out.AppendNull()
	case s.spec.Fn == ApproxPercentile:
		out.AppendFloat(bucketValue(elem))
	case s.appendValue(elem, out) != nil:
		out.AppendNull()
	}
}

// at returns the value with the given number, from 0, in the order of the bag.
func (s *slot) at(tail []byte, n int64) (found []byte) {
	s.each(tail, func(elem []byte, count int64) bool {
		found = elem
		n -= count
		return n >= 0
	})
	return found
}

func (s *slot) numberAt(tail []byte, n int64) (f float64, ok bool) {
	v := batch.NewVector(s.spec.ArgType, 1)
	elem := s.at(tail, n)
	if elem == nil || s.appendValue(elem, v) != nil || v.IsNull(0) {
		return 0, false
	}
	return v.Floats[0], true
}

// mode appends the value that is there most often, the first of them in order.
func (s *slot) mode(tail []byte, out *batch.Vector) {
	var best, at []byte // the value, and the last spelling of the value at hand
	most, n := int64(0), int64(0)
	end := func() {
		if n > most {
			best, most = at, n
		}
	}
	s.each(tail, func(elem []byte, count int64) bool {
		if at == nil || string(s.distinctKey(at)) != string(s.distinctKey(elem)) {
			end()
			n = 0
		}
		at, n = elem, n+count
		return true
	})
	if end(); best == nil || s.appendValue(best, out) != nil {
		out.AppendNull()
	}
}
