package service

import (
	"context"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/catalog"
	"github.com/weirdb/weir/raftlog/meta"
)

var (
	_ api.Pipelines       = (*Service)(nil)
	_ api.PipelineControl = (*Service)(nil)
)

// describe shows a pipeline as the API does.
func (s *Service) describe(st *meta.State, p *meta.Pipeline) (*api.Pipeline, error) {
	prog, err := s.cfg.Catalog.Program(st, p)
	if err != nil {
		return nil, err
	}
	out := &api.Pipeline{
		Name: p.Name, UID: p.UID, SQL: p.SQL, Options: p.Options.List(), State: p.State, Failure: p.Failure,
		Timeline: p.Timeline, Incarnation: p.Incarnation, CreatedAt: p.CreatedAt,
	}
	for _, t := range prog.Plan.Tables() {
		out.Tables = append(out.Tables, t.Name)
	}
	for _, r := range prog.Plan.Reads {
		out.Streams = append(out.Streams, r.Name)
	}
	cut := s.cfg.Queries.NewestCut(PipelineInfo(p))
	out.Cut = &cut
	return out, nil
}

// ListPipelines returns all pipelines by name.
func (s *Service) ListPipelines(context.Context) ([]*api.Pipeline, error) {
	st := s.cfg.Meta.State()
	var out []*api.Pipeline
	for _, p := range st.PipelineList() {
		d, err := s.describe(st, p)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// GetPipeline returns one pipeline.
func (s *Service) GetPipeline(_ context.Context, name string) (*api.Pipeline, error) {
	st := s.cfg.Meta.State()
	p, err := st.Pipeline(name)
	if err != nil {
		return nil, err
	}
	return s.describe(st, p)
}

// DeletePipeline removes a pipeline with its tables, and names the streams that it leaves.
func (s *Service) DeletePipeline(ctx context.Context, name string) ([]string, error) {
	p, err := s.cfg.Meta.DeletePipeline(ctx, name)
	if err != nil {
		return nil, err
	}
	var kept []string
	for _, id := range p.Reads {
		kept = append(kept, s.StreamName(id))
	}
	return kept, nil
}

// Deploy plans the text and hands it to the meta log.
func (s *Service) Deploy(ctx context.Context, d api.Deploy) (*api.Deployed, error) {
	if !dataflow.ValidName(d.Pipeline) {
		e := dataflow.Errorf(dataflow.ReasonNameInvalid, "%q cannot name a pipeline: a name is [a-z_][a-z0-9_]{0,62}", d.Pipeline)
		if n := strings.ReplaceAll(strings.ToLower(d.Pipeline), "-", "_"); dataflow.ValidName(n) {
			e = e.WithHint("use --pipeline %s", n)
		}
		return nil, e
	}
	file, err := sql.Parse(d.SQL)
	if err != nil {
		return nil, err
	}
	st := s.cfg.Meta.State()
	pl, err := plan.Build(file, catalog.Streams{State: st})
	if err != nil {
		return nil, err
	}
	options := make([]dataflow.Option, 0, len(pl.Options)+len(d.Options))
	for _, o := range pl.Options {
		options = append(options, dataflow.Option(o))
	}
	options = append(options, d.Options...)
	if _, err := dataflow.DefaultPipelineOptions().With(options); err != nil {
		return nil, err
	}
	c := meta.CreatePipeline{
		Name: d.Pipeline, SQL: d.SQL, Fingerprint: plan.Fingerprint(pl), Options: options,
		Reads: make(map[string]dataflow.StreamID), Start: make(dataflow.Positions), DeployEnd: make(dataflow.Positions),
	}
	out := &api.Deployed{Tables: s.tablesOf(d.Pipeline, pl, nil)}
	if old, err := st.Pipeline(d.Pipeline); err == nil && old.Fingerprint != c.Fingerprint {
		return nil, s.exists(st, old, pl)
	}
	declared := make(map[string]bool)
	for _, decl := range pl.Declared {
		declared[decl.Name] = true
		def := meta.StreamDefinition{Name: decl.Name, Schema: decl.Schema, PartitionBy: decl.PartitionBy}
		for _, o := range decl.Options {
			def.Options = append(def.Options, dataflow.Option(o))
		}
		if _, err := dataflow.DefaultStreamOptions().With(def.Options); err != nil {
			return nil, err
		}
		c.Declared = append(c.Declared, def)
		_, missing := st.Stream(decl.Name)
		out.Streams = append(out.Streams, api.DeployedStream{Name: decl.Name, Created: missing != nil})
	}
	for _, r := range pl.Reads {
		id := dataflow.StreamID(0)
		if ms, err := st.Stream(r.Name); err == nil {
			id = ms.ID
		}
		c.Reads[r.Name] = id
		if !declared[r.Name] {
			out.Streams = append(out.Streams, api.DeployedStream{Name: r.Name})
		}
		for i := range out.Streams {
			if out.Streams[i].Name == r.Name {
				if err := s.startAt(id, d.Start, &c, &out.Streams[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	if d.ValidateOnly {
		if old, err := st.Pipeline(d.Pipeline); err == nil {
			out.Unchanged = true
			out.Pipeline, err = s.describe(st, old)
			return out, err
		}
		return out, nil
	}
	p, created, err := s.cfg.Meta.CreatePipeline(ctx, c)
	if dataflow.ReasonOf(err) == dataflow.ReasonPipelineExists {
		if st = s.cfg.Meta.State(); st != nil {
			if old, lookErr := st.Pipeline(d.Pipeline); lookErr == nil {
				return nil, s.exists(st, old, pl)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	out.Unchanged = !created
	out.Pipeline, err = s.describe(s.cfg.Meta.State(), p)
	return out, err
}

// exists says how the running program differs from the one that is being deployed.
func (s *Service) exists(st *meta.State, old *meta.Pipeline, pl *plan.Plan) error {
	e := dataflow.Errorf(dataflow.ReasonPipelineExists, "pipeline %s runs another program", old.Name)
	if prog, err := s.cfg.Catalog.Program(st, old); err == nil {
		if diff := plan.Diff(prog.Plan, pl); len(diff) > 0 {
			e = dataflow.Errorf(dataflow.ReasonPipelineExists, "pipeline %s runs another program:\n  %s", old.Name, strings.Join(diff, "\n  "))
		}
	}
	return e.WithHint("nothing was changed; deploy under another name, or delete the pipeline first").WithMeta("pipeline", old.Name)
}

// startAt sets where the pipeline begins to read one stream.
func (s *Service) startAt(id dataflow.StreamID, start api.Start, c *meta.CreatePipeline, out *api.DeployedStream) error {
	out.Read = true
	if id == 0 {
		return nil
	}
	for _, sh := range s.cfg.Shards {
		k := dataflow.StreamShard{Stream: id, Shard: sh.ID}
		first, end, _ := sh.Log.Range(id)
		at := first
		switch start.Kind {
		case api.StartLatest:
			at = end
		case api.StartTime:
			at = sh.Log.OffsetAt(id, start.Time)
		case api.StartToken:
			if want, ok := start.Positions[k]; ok {
				if want < first {
					return dataflow.Errorf(dataflow.ReasonPositionsExpired, "the start token names offset %d of shard %d, which retention has dropped: the first kept is %d", want, sh.ID, first)
				}
				at = min(want, end)
			}
		}
		if at > 0 {
			c.Start[k] = at
		}
		if end > 0 {
			c.DeployEnd[k] = end
		}
		out.RowsToRead += uint64(end - at)
		if start.Kind == api.StartEarliest {
			out.RowsDropped += uint64(first)
		}
	}
	return nil
}

// control finds a pipeline, applies change to it and shows the result.
func (s *Service) control(name string, change func(*meta.Pipeline) (*meta.Pipeline, error)) (*api.Pipeline, error) {
	p, err := s.cfg.Meta.State().Pipeline(name)
	if err != nil {
		return nil, err
	}
	if p, err = change(p); err != nil {
		return nil, err
	}
	return s.describe(s.cfg.Meta.State(), p)
}

// StopPipeline asks for a final checkpoint and waits until the pipeline has stopped, or ctx ends.
func (s *Service) StopPipeline(ctx context.Context, name string) (*api.Pipeline, error) {
	return s.control(name, func(p *meta.Pipeline) (*meta.Pipeline, error) {
		if _, err := s.cfg.Meta.Stop(ctx, p.UID); err != nil {
			return nil, err
		}
		var now *meta.Pipeline
		_, err := s.cfg.Meta.Wait(ctx, func(st *meta.State) bool {
			now = st.Pipelines[p.UID]
			return now == nil || !now.State.Active()
		})
		if err != nil {
			return nil, dataflow.Errorf(dataflow.ReasonDeadline, "pipeline %s is stopping and has not stopped in time", name)
		}
		if now == nil {
			return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %s was deleted", name)
		}
		return now, nil
	})
}

// ResumePipeline lets a stopped or failed pipeline go on, without the row that it failed at if so asked.
func (s *Service) ResumePipeline(ctx context.Context, name string, skipFailedRow bool) (*api.Pipeline, error) {
	return s.control(name, func(p *meta.Pipeline) (*meta.Pipeline, error) {
		if !skipFailedRow {
			return s.cfg.Meta.Resume(ctx, p.UID)
		}
		if p.State != dataflow.PipelineFailed || p.Failure == nil || !p.Failure.HasRow {
			return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s and has not failed at a row, so there is none to skip", name, p.State).
				WithHint("resume it without --skip-failed-row")
		}
		return s.cfg.Meta.Resume(ctx, p.UID, p.Failure.Row)
	})
}

// SetPipelineOptions changes options, also of a running pipeline.
func (s *Service) SetPipelineOptions(ctx context.Context, name string, options []dataflow.Option) (*api.Pipeline, error) {
	return s.control(name, func(p *meta.Pipeline) (*meta.Pipeline, error) {
		return s.cfg.Meta.SetOptions(ctx, p.UID, options)
	})
}

// FailPipeline crashes the dataflow as a fault would.
func (s *Service) FailPipeline(_ context.Context, name string) (dataflow.Incarnation, error) {
	if !s.cfg.AllowFaults {
		return 0, dataflow.Errorf(dataflow.ReasonPipelineState, "this server does not allow faults to be injected").
			WithHint("start it with --allow-fault-injection")
	}
	p, err := s.cfg.Meta.State().Pipeline(name)
	if err != nil {
		return 0, err
	}
	if p.State != dataflow.PipelineRunning {
		return 0, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s; only a running one can be crashed", name, p.State)
	}
	s.cfg.Leader.Fail(p.UID, p.Incarnation, "crashed on request")
	return p.Incarnation, nil
}
