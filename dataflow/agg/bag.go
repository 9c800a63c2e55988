package agg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// A bag holds the values that a group has seen, in ascending order: what count(DISTINCT …) counts, and what min, max and
// the others need over a table, whose rows are taken back. Bytes compare as the values do, so that a bag is a function of
// the multiset of its values (A1).
//
// Format of the tail: entries in ascending order of key, each once. An entry is
//
//	length  uvarint  of the key; not there when all keys of the bag have one width
//	split   uvarint  where the value begins in the key, if the bag is ordered: before it is what it is ordered by
//	key     bytes
//	count   not 0, if the bag counts: how often the value was seen; a partial may be below 0 (A2). A zigzag varint; 8 bytes
//	        little-endian when all keys have one width, so that all entries have
//
// An entry is found by bisection when all have one width, else by reading those before it: a bag is small, and what changes
// it is copied as a whole in any case.
//
// The fixed part holds how many entries count, that is have a count above 0, and the length of the tail. A bag that would
// take more than its share of MaxRowBytes is full: it holds nothing from then on, and the result fails. Over rows that are
// only inserted, whether it is full follows from the values alone (A1); over a table a bag that has once been full stays so
// until its group is empty.
type bagShape struct {
	width   int  // of every key; 0 = they differ
	stride  int  // of every entry; 0 = they differ
	counted bool // values can come more than once, or be taken back
	ordered bool // by more than the value
	exact   bool // values are shown again
	buckets bool // keys are buckets of numbers: bucket.go
}

// bagFull is the length of a full bag.
const bagFull = math.MaxUint32

var errBag = errors.New("malformed bag of values")

func bagOf(s Spec) bagShape {
	sh := bagShape{
		counted: s.Retract || !s.Distinct,
		ordered: len(s.Order) > 0,
		exact:   !s.Distinct || s.Fn != Count && s.ArgType != dataflow.TypeDouble,
	}
	// The element of a DOUBLE that is shown again has the sign of its zero behind it.
	switch {
	case s.Fn == ApproxPercentile:
		sh.buckets, sh.exact, sh.width = true, false, bucketSize
	case !sh.ordered && !s.keepsNull():
		if sh.width = elemWidth(s.ArgType); sh.exact && s.ArgType == dataflow.TypeDouble {
			sh.width += signSize
		}
	}
	if sh.stride = sh.width; sh.width > 0 && sh.counted {
		sh.stride += countSize
	}
	return sh
}

// bagEntry is one entry of a bag.
type bagEntry struct {
	key      []byte
	split    int
	count    int64
	from, to int // in the tail
	countAt  int
}

func (e *bagEntry) value() []byte { return e.key[e.split:] }

// next reads the entry at tail[at:]; tail has passed checkBag or comes from this layout.
func (sh bagShape) next(tail []byte, at int) (e bagEntry, err error) {
	e.from, e.count = at, 1
	size := sh.width
	if size == 0 {
		n, k := binary.Uvarint(tail[at:])
		if k <= 0 || n > uint64(len(tail)) {
			return e, errBag
		}
		size, at = int(n), at+k
	}
	if sh.ordered {
		n, k := binary.Uvarint(tail[at:])
		if k <= 0 || n > uint64(size) {
			return e, errBag
		}
		e.split, at = int(n), at+k
	}
	if len(tail)-at < size {
		return e, errBag
	}
	e.key = tail[at : at+size]
	at += size
	e.countAt = at
	if sh.counted {
		k := countSize
		if sh.width == 0 {
			e.count, k = binary.Varint(tail[at:])
		} else if e.count = 0; len(tail)-at >= countSize {
			e.count = getInt(tail[at:])
		}
		if k <= 0 || e.count == 0 {
			return e, errBag
		}
		at += k
	}
	e.to = at
	return e, nil
}

