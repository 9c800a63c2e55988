package logstore

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/weirdb/weir/internal/vfs"
)

const (
	// aheadPart: the next segment's file is made once this part of the active one is written. Earlier, and an idle store
	// would take the space of two; later, and a fast log could be there first.
	aheadPart = 2
	// aheadRoom is how many segments' bytes must be free for a file that nobody needs yet: the last of a disk is for those
	// who do.
	aheadRoom = 4
)

// ahead is the file of the next segment, made before it is needed (L8). It is the committer's own: a goroutine makes one
// file and answers, and the committer takes each answer before it asks for another, or ends.
type ahead struct {
	made  chan madeAhead // the answer; holds one
	busy  bool           // an answer is to come
	asked bool           // since the active segment began, with whatever success
	file  vfs.File       // ready under the name of nextSeq; nil when there is none
}

// madeAhead is what became of a file that was to be made ahead of need.
type madeAhead struct {
	file   vfs.File // it and its name are durable; nil when it was not made, so that it is made when it is needed
	unused string   // the recycled file, when it was not taken
	err    error    // of a sync: final (L5)
}

// lookAhead has the next segment's file made when it is time to.
func (s *Store) lookAhead() {
	if s.ahead.asked || s.marking || s.active.end < s.opts.SegmentBytes/aheadPart {
		return
	}
	s.ahead.asked, s.ahead.busy = true, true
	seq, recycled := s.nextSeq, s.takeFree()
	go func() { s.ahead.made <- s.makeAhead(seq, recycled) }() // the committer waits for it: awaitAhead
}

// makeAhead makes a segment's file, whose content means nothing yet, and makes it and its name durable.
func (s *Store) makeAhead(seq uint64, recycled string) madeAhead {
	if recycled == "" && !s.hasRoom() {
		return madeAhead{}
	}
	f, recycled, err := s.makeFile(seq, recycled)
	if err != nil {
		s.notAhead(seq, err)
		return madeAhead{unused: recycled}
	}
	if err := f.Preallocate(0, s.opts.SegmentBytes); isFull(err) {
		// Some of it may have been allocated. Whether the removal lasts does not matter: the name is used again.
		s.notAhead(seq, errors.Join(err, f.Close(), s.fs.Remove(s.path(segmentName(seq)))))
		return madeAhead{}
	} else if err != nil {
		s.opts.Logger.Debug("segment not preallocated", "err", err)
	}
	err = f.Sync()
	if err == nil {
		err = vfs.SyncDir(s.fs, s.dir)
	}
	if err != nil {
		return madeAhead{err: fmt.Errorf("make segment %d ahead of need: %w", seq, errors.Join(err, f.Close()))}
	}
	return madeAhead{file: f}
}

func (s *Store) notAhead(seq uint64, err error) {
	s.opts.Logger.Warn("a segment could not be made ahead of need; it is tried again when it is needed", "segment", seq, "err", err)
}

// hasRoom says whether the disk has room for a file that is not needed yet. One that does not tell has.
func (s *Store) hasRoom() bool {
	u, err := s.fs.GetDiskUsage(s.dir)
	return err != nil || u.AvailBytes >= aheadRoom*uint64(s.opts.SegmentBytes)
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// tookAhead takes the answer of a goroutine.
func (s *Store) tookAhead(m madeAhead) error {
	s.ahead.busy = false
	if m.unused != "" {
		s.free = append(s.free, m.unused)
	}
	s.ahead.file = m.file
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stats.Free = len(s.free)
	if m.file != nil {
		s.mu.stats.Ahead = 1
	}
	return m.err
}

// awaitAhead waits for a file that is being made: begun before, it is there sooner than another would be.
func (s *Store) awaitAhead() error {
	if !s.ahead.busy {
		return nil
	}
	return s.tookAhead(<-s.ahead.made)
}

// takeAhead returns the file that was made for the next segment, or nil.
func (s *Store) takeAhead() (vfs.File, error) {
	err := s.awaitAhead()
	f := s.ahead.file
	s.ahead.file, s.ahead.asked = nil, false
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stats.Ahead = 0
	return f, err
}

// closeAhead closes a file that was made for nothing, and removes it. After a failed write it stays, for Open to remove.
func (s *Store) closeAhead() error {
	if s.ahead.file == nil {
		return nil
	}
	err := s.ahead.file.Close()
	s.ahead.file = nil
	if err != nil || s.Err() != nil {
		return err
	}
	return s.fs.Remove(s.path(segmentName(s.nextSeq)))
}
