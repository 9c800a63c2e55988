package meta

import (
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

// reserveAttempts gives out a block of attempt numbers (P3).
func (s *State) reserveAttempts(c *metav1.ReserveAttempts) (any, error) {
	p, err := s.edit(c.Pipeline)
	if err != nil {
		return nil, err
	}
	if c.Count < 1 || c.Count > MaxAttempts {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "a block has 1 to %d attempt numbers, not %d", MaxAttempts, c.Count)
	}
	first := p.AttemptsTo
	p.AttemptsTo += dataflow.CheckpointID(c.Count)
	if c.Fence {
		p.AttemptsFrom = first
	}
	s.putPipeline(p)
	return attemptsResult{first, p.AttemptsTo}, nil
}

// beginIncarnation ends the current incarnation; the new one's base is the newest committed cut (P4).
func (s *State) beginIncarnation(c *metav1.BeginIncarnation) (any, error) {
	p, err := s.edit(c.Pipeline)
	if err != nil {
		return nil, err
	}
	owners := decodeOwners(c.Owners)
	if c.After+1 == uint64(p.Incarnation) && p.State == dataflow.PipelineRecovering && p.Cause == c.Cause && slices.Equal(p.Owners, owners) {
		return s.Pipelines[p.UID], nil // the same command, proposed again
	}
	if c.After != uint64(p.Incarnation) {
		return nil, staleIncarnation(p, c.After)
	}
	if p.State != dataflow.PipelineRecovering && p.State != dataflow.PipelineRunning {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s: it begins no incarnation", p.Name, p.State).
			WithMeta("pipeline", p.Name).WithMeta("state", p.State.String())
	}
	p.Incarnation++
	p.Base, p.Owners, p.Cause = p.Newest(), owners, c.Cause
	if p.State != dataflow.PipelineRecovering {
		p.State, p.StateSince = dataflow.PipelineRecovering, s.Now
	}
	s.putPipeline(p)
	return p, nil
}

// commitCheckpoint is the entry from which a checkpoint exists (G2).
func (s *State) commitCheckpoint(c *metav1.CommitCheckpoint) (any, error) {
	commit := decodeCommit(c.Checkpoint)
	p, err := s.edit(uint64(commit.Pipeline))
	if err != nil {
		return nil, err
	}
	if have, err := p.Cut(commit.ID); err == nil && have.Incarnation == commit.Incarnation && commit.ID > 0 {
		return have, nil // the same command, proposed again
	}
	if commit.Incarnation != p.Incarnation {
		return nil, staleIncarnation(p, uint64(commit.Incarnation))
	}
	if !p.State.Active() {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s: it commits no checkpoint", p.Name, p.State).
			WithMeta("pipeline", p.Name).WithMeta("state", p.State.String())
	}
	if commit.ID <= p.Newest().ID || commit.ID < p.AttemptsFrom || commit.ID >= p.AttemptsTo {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineState,
			"checkpoint %d of pipeline %s: the last is %d and attempts %d to %d may commit: %w",
			commit.ID, p.Name, p.Newest().ID, p.AttemptsFrom, int64(p.AttemptsTo)-1, ErrStaleAttempt)
	}
	if err := s.checkCommit(p, commit); err != nil {
		return nil, dataflow.Errorf(dataflow.ReasonInternal, "checkpoint %d of pipeline %s: %w", commit.ID, p.Name, fmt.Errorf("%w: %w", ErrBadCommit, err))
	}
	commit.Timeline, commit.CommittedAt, commit.MetaIndex = p.Timeline, s.Now, s.Index
	p.CaughtUp = p.CaughtUp || commit.Positions.Covers(p.DeployEnd)
	commit.CatchingUp = !p.CaughtUp
	p.Cuts = append(slices.Clip(p.Cuts), commit)
	p.release(s.Now)
	s.putPipeline(p)
	return commit, nil
}

// checkCommit checks a record against itself and against the newest cut: all shards are there, and neither positions nor,
// within an incarnation, deltas go back (P2).
func (s *State) checkCommit(p *Pipeline, c *dataflow.CheckpointCommit) error {
	last := p.Newest()
	if c.Guarantee < dataflow.GuaranteeExactlyOnce || c.Guarantee > dataflow.GuaranteeAtMostOnce {
		return fmt.Errorf("guarantee %d is not known", c.Guarantee)
	}
	if len(c.Shards) != s.Shards {
		return fmt.Errorf("it has %d shards of %d", len(c.Shards), s.Shards)
	}
	for i := range c.Shards {
		sh := &c.Shards[i]
		if int(sh.Shard) != i {
			return fmt.Errorf("shard %d stands at place %d", sh.Shard, i)
		}
		if last.Incarnation == c.Incarnation && last.ID > 0 && sh.Seq < last.Shards[i].Seq {
			return fmt.Errorf("shard %d goes back from delta %d to %d", sh.Shard, last.Shards[i].Seq, sh.Seq)
		}
		if was := last.Shard(sh.Shard).Skipped; sh.Skipped < was {
			return fmt.Errorf("shard %d goes back from %d skipped rows to %d", sh.Shard, was, sh.Skipped)
		}
	}
	if !c.Positions.Covers(last.Positions) {
		return fmt.Errorf("positions go back from [%s] to [%s]", last.Positions, c.Positions)
	}
	for _, k := range c.Positions.Sorted() {
		if !p.ReadsStream(k.Stream) || int(k.Shard) >= s.Shards {
			return fmt.Errorf("the pipeline does not read %s", k)
		}
	}
	return nil
}

