package meta

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

// createPipeline creates the declared streams, the pipeline, its incarnation 1 and cut 0.
func (s *State) createPipeline(c *metav1.CreatePipeline) (any, error) {
	if !dataflow.ValidName(c.Name) {
		return nil, dataflow.Errorf(dataflow.ReasonNameInvalid, "%q cannot name a pipeline", c.Name)
	}
	if have, err := s.Pipeline(c.Name); err == nil {
		if have.Fingerprint == c.Fingerprint {
			return pipelineResult{have, false}, nil
		}
		return nil, dataflow.Errorf(dataflow.ReasonPipelineExists, "pipeline %s exists and runs another program", c.Name).
			WithHint("deploy under another name, or delete it first: weir pipeline delete %s", c.Name).WithMeta("pipeline", c.Name)
	}
	switch {
	case s.Shards == 0:
		return nil, dataflow.Errorf(dataflow.ReasonInternal, "the group has not been bootstrapped")
	case len(c.Sql) > dataflow.MaxSQLBytes:
		return nil, dataflow.Errorf(dataflow.ReasonTooLarge, "the SQL text has %d bytes, over the limit of %d", len(c.Sql), dataflow.MaxSQLBytes)
	case len(s.Pipelines) >= MaxPipelines:
		return nil, dataflow.Errorf(dataflow.ReasonTooLarge, "the group has %d pipelines, which is the limit", MaxPipelines)
	}
	options, err := decodePipelineOptions(c.Options)
	if err != nil {
		return nil, err
	}
	for _, d := range c.Declared {
		want, err := decodeStream(d)
		if err != nil {
			return nil, err
		}
		if _, _, err := s.ensureStream(want); err != nil {
			return nil, err
		}
	}
	p := &Pipeline{
		UID: s.NextPipeline, Name: c.Name, SQL: c.Sql, Fingerprint: c.Fingerprint, Options: options,
		CreatedAt: s.Now, State: dataflow.PipelineRecovering, StateSince: s.Now,
		Timeline: 1, Incarnation: 1, Cause: "deployed", Owners: decodeOwners(c.Owners),
		Start: DecodePositions(c.Start), DeployEnd: DecodePositions(c.DeployEnd),
		AttemptsFrom: 1, AttemptsTo: 1, nextLease: 1,
	}
	for _, r := range c.Reads {
		st, err := s.Stream(r.Name)
		if err != nil {
			return nil, err
		}
		if r.Id != 0 && r.Id != uint64(st.ID) {
			return nil, dataflow.Errorf(dataflow.ReasonStreamConflict, "stream %s was dropped and made anew during the deployment", r.Name).
				WithHint("deploy again").WithMeta("stream", r.Name)
		}
		p.Reads = append(p.Reads, st.ID)
	}
	slices.Sort(p.Reads)
	p.Reads = slices.Compact(p.Reads)
	for _, positions := range []dataflow.Positions{p.Start, p.DeployEnd} {
		for _, k := range positions.Sorted() {
			if !p.ReadsStream(k.Stream) || int(k.Shard) >= s.Shards {
				return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "pipeline %s does not read %s", c.Name, k)
			}
		}
	}
	p.CaughtUp = p.Start.Covers(p.DeployEnd)
	p.Base = &dataflow.CheckpointCommit{
		Pipeline: p.UID, Timeline: p.Timeline, Incarnation: p.Incarnation, ID: 0, Guarantee: options.Guarantee,
		TriggeredAt: s.Now, CommittedAt: s.Now, MetaIndex: s.Index, Positions: p.Start, CatchingUp: !p.CaughtUp,
	}
	p.Cuts = []*dataflow.CheckpointCommit{p.Base}
	s.NextPipeline++
	s.putPipeline(p)
	s.pipelineNames = maps.Clone(s.pipelineNames)
	s.pipelineNames[p.Name] = p.UID
	return pipelineResult{p, true}, nil
}

// putPipeline sets a pipeline in a copy of the map.
func (s *State) putPipeline(p *Pipeline) {
	s.Pipelines = maps.Clone(s.Pipelines)
	s.Pipelines[p.UID] = p
}

// edit returns a copy of a pipeline to change and put back, or PIPELINE_NOT_FOUND. Slices and pointers in it are still
// shared: they are replaced, not changed.
func (s *State) edit(uid uint64) (*Pipeline, error) {
	have := s.Pipelines[dataflow.PipelineUID(uid)]
	if have == nil {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %d is not there any more", uid)
	}
	p := *have
	return &p, nil
}

