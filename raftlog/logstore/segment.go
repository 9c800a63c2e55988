package logstore

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weirdb/weir/internal/vfs"
)

const (
	segmentSuffix = ".seg"
	freeSuffix    = ".free"
	lockName      = "LOCK"
)

// segment is one file of the log. It keeps the file open for as long as it exists.
type segment struct {
	seq   uint64
	nonce uint64
	file  vfs.File
	begun int64 // where the first batch ends
	stays bool  // something in it cannot be copied; the committer's
	end   int64 // where the next batch goes; the committer's, while the segment is active

	runs int          // runs of groups' entries in this segment; guarded by Store.mu
	refs atomic.Int32 // readers of the file; raised under Store.mu
}

// isSuperfluous says whether nothing in the segment is wanted or read. The caller holds Store.mu and sees to it that the
// segment is not active.
func (seg *segment) isSuperfluous() bool { return seg.runs == 0 && seg.refs.Load() == 0 }

func segmentName(seq uint64) string { return fmt.Sprintf("%016x%s", seq, segmentSuffix) }

// parseSegmentName returns the sequence number in a file name.
func parseSegmentName(name string) (seq uint64, ok bool) {
	hex, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(hex) != 16 {
		return 0, false
	}
	seq, err := strconv.ParseUint(hex, 16, 64)
	return seq, err == nil
}

// createSegment begins a new segment, in the file that was made ahead of need or in one that it makes, and writes its
// header and its first batch, the state of all groups (L3). On return both are durable, and the name is.
func (s *Store) createSegment() (*segment, error) {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, err
	}
	seg := &segment{seq: s.nextSeq, nonce: binary.LittleEndian.Uint64(nonce[:]) | 1, end: dataOffset} // never 0
	f, err := s.takeAhead()
	if err != nil {
		return nil, err
	}
	made := f != nil
	if !made {
		if f, _, err = s.makeFile(seg.seq, s.takeFree()); err != nil {
			return nil, fmt.Errorf("create segment: %w", err)
		}
		// Some file systems cannot preallocate; then the blocks are allocated one by one.
		if err := f.Preallocate(0, s.opts.SegmentBytes); err != nil {
			s.opts.Logger.Debug("segment not preallocated", "err", err)
		}
	}
	s.nextSeq++
	seg.file = f
	err = s.initSegment(seg)
	if err == nil && !made {
		err = vfs.SyncDir(s.fs, s.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("create segment %d: %w", seg.seq, errors.Join(err, f.Close()))
	}
	return seg, nil
}

// makeFile makes the file of a segment, of the recycled one if there is one. Its content means nothing, and its name is not
// durable. After an error it returns recycled when that is still to be had.
func (s *Store) makeFile(seq uint64, recycled string) (f vfs.File, unused string, err error) {
	path := s.path(segmentName(seq))
	if recycled != "" {
		if err := s.fs.Rename(s.path(recycled), path); err != nil {
			return nil, recycled, fmt.Errorf("recycle %s: %w", recycled, err)
		}
	}
	f, err = s.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	return f, "", err
}

// takeFree returns the name of a file to reuse, or none.
func (s *Store) takeFree() (name string) {
	if n := len(s.free); n > 0 {
		name, s.free = s.free[n-1], s.free[:n-1]
	}
	return name
}

// initSegment writes a segment's header and first batch, and syncs them.
func (s *Store) initSegment(seg *segment) error {
	for _, at := range headerOffsets {
		if _, err := seg.file.WriteAt(appendHeader(nil, seg.seq, seg.nonce), at); err != nil {
			return err
		}
	}
	s.w.reset(seg.nonce, seg.end)
	s.addState(nil, seg)
	b := s.w.finish()
	if _, err := seg.file.WriteAt(b, seg.end); err != nil {
		return err
	}
	if err := seg.file.SyncData(); err != nil {
		return err
	}
	seg.end += int64(len(b))
	seg.begun = seg.end
	return nil
}

// sealSegment writes the active segment's index and seal (L2).
func (s *Store) sealSegment(seg *segment) error {
	s.w.reset(seg.nonce, seg.end)
	s.mu.RLock()
	index, copies := appendIndex(nil, s.mu.list, seg, false), appendIndex(nil, s.mu.list, seg, true)
	s.mu.RUnlock()
	s.w.add(&record{kind: kindIndex}, index)
	if len(copies) > 0 {
		s.w.add(&record{kind: kindCopies}, copies)
	}
	if _, err := seg.file.WriteAt(s.w.finish(), seg.end); err != nil {
		return err
	}
	if _, err := seg.file.WriteAt(appendSeal(nil, seg.nonce, seg.end), sealOffset); err != nil {
		return err
	}
	return seg.file.SyncData()
}

// markNext writes into a sealed segment that next, which is durable, came after it. Nothing that was stored in next has
// been answered yet, so from here on a newest segment that is gone is missed (L2).
func (seg *segment) markNext(next *segment) error {
	if _, err := seg.file.WriteAt(appendNext(nil, seg.nonce, next.seq), nextOffset); err != nil {
		return err
	}
	return seg.file.SyncData()
}

// next returns the sequence number of the segment that came after this one; 0 when there is no mark of any.
func (seg *segment) next() (uint64, error) {
	b, err := readAt(seg.file, nextOffset, nextSize)
	if err == nil {
		var seq uint64
		if seq, err = decodeNext(b, seg.nonce); err == nil {
			return seq, nil
		}
	}
	if errors.Is(err, errInvalid) {
		return 0, nil
	}
	return 0, err
}

// removeSegment closes a segment that nobody needs or reads any more and recycles or removes its file.
func (s *Store) removeSegment(seg *segment) error {
	if err := seg.file.Close(); err != nil {
		return err
	}
	path := s.path(segmentName(seg.seq))
	if len(s.free) >= s.opts.RecycledSegments {
		return s.fs.Remove(path)
	}
	free := fmt.Sprintf("%016x%s", seg.seq, freeSuffix)
	if err := s.fs.Rename(path, s.path(free)); err != nil {
		return err
	}
	s.free = append(s.free, free)
	return nil
}

// readAt reads n bytes; fewer are errInvalid.
func readAt(r io.ReaderAt, offset int64, n int) ([]byte, error) {
	b := make([]byte, n)
	if m, err := r.ReadAt(b, offset); m < n {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, errInvalid
		}
		return nil, err
	}
	return b, nil
}
