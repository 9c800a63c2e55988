package shard

import (
	"context"
	"maps"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// AppendDelta writes chunk number chunk (0, 1, 2, …) of a delta, at most dataflow.MaxDeltaChunkEntry. Chunks and deltas
// of an incarnation are written one after another, in order; one that is sent again, as after OUTCOME_UNKNOWN, is taken
// once. Errors: ErrStaleIncarnation, ErrNotBegun, ErrDropped, ErrDeltaOrder.
func (l *Log) AppendDelta(ctx context.Context, d dataflow.DeltaID, chunk int, data []byte) error {
	if len(data) > dataflow.MaxDeltaChunkEntry {
		return dataflow.Errorf(dataflow.ReasonTooLarge, "a chunk of %d bytes is over the limit of %d", len(data), dataflow.MaxDeltaChunkEntry)
	}
	_, err := l.proposeHere(ctx, &deltaChunk{delta: d, chunk: chunk, data: data})
	return err
}

// EndDelta closes a delta of chunks chunks with their dataflow.DeltaDigest, and returns the index of the entry: whoever
// has applied that has the delta. A delta may have no chunks. Errors are AppendDelta's.
func (l *Log) EndDelta(ctx context.Context, d dataflow.DeltaID, chunks int, digest uint64) (dataflow.LogIndex, error) {
	out, err := l.proposeHere(ctx, &endDelta{delta: d, chunks: chunks, digest: digest})
	return out.index, err
}

// BeginIncarnation makes min the pipeline's incarnation in this shard, so that only it writes deltas here, and drops the
// deltas of older ones that no commit named: those after base (P2). Base is where the incarnation's base cut stands in
// this shard. It must be called, and have returned, before the incarnation writes; again with the same arguments it does
// nothing. Errors: ErrStaleIncarnation, ErrDropped, ErrDeltaOrder when the log does not hold the base.
func (l *Log) BeginIncarnation(ctx context.Context, pipeline dataflow.PipelineUID, min dataflow.Incarnation, base dataflow.DeltaRef) error {
	_, err := l.proposeHere(ctx, &beginIncarnation{pipeline: pipeline, min: min, base: base})
	return err
}

// Settle says that the state store of this node holds the pipeline's deltas up to upTo for good, so that the log may
// forget them. They must be committed. Errors: ErrNotBegun, ErrDropped, ErrDeltaOrder when the log does not hold upTo.
func (l *Log) Settle(ctx context.Context, pipeline dataflow.PipelineUID, upTo dataflow.DeltaRef) error {
	_, err := l.proposeHere(ctx, &settle{pipeline: pipeline, upTo: upTo})
	return err
}

// DropPipeline forgets the pipeline's deltas for good, and makes the replica forget its state. What comes later of it is
// refused with ErrDropped.
func (l *Log) DropPipeline(ctx context.Context, pipeline dataflow.PipelineUID) error {
	_, err := l.proposeHere(ctx, &dropPipeline{pipeline: pipeline})
	return err
}

// HoldsDelta reports whether the log has, or has had and settled, all of the pipeline's deltas up to ref.
func (l *Log) HoldsDelta(pipeline dataflow.PipelineUID, ref dataflow.DeltaRef) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	p := l.mu.m.pipelines[pipeline]
	return p != nil && p.holds(ref)
}

// PipelineStatus is what a shard's log knows of a pipeline.
type PipelineStatus struct {
	Incarnation dataflow.Incarnation // the one that may write here
	Base        dataflow.DeltaRef    // what it began from
	Last        dataflow.DeltaRef    // its last complete delta; Seq 0 = none
	Settled     dataflow.DeltaRef
	Unsettled   int // deltas that the log still keeps
}

// Pipelines returns the pipelines that have begun here and are not dropped, in order of their uids. Drivers reconcile
// from it (P1).
func (l *Log) Pipelines() []dataflow.PipelineUID {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Sorted(maps.Keys(l.mu.m.pipelines))
}

// Pipeline returns what the log knows of a pipeline; false when it has not begun here or is dropped.
func (l *Log) Pipeline(uid dataflow.PipelineUID) (PipelineStatus, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	p := l.mu.m.pipelines[uid]
	if p == nil {
		return PipelineStatus{}, false
	}
	return p.status(), true
}

func (p *pipelineDeltas) status() PipelineStatus {
	return PipelineStatus{
		Incarnation: p.min, Base: p.base, Settled: p.settled, Unsettled: len(p.deltas),
		Last: dataflow.DeltaRef{Incarnation: p.min, Seq: p.next - 1},
	}
}