func (s *State) deletePipeline(c *metav1.DeletePipeline) (any, error) {
	p, err := s.Pipeline(c.Name)
	if err != nil {
		return nil, err
	}
	s.Pipelines = maps.Clone(s.Pipelines)
	delete(s.Pipelines, p.UID)
	s.pipelineNames = maps.Clone(s.pipelineNames)
	delete(s.pipelineNames, p.Name)
	return p, nil
}

func (s *State) setOptions(c *metav1.SetOptions) (any, error) {
	p, err := s.edit(c.Pipeline)
	if err != nil {
		return nil, err
	}
	if p.Options, err = p.Options.With(decodeOptions(c.Options)); err != nil {
		return nil, err
	}
	p.release(s.Now) // checkpoint.retained may be smaller now
	s.putPipeline(p)
	return p, nil
}

// setPipelineState moves a pipeline along its life. Users ask for STOPPING and RECOVERING; the coordinator reports the
// others, for the incarnation it speaks of.
//
//	RECOVERING ⇄ RUNNING ─▶ STOPPING ─▶ STOPPED ─▶ RECOVERING
//	  any of the first three ─▶ FAILED ─▶ RECOVERING
func (s *State) setPipelineState(c *metav1.SetPipelineState) (any, error) {
	p, err := s.edit(c.Pipeline)
	if err != nil {
		return nil, err
	}
	to, err := decodeState(c.State)
	if err != nil {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "%w", err)
	}
	reported := to == dataflow.PipelineRunning || to == dataflow.PipelineStopped || to == dataflow.PipelineFailed
	if reported && c.Incarnation != uint64(p.Incarnation) {
		return nil, staleIncarnation(p, c.Incarnation)
	}
	if to == p.State && len(c.Skip) == 0 {
		return s.Pipelines[p.UID], nil
	}
	switch {
	case to == dataflow.PipelineStopping && p.State == dataflow.PipelineStopped,
		to == dataflow.PipelineRecovering && p.State == dataflow.PipelineRunning && len(c.Skip) == 0,
		to == dataflow.PipelineRunning && p.State == dataflow.PipelineStopping:
		return s.Pipelines[p.UID], nil // what is asked for is so, or is overtaken by the stop
	case to == dataflow.PipelineStopping && p.State.Active(),
		to == dataflow.PipelineRunning && p.State == dataflow.PipelineRecovering,
		to == dataflow.PipelineStopped && p.State == dataflow.PipelineStopping:
	case to == dataflow.PipelineFailed && p.State.Active():
		if c.Failure == nil {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "a failure of pipeline %s needs a reason", p.Name)
		}
		p.Failure = DecodeFailure(c.Failure)
		p.Failure.Incarnation, p.Failure.At = p.Incarnation, s.Now
		p.ClaimExpired = p.ClaimExpired || p.Failure.Reason == dataflow.ReasonPositionsExpired
	case to == dataflow.PipelineRecovering && (p.State == dataflow.PipelineStopped || p.State == dataflow.PipelineFailed):
		if err := p.resume(decodeRows(c.Skip)); err != nil {
			return nil, err
		}
	default:
		return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s and cannot become %s", p.Name, p.State, to).
			WithMeta("pipeline", p.Name).WithMeta("state", p.State.String())
	}
	p.State, p.StateSince = to, s.Now
	s.putPipeline(p)
	return p, nil
}

// resume checks that the pipeline can go on, and adds to the rows that it leaves out.
func (p *Pipeline) resume(skip []dataflow.SourceRow) error {
	if p.ClaimExpired {
		return dataflow.Errorf(dataflow.ReasonPositionsExpired, "pipeline %s did not run for longer than its streams hold rows for it", p.Name).
			WithHint("delete it and deploy it again").WithMeta("pipeline", p.Name)
	}
	if len(skip) == 0 {
		return nil
	}
	rows := slices.Concat(p.Skip, skip)
	slices.SortFunc(rows, compareRows)
	rows = slices.Compact(rows)
	if len(rows) > MaxSkipRows {
		return dataflow.Errorf(dataflow.ReasonTooLarge, "pipeline %s skips %d rows by name, which is the limit", p.Name, MaxSkipRows).
			WithHint("set on_error = 'skip'")
	}
	p.Skip = rows
	return nil
}

func compareRows(a, b dataflow.SourceRow) int {
	return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Offset, b.Offset))
}

func staleIncarnation(p *Pipeline, got uint64) error {
	return dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is at incarnation %d, not %d: %w", p.Name, p.Incarnation, got, ErrStaleIncarnation)
}
