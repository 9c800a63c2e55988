package state

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// sortByKey returns the places of a run's entries by key. What decides between two keys is nearly always in a few bits: of the
// eight bytes after what all keys have in common, those bits that are not the same in all. As many of them as fit beside a place
// are sorted digit by digit; keys that have these in common are compared whole.
func sortByKey(r *run) []uint32 {
	items := r.order.items
	if len(items) == 0 {
		return nil
	}
	var p pacer
	first := r.entry(items[0].place()).key
	common := len(first)
	for _, it := range items[1:] {
		key := r.entry(it.place()).key
		n := min(common, len(key))
		for i := range n {
			if key[i] != first[i] {
				n = i
				break
			}
		}
		common = n
		p.did(1)
	}
	// The prefixes take the place of the ranks, at first whole.
	prefixes := make([]uint64, len(items))
	var differ uint64
	for i, it := range items {
		prefixes[i] = prefixOf(r.entry(it.place()).key[common:])
		differ |= prefixes[i] ^ prefixes[0]
		p.did(1)
	}
	squeeze := newSqueezer(differ)
	sorted := make([]item, len(items))
	for i, it := range items {
		sorted[i] = newItem(squeeze.of(prefixes[i]), it.place())
	}
	p.did(len(items))
	sorted = radixSort(sorted, squeeze.width, &p)
	for from := 0; from < len(sorted); {
		to := from + 1
		for to < len(sorted) && sorted[to].rank() == sorted[from].rank() {
			to++
		}
		if to > from+1 {
			slices.SortFunc(sorted[from:to], func(a, b item) int {
				return bytes.Compare(r.entry(a.place()).key[common:], r.entry(b.place()).key[common:])
			})
		}
		p.did(to - from)
		from = to
	}
	places := make([]uint32, len(sorted))
	for i, it := range sorted {
		places[i] = it.place()
	}
	return places
}

// prefixOf returns the first eight bytes of b, which may have fewer, as a number of the same order.
func prefixOf(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var p [8]byte
	copy(p[:], b)
	return binary.BigEndian.Uint64(p[:])
}

// squeezer leaves out of numbers the bits that are the same in all of them, and keeps the highest 32 of the others: the order
// stays, but that some become equal.
type squeezer struct {
	fields []field // of the bits that stay, from the highest
	width  int     // bits that stay
}

// field is a group of neighbouring bits that stay: shifted right, masked, and then shifted left into place.
type field struct {
	right, left int
	mask        uint64
}

func newSqueezer(differ uint64) squeezer {
	var s squeezer
	const most = 32
	for differ != 0 && s.width < most {
		top := bits.Len64(differ)                                            // the field's highest bit, + 1
		n := min(bits.LeadingZeros64(^(differ << (64 - top))), most-s.width) // its length
		s.fields = append(s.fields, field{right: top - n, mask: 1<<n - 1})
		differ &= 1<<(top-n) - 1
		s.width += n
	}
	left := s.width
	for i := range s.fields {
		left -= bits.Len64(s.fields[i].mask)
		s.fields[i].left = left
	}
	return s
}

func (s *squeezer) of(v uint64) (out uint32) {
	for _, f := range s.fields {
		out |= uint32(v>>f.right&f.mask) << f.left
	}
	return out
}

// digitBits is the size of the digits that radixSort goes by: its counters and the ends that it writes to stay in the cache.
const digitBits = 11

// radixSort sorts items by their ranks, which have width bits. The result may be in other memory.
func radixSort(items []item, width int, p *pacer) []item {
	other := make([]item, len(items))
	for shift := 32; shift < 32+width; shift += digitBits {
		var at [1 << digitBits]uint32
		for _, it := range items {
			at[it>>shift&(1<<digitBits-1)]++
		}
		p.did(len(items) / 4)
		sum := uint32(0)
		for d, n := range at {
			at[d], sum = sum, sum+n
		}
		for _, it := range items {
			d := it >> shift & (1<<digitBits - 1)
			other[at[d]] = it
			at[d]++
		}
		p.did(len(items) / 4)
		items, other = other, items
	}
	return items
}
