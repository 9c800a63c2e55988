package fleet

import (
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// encodeEvent returns what a task reports as a message, nil for what no task reports.
func encodeEvent(uid dataflow.PipelineUID, ev coordinator.Event) *peerv1.CoordinateResponse {
	switch e := ev.(type) {
	case coordinator.Ack:
		return &peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Ack{Ack: &peerv1.Ack{
			Pipeline: uint64(uid), Incarnation: uint64(e.Incarnation), Checkpoint: uint64(e.Checkpoint), Shard: uint32(e.Shard),
			Seq: uint64(e.Seq), Digest: e.Digest, Index: uint64(e.Index), Skipped: e.Skipped, Positions: meta.EncodePositions(e.Positions),
		}}}
	case coordinator.TaskFailed:
		return &peerv1.CoordinateResponse{Response: &peerv1.CoordinateResponse_Failed{Failed: &peerv1.Failed{
			Pipeline: uint64(uid), Incarnation: uint64(e.Incarnation), Permanent: e.Permanent, Failure: meta.EncodeFailure(&e.Failure),
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
			Seq: dataflow.DeltaSeq(a.Seq), Digest: a.Digest, Index: dataflow.LogIndex(a.Index), Skipped: a.Skipped, Positions: meta.DecodePositions(a.Positions),
		}
	case *peerv1.CoordinateResponse_Failed:
		var failure dataflow.PipelineFailure
		if f := meta.DecodeFailure(r.Failed.Failure); f != nil {
			failure = *f
		}
		return dataflow.PipelineUID(r.Failed.Pipeline), coordinator.TaskFailed{
			Incarnation: dataflow.Incarnation(r.Failed.Incarnation), Permanent: r.Failed.Permanent, Failure: failure}
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
