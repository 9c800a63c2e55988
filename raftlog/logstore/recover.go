package logstore

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// recover reads what the directory holds: headers, seals and indexes of sealed segments, and the whole newest segment.
// It leaves s.active nil when a new segment must be begun.
func (s *Store) recover() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	var seqs []uint64
	for _, n := range names {
		if seq, ok := parseSegmentName(n); ok {
			seqs = append(seqs, seq)
		} else if strings.HasSuffix(n, freeSuffix) {
			if len(s.free) < s.opts.RecycledSegments {
				s.free = append(s.free, n)
			} else if err := s.fs.Remove(s.path(n)); err != nil {
				return err
			}
		}
	}
	slices.Sort(seqs)
	if n := len(seqs); n > 0 {
		s.nextSeq = seqs[n-1] + 1
	} else {
		s.nextSeq = 1
	}
	seqs, unfinished, err := s.openSegments(seqs)
	if err != nil {
		return err
	}
	for i, seg := range s.mu.segs {
		if i < len(seqs)-1 {
			err = s.recoverSealed(seg)
		} else {
			err = s.recoverNewest(seg)
		}
		if err != nil {
			return err
		}
	}
	if err := s.finishRecovery(); err != nil || unfinished == nil {
		return err
	}
	return s.removeUnfinished(unfinished)
}

// openSegments opens the files and reads their headers. A newest file without a sound header and first batch was being
// made, or waited to be needed (L8), when the process ended: nothing in it was ever promised, and it is removed. But when
// the one before it has a mark (L2), the newest that this names had been durable: it is damaged and stays as it is, or it
// is missing. It returns the others, and the unfinished one, closed.
func (s *Store) openSegments(seqs []uint64) (_ []uint64, unfinished *segment, _ error) {
	newest := len(seqs) - 1
	for i := newest; i >= 0; i-- {
		f, err := s.fs.OpenReadWrite(s.path(segmentName(seqs[i])), vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, nil, err
		}
		seg := &segment{seq: seqs[i], file: f}
		s.mu.segs = append(s.mu.segs, seg) // closed by closeFiles from here on
		err = seg.readHead()
		if errors.Is(err, errInvalid) && i == newest && !seg.hasLaterBatch() {
			unfinished = seg
			continue
		}
		if errors.Is(err, errInvalid) {
			return nil, nil, s.corruptHead(seg)
		}
		if err != nil {
			return nil, nil, err
		}
		if unfinished == nil || i != newest-1 {
			continue
		}
		if next, err := seg.next(); err != nil {
			return nil, nil, err
		} else if next == unfinished.seq {
			return nil, nil, s.corruptHead(unfinished)
		} else if next != 0 {
			return nil, nil, missing(seg, next)
		}
	}
	slices.Reverse(s.mu.segs)
	if unfinished == nil {
		return seqs, nil, nil
	}
	s.mu.segs = s.mu.segs[:newest]
	return seqs[:newest], unfinished, unfinished.file.Close()
}

// missing says that the segment is missing that a segment's mark names.
func missing(seg *segment, next uint64) error {
	return dataflow.Errorf(dataflow.ReasonCorrupt, "segment %s, which came after %s, is missing", segmentName(next), segmentName(seg.seq))
}

func (s *Store) corruptHead(seg *segment) error {
	return s.corrupt(seg, 0, "its header or first batch is damaged")
}

// removeUnfinished removes a segment that was being made, or was not needed yet, when the process ended. That is durable
// before another is made: two unfinished files would not be understood.
func (s *Store) removeUnfinished(seg *segment) error {
	s.opts.Logger.Info("a segment that was never begun, or not to its end, is removed", "segment", seg.seq)
	if err := s.fs.Remove(s.path(segmentName(seg.seq))); err != nil {
		return err
	}
	return vfs.SyncDir(s.fs, s.dir)
}

// hasLaterBatch says whether anything sound lies behind the first batch, which was then synced once.
func (seg *segment) hasLaterBatch() bool {
	if seg.nonce == 0 {
		return false
	}
	b, err := seg.readAll()
	if err != nil {
		return true // cannot tell, so do not remove it
	}
	_, ok := nextBatch(b, seg.nonce, dataOffset+8)
	return ok
}

// readHead reads the header and makes sure that the first batch is sound.
func (seg *segment) readHead() error {
	for _, at := range headerOffsets {
		b, err := readAt(seg.file, at, headerSize)
		if errors.Is(err, errInvalid) {
			continue
		}
		if err != nil {
			return err
		}
		if seq, nonce, err := decodeHeader(b); err == nil && seq == seg.seq {
			seg.nonce = nonce
		}
	}
	if seg.nonce == 0 {
		return errInvalid
	}
	recs, end, err := seg.readBatch(dataOffset)
	if err != nil {
		return err
	}
	seg.begun = end
	if len(recs) == 0 || recs[0].kind != kindState {
		return errInvalid
	}
	return nil
}

