package logstore

import (
	"encoding/binary"
	"slices"
	"sort"

	"github.com/weirdb/weir/dataflow"
)

// retained is what Retain was told last.
type retained struct {
	floor   uint64
	islands []dataflow.LogRange
}

// low returns the lowest index that is retained.
func (k *retained) low() uint64 {
	if len(k.islands) > 0 {
		return min(uint64(k.islands[0].First), k.floor)
	}
	return k.floor
}

// any says whether an index from first to last is retained.
func (k *retained) any(first, last uint64) bool {
	if last >= k.floor {
		return true
	}
	i := sort.Search(len(k.islands), func(i int) bool { return uint64(k.islands[i].Last) >= first })
	return i < len(k.islands) && uint64(k.islands[i].First) <= last
}

// cut says that of a group's entries in segments below seq, those behind last were deleted. The indexes of sealed
// segments still name them, and the record of the deletion may lie in a segment that is gone.
type cut struct{ seq, last uint64 }

// addCut takes note that entries behind last were deleted while seq was the newest segment.
func addCut(cuts []cut, seq, last uint64) []cut {
	kept := make([]cut, 0, len(cuts)+1) // readers may share the old one
	for _, c := range cuts {
		if c.last < last { // else the new one includes it
			kept = append(kept, c)
		}
	}
	if n := len(kept); n > 0 && kept[n-1].seq >= seq {
		return kept // includes the new one
	}
	return append(kept, cut{seq, last})
}

// census is the payload of a segments record: which groups have something in which segment. A segment that it does not
// name was let go; one that it names and that is not there is lost. So a gap that was made is told from damage.
type census struct {
	spans []span
	cuts  []groupCut
}

// span is a stretch of consecutive segments in which the same groups have entries.
type span struct {
	first, n uint64
	groups   []uint32 // ascending
}

type groupCut struct {
	group uint32
	cut
}

// takeCensus counts the segments, without the dead and with the new one, if any. The caller holds Store.mu.
func takeCensus(groups []*GroupLog, segs, dead []*segment, added *segment) *census {
	in := make(map[*segment][]uint32, len(segs))
	for _, g := range groups {
		for i := range g.pub.entries.runs {
			seg := g.pub.entries.runs[i].seg
			if ids := in[seg]; len(ids) == 0 || ids[len(ids)-1] != g.id {
				in[seg] = append(ids, g.id)
			}
		}
	}
	c := &census{}
	add := func(seq uint64, ids []uint32) {
		if n := len(c.spans); n > 0 && c.spans[n-1].first+c.spans[n-1].n == seq && slices.Equal(c.spans[n-1].groups, ids) {
			c.spans[n-1].n++
			return
		}
		c.spans = append(c.spans, span{seq, 1, ids})
	}
	for _, seg := range segs {
		if !slices.Contains(dead, seg) {
			add(seg.seq, in[seg])
		}
	}
	if added != nil {
		add(added.seq, nil)
	}
	for _, g := range groups {
		for _, x := range g.w.cuts {
			if x.seq > c.spans[0].first { // else nothing that it cut is left
				c.cuts = append(c.cuts, groupCut{g.id, x})
			}
		}
	}
	return c
}

// has says whether the census names the group in the segment.
func (c *census) has(seq uint64, group uint32) bool {
	i := sort.Search(len(c.spans), func(i int) bool { return c.spans[i].first+c.spans[i].n > seq })
	return i < len(c.spans) && c.spans[i].first <= seq && slices.Contains(c.spans[i].groups, group)
}

// missing returns a segment that the census names and segs, in order, have not.
func (c *census) missing(segs []*segment) (seq uint64, ok bool) {
	for _, sp := range c.spans {
		for seq := sp.first; seq < sp.first+sp.n; seq++ {
			if _, there := slices.BinarySearchFunc(segs, seq, func(s *segment, seq uint64) int {
				return int(int64(s.seq) - int64(seq))
			}); !there {
				return seq, true
			}
		}
	}
	return 0, false
}

// append appends the payload of a segments record.
func (c *census) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(c.spans)))
	next := uint64(0)
	for _, sp := range c.spans {
		dst = binary.AppendUvarint(dst, sp.first-next)
		dst = binary.AppendUvarint(dst, sp.n)
		dst = binary.AppendUvarint(dst, uint64(len(sp.groups)))
		prev := uint32(0)
		for _, id := range sp.groups {
			dst = binary.AppendUvarint(dst, uint64(id-prev))
			prev = id
		}
		next = sp.first + sp.n
	}
	for _, x := range c.cuts {
		dst = binary.AppendUvarint(dst, uint64(x.group))
		dst = binary.AppendUvarint(dst, x.seq)
		dst = binary.AppendUvarint(dst, x.last)
	}
	return dst
}

// decodeCensus decodes the payload of a segments record.
func decodeCensus(b []byte) (*census, error) {
	d := decoder{b: b}
	c := &census{}
	next := uint64(0)
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		sp := span{first: next + d.uvarint(), n: d.uvarint()}
		groups := d.uvarint()
		if d.bad || sp.n == 0 || sp.first < next || sp.first+sp.n < sp.first || groups > uint64(len(d.b)) {
			return nil, errInvalid
		}
		id := uint64(0)
		for i := range groups {
			delta := d.uvarint()
			if id += delta; d.bad || i > 0 && delta == 0 || id > 1<<32-1 {
				return nil, errInvalid
			}
			sp.groups = append(sp.groups, uint32(id))
		}
		c.spans = append(c.spans, sp)
		next = sp.first + sp.n
	}
	for len(d.b) > 0 && !d.bad {
		group := d.uvarint()
		x := cut{seq: d.uvarint(), last: d.uvarint()}
		if group > 1<<32-1 {
			return nil, errInvalid
		}
		c.cuts = append(c.cuts, groupCut{uint32(group), x})
	}
	if d.bad || len(c.spans) == 0 {
		return nil, errInvalid
	}
	return c, nil
}
