package agg

import (
	"encoding/binary"

	"github.com/weirdb/weir/dataflow"
)

// tailLen returns the length of the tail of slot i.
func (l *Layout) tailLen(acc []byte, i int) int {
	s := &l.slots[i]
	n := int(binary.LittleEndian.Uint32(acc[s.length:]))
	switch s.op {
	case opDec, opVarDec:
		return n
	case opBag:
		if n == bagFull {
			return 0
		}
		return n
	}
	return max(n-stateValue, 0)
}

// tailBounds returns where the tail of slot i lies in acc.
func (l *Layout) tailBounds(acc []byte, i int) (from, to int) {
	from = l.fixed
	for _, t := range l.tails {
		n := l.tailLen(acc, t)
		if t == i {
			return from, from + n
		}
		from += n
	}
	panic("agg: the slot has no tail")
}

func (l *Layout) tail(acc []byte, i int) []byte {
	from, to := l.tailBounds(acc, i)
	return acc[from:to]
}

// setTail replaces the tail of slot i and its length.
func (l *Layout) setTail(acc []byte, i int, tail []byte) ([]byte, error) {
	return l.replace(acc, i, 0, l.tailLen(acc, i), tail)
}

// replace puts ins in the place of the bytes from to to of the tail of slot i, and corrects its length.
func (l *Layout) replace(acc []byte, i, from, to int, ins []byte) ([]byte, error) {
	start, end := l.tailBounds(acc, i)
	n := end - start + len(ins) - (to - from) // of the tail
	from, to = start+from, start+to
	old := len(acc)
	size := old + len(ins) - (to - from)
	switch {
	case size == old:
	case size > dataflow.MaxRowBytes:
		return acc, dataflow.Errorf(dataflow.ReasonTooLarge, "the group's state would have %d bytes; a row of state may have %d", size, dataflow.MaxRowBytes)
	case size <= cap(acc):
		if size > old {
			acc = acc[:size]
		}
		copy(acc[from+len(ins):size], acc[to:old])
		acc = acc[:size]
	default:
		// A quarter more than needed: a tail that has grown is likely to grow again.
		grown := make([]byte, size, size+size/4)
		copy(grown, acc[:from])
		copy(grown[from+len(ins):], acc[to:])
		acc = grown
	}
	copy(acc[from:], ins)
	switch l.slots[i].op {
	case opDec, opVarDec, opBag:
	default:
		n += stateValue
	}
	binary.LittleEndian.PutUint32(acc[l.slots[i].length:], uint32(n))
	return acc, nil
}

// varState returns the state of a variable-width min, max or any.
func varState(acc []byte, s *slot) byte {
	return byte(min(binary.LittleEndian.Uint32(acc[s.length:]), stateValue))
}
