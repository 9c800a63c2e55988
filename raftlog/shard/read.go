package shard

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// batchRef is a batch that is to be read.
type batchRef struct {
	index dataflow.LogIndex
	rows  Rows // without Data
}

// Read returns batches of a stream from an offset on, in order and without a gap: at least one, when there is one, and
// then as many as make up maxRows rows, or some MiB. The first one may start before the offset; its rows before it are
// the caller's to skip. Nothing is returned at the end. Errors: POSITIONS_EXPIRED when the offset lies below what is
// retained, with the first retained offset in the metadata ("start"); STREAM_NOT_FOUND when the stream was dropped.
//
// Only applied, hence committed, rows are returned.
func (l *Log) Read(stream dataflow.StreamID, from dataflow.Offset, maxRows int) ([]Rows, error) {
	refs, err := l.locate(stream, from, maxRows)
	if err != nil {
		return nil, err
	}
	out := make([]Rows, 0, len(refs))
	for _, ref := range refs {
		data, err := l.readRows(ref.index, stream, ref.rows.Count)
		if err != nil {
			// The rows may have been trimmed and freed since they were looked up.
			if _, expired := l.locate(stream, ref.rows.First, 1); expired != nil {
				err = expired
			}
			return nil, err
		}
		ref.rows.Data = data
		out = append(out, ref.rows)
	}
	return out, nil
}

// locate looks up the batches that a Read is about.
func (l *Log) locate(stream dataflow.StreamID, from dataflow.Offset, maxRows int) ([]batchRef, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.mu.m.streams[stream]
	if s == nil {
		if _, dropped := l.mu.m.droppedStreams[stream]; dropped {
			return nil, streamDropped(stream)
		}
		return nil, nil
	}
	if from < s.start() {
		return nil, dataflow.Errorf(dataflow.ReasonPositionsExpired,
			"row %d of stream %d in shard %d was dropped by retention, the first one kept is %d", from, stream, l.cfg.Shard, s.start()).
			WithMeta("start", s.start().String())
	}
	var refs []batchRef
	rows, bytes := 0, uint64(0)
	for i := s.find(from); i < len(s.batches) && (rows < maxRows && bytes < maxReadBytes || len(refs) == 0); i++ {
		b := s.batches[i]
		n := int(s.next(i) - b.first)
		refs = append(refs, batchRef{index: b.index, rows: Rows{First: b.first, Count: n, AppendTime: b.time}})
		rows += int(s.next(i) - max(from, b.first))
		bytes += s.size(i)
	}
	return refs, nil
}

// readRows returns the rows of an entry, from memory when it is recent.
func (l *Log) readRows(index dataflow.LogIndex, stream dataflow.StreamID, count int) ([]byte, error) {
	if rows, ok := l.cache.get(index); ok {
		return rows, nil
	}
	data, err := l.cfg.Store.Entry(index)
	if err != nil {
		return nil, fmt.Errorf("read rows of stream %d: entry %d: %w", stream, index, err)
	}
	c, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read rows of stream %d: entry %d: %w", stream, index, err)
	}
	a, ok := c.(*appendRows)
	if !ok || a.stream != stream || a.count != count {
		return nil, dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d is not %d rows of stream %d", index, count, stream)
	}
	return a.rows, nil
}