// append appends an entry.
func (sh bagShape) append(dst, key []byte, split int, count int64) []byte {
	if sh.width == 0 {
		dst = binary.AppendUvarint(dst, uint64(len(key)))
	}
	if sh.ordered {
		dst = binary.AppendUvarint(dst, uint64(split))
	}
	return sh.appendCount(append(dst, key...), count)
}

func (sh bagShape) appendCount(dst []byte, count int64) []byte {
	switch {
	case !sh.counted:
		return dst
	case sh.width > 0:
		return binary.LittleEndian.AppendUint64(dst, uint64(count))
	}
	return binary.AppendVarint(dst, count)
}

// find returns the entry with the given key, or where it would stand.
func (sh bagShape) find(tail, key []byte) (e bagEntry, found bool, err error) {
	if sh.width > 0 {
		return sh.bisect(tail, key)
	}
	for at := 0; at < len(tail); {
		// The usual entry: a key shorter than 128 bytes, before the one that is looked for, and a small count.
		if n := int(tail[at]); n < 0x80 && !sh.ordered && len(tail)-at > n+1 && bytes.Compare(tail[at+1:at+1+n], key) < 0 {
			if at += 1 + n; !sh.counted {
				continue
			}
			if tail[at] < 0x80 {
				at++
				continue
			}
			at -= 1 + n
		}
		if e, err = sh.next(tail, at); err != nil {
			return e, false, err
		}
		if c := bytes.Compare(e.key, key); c >= 0 {
			return e, c == 0, nil
		}
		at = e.to
	}
	return bagEntry{from: len(tail), to: len(tail)}, false, nil
}

