package api

import (
	"context"
	"time"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Leases are for reading on: long enough for a slow client between two pages, and never so long that a client that died
// keeps much from being merged.
const (
	defaultLease = time.Minute
	minLease     = time.Microsecond // the meta log's grain
	maxLease     = time.Hour
)

// ListCheckpoints implements weirv1.PipelineServiceServer.
func (s *pipelineService) ListCheckpoints(ctx context.Context, r *weirv1.ListCheckpointsRequest) (*weirv1.ListCheckpointsResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	cuts, err := s.b.Checkpoints.ListCheckpoints(ctx, r.GetPipeline())
	if err != nil {
		return nil, err
	}
	m := &weirv1.ListCheckpointsResponse{}
	for i := range cuts {
		m.Checkpoints = append(m.Checkpoints, s.names.checkpoint(r.GetPipeline(), &cuts[i]))
	}
	return m, nil
}

// GetCheckpoint implements weirv1.PipelineServiceServer.
func (s *pipelineService) GetCheckpoint(ctx context.Context, r *weirv1.GetCheckpointRequest) (*weirv1.GetCheckpointResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	c, err := s.b.Checkpoints.GetCheckpoint(ctx, r.GetPipeline(), dataflow.CheckpointID(r.GetCheckpointId()))
	if err != nil {
		return nil, err
	}
	return &weirv1.GetCheckpointResponse{Checkpoint: s.names.checkpoint(r.GetPipeline(), &c)}, nil
}

// TriggerCheckpoint implements weirv1.PipelineServiceServer.
func (s *pipelineService) TriggerCheckpoint(ctx context.Context, r *weirv1.TriggerCheckpointRequest) (*weirv1.TriggerCheckpointResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	c, err := s.b.Checkpoints.TriggerCheckpoint(ctx, r.GetPipeline(), r.GetWait())
	if err != nil {
		return nil, err
	}
	return &weirv1.TriggerCheckpointResponse{Checkpoint: s.names.checkpoint(r.GetPipeline(), c)}, nil
}

// LeaseCheckpoint implements weirv1.PipelineServiceServer.
func (s *pipelineService) LeaseCheckpoint(ctx context.Context, r *weirv1.LeaseCheckpointRequest) (*weirv1.LeaseCheckpointResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	ttl := defaultLease
	if d := r.GetTtl(); d != nil && (d.GetSeconds() != 0 || d.GetNanos() != 0) {
		if ttl = d.AsDuration(); d.CheckValid() != nil || ttl < minLease || ttl > maxLease {
			return nil, invalid("ttl", "%s is not between %s and %s; 0 is %s", ttl, minLease, maxLease, defaultLease)
		}
	}
	if len(r.GetLeaseId()) > maxNameBytes {
		return nil, invalid("lease_id", "%d bytes are over the limit of %d", len(r.GetLeaseId()), maxNameBytes)
	}
	l, err := s.b.Checkpoints.LeaseCheckpoint(ctx, r.GetPipeline(), dataflow.CheckpointID(r.GetCheckpointId()), ttl, r.GetLeaseId())
	if err != nil {
		return nil, err
	}
	return &weirv1.LeaseCheckpointResponse{LeaseId: l.ID, CheckpointId: uint64(l.Checkpoint), ExpiresAt: Timestamp(l.ExpiresAt)}, nil
}

// ReleaseLease implements weirv1.PipelineServiceServer.
func (s *pipelineService) ReleaseLease(ctx context.Context, r *weirv1.ReleaseLeaseRequest) (*weirv1.ReleaseLeaseResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	if l := r.GetLeaseId(); l == "" || len(l) > maxNameBytes {
		return nil, invalid("lease_id", "is missing or longer than %d bytes", maxNameBytes)
	}
	return &weirv1.ReleaseLeaseResponse{}, s.b.Checkpoints.ReleaseLease(ctx, r.GetPipeline(), r.GetLeaseId())
}
