package agg

import (
	"bytes"

	"github.com/weirdb/weir/dataflow"
)

// This file is top_k over rows that are never taken back. Its bag holds the first Limit values, a value that came n times
// as n of them. The first k of some values and others are those of the first k of each, so that the bag is a function of the
// multiset of all values (A1) though it has forgotten most of them.

// MaxTopK is the largest Limit. So many values of a few hundred bytes have room in a row of state.
const MaxTopK = 1000

// MinTopKArg is the least MaxArgBytes that a Layout with a TopK should have: below, it could keep hardly any row.
const MinTopKArg = 64

// topArg returns how long a value, or one that it is ordered by, may be so that Limit of them always have room: then a bag
// is never full, which would depend on the order of the rows (A1). No byte of a value takes more than two of its key.
func (s *slot) topArg() int {
	const fixedPart = 20 // of a key: a value of fixed width, and an INTERVAL
	room, parts := s.share/int(s.spec.Limit)-partSlack, 1
	for _, o := range s.spec.Order {
		if f := o.Type.Form(); f == dataflow.FormBytes || f == dataflow.FormDecimal {
			room, parts = room-partSlack, parts+1
		} else {
			room -= fixedPart
		}
	}
	return room / (2 * parts)
}

// topRow folds a value into the bag of slot i.
func (l *Layout) topRow(acc []byte, s *slot, i int, key []byte, split int, weight int64) ([]byte, error) {
	tail := l.tail(acc, i)
	before, at, after := int64(0), 0, 0 // values that come before it, where they end, where those that come after begin
	for ; at < len(tail); at = after {
		e, err := s.bag.next(tail, at)
		if err != nil {
			return acc, corrupt(err)
		}
		after = e.to
		c := bytes.Compare(e.key, key)
		if c == 0 {
			weight += min(e.count, s.spec.Limit)
			break
		}
		if c > 0 {
			after = at
			break
		}
		if before += e.count; before >= s.spec.Limit {
			return acc, nil
		}
	}
	merged := append(make([]byte, 0, len(tail)+len(key)+partSlack), tail[:at]...)
	merged = s.bag.append(merged, key, split, min(weight, s.spec.Limit))
	return l.setTop(acc, s, i, append(merged, tail[after:]...))
}

// setTop makes the first Limit values of a bag those of slot i. It may change the bag that it is given.
func (l *Layout) setTop(acc []byte, s *slot, i int, tail []byte) ([]byte, error) {
	entries, values := int64(0), int64(0)
	for at := 0; at < len(tail); {
		e, err := s.bag.next(tail, at)
		if err != nil {
			return acc, corrupt(err)
		}
		at = e.to
		entries++
		if left := s.spec.Limit - values; e.count >= left {
			tail = s.bag.appendCount(tail[:e.countAt], left)
			break
		}
		values += e.count
	}
	acc, err := l.setTail(acc, i, tail)
	if err == nil {
		putInt(acc[s.off:], entries)
	}
	return acc, err
}
