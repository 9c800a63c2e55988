package logstore

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// Which segments are emptied by copying the little of them that is retained to the end of the log. Without it, a stream
// that keeps a few rows for ever would keep every file that the others fill.
const (
	// copyPart: at most this part of a segment is copied, so that copying costs less than a seventh of what it frees.
	copyPart = 8
	// copyAge is how many of the newest segments are left alone: much of what is in them is let go soon.
	copyAge = 8
	// copyLook is how many segments are looked at in one go, in turn.
	copyLook = 64
)

// placedEntry is an entry that is to be copied.
type placedEntry struct {
	group *GroupLog
	index uint64
	loc   loc
}

// each calls fn with the stretches from first to last that are retained, until it returns false.
func (k *retained) each(first, last uint64, fn func(lo, hi uint64) bool) {
	i := sort.Search(len(k.islands), func(i int) bool { return uint64(k.islands[i].Last) >= first })
	for ; i < len(k.islands) && uint64(k.islands[i].First) <= last && uint64(k.islands[i].First) < k.floor; i++ {
		if !fn(max(first, uint64(k.islands[i].First)), min(last, uint64(k.islands[i].Last))) {
			return
		}
	}
	if last >= k.floor {
		fn(max(first, k.floor), last)
	}
}

// sparse returns a segment of which little is retained, and that.
func (s *Store) sparse() (*segment, []placedEntry) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := len(s.mu.segs) - copyAge
	if n <= 0 {
		return nil, nil
	}
	looked := make(map[*segment][]placedEntry, copyLook) // nil = not sparse
	left := make(map[*segment]int64, copyLook)           // bytes that may still be found
	for i := range min(copyLook, n) {
		seg := s.mu.segs[(s.sweep+i)%n]
		if !seg.stays {
			looked[seg], left[seg] = []placedEntry{}, seg.end/copyPart
		}
	}
	for _, g := range s.mu.list {
		p := &g.pub
		for i := range p.entries.runs {
			r := &p.entries.runs[i]
			if looked[r.seg] == nil {
				continue
			}
			if !p.empty() && r.last() >= p.first {
				looked[r.seg] = nil // Raft's
				continue
			}
			p.keep.each(r.first, r.last(), func(lo, hi uint64) bool {
				for at := lo; at <= hi; at++ {
					l := r.locs[at-r.first]
					if left[r.seg] -= int64(l.size); left[r.seg] < 0 {
						looked[r.seg] = nil
						return false
					}
					looked[r.seg] = append(looked[r.seg], placedEntry{g, at, l})
				}
				return true
			})
		}
	}
	for i := range min(copyLook, n) {
		seg := s.mu.segs[(s.sweep+i)%n]
		if len(looked[seg]) > 0 {
			s.sweep = (s.sweep + i) % n // it may take another turn
			slices.SortFunc(looked[seg], func(a, b placedEntry) int {
				return cmp.Or(cmp.Compare(a.group.id, b.group.id), cmp.Compare(a.index, b.index))
			})
			return seg, looked[seg]
		}
	}
	s.sweep = (s.sweep + copyLook) % n
	return nil, nil
}

// copyForward copies what is retained of one sparse segment, or as much of it as one batch takes. The copies are durable
// before readers, and the census, turn from the originals to them; until then a crash leaves both.
func (s *Store) copyForward() error {
	seg, list := s.sparse()
	if seg == nil {
		return nil
	}
	s.w.reset(s.active.nonce, s.active.end)
	var effects []effect
	full := false
	for _, e := range list {
		r, err := seg.readEntry(e.group, e.index, e.loc)
		if err != nil {
			// Whoever wants the entry hears of it. The file stays as it is.
			seg.stays = true
			s.opts.Logger.Warn("an entry that is retained cannot be read", "segment", seg.seq, "log", e.group.name, "entry", e.index, "err", err)
			return nil
		}
		if full = !s.fits(recordHead + len(r.payload)); full {
			break
		}
		r.kind = kindCopy
		offset, size := s.w.add(&r, r.payload)
		effects = append(effects, effect{group: e.group, index: e.index, loc: loc{uint32(offset), uint32(size)}, copyOf: seg})
	}
	if len(effects) > 0 {
		if err := s.writeBatch(); err != nil {
			return err
		}
		s.publish(effects, func(*Stats) {})
		s.mu.Lock()
		for _, g := range s.mu.list {
			g.letGoLocked() // what the copies leave behind
		}
		s.mu.Unlock()
	}
	if full && len(effects) == 0 {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	s.askForCleaning() // the rest, or the segment
	return nil
}

// readEntry reads and checks the record of an entry: errInvalid when it is not that, or damaged.
func (seg *segment) readEntry(g *GroupLog, index uint64, l loc) (record, error) {
	b, err := readAt(seg.file, int64(l.offset), int(l.size))
	if err != nil {
		return record{}, err
	}
	r, _, err := decodeRecord(b, seg.nonce)
	if err == nil && (r.kind != kindEntry && r.kind != kindCopy || r.group != g.id || r.index != index) {
		err = errInvalid
	}
	return r, err
}

// writeBatch finishes the batch and makes it durable.
func (s *Store) writeBatch() error {
	b := s.w.finish()
	if _, err := s.active.file.WriteAt(b, s.active.end); err != nil {
		return fmt.Errorf("write segment %d: %w", s.active.seq, err)
	}
	if err := s.active.file.SyncData(); err != nil {
		return fmt.Errorf("sync segment %d: %w", s.active.seq, err)
	}
	if err := s.awaitMark(); err != nil { // before anything in the segment is answered (L2)
		return err
	}
	s.active.end += int64(len(b))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stats.Batches++
	s.mu.stats.Written += int64(len(b))
	return nil
}

// place puts a copy in the place of the entry at index, or where that was.
func (e *entries) place(index uint64, seg *segment, l loc) {
	i := sort.Search(len(e.runs), func(i int) bool { return e.runs[i].last() >= index })
	if i < len(e.runs) && e.runs[i].first <= index {
		old := e.runs[i]
		at := index - old.first
		var pieces []run
		if at > 0 {
			pieces = append(pieces, run{seg: old.seg, first: old.first, locs: old.locs[:at:at], copied: old.copied})
		}
		if rest := old.locs[at+1:]; len(rest) > 0 {
			pieces = append(pieces, run{seg: old.seg, first: index + 1, locs: rest, copied: old.copied})
		}
		old.seg.runs += len(pieces) - 1
		e.runs = slices.Replace(e.runs, i, i+1, pieces...)
		if at > 0 {
			i++
		}
	}
	if i > 0 {
		if r := &e.runs[i-1]; r.copied && r.seg == seg && r.last()+1 == index && r.locs[len(r.locs)-1].offset < l.offset {
			r.locs = append(r.locs, l)
			return
		}
	}
	seg.runs++
	e.runs = slices.Insert(e.runs, i, run{seg: seg, first: index, locs: []loc{l}, copied: true})
}