// readBatch reads the batch at offset at and returns the offset behind it.
func (seg *segment) readBatch(at int64) ([]placed, int64, error) {
	head, err := readAt(seg.file, at, batchHead)
	if err != nil {
		return nil, 0, err
	}
	size, _, err := decodeBatchHead(head, seg.nonce, at)
	if err != nil {
		return nil, 0, err
	}
	b, err := readAt(seg.file, at, int(size))
	if err != nil {
		return nil, 0, err
	}
	recs, _, err := decodeBatch(b, seg.nonce, at)
	return recs, at + size, err
}

// recoverSealed takes a sealed segment's state and index.
func (s *Store) recoverSealed(seg *segment) error {
	recs, _, err := seg.readBatch(dataOffset)
	if err != nil {
		return s.readError(seg, dataOffset, err)
	}
	if err := s.replay(seg, &recs[0]); err != nil {
		return err
	}
	index, copies, at, err := seg.readIndex()
	if err != nil {
		return s.readError(seg, at, err)
	}
	seg.end = at
	beyond, copied := false, false
	take := func(id uint32, index uint64, l loc) {
		// A group that is younger than the segment's first batch is known to the next segment's.
		g := groupByID(s.mu.list, id)
		if g == nil {
			g = &GroupLog{store: s, id: id, w: groupState{kv: make(map[string][]byte)}}
			s.addGroup(g)
		}
		if int64(l.offset)+int64(l.size) > at {
			beyond = true
			return
		}
		if copied {
			g.pub.entries.place(index, seg, l)
		} else {
			g.pub.entries.put(index, seg, l)
		}
	}
	err = decodeIndex(index, take)
	if err == nil {
		copied = true
		err = decodeIndex(copies, take)
	}
	if err != nil || beyond {
		return s.corrupt(seg, at, "its index is damaged")
	}
	return nil
}

// readIndex follows the seal and returns the payloads of the index record and of that of the copies, and where their
// batch is.
func (seg *segment) readIndex() (index, copies []byte, at int64, err error) {
	b, err := readAt(seg.file, sealOffset, sealSize)
	if err != nil {
		return nil, nil, sealOffset, err
	}
	if at, err = decodeSeal(b, seg.nonce); err != nil {
		return nil, nil, sealOffset, err
	}
	recs, _, err := seg.readBatch(at)
	if err != nil {
		return nil, nil, at, err
	}
	if len(recs) == 0 || len(recs) > 2 || recs[0].kind != kindIndex {
		return nil, nil, at, errInvalid
	}
	if len(recs) == 2 {
		if recs[1].kind != kindCopies {
			return nil, nil, at, errInvalid
		}
		copies = recs[1].payload
	}
	return recs[0].payload, copies, at, nil
}

// recoverNewest reads every batch of the newest segment and finds its end (L1).
func (s *Store) recoverNewest(seg *segment) error {
	next, err := seg.next()
	if err != nil {
		return err
	}
	if next != 0 {
		return missing(seg, next)
	}
	b, err := seg.readAll()
	if err != nil {
		return err
	}
	pos := int64(dataOffset)
	for pos < int64(len(b)) {
		recs, size, err := decodeBatch(b[pos:], seg.nonce, pos)
		if err != nil {
			if at, ok := nextBatch(b, seg.nonce, pos+8); ok {
				return s.corrupt(seg, pos, fmt.Sprintf("a batch is damaged: a later one, at %d, is sound", at))
			}
			break
		}
		for i := range recs {
			if err := s.replay(seg, &recs[i]); err != nil {
				return err
			}
		}
		pos += size
	}
	seg.end = pos
	if _, _, at, err := seg.readIndex(); err == nil && at < pos {
		return nil // sealed; its successor was not made
	}
	s.active = seg
	return nil
}

// readAll reads the whole file.
func (seg *segment) readAll() ([]byte, error) {
	st, err := seg.file.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, st.Size())
	n, err := seg.file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// nextBatch returns the offset of the first sound batch head at or behind from. A head suffices: it was only written
// when everything before it had been synced (L1), and the nonce keeps users' bytes from passing for one.
func nextBatch(b []byte, nonce uint64, from int64) (int64, bool) {
	for at := from; at+batchHead <= int64(len(b)); at += 8 {
		if _, _, err := decodeBatchHead(b[at:], nonce, at); err == nil {
			return at, true
		}
	}
	return 0, false
}

