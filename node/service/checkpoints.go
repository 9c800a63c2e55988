package service

import (
	"context"
	"strconv"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/raftlog/meta"
)

var _ api.Checkpoints = (*Service)(nil)

func checkpointOf(p *meta.Pipeline, c *dataflow.CheckpointCommit) api.Checkpoint {
	out := api.Checkpoint{Commit: c}
	for _, l := range p.Leases {
		if l.Checkpoint == c.ID {
			out.Leases++
		}
	}
	return out
}

// ListCheckpoints returns the retained cuts, newest first.
func (s *Service) ListCheckpoints(ctx context.Context, pipeline string) ([]api.Checkpoint, error) {
	p, err := s.pipeline(ctx, pipeline)
	if err != nil {
		return nil, err
	}
	out := make([]api.Checkpoint, 0, len(p.Cuts))
	for i := len(p.Cuts) - 1; i >= 0; i-- {
		out = append(out, checkpointOf(p, p.Cuts[i]))
	}
	return out, nil
}

// GetCheckpoint returns one retained cut.
func (s *Service) GetCheckpoint(ctx context.Context, pipeline string, id dataflow.CheckpointID) (api.Checkpoint, error) {
	p, err := s.pipeline(ctx, pipeline)
	if err != nil {
		return api.Checkpoint{}, err
	}
	c, err := p.Cut(id)
	if err != nil {
		return api.Checkpoint{}, err
	}
	return checkpointOf(p, c), nil
}

// coverWait is how long a triggered checkpoint waits for the tasks to read what was appended before: at most half of the time
// that the caller has, so that the checkpoint itself has the other half. Longer than a start of the tasks takes; not for ever,
// because a pipeline that is far behind can be checkpointed where it is.
const coverWait = 10 * time.Second

func coverTime(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(coverWait, time.Until(deadline)/2)
	}
	return coverWait
}

// TriggerCheckpoint asks the coordinator for a checkpoint. With wait it returns one that covers everything appended before
// the call, unless the tasks take longer than coverTime to read that.
func (s *Service) TriggerCheckpoint(ctx context.Context, pipeline string, wait bool) (*api.Checkpoint, error) {
	p, err := s.pipeline(ctx, pipeline)
	if err != nil {
		return nil, err
	}
	if !p.State.Active() {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s; only a running one makes checkpoints", pipeline, p.State).
			WithHint("weir pipeline resume %s", pipeline)
	}
	if !wait {
		return nil, s.cfg.Leader.Request(ctx, p.UID)
	}
	if err := s.catchUp(ctx); err != nil { // rows that came by way of other nodes are to be covered too
		return nil, err
	}
	want := s.cfg.Worker.Ends(p.Reads)
	cover, cancel := context.WithTimeout(ctx, coverTime(ctx))
	defer cancel()
	for {
		if _, err := s.cfg.Queries.WaitProcessed(cover, pipeline, want); err != nil && dataflow.ReasonOf(err) != dataflow.ReasonTokenNotReached {
			return nil, err
		}
		out, err := s.trigger(ctx, p)
		if err != nil || out.Commit.Positions.Covers(want) || cover.Err() != nil {
			return out, err
		}
		// The tasks have recovered between the wait and the barrier, and read the rows again.
	}
}

// trigger makes one checkpoint and returns it.
func (s *Service) trigger(ctx context.Context, p *meta.Pipeline) (*api.Checkpoint, error) {
	id, err := s.cfg.Leader.Trigger(ctx, p.UID)
	if err != nil {
		return nil, err
	}
	now := s.cfg.Meta.State().Pipelines[p.UID]
	if now == nil {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %s was deleted", p.Name)
	}
	c, err := now.Cut(id)
	if err != nil {
		return nil, err
	}
	out := checkpointOf(now, c)
	return &out, nil
}

func leaseOf(l meta.Lease) api.Lease {
	return api.Lease{ID: strconv.FormatUint(l.ID, 10), Checkpoint: l.Checkpoint, ExpiresAt: l.ExpiresAt}
}

func leaseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, dataflow.Errorf(dataflow.ReasonRequestInvalid, "%q is not the id of a lease", text)
	}
	return id, nil
}

// LeaseCheckpoint keeps a cut for ttl, or renews a lease.
func (s *Service) LeaseCheckpoint(ctx context.Context, pipeline string, id dataflow.CheckpointID, ttl time.Duration, lease string) (api.Lease, error) {
	p, err := s.pipeline(ctx, pipeline)
	if err != nil {
		return api.Lease{}, err
	}
	if ttl <= 0 || ttl > meta.MaxLeaseTime {
		return api.Lease{}, dataflow.Errorf(dataflow.ReasonRequestInvalid, "ttl: %s is not between 1 µs and %s", ttl, meta.MaxLeaseTime)
	}
	var l meta.Lease
	if lease != "" {
		n, err := leaseID(lease)
		if err != nil {
			return api.Lease{}, err
		}
		l, err = s.cfg.Meta.RenewLease(ctx, p.UID, n, ttl)
		if err != nil {
			return api.Lease{}, err
		}
		return leaseOf(l), nil
	}
	if id == 0 {
		id = p.Newest().ID
	}
	if l, err = s.cfg.Meta.Lease(ctx, p.UID, id, ttl); err != nil {
		return api.Lease{}, err
	}
	return leaseOf(l), nil
}

// ReleaseLease ends a lease.
func (s *Service) ReleaseLease(ctx context.Context, pipeline, lease string) error {
	p, err := s.pipeline(ctx, pipeline)
	if err != nil {
		return err
	}
	id, err := leaseID(lease)
	if err != nil {
		return err
	}
	return s.cfg.Meta.ReleaseLease(ctx, p.UID, id)
}
