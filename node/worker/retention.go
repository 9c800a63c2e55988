package worker

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// DefaultRetentionEvery is how often streams are looked at for rows that are too old. Retention is counted in hours and
// days.
const DefaultRetentionEvery = 2 * time.Second

// sizeEvery is the least time between two looks at the streams that have a max_bytes, which come when rows were appended or
// the meta log has moved: a cut frees rows. Why not shorter: each look may cost an entry per shard. Why not longer: what is
// appended meanwhile goes over the size.
const sizeEvery = 100 * time.Millisecond

// retentionLoop trims the streams, and forgets what is only kept for pipelines that are gone.
func (w *Worker) retentionLoop(ctx context.Context) error {
	tick := time.NewTicker(w.cfg.RetentionEvery)
	defer tick.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	ready := false // sizeEvery has passed since the last look at sizes
	for {
		appended, changed := w.Appended(), w.cfg.Meta.Changed()
		if !ready {
			appended, changed = nil, nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			st := w.cfg.Meta.State()
			w.forget(st)
			w.trim(ctx, st, st.StreamList())
			continue
		case <-pause.C:
			ready = true
			w.trimSizes(ctx) // for what came in the pause
			continue
		case <-appended:
		case <-changed:
		}
		w.trimSizes(ctx)
		ready = false
		pause.Reset(sizeEvery)
	}
}

// trimSizes trims the streams that have a max_bytes.
func (w *Worker) trimSizes(ctx context.Context) {
	st := w.cfg.Meta.State()
	var bounded []*meta.Stream
	for _, s := range st.Streams {
		if s.Options.MaxBytes > 0 {
			bounded = append(bounded, s)
		}
	}
	w.trim(ctx, st, bounded)
}

// trim drops rows of the streams that are past their retention or over their size and that no pipeline claims. Rows
// claimed by a pipeline that lags behind by more than the grace go all the same: it fails with POSITIONS_EXPIRED.
func (w *Worker) trim(ctx context.Context, st *meta.State, streams []*meta.Stream) {
	checked := false // st has the claims of all that was deployed before
	for _, stream := range streams {
		claims := claimed(st, stream.ID)
		var total int64
		for _, s := range w.cfg.Shards {
			_, _, bytes := s.Log.Range(stream.ID)
			total += bytes
		}
		for _, s := range w.cfg.Shards {
			to, why := trimTo(stream, s.Log, claims[s.ID], total, time.UnixMicro(w.cfg.Now()))
			if why == 0 || !s.Log.IsLeader() {
				continue
			}
			if !checked {
				// A pipeline that this node has not heard of yet may need rows.
				now, err := w.cfg.Meta.Current(ctx)
				if err != nil {
					return
				}
				st, checked, claims = now, true, claimed(now, stream.ID)
				if to, why = trimTo(stream, s.Log, claims[s.ID], total, time.UnixMicro(w.cfg.Now())); why == 0 {
					continue
				}
			}
			w.publisher.attempt(ctx, "trim stream", s, uint64(stream.ID), func(ctx context.Context) error {
				w.cfg.Phases.Enter(phase.Trim)
				defer w.cfg.Phases.Leave(phase.Trim)
				if err := s.Log.TrimStream(ctx, stream.ID, to, why, st.NextPipeline); !errors.Is(err, shard.ErrTrimLate) {
					return err
				}
				return nil // the next look knows the pipeline
			})
		}
	}
}

// unclaimed says that no pipeline needs any row.
const unclaimed = dataflow.Offset(math.MaxUint64)

// claimed returns, per shard, the first row of the stream that a pipeline still needs.
func claimed(st *meta.State, id dataflow.StreamID) []dataflow.Offset {
	claims := slices.Repeat([]dataflow.Offset{unclaimed}, st.Shards)
	for _, h := range st.StreamHolders(id) {
		for k, from := range h.Positions {
			claims[k.Shard] = min(claims[k.Shard], from)
		}
	}
	return claims
}

// extent is what trimTo needs to know of the rows of a stream in a shard. *shard.Log implements it.
type extent interface {
	// Range returns the first offset kept, the end, and the bytes between.
	Range(stream dataflow.StreamID) (start, end dataflow.Offset, bytes int64)
	// OffsetAt returns the first row appended at a time (µs since 1970) or later.
	OffsetAt(stream dataflow.StreamID, at int64) dataflow.Offset
	// OffsetKeeping returns the first of the newest rows that take at most so many bytes, or the newest batch's.
	OffsetKeeping(stream dataflow.StreamID, bytes int64) dataflow.Offset
	// BatchAt returns the first offset of the batch that holds an offset: rows go by whole batches.
	BatchAt(stream dataflow.StreamID, offset dataflow.Offset) dataflow.Offset
}

var _ extent = (*shard.Log)(nil)

// trimTo returns up to where a shard of the stream is to be trimmed, and why; 0 = not at all. claim is the first row of
// the shard that a pipeline needs, total the bytes of the stream in all shards.
func trimTo(stream *meta.Stream, rows extent, claim dataflow.Offset, total int64, now time.Time) (dataflow.Offset, shard.TrimReason) {
	start, _, bytes := rows.Range(stream.ID)
	opts := stream.Options
	before := func(age time.Duration) dataflow.Offset { return rows.OffsetAt(stream.ID, now.Add(-age).UnixMicro()) }
	// Rows below to are to go; those below overdue although somebody needs them.
	var to, overdue dataflow.Offset
	why := shard.TrimReason(0)
	if opts.Retention > 0 {
		to, why = before(opts.Retention), shard.TrimAge
		overdue = before(opts.Retention + opts.Grace)
	}
	if opts.MaxBytes > 0 && total > opts.MaxBytes {
		// Each shard keeps the part that it has now.
		keep := int64(float64(bytes) / float64(total) * float64(opts.MaxBytes))
		if large := rows.OffsetKeeping(stream.ID, keep); large > to {
			to, why = large, shard.TrimSize
			overdue = max(overdue, min(large, before(opts.Grace)))
		}
	}
	if to > claim {
		// Somebody needs these rows, but not for longer than the grace.
		if to = claim; overdue > claim {
			to, why = overdue, shard.TrimGrace
		}
	}
	if to = rows.BatchAt(stream.ID, to); to <= start {
		return 0, 0
	}
	return to, why
}
