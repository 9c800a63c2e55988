package agg

import "github.com/weirdb/weir/dataflow/batch"

// bagResult appends the result of an aggregate that keeps a bag.
func (l *Layout) bagResult(s *slot, acc, tail []byte, out *batch.Vector) error {
	if isFull(acc, s) {
		out.AppendNull()
		return s.errFull()
	}
	switch s.spec.Fn {
	case Count:
		out.AppendInt(getInt(acc[s.off:]))
	case Sum, Avg:
		s.distinctSum(tail, out)
	case StringAgg:
		return l.stringAgg(s, tail, out)
	case ArrayAgg, TopK:
		return l.arrayAgg(s, tail, out)
	case ApproxPercentile, PercentileCont, PercentileDisc, Mode:
		s.percentile(tail, out)
	case BitAnd, BitOr:
		s.combineBits(tail, out)
	default:
		s.ends(tail, out)
	}
	return nil
}

// ends appends the value of the first or the last entry that counts.
func (s *slot) ends(tail []byte, out *batch.Vector) {
	last := s.spec.Fn == Max || s.spec.Fn == MaxBy
	var found []byte
	s.each(tail, func(elem []byte, _ int64) bool {
		found = elem
		return last
	})
	if found == nil || s.appendValue(found, out) != nil {
		out.AppendNull()
	}
}
