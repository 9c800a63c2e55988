package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/internal/vfs"
)

// request is what a group wants made durable. One of logs, placed, deleteHi, pairs, create, reset and adopt is set.
type request struct {
	group              *GroupLog
	logs               []*raft.Log
	placed             []Stored
	next               int // of logs or placed: the first that is not in a batch yet
	deleteLo, deleteHi uint64
	pairs              map[string][]byte
	create             string
	reset              *uint64    // group begins behind it, with nothing
	adopt              *GroupLog  // takes the place of group
	done               chan error // holds one
}

// do hands r to the committer and waits until it is durable.
func (s *Store) do(r *request) error {
	select {
	case s.requests <- r:
	case <-s.done:
		return ErrClosed
	}
	select {
	case err := <-r.done:
		return err
	case <-s.done:
		// The committer answers everything that it took before it ends.
		select {
		case err := <-r.done:
			return err
		default:
			return ErrClosed
		}
	}
}

// runCommits is the committer: it writes batch after batch, each with what was asked for while the last was synced.
func (s *Store) runCommits() {
	defer close(s.done)
	var waiting []*request
	for {
		clean := false
		if len(waiting) == 0 {
			select {
			case r := <-s.requests:
				waiting = append(waiting, r)
			case <-s.nudge:
				clean = true
			case m := <-s.ahead.made:
				if err := s.tookAhead(m); err != nil {
					_ = s.setFailed(err) // nobody waits: whoever writes next hears of it
				}
			case <-s.closing:
				s.finishRequests()
				if err := errors.Join(s.awaitMark(), s.awaitAhead()); err != nil {
					_ = s.setFailed(err) // nobody waits: Err tells of it
				}
				s.writeLastState()
				return
			}
		}
		for len(waiting) < cap(s.requests) {
			select {
			case r := <-s.requests:
				waiting = append(waiting, r)
				continue
			case <-s.nudge:
				clean = true
				continue
			case m := <-s.ahead.made:
				if err := s.tookAhead(m); err != nil {
					_ = s.setFailed(err) // answered to those who wait, below
				}
				continue
			default:
			}
			break
		}
		err := s.Err()
		if err == nil {
			if waiting, err = s.commit(waiting, clean); err != nil {
				err = s.setFailed(err)
			}
		}
		if err == nil && clean {
			if err = s.copyForward(); err != nil {
				err = s.setFailed(err)
			}
		}
		if err != nil {
			for _, r := range waiting {
				r.done <- err
			}
			waiting = nil
			continue
		}
		s.lookAhead()
	}
}

// finishRequests answers what still waits when the store is closed.
func (s *Store) finishRequests() {
	for {
		select {
		case r := <-s.requests:
			r.done <- ErrClosed
		default:
			return
		}
	}
}

// writeLastState ends the log of a store that is closed with a record that nobody would miss, so that damage in anything
// before it is told from a torn write (L1).
func (s *Store) writeLastState() {
	if s.Err() != nil {
		return
	}
	s.w.reset(s.active.nonce, s.active.end)
	s.addState(nil, nil)
	b := s.w.finish()
	_, err := s.active.file.WriteAt(b, s.active.end)
	if err == nil {
		err = s.active.file.SyncData()
	}
	if err != nil {
		_ = s.setFailed(err) // nobody waits for this write: Close and Err tell of it
	}
}

