package shard

import (
	"sort"

	"github.com/weirdb/weir/dataflow"
)

// rowBatch is where one batch of rows lies. Its count and size are the differences to the batch after it, because a
// stream's offsets have no gaps; so a batch costs 32 bytes.
type rowBatch struct {
	first  dataflow.Offset
	index  dataflow.LogIndex // the entry that carries the rows
	time   int64             // append time, µs; never less than that of the batch before
	before uint64            // bytes of all batches before this one, trimmed ones included
}

// streamRows is the index of one stream's rows in this shard.
type streamRows struct {
	// batches are the retained ones in order. Elements never change and the slice only loses elements in front and gains
	// them at the end, so a snapshot may share it.
	batches []rowBatch
	end     dataflow.Offset // the offset of the next row
	bytes   uint64          // of all batches ever
	trim    Trim            // the last one; zero = none
	sealed  bool            // takes no more rows
}

// Trim describes how rows left a stream.
type Trim struct {
	To     dataflow.Offset // the first offset that was kept
	Reason TrimReason
	Time   int64 // log time, µs
}

func (s *streamRows) start() dataflow.Offset {
	if len(s.batches) == 0 {
		return s.end
	}
	return s.batches[0].first
}

// retainedBytes is the size of the batches that are still there.
func (s *streamRows) retainedBytes() uint64 {
	if len(s.batches) == 0 {
		return 0
	}
	return s.bytes - s.batches[0].before
}

// add appends a batch and returns its first offset.
func (s *streamRows) add(index dataflow.LogIndex, count, size int, time int64) dataflow.Offset {
	first := s.end
	s.batches = append(s.batches, rowBatch{first: first, index: index, time: time, before: s.bytes})
	s.end += dataflow.Offset(count)
	s.bytes += uint64(size)
	return first
}

// find returns the position in batches of the one that holds offset, or len(batches) at the end. The offset must not be
// below the start.
func (s *streamRows) find(offset dataflow.Offset) int {
	if offset >= s.end {
		return len(s.batches)
	}
	return sort.Search(len(s.batches), func(i int) bool { return s.batches[i].first > offset }) - 1
}

// next returns the offset after batch i.
func (s *streamRows) next(i int) dataflow.Offset {
	if i+1 < len(s.batches) {
		return s.batches[i+1].first
	}
	return s.end
}

// trimTo drops the batches that lie wholly below to: rows leave with their entry.
func (s *streamRows) trimTo(to dataflow.Offset, why TrimReason, time int64) {
	keep := 0
	if to > s.start() {
		keep = s.find(to)
	}
	if keep == 0 {
		return
	}
	s.batches = s.batches[keep:]
	s.trim = Trim{To: s.start(), Reason: why, Time: time}
}

// offsetAt returns the first retained offset with an append time of at least t.
func (s *streamRows) offsetAt(t int64) dataflow.Offset {
	i := sort.Search(len(s.batches), func(i int) bool { return s.batches[i].time >= t })
	if i == len(s.batches) {
		return s.end
	}
	return s.batches[i].first
}

// bytesFrom returns the size of the retained batches that hold rows from an offset on.
func (s *streamRows) bytesFrom(from dataflow.Offset) int64 {
	i := s.find(max(from, s.start()))
	if i == len(s.batches) {
		return 0
	}
	return int64(s.bytes - s.batches[i].before)
}

// offsetKeeping returns the lowest batch boundary from which at most limit bytes are left, or that of the newest batch.
func (s *streamRows) offsetKeeping(limit int64) dataflow.Offset {
	i := sort.Search(len(s.batches), func(i int) bool { return int64(s.bytes-s.batches[i].before) <= limit })
	if i = min(i, len(s.batches)-1); i < 0 {
		return s.end
	}
	return s.batches[i].first
}

// size returns the bytes of batch i.
func (s *streamRows) size(i int) uint64 {
	if i+1 < len(s.batches) {
		return s.batches[i+1].before - s.batches[i].before
	}
	return s.bytes - s.batches[i].before
}