// bisect is find where all entries have one width.
func (sh bagShape) bisect(tail, key []byte) (e bagEntry, found bool, err error) {
	lo, hi := 0, len(tail)/sh.stride
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		at := mid * sh.stride
		switch bytes.Compare(tail[at:at+sh.width], key) {
		case 0:
			e, err = sh.next(tail, at)
			return e, true, err
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return bagEntry{from: lo * sh.stride, to: lo * sh.stride}, false, nil
}

// isFull reports whether the bag of slot s is full.
func isFull(acc []byte, s *slot) bool { return binary.LittleEndian.Uint32(acc[s.length:]) == bagFull }

// fill empties the bag of slot i and marks it full.
func (l *Layout) fill(acc []byte, s *slot, i int) ([]byte, error) {
	acc, err := l.setTail(acc, i, nil)
	if err == nil {
		putInt(acc[s.off:], 0)
		binary.LittleEndian.PutUint32(acc[s.length:], bagFull)
	}
	return acc, err
}

// bagRow folds row of b into the bag of slot i.
func (l *Layout) bagRow(acc []byte, s *slot, i int, b *batch.Batch, row int, weight int64) ([]byte, error) {
	if weight == 0 || isFull(acc, s) {
		return acc, nil
	}
	if weight < 0 && !s.spec.Retract {
		return acc, errRetract(s)
	}
	var buf, ins [96]byte
	key, split, ok := s.key(buf[:0], b, row)
	if !ok {
		return acc, nil
	}
	if s.spec.Bounded() {
		return l.topRow(acc, s, i, key, split, weight)
	}
	e, found, err := s.bag.find(l.tail(acc, i), key)
	if err != nil {
		return acc, corrupt(err)
	}
	if !found {
		if weight > 0 {
			addInt(acc[s.off:], 1)
		}
		return l.splice(acc, s, i, e.from, e.from, s.bag.append(ins[:0], key, split, weight))
	}
	if !s.bag.counted {
		return acc, nil
	}
	count := e.count + weight
	addInt(acc[s.off:], counts(count)-counts(e.count))
	if count == 0 {
		return l.splice(acc, s, i, e.from, e.to, nil)
	}
	return l.splice(acc, s, i, e.countAt, e.to, s.bag.appendCount(ins[:0], count))
}

// counts returns 1 if an entry with count n counts.
func counts(n int64) int64 {
	if n > 0 {
		return 1
	}
	return 0
}

// splice replaces part of the bag of slot i, or makes it full when it gets too large.
func (l *Layout) splice(acc []byte, s *slot, i, from, to int, ins []byte) ([]byte, error) {
	if l.tailLen(acc, i)+len(ins)-(to-from) > s.share {
		return l.fill(acc, s, i)
	}
	return l.replace(acc, i, from, to, ins)
}

// mergeBag folds the bag of a partial into that of acc.
func (l *Layout) mergeBag(acc []byte, s *slot, i int, partial []byte) ([]byte, error) {
	switch {
	case isFull(acc, s):
		return acc, nil
	case isFull(partial, s):
		return l.fill(acc, s, i)
	}
	have, part := l.tail(acc, i), l.tail(partial, i)
	if len(part) == 0 {
		return acc, nil
	}
	sh := s.bag
	merged := make([]byte, 0, len(have)+len(part))
	n := int64(0)
	at, from := 0, 0 // in have: the next entry, and the first that is not yet in merged
	for p := 0; p < len(part); {
		e, err := sh.next(part, p)
		if err != nil {
			return acc, corrupt(err)
		}
		p = e.to
		count, dup := e.count, false
		for at < len(have) {
			h, err := sh.next(have, at)
			if err != nil {
				return acc, corrupt(err)
			}
			c := bytes.Compare(h.key, e.key)
			if c > 0 {
				break
			}
			if c == 0 {
				merged = append(merged, have[from:h.from]...)
				at, from = h.to, h.to
				count, dup = count+h.count, true
				n -= counts(h.count)
				break
			}
			at = h.to
		}
		if !dup {
			merged = append(merged, have[from:at]...)
			from = at
		}
		if !sh.counted {
			count = 1
		}
		if count != 0 {
			n += counts(count)
			merged = sh.append(merged, e.key, e.split, count)
		}
	}
	merged = append(merged, have[from:]...)
	if s.spec.Bounded() {
		return l.setTop(acc, s, i, merged)
	}
	if len(merged) > s.share {
		return l.fill(acc, s, i)
	}
	acc, err := l.setTail(acc, i, merged)
	if err == nil {
		addInt(acc[s.off:], n)
	}
	return acc, err
}

// checkBag validates a bag of bytes that are not trusted.
func (s *slot) checkBag(acc, tail []byte) error {
	if isFull(acc, s) && (len(tail) != 0 || getInt(acc[s.off:]) != 0) {
		return errBag
	}
	n, total := int64(0), int64(0)
	var last []byte
	v := batch.NewVector(s.spec.ArgType, 1)
	for at := 0; at < len(tail); {
		e, err := s.bag.next(tail, at)
		if err != nil {
			return err
		}
		if at > 0 && bytes.Compare(last, e.key) >= 0 {
			return errBag
		}
		if err := s.checkValue(e.value(), v); err != nil {
			return err
		}
		if !s.spec.Retract && e.count < 0 {
			return errBag
		}
		if s.spec.Bounded() && (e.count > s.spec.Limit || total > s.spec.Limit) {
			return errBag
		}
		total += e.count
		last, at, n = e.key, e.to, n+counts(e.count)
	}
	if n != getInt(acc[s.off:]) || s.spec.Bounded() && total > s.spec.Limit {
		return errBag
	}
	return nil
}

// errFull says that the values of a group are more than its state can hold.
func (s *slot) errFull() error {
	err := dataflow.Errorf(dataflow.ReasonTooLarge, "%s: the group has more values than its state can hold, which is %d bytes", s.spec.Name(), s.share)
	if s.spec.Distinct && s.spec.Fn == Count {
		return err.WithHint("write approx_count_distinct(x), or a count over a subquery: SELECT k, count(*) FROM (SELECT DISTINCT k, x FROM …) AS d GROUP BY k")
	}
	if s.spec.Fn == PercentileCont || s.spec.Fn == PercentileDisc {
		return err.WithHint("write approx_percentile(x, p)")
	}
	return err.WithHint("add a column to GROUP BY, so that the groups are smaller")
}
