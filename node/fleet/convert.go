package fleet

import (
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
)

func encodePositions(p dataflow.Positions) []*metav1.Position {
	var out []*metav1.Position
	for _, k := range p.Sorted() {
		out = append(out, &metav1.Position{Stream: uint64(k.Stream), Shard: uint32(k.Shard), Offset: uint64(p[k])})
	}
	return out
}

func decodePositions(ps []*metav1.Position) dataflow.Positions {
	out := make(dataflow.Positions, len(ps))
	for _, p := range ps {
		out[dataflow.StreamShard{Stream: dataflow.StreamID(p.Stream), Shard: dataflow.ShardID(p.Shard)}] = dataflow.Offset(p.Offset)
	}
	return out
}

// encodeEvent returns what a task reports as a message, nil for what no task reports.
func encodeEvent(uid dataflow.PipelineUID, ev coordinator.Event) *peerv1.CoordinateResponse {
	switch e := ev.(type) {
	case coordinator.Ack:
		return &peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Ack{Ack: &peerv1.Ack{
			Pipeline: uint64(uid), Incarnation: uint64(e.Incarnation), Checkpoint: uint64(e.Checkpoint), Shard: uint32(e.Shard),
			Seq: uint64(e.Seq), Digest: e.Digest, Index: uint64(e.Index), Skipped: e.Skipped, Positions: encodePositions(e.Positions),
		}}}
	case coordinator.TaskFailed:
		f := &e.Failure
		m := &metav1.Failure{Reason: string(f.Reason), Message: f.Message, Incarnation: uint64(f.Incarnation), At: f.At,
			View: f.View, Line: uint32(f.Line), Column: uint32(f.Column), Rendered: f.Rendered}
		if f.HasRow {
			m.Row = &metav1.SourceRow{Stream: uint64(f.Row.Stream), Shard: uint32(f.Row.Shard), Offset: uint64(f.Row.Offset)}
		}
		return &peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Failed{Failed: &peerv1.Failed{
			Pipeline: uint64(uid), Incarnation: uint64(e.Incarnation), Permanent: e.Permanent, Failure: m,
		}}}
	}
	return nil
}

// decodeEvent is the inverse of encodeEvent.
func decodeEvent(m *peerv1.CoordinateResponse) (dataflow.PipelineUID, coordinator.Event) {
	switch r := m.Response.(type) {
	case *peerv1.CoordinateResponse_Ack:
		a := r.Ack
		return dataflow.PipelineUID(a.Pipeline), coordinator.Ack{
			Incarnation: dataflow.Incarnation(a.Incarnation), Checkpoint: dataflow.CheckpointID(a.Checkpoint), Shard: dataflow.ShardID(a.Shard),
			Seq: dataflow.DeltaSeq(a.Seq), Digest: a.Digest, Index: dataflow.LogIndex(a.Index), Skipped: a.Skipped, Positions: decodePositions(a.Positions),
		}
	case *peerv1.CoordinateResponse_Failed:
		f := r.Failed.GetFailure()
		out := dataflow.PipelineFailure{Reason: dataflow.Reason(f.GetReason()), Message: f.GetMessage(), Incarnation: dataflow.Incarnation(f.GetIncarnation()),
			At: f.GetAt(), View: f.GetView(), Line: int(f.GetLine()), Column: int(f.GetColumn()), Rendered: f.GetRendered()}
		if row := f.GetRow(); row != nil {
			out.HasRow = true
			out.Row = dataflow.SourceRow{Stream: dataflow.StreamID(row.Stream), Shard: dataflow.ShardID(row.Shard), Offset: dataflow.Offset(row.Offset)}
		}
		return dataflow.PipelineUID(r.Failed.Pipeline), coordinator.TaskFailed{
			Incarnation: dataflow.Incarnation(r.Failed.Incarnation), Permanent: r.Failed.Permanent, Failure: out}
	}
	return 0, nil
}

func encodeProblem(err error) *peerv1.Problem {
	if err == nil {
		return nil
	}
	return &peerv1.Problem{Reason: string(dataflow.ReasonOf(err)), Message: err.Error()}
}

func decodeProblem(node string, p *peerv1.Problem) error {
	if p == nil {
		return nil
	}
	if p.Reason == "" {
		return errors.New("node " + node + ": " + p.Message)
	}
	return dataflow.Errorf(dataflow.Reason(p.Reason), "node %s: %s", node, p.Message)
}