func (s *Store) setFailed(err error) error {
	err = fmt.Errorf("%w: %w", ErrFailed, err)
	s.opts.Logger.Error("log store failed", "dir", s.dir, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.err = err
	return err
}

// effect is what a record of the batch changes for readers once it is durable.
type effect struct {
	group *GroupLog
	// Of an entry:
	index uint64
	loc   loc
	// Of a copy: the segment of the original. Of an entry that was placed (install.go): placed.
	copyOf *segment
	placed bool
	// Of a deletion, a stable record or a new group:
	state  *groupState // copied; nil for an entry
	forget bool        // nothing that was there before is retained
}

// commit writes one batch with as much of waiting as fits, makes it durable, and answers what is complete. It returns
// what is not, also after an error.
func (s *Store) commit(waiting []*request, clean bool) ([]*request, error) {
	s.w.reset(s.active.nonce, s.active.end)
	var effects []effect
	var answered []*request
	full := false
	requests := int64(0)
	for len(waiting) > 0 && !full {
		r := waiting[0]
		var err error
		if effects, full, err = s.encode(r, effects); err != nil {
			r.done <- err // refused, not failed: nothing of it is in the batch
			waiting = waiting[1:]
			continue
		}
		if !full {
			answered = append(answered, r)
			waiting = waiting[1:]
			requests++
		}
	}
	var dead []*segment
	if clean {
		if dead = s.superfluous(); len(dead) > 0 {
			s.addState(dead, nil) // what makes them superfluous (L3)
		}
	}
	if s.w.records == 0 {
		for _, r := range answered {
			r.done <- nil // nothing had to be done
		}
		if full {
			return waiting, s.rotate()
		}
		return waiting, nil
	}
	if err := s.writeBatch(); err != nil {
		return append(answered, waiting...), err
	}
	superfluous := s.publish(effects, func(st *Stats) {
		st.Requests += requests
	})
	for _, r := range answered {
		r.done <- nil
	}
	if superfluous && !clean {
		s.askForCleaning()
	}
	if err := s.remove(dead); err != nil {
		return waiting, err
	}
	return waiting, nil
}

// encode adds r's records to the batch. Full says that r is not, or not wholly, in it and must be continued in another
// batch or segment. An error refuses r and leaves no trace of it.
func (s *Store) encode(r *request, effects []effect) (_ []effect, full bool, err error) {
	g := r.group
	switch {
	case r.create != "":
		if s.mu.groups[r.create] != nil || slices.ContainsFunc(effects, func(e effect) bool { return e.group.name == r.create }) {
			return effects, false, nil // only the committer changes the map
		}
		g = &GroupLog{store: s, id: s.nextID, name: r.create, w: groupState{kv: make(map[string][]byte)}}
		if !s.fits(recordHead + len(r.create) + 32) {
			return effects, true, nil
		}
		s.nextID++
		s.w.add(&record{kind: kindState}, appendState(nil, []*GroupLog{g}))
		return append(effects, effect{group: g, state: g.w.clone()}), false, nil

	case r.pairs != nil:
		payload := appendPairs(nil, r.pairs)
		if !s.fits(recordHead + len(payload)) {
			return effects, true, nil
		}
		s.w.add(&record{kind: kindStable, group: g.id}, payload)
		maps.Copy(g.w.kv, r.pairs)
		return append(effects, effect{group: g, state: g.w.clone()}), false, nil

	case r.deleteHi > 0:
		return s.encodeDelete(r, effects)
	case r.reset != nil || r.adopt != nil:
		return s.encodeInstall(r, effects)
	case r.placed != nil:
		return s.encodePlaced(r, effects)
	}
	return s.encodeEntries(r, effects)
}

func (s *Store) encodeDelete(r *request, effects []effect) (_ []effect, full bool, err error) {
	w := &r.group.w
	if w.empty() || r.deleteHi < w.first || r.deleteLo > w.last {
		return effects, false, nil
	}
	if !s.fits(recordHead) {
		return effects, true, nil
	}
	rec := record{kind: kindTruncate, group: r.group.id}
	switch {
	case r.deleteLo <= w.first && r.deleteHi >= w.last:
		w.emptied()
		w.cuts = addCut(w.cuts, s.active.seq, w.last)
	case r.deleteLo <= w.first:
		w.first = r.deleteHi + 1
	case r.deleteHi >= w.last:
		w.last = r.deleteLo - 1
		w.cuts = addCut(w.cuts, s.active.seq, w.last)
	default:
		return effects, false, fmt.Errorf("logstore: cannot delete %d to %d of %d to %d: neither a prefix nor a suffix", r.deleteLo, r.deleteHi, w.first, w.last)
	}
	rec.index, rec.term = w.first, w.last
	s.w.add(&rec)
	return append(effects, effect{group: r.group, state: w.clone()}), false, nil
}

func (s *Store) encodeEntries(r *request, effects []effect) (_ []effect, full bool, err error) {
	g := r.group
	if r.next == 0 {
		want := r.logs[0].Index
		if !g.w.empty() {
			want = g.w.last + 1
		}
		for _, l := range r.logs {
			if l.Index != want || want == 0 {
				return effects, false, fmt.Errorf("logstore: %s: entry %d stored where %d is next (L4)", g.name, l.Index, want)
			}
			want++
		}
	}
	for ; r.next < len(r.logs); r.next++ {
		l := r.logs[r.next]
		size := recordHead + len(l.Data) + len(l.Extensions) + 4
		if !s.fits(size) {
			return effects, true, nil
		}
		rec := record{kind: kindEntry, logType: uint8(l.Type), group: g.id, index: l.Index, term: l.Term}
		if !l.AppendedAt.IsZero() {
			rec.appended = l.AppendedAt.UnixNano()
		}
		var offset int64
		if len(l.Extensions) > 0 {
			rec.flags = flagExtensions
			offset, size = s.w.add(&rec, binary.LittleEndian.AppendUint32(nil, uint32(len(l.Extensions))), l.Extensions, l.Data)
		} else {
			offset, size = s.w.add(&rec, l.Data)
		}
		g.w.stored(l.Index, s.active.seq)
		effects = append(effects, effect{group: g, index: l.Index, loc: loc{uint32(offset), uint32(size)}})
	}
	return effects, false, nil
}

// fits says whether a record of the size may still go into the batch. The first record of a batch always may, if the
// segment has room for it or nothing but its state in it: then the segment grows over its size.
func (s *Store) fits(size int) bool {
	at := s.active.end + int64(len(s.w.buf)) + int64(size)
	if at > s.opts.SegmentBytes && (s.w.records > 0 || s.active.end > s.active.begun) {
		return false
	}
	return s.w.records == 0 || int64(len(s.w.buf)+size) <= s.opts.BatchBytes
}

// addState adds to the batch the state of all groups, with the floors of now, and the census of the segments: without
// the dead, which are about to go, and with the one that is added, if any.
func (s *Store) addState(dead []*segment, added *segment) {
	s.mu.RLock()
	list := s.mu.list
	for _, g := range list {
		g.w.floor = g.pub.floor
	}
	c := takeCensus(list, s.mu.segs, dead, added)
	s.mu.RUnlock()
	s.w.add(&record{kind: kindState}, appendState(nil, list))
	s.w.add(&record{kind: kindSegments}, c.append(nil))
}

// publish shows the effects of a durable batch to readers, and says whether a segment has become superfluous.
func (s *Store) publish(effects []effect, count func(*Stats)) (superfluous bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deleted := false
	for i := range effects {
		e := &effects[i]
		p := &e.group.pub
		if e.copyOf != nil {
			if seg, _, ok := p.entries.find(e.index); ok && seg == e.copyOf { // else it was let go meanwhile
				p.entries.place(e.index, s.active, e.loc)
				s.mu.stats.Copied++
			}
			continue
		}
		if e.placed {
			p.entries.place(e.index, s.active, e.loc)
			continue
		}
		if e.state == nil {
			if p.stored(e.index, s.active.seq) {
				p.entries.cutAfter(0)
			}
			p.entries.put(e.index, s.active, e.loc)
			continue
		}
		if s.mu.groups[e.group.name] == nil {
			s.mu.groups[e.group.name] = e.group
			s.mu.list = append(s.mu.list, e.group)
		}
		if e.forget || p.first != e.state.first || p.last != e.state.last {
			deleted = true
		}
		p.first, p.last, p.kv = e.state.first, e.state.last, e.state.kv
		if e.forget {
			p.entries.cutAfter(0)
			p.start, p.floor, p.keep = e.state.start, e.state.floor, retained{}
		}
		p.entries.cutAfter(p.last)
		e.group.letGoLocked()
	}
	count(&s.mu.stats)
	return deleted && s.hasSuperfluousLocked()
}

// rotate seals the active segment and begins another (L2). The mark is being written on return: the next batch need not
// wait for it to be written and synced itself, but to be answered (writeBatch).
func (s *Store) rotate() error {
	if err := s.awaitMark(); err != nil {
		return err
	}
	if err := s.sealSegment(s.active); err != nil {
		return fmt.Errorf("seal segment %d: %w", s.active.seq, err)
	}
	seg, err := s.createSegment()
	if err != nil {
		return err
	}
	sealed := s.active
	s.active = seg
	s.mu.Lock()
	s.mu.segs = append(s.mu.segs, seg)
	s.mu.stats.Free = len(s.free)
	superfluous := s.hasSuperfluousLocked()
	s.mu.Unlock()
	if superfluous {
		s.askForCleaning()
	}
	s.marking = true
	go func() { s.marked <- sealed.markNext(seg) }() // the committer waits for it: awaitMark
	return nil
}

// awaitMark waits until the mark of the last sealed segment is durable.
func (s *Store) awaitMark() error {
	if !s.marking {
		return nil
	}
	s.marking = false
	if err := <-s.marked; err != nil {
		return fmt.Errorf("mark the segment before %d: %w", s.active.seq, err)
	}
	return nil
}

// hasSuperfluousLocked says whether superfluous would find a segment.
func (s *Store) hasSuperfluousLocked() bool {
	for i, seg := range s.mu.segs {
		if seg.isSuperfluous() && i < len(s.mu.segs)-1 {
			return true
		}
	}
	return false
}

// superfluous returns the segments that hold nothing which is wanted, and that nobody reads; neither can change again.
// The newest is never one.
func (s *Store) superfluous() []*segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var dead []*segment
	for i, seg := range s.mu.segs {
		if seg.isSuperfluous() && i < len(s.mu.segs)-1 {
			dead = append(dead, seg)
		}
	}
	return dead
}

// remove recycles or removes the files of dead segments.
func (s *Store) remove(dead []*segment) error {
	if len(dead) == 0 {
		return nil
	}
	s.mu.Lock()
	s.mu.segs = slices.DeleteFunc(s.mu.segs, func(seg *segment) bool { return slices.Contains(dead, seg) })
	s.mu.Unlock()
	var errs []error
	for _, seg := range dead {
		if err := s.removeSegment(seg); err != nil {
			errs = append(errs, fmt.Errorf("remove segment %d: %w", seg.seq, err))
		}
	}
	// The new names must be durable before a recycled file is written again: otherwise a crash could bring back the old
	// name with the new content.
	errs = append(errs, vfs.SyncDir(s.fs, s.dir))
	s.mu.Lock()
	s.mu.stats.Free = len(s.free)
	s.mu.Unlock()
	return errors.Join(errs...)
}

// clone returns a copy that shares nothing with s.
func (s *groupState) clone() *groupState {
	c := *s
	c.kv = maps.Clone(s.kv)
	return &c
}
