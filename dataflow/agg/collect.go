package agg

import (
	"bytes"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// each calls fn for the value of each entry of a bag that counts, with how often it does, until fn returns false. With
// DISTINCT values that are equal and look different count once, as the last of them.
func (s *slot) each(tail []byte, fn func(elem []byte, count int64) bool) {
	var held []byte
	for at := 0; at < len(tail); {
		e, err := s.bag.next(tail, at)
		if err != nil {
			break
		}
		if at = e.to; e.count <= 0 {
			continue
		}
		if !s.spec.Distinct {
			if !fn(e.value(), e.count) {
				return
			}
			continue
		}
		if held != nil && !bytes.Equal(s.distinctKey(held), s.distinctKey(e.value())) && !fn(held, 1) {
			return
		}
		held = e.value()
	}
	if held != nil {
		fn(held, 1)
	}
}

// distinctKey returns what tells a value of a bag from others, whatever it looks like.
func (s *slot) distinctKey(elem []byte) []byte {
	if s.bag.exact {
		return elemKey(s.spec.ArgType, elem)
	}
	return elem
}

// errLong says that a result is longer than a row may be.
func (l *Layout) errLong(s *slot) error {
	return dataflow.Errorf(dataflow.ReasonTooLarge, "%s: the result would have more than %d bytes", s.spec.Name(), dataflow.MaxRowBytes).
		WithHint("add a column to GROUP BY, so that the groups are smaller, or FILTER (WHERE …)")
}

// stringAgg appends the values of a bag, joined.
func (l *Layout) stringAgg(s *slot, tail []byte, out *batch.Vector) error {
	v := batch.NewVector(s.spec.ArgType, 1)
	var text []byte
	first, long := true, false
	s.each(tail, func(elem []byte, count int64) bool {
		v.Reset()
		if s.appendValue(elem, v) != nil {
			return false
		}
		for range count {
			if !first {
				text = append(text, s.spec.Sep...)
			}
			first = false
			if text = append(text, v.Text(0)...); len(text) > dataflow.MaxRowBytes {
				long = true
				return false
			}
			if len(s.spec.Sep)+len(v.Text(0)) == 0 {
				break
			}
		}
		return true
	})
	switch {
	case long:
		out.AppendNull()
		return l.errLong(s)
	case first:
		out.AppendNull()
	default:
		out.AppendText(text)
	}
	return nil
}

// arrayAgg appends the values of a bag as an array: the first Limit of them if there is one.
func (l *Layout) arrayAgg(s *slot, tail []byte, out *batch.Vector) error {
	size, long, empty := 0, false, true
	elems := batch.NewVector(s.spec.ArgType, 0)
	s.each(tail, func(elem []byte, count int64) bool {
		empty = false
		for range count {
			if s.spec.Limit > 0 && int64(elems.Len()) == s.spec.Limit {
				return false
			}
			// About what the element takes, wherever it goes.
			if size += max(8, len(elem)); size > dataflow.MaxRowBytes {
				long = true
				return false
			}
			if s.appendValue(elem, elems) != nil {
				return false
			}
		}
		return true
	})
	switch {
	case long:
		out.AppendNull()
		return l.errLong(s)
	case empty:
		out.AppendNull()
		return nil
	}
	for i := range elems.Len() {
		out.Elems.AppendFrom(elems, i)
	}
	out.CloseList()
	return nil
}

// distinctSum appends the sum or the average of the values of a bag, each once: that of a group of their own.
func (s *slot) distinctSum(tail []byte, out *batch.Vector) {
	spec := Spec{Fn: s.spec.Fn, ArgType: s.spec.ArgType, Out: s.spec.Out}
	l := NewLayout([]Spec{spec})
	b := &batch.Batch{Cols: []*batch.Vector{batch.NewVector(spec.ArgType, 0)}}
	s.each(tail, func(elem []byte, _ int64) bool {
		b.N++
		return s.appendValue(elem, b.Cols[0]) == nil
	})
	acc := l.New(nil)
	for row := range b.Cols[0].Len() {
		var err error
		if acc, err = l.Update(acc, b, row, 1); err != nil {
			break
		}
	}
	l.appendResult(0, acc, out)
}

// combineBits appends bit_and or bit_or of the values of a bag.
func (s *slot) combineBits(tail []byte, out *batch.Vector) {
	v := batch.NewVector(s.spec.ArgType, 1)
	var p [16]byte
	s.each(tail, func(elem []byte, _ int64) bool {
		v.Reset()
		if s.appendValue(elem, v) != nil {
			return false
		}
		foldBits(p[:], s.spec.Fn, v.Ints[0], 1)
		return true
	})
	if getInt(p[:]) == 0 {
		out.AppendNull()
		return
	}
	out.AppendInt(getInt(p[8:]))
}
