package agg

import (
	"bytes"

	"github.com/weirdb/weir/dataflow/batch"
)

// bagResult appends the result of an aggregate that keeps a bag.
func (l *Layout) bagResult(s *slot, acc, tail []byte, out *batch.Vector) error {
	if isFull(acc, s) {
		out.AppendNull()
		return l.errFull(s)
	}
	n := getInt(acc[s.off:])
	switch s.spec.Fn {
	case Count:
		out.AppendInt(n)
		return nil
	case Sum, Avg:
		s.distinctSum(tail, out)
		return nil
	}
	// The first or the last entry that counts.
	last := s.spec.Fn == Max || s.spec.Fn == MaxBy
	var found *bagEntry
	for at := 0; at < len(tail) && (found == nil || last); {
		e, err := s.bag.next(tail, at)
		if err != nil {
			break
		}
		if at = e.to; e.count > 0 {
			found = &e
		}
	}
	if found == nil || s.appendValue(found.value(), out) != nil {
		out.AppendNull()
	}
	return nil
}

// distinctSum appends the sum or the average of the values of a bag, each once: that of a group of their own.
func (s *slot) distinctSum(tail []byte, out *batch.Vector) {
	spec := Spec{Fn: s.spec.Fn, ArgType: s.spec.ArgType, Out: s.spec.Out}
	l := NewLayout([]Spec{spec})
	b := &batch.Batch{Cols: []*batch.Vector{batch.NewVector(spec.ArgType, 0)}}
	var held bagEntry // the last spelling of the last value
	for at := 0; at < len(tail); {
		e, err := s.bag.next(tail, at)
		if err != nil {
			break
		}
		if at = e.to; e.count <= 0 {
			continue
		}
		if held.key != nil && !bytes.Equal(s.distinctKey(held.value()), s.distinctKey(e.value())) {
			b.N++
			if s.appendValue(held.value(), b.Cols[0]) != nil {
				break
			}
		}
		held = e
	}
	if held.key != nil && s.appendValue(held.value(), b.Cols[0]) == nil {
		b.N++
	}
	acc := l.New(nil)
	for row := range b.N {
		var err error
		if acc, err = l.Update(acc, b, row, 1); err != nil {
			break
		}
	}
	l.appendResult(0, acc, out)
}

// distinctKey returns what tells a value of a bag from others, whatever it looks like.
func (s *slot) distinctKey(elem []byte) []byte {
	if s.bag.exact {
		return elemKey(s.spec.ArgType, elem)
	}
	return elem
}
