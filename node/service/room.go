package service

import (
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
)

// roomRetry is when rows for a stream without room should be sent again: the next checkpoint of the pipeline that holds it
// up is that near, if the pipeline runs.
const roomRetry = time.Second

// roomFor refuses rows for a stream that is over max_bytes and of which pipelines still need more than that: trimming
// could not help. A stream that is over its size because nobody has trimmed it yet takes rows.
func (s *Service) roomFor(st *meta.Stream) error {
	if st.Options.MaxBytes == 0 {
		return nil
	}
	var bytes int64
	for _, sh := range s.cfg.Shards {
		_, _, b := sh.Log.Range(st.ID)
		bytes += b
	}
	if bytes <= st.Options.MaxBytes {
		return nil
	}
	holders := s.cfg.Meta.State().StreamHolders(st.ID)
	var needed int64 // by all of them together
	for _, sh := range s.cfg.Shards {
		var most int64
		for i := range holders {
			most = max(most, sh.Log.BytesFrom(st.ID, holders[i].Positions[dataflow.StreamShard{Stream: st.ID, Shard: sh.ID}]))
		}
		needed += most
	}
	if needed <= st.Options.MaxBytes {
		return nil
	}
	var worst needs
	for i := range holders {
		n := s.needsOf(st.ID, &holders[i])
		if n.bytes > worst.bytes {
			worst = n
		}
		if holders[i].State.Active() {
			s.cfg.Leader.WantRoom(holders[i].Pipeline)
		}
	}
	if worst.holder == nil {
		return nil // the rows have gone since they were measured
	}
	return worst.refusal(st, bytes)
}

// needs is what a pipeline still needs of a stream: the rows behind its newest committed cut.
type needs struct {
	holder *meta.Holder
	rows   uint64
	bytes  int64
}

// needsOf measures a claim.
func (s *Service) needsOf(id dataflow.StreamID, h *meta.Holder) needs {
	n := needs{holder: h}
	for _, sh := range s.cfg.Shards {
		start, end, _ := sh.Log.Range(id)
		from := max(h.Positions[dataflow.StreamShard{Stream: id, Shard: sh.ID}], start)
		if end > from {
			n.rows += uint64(end - from)
			n.bytes += sh.Log.BytesFrom(id, from)
		}
	}
	return n
}

// refusal says who holds the stream up and what helps.
func (n needs) refusal(st *meta.Stream, bytes int64) error {
	h := n.holder
	e := dataflow.Errorf(dataflow.ReasonOverloaded,
		"stream %s is full: it holds %d bytes, its max_bytes is %d, and pipeline %s (%s) still needs %d of them: %d rows are behind its newest checkpoint",
		st.Name, bytes, st.Options.MaxBytes, h.Name, h.State, n.bytes, n.rows).
		WithRetry(roomRetry).WithMeta("stream", st.Name).WithMeta("pipeline", h.Name)
	if h.State.Active() {
		return e.WithHint("send the rows again: the pipeline has been asked for a checkpoint; if it stays so, the pipeline is slower than the appends")
	}
	until := time.UnixMicro(h.Until).UTC().Format(time.RFC3339)
	return e.WithHint("weir pipeline resume %s, or weir pipeline delete %s; its claim ends by itself at %s", h.Name, h.Name, until)
}