// release drops the leases that have expired and the cuts that nothing keeps (P6). Kept are the newest
// checkpoint.retained cuts, leased ones, and of the others the newest MaxSuperseded as far as their successor was committed
// less than KeepSuperseded ago. p is a private copy; its slices are replaced.
func (p *Pipeline) release(now int64) {
	p.Leases = slices.DeleteFunc(slices.Clone(p.Leases), func(l Lease) bool { return l.ExpiresAt <= now })
	kept := make([]*dataflow.CheckpointCommit, 0, len(p.Cuts))
	for i, c := range p.Cuts {
		if p.keeps(i, now) {
			kept = append(kept, c)
		}
	}
	p.Cuts = kept
}

// keeps reports whether Cuts[i] stays readable at the time now.
func (p *Pipeline) keeps(i int, now int64) bool {
	if i >= len(p.Cuts)-p.Options.Retained {
		return true
	}
	young := now-p.Cuts[i+1].CommittedAt < KeepSuperseded.Microseconds()
	if young && i >= len(p.Cuts)-p.Options.Retained-MaxSuperseded {
		return true
	}
	return slices.ContainsFunc(p.Leases, func(l Lease) bool {
		return l.Checkpoint == p.Cuts[i].ID && l.ExpiresAt > now
	})
}

// leaseEnd checks a lease's length and returns when it ends.
func (s *State) leaseEnd(ttlMicros int64) (int64, error) {
	if ttlMicros < 1 || ttlMicros > MaxLeaseTime.Microseconds() {
		return 0, dataflow.Errorf(dataflow.ReasonRequestInvalid, "a lease lasts 1 µs to %s, not %d µs", MaxLeaseTime, ttlMicros)
	}
	return s.Now + ttlMicros, nil
}

func (s *State) lease(c *metav1.Lease) (any, error) {
	p, err := s.edit(c.Pipeline)
	if err != nil {
		return nil, err
	}
	end, err := s.leaseEnd(c.TtlMicros)
	if err != nil {
		return nil, err
	}
	p.release(s.Now)
	cut, err := p.Cut(dataflow.CheckpointID(c.Checkpoint))
	if err != nil {
		return nil, err
	}
	if len(p.Leases) >= MaxLeases {
		return nil, dataflow.Errorf(dataflow.ReasonOverloaded, "pipeline %s has %d leased readers, which is the limit", p.Name, MaxLeases).
			WithRetry(KeepSuperseded)
	}
	l := Lease{ID: p.nextLease, Checkpoint: cut.ID, ExpiresAt: end}
	p.nextLease++
	p.Leases = append(slices.Clip(p.Leases), l)
	s.putPipeline(p)
	return l, nil
}

func (s *State) renewLease(c *metav1.RenewLease) (any, error) {
	p, err := s.edit(c.Pipeline)
	if err != nil {
		return nil, err
	}
	end, err := s.leaseEnd(c.TtlMicros)
	if err != nil {
		return nil, err
	}
	p.release(s.Now)
	i := slices.IndexFunc(p.Leases, func(l Lease) bool { return l.ID == c.Id })
	if i < 0 {
		return nil, dataflow.Errorf(dataflow.ReasonCheckpointExpired, "lease %d on a checkpoint of pipeline %s has ended", c.Id, p.Name)
	}
	p.Leases[i].ExpiresAt = max(p.Leases[i].ExpiresAt, end) // release made p.Leases our own
	l := p.Leases[i]
	s.putPipeline(p)
	return l, nil
}

func (s *State) releaseLease(c *metav1.ReleaseLease) (any, error) {
	p, err := s.edit(c.Pipeline)
	if err != nil {
		return nil, err
	}
	p.Leases = slices.DeleteFunc(slices.Clone(p.Leases), func(l Lease) bool { return l.ID == c.Id })
	p.release(s.Now)
	s.putPipeline(p)
	return none{}, nil
}

// expire lets go of what time has ended.
func (s *State) expire(c *metav1.Expire) (any, error) {
	var epoch dataflow.ProducerEpoch
	s.producers, epoch = s.producers.forget(c.ProducersBefore)
	s.forgottenEpoch = max(s.forgottenEpoch, epoch)
	for _, uid := range sortedKeys(s.Pipelines) {
		if !s.expires(s.Pipelines[uid], s.Now) {
			continue
		}
		p := *s.Pipelines[uid]
		p.release(s.Now)
		p.ClaimExpired = p.ClaimExpired || s.claimExpires(&p, s.Now)
		s.putPipeline(&p)
	}
	return none{}, nil
}

// expires reports whether an Expire at the time now would change p.
func (s *State) expires(p *Pipeline, now int64) bool {
	return s.claimExpires(p, now) || p.releases(now)
}

func (s *State) claimExpires(p *Pipeline, now int64) bool {
	end := s.claimEnd(p)
	return end != 0 && end <= now && !p.ClaimExpired
}

// releases reports whether release at the time now would drop something.
func (p *Pipeline) releases(now int64) bool {
	if slices.ContainsFunc(p.Leases, func(l Lease) bool { return l.ExpiresAt <= now }) {
		return true
	}
	for i := range p.Cuts {
		if !p.keeps(i, now) {
			return true
		}
	}
	return false
}

// ExpireDue reports whether Log.Expire is due at the time now (µs since 1970). Leases and cuts are let go by the commits
// of a busy pipeline anyway, so it waits another KeepSuperseded for these before it asks for an entry of its own.
func (s *State) ExpireDue(now int64) bool {
	now = max(now, s.Now)
	if s.producers.n > 0 && s.producers.oldest < producersBefore(now) {
		return true
	}
	for _, p := range s.Pipelines {
		if s.claimExpires(p, now) || p.releases(now-KeepSuperseded.Microseconds()) {
			return true
		}
	}
	return false
}
