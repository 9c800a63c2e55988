package logstore

import (
	"encoding/binary"
	"slices"
	"sort"
)

// loc is where an entry's record lies in its segment.
type loc struct{ offset, size uint32 }

// run is a stretch of entries with consecutive indexes in one segment.
type run struct {
	seg   *segment
	first uint64
	locs  []loc
	// copied: the entries came from older segments (copy.go).
	copied bool
}

func (r *run) last() uint64 { return r.first + uint64(len(r.locs)) - 1 }

// entries finds a group's entries by index: runs in ascending order that do not overlap, with holes between them where
// segments were let go. It counts the runs of each
// segment, which is how a segment knows that something in it is still wanted.
type entries struct{ runs []run }

// find returns where the entry at index is.
func (e *entries) find(index uint64) (*segment, loc, bool) {
	i := sort.Search(len(e.runs), func(i int) bool { return e.runs[i].last() >= index })
	if i == len(e.runs) || e.runs[i].first > index {
		return nil, loc{}, false
	}
	return e.runs[i].seg, e.runs[i].locs[index-e.runs[i].first], true
}

// put places the entry at index, dropping what was there and behind it (L4).
func (e *entries) put(index uint64, seg *segment, l loc) {
	if n := len(e.runs); n > 0 && e.runs[n-1].last() >= index {
		e.cutAfter(index - 1)
	}
	if n := len(e.runs); n > 0 && e.runs[n-1].seg == seg && e.runs[n-1].last()+1 == index && !e.runs[n-1].copied {
		e.runs[n-1].locs = append(e.runs[n-1].locs, l)
		return
	}
	seg.runs++
	e.runs = append(e.runs, run{seg: seg, first: index, locs: []loc{l}})
}

// cutAfter drops all entries behind last.
func (e *entries) cutAfter(last uint64) {
	for n := len(e.runs); n > 0; n = len(e.runs) {
		r := &e.runs[n-1]
		if r.last() <= last {
			return
		}
		if r.first <= last {
			r.locs = r.locs[:last-r.first+1]
			return
		}
		r.seg.runs--
		*r = run{}
		e.runs = e.runs[:n-1]
	}
}

// cutBefore drops the runs that end before first. A run that reaches beyond stays whole: its segment stays anyhow.
func (e *entries) cutBefore(first uint64) {
	e.drop(func(r *run) bool { return r.last() < first })
}

// drop drops the runs for which dead says so, whole: entries of a segment that stays cost nothing more.
func (e *entries) drop(dead func(*run) bool) {
	if !slices.ContainsFunc(e.runs, func(r run) bool { return dead(&r) }) {
		return
	}
	var kept []run // another array, which lets the old one go
	for i := range e.runs {
		if r := &e.runs[i]; dead(r) {
			r.seg.runs--
		} else {
			kept = append(kept, *r)
		}
	}
	e.runs = kept
}

// cutSealed takes from the runs what cuts say was deleted after their segment was sealed.
func (e *entries) cutSealed(cuts []cut) {
	for _, c := range cuts {
		e.drop(func(r *run) bool { return r.seg.seq < c.seq && r.first > c.last })
		for i := range e.runs {
			if r := &e.runs[i]; r.seg.seq < c.seq && r.last() > c.last {
				r.locs = r.locs[:c.last-r.first+1]
			}
		}
	}
}

// gap returns the first index in [first, last] that has no entry.
func (e *entries) gap(first, last uint64) (uint64, bool) {
	for want := first; want <= last; {
		i := sort.Search(len(e.runs), func(i int) bool { return e.runs[i].last() >= want })
		if i == len(e.runs) || e.runs[i].first > want {
			return want, true
		}
		want = e.runs[i].last() + 1
	}
	return 0, false
}

// appendIndex appends the payload of a segment's index record: per group its runs in seg; those of copies or the others.
func appendIndex(dst []byte, groups []*GroupLog, seg *segment, copied bool) []byte {
	for _, g := range groups {
		for i := range g.pub.entries.runs {
			r := &g.pub.entries.runs[i]
			if r.seg != seg || r.copied != copied {
				continue
			}
			dst = binary.AppendUvarint(dst, uint64(g.id))
			dst = binary.AppendUvarint(dst, r.first)
			dst = binary.AppendUvarint(dst, uint64(len(r.locs)))
			prev := uint32(0)
			for _, l := range r.locs {
				dst = binary.AppendUvarint(dst, uint64(l.offset-prev)) // offsets ascend within a run
				dst = binary.AppendUvarint(dst, uint64(l.size))
				prev = l.offset
			}
		}
	}
	return dst
}

// decodeIndex calls fn for each entry of an index record, in order.
func decodeIndex(b []byte, fn func(group uint32, index uint64, l loc)) error {
	d := decoder{b: b}
	for len(d.b) > 0 {
		group, first, n := d.uvarint(), d.uvarint(), d.uvarint()
		if d.bad || n == 0 || n > uint64(len(d.b)) || group > 1<<32-1 || first+n < first {
			return errInvalid
		}
		offset := uint64(0)
		for i := range n {
			offset += d.uvarint()
			size := d.uvarint()
			if d.bad || offset < dataOffset || offset > 1<<32-1 || size < recordHead || size > 1<<32-1 {
				return errInvalid
			}
			fn(uint32(group), first+i, loc{uint32(offset), uint32(size)})
		}
	}
	return nil
}
