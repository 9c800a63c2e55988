package shard

import "github.com/weirdb/weir/dataflow"

// AppendTime returns when the row at an offset was appended, in µs since 1970 of log time; 0 when there is no such row. For
// one that was trimmed it is the time of the first that is retained, which came later.
func (l *Log) AppendTime(stream dataflow.StreamID, offset dataflow.Offset) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.mu.m.streams[stream]
	if s == nil || offset >= s.end || len(s.batches) == 0 {
		return 0
	}
	return s.batches[s.find(max(offset, s.start()))].time
}