// replay applies one record of a segment to the groups' states.
func (s *Store) replay(seg *segment, r *placed) error {
	bad := func(why string, args ...any) error { return s.corrupt(seg, r.offset, fmt.Sprintf(why, args...)) }
	if r.kind == kindState {
		states, err := decodeState(r.payload)
		if err != nil {
			return bad("its state record is damaged")
		}
		for i := range states {
			s.replayState(&states[i])
		}
		return nil
	}
	if r.kind == kindSegments {
		c, err := decodeCensus(r.payload)
		if err != nil {
			return bad("its record of the segments is damaged")
		}
		s.replayCensus(c)
		return nil
	}
	if r.kind == kindIndex || r.kind == kindCopies {
		return nil
	}
	g := groupByID(s.mu.list, r.group)
	if g == nil {
		return bad("a record names the unknown group %d", r.group)
	}
	switch r.kind {
	case kindEntry:
		if r.index == 0 || !g.w.empty() && r.index != g.w.last+1 {
			return bad("entry %d of %s follows entry %d", r.index, g.name, g.w.last)
		}
		if g.w.stored(r.index, seg.seq) {
			g.pub.entries.cutAfter(0)
		}
		g.pub.entries.put(r.index, seg, loc{uint32(r.offset), uint32(r.size)})
	case kindCopy:
		if r.index == 0 || g.w.last != 0 && r.index >= g.w.first {
			return bad("there is a copy of entry %d of %s, which has %d to %d", r.index, g.name, g.w.first, g.w.last)
		}
		g.pub.entries.place(r.index, seg, loc{uint32(r.offset), uint32(r.size)})
	case kindTruncate:
		if r.term < g.w.last {
			g.w.cuts = addCut(g.w.cuts, seg.seq, r.term)
		}
		g.w.first, g.w.last = r.index, r.term
		if r.flags&flagForget != 0 {
			g.w.start, g.w.floor = 0, 0
		}
		g.pub.entries.cutAfter(g.w.last)
	case kindStable:
		if err := decodePairs(r.payload, g.w.kv); err != nil {
			return bad("its stable record is damaged")
		}
	default:
		return bad("a record has the unknown kind %d", r.kind)
	}
	return nil
}

// replayState sets a group's state. What the state does not have any more is dropped.
func (s *Store) replayState(n *namedState) {
	g := groupByID(s.mu.list, n.id)
	if g == nil {
		g = &GroupLog{store: s, id: n.id}
		s.addGroup(g)
	}
	g.name, g.w = n.name, n.groupState
	g.pub.entries.cutAfter(g.w.last)
	g.pub.entries.cutBefore(g.w.low())
}

// replayCensus takes a census and the cuts in it, which come with the groups' states.
func (s *Store) replayCensus(c *census) {
	s.census = c
	for _, x := range c.cuts {
		if g := groupByID(s.mu.list, x.group); g != nil {
			g.w.cuts = append(g.w.cuts, x.cut)
		}
	}
}

// addGroup adds a group in the order of ids.
func (s *Store) addGroup(g *GroupLog) {
	i, _ := slices.BinarySearchFunc(s.mu.list, g.id, func(g *GroupLog, id uint32) int { return int(int64(g.id) - int64(id)) })
	s.mu.list = slices.Insert(s.mu.list, i, g)
	s.nextID = max(s.nextID, g.id+1)
}

// finishRecovery makes the recovered states public and checks that nothing is missing but what was let go.
func (s *Store) finishRecovery() error {
	c := s.census
	s.census = nil
	if c != nil {
		if seq, ok := c.missing(s.mu.segs); ok {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "segment %s is missing", segmentName(seq))
		}
	}
	for _, g := range s.mu.list {
		if g.name == "" || s.mu.groups[g.name] != nil {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "group %d has no name of its own", g.id)
		}
		s.mu.groups[g.name] = g
		g.pub.groupState = *g.w.clone()
		g.pub.keep = retained{floor: g.w.floor}
		e := &g.pub.entries
		e.cutAfter(g.w.last)
		e.cutBefore(g.w.low())
		e.cutSealed(g.w.cuts)
		if c != nil {
			newest := s.mu.segs[len(s.mu.segs)-1] // where the census is, and all that came after it
			e.drop(func(r *run) bool { return r.seg != newest && !c.has(r.seg.seq, g.id) })
		}
		if g.w.empty() {
			continue
		}
		first := g.w.first
		if c == nil && len(e.runs) > 0 {
			first = min(first, e.runs[0].first) // written by a version that let nothing go in between
		}
		if at, missing := e.gap(first, g.w.last); missing {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d of log %s, which has %d to %d, is missing", at, g.name, first, g.w.last)
		}
	}
	return nil
}

func (s *Store) corrupt(seg *segment, at int64, what string) error {
	return dataflow.Errorf(dataflow.ReasonCorrupt, "%s at %d: %s", s.path(segmentName(seg.seq)), at, what)
}

// readError turns invalid bytes into CORRUPT and leaves other errors of a read alone.
func (s *Store) readError(seg *segment, at int64, err error) error {
	if errors.Is(err, errInvalid) {
		return s.corrupt(seg, at, "it is damaged")
	}
	return err
}
