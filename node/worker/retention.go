package worker

import (
	"context"
	"math"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// retentionEvery is how often streams are looked at for rows to drop. Retention is counted in hours and days; size limits
// are met a little late at the worst.
const retentionEvery = 2 * time.Second

// retentionLoop drops rows that are past their stream's retention or over its size and that no pipeline claims. Rows
// claimed by a pipeline that lags behind by more than the grace go all the same.
func (w *Worker) retentionLoop(ctx context.Context) error {
	tick := time.NewTicker(retentionEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		st := w.cfg.Meta.State()
		for _, stream := range st.StreamList() {
			claims := claimed(st, stream.ID)
			for _, s := range w.cfg.Shards {
				to, why := trimTo(stream, s, claims, len(w.cfg.Shards), time.Now())
				if why == 0 {
					continue
				}
				w.publisher.attempt(ctx, "trim stream", s, uint64(stream.ID), func(ctx context.Context) error {
					return s.Log.TrimStream(ctx, stream.ID, to, why)
				})
			}
		}
	}
}

// claimed returns, per shard of the stream, the first row that a pipeline still needs; absent = none is needed.
func claimed(st *meta.State, id dataflow.StreamID) map[dataflow.ShardID]dataflow.Offset {
	claims := make(map[dataflow.ShardID]dataflow.Offset)
	for _, h := range st.StreamHolders(id) {
		for k, from := range h.Positions {
			if old, ok := claims[k.Shard]; !ok || from < old {
				claims[k.Shard] = from
			}
		}
	}
	return claims
}

// trimTo returns up to where a shard of the stream is to be trimmed, and why; 0 = not at all.
func trimTo(stream *meta.Stream, s *Shard, claims map[dataflow.ShardID]dataflow.Offset, shards int, now time.Time) (dataflow.Offset, shard.TrimReason) {
	start, _, _ := s.Log.Range(stream.ID)
	claim, held := claims[s.ID]
	if !held {
		claim = math.MaxUint64
	}
	opts := stream.Options
	if opts.Retention > 0 {
		if to := s.Log.OffsetAt(stream.ID, now.Add(-opts.Retention-opts.Grace).UnixMicro()); to > start && to > claim {
			return to, shard.TrimGrace
		}
		if to := min(claim, s.Log.OffsetAt(stream.ID, now.Add(-opts.Retention).UnixMicro())); to > start {
			return to, shard.TrimAge
		}
	}
	if opts.MaxBytes > 0 {
		// Rows are spread evenly, or by a hash: an equal part per shard.
		if to := min(claim, s.Log.OffsetKeeping(stream.ID, opts.MaxBytes/int64(shards))); to > start {
			return to, shard.TrimSize
		}
	}
	return 0, 0
}
