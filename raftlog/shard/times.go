package shard

import "github.com/weirdb/weir/dataflow"

// AppendTime returns when the retained row at an offset was appended, in µs since 1970 of log time; 0 when there is no
// such row.
func (l *Log) AppendTime(stream dataflow.StreamID, offset dataflow.Offset) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.mu.m.streams[stream]
	if s == nil || offset < s.start() || offset >= s.end {
		return 0
	}
	return s.batches[s.find(offset)].time
}
