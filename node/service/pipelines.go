package service

import (
	"context"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/raftlog/meta"
)

var (
	_ api.Pipelines       = (*Service)(nil)
	_ api.PipelineControl = (*Service)(nil)
)

// pipeline returns the pipeline that is called name now, also by way of other nodes: one that was deleted and deployed again is
// another one.
func (s *Service) pipeline(ctx context.Context, name string) (*meta.Pipeline, error) {
	st, err := s.cfg.Meta.Current(ctx)
	if err != nil {
		return nil, err
	}
	return st.Pipeline(name)
}

// describe shows a pipeline as the API does.
func (s *Service) describe(st *meta.State, p *meta.Pipeline) (*api.Pipeline, error) {
	prog, err := s.cfg.Catalog.Program(st, p)
	if err != nil {
		return nil, err
	}
	out := &api.Pipeline{
		Name: p.Name, UID: p.UID, SQL: p.SQL, Options: p.Options.List(), State: stateNow(s.cfg.Fleet, p), Failure: p.Failure,
		Timeline: p.Timeline, Incarnation: p.Incarnation, CreatedAt: p.CreatedAt,
	}
	for _, t := range prog.Plan.Tables() {
		out.Tables = append(out.Tables, t.Name)
	}
	for _, r := range prog.Plan.Reads {
		out.Streams = append(out.Streams, r.Name)
	}
	cut := s.cfg.Queries.NewestCut(PipelineInfo(p))
	cut.State = out.State
	out.Cut = &cut
	return out, nil
}

// ListPipelines returns all pipelines by name.
func (s *Service) ListPipelines(ctx context.Context) ([]*api.Pipeline, error) {
	st, err := s.cfg.Meta.Current(ctx)
	if err != nil {
		return nil, err
	}
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
func (s *Service) GetPipeline(ctx context.Context, name string) (*api.Pipeline, error) {
	st, err := s.cfg.Meta.Current(ctx)
	if err != nil {
		return nil, err
	}
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

// control finds a pipeline, applies change to it and shows the result.
func (s *Service) control(ctx context.Context, name string, change func(*meta.Pipeline) (*meta.Pipeline, error)) (*api.Pipeline, error) {
	p, err := s.pipeline(ctx, name)
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
	return s.control(ctx, name, func(p *meta.Pipeline) (*meta.Pipeline, error) {
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
	return s.control(ctx, name, func(p *meta.Pipeline) (*meta.Pipeline, error) {
		if !skipFailedRow {
			return s.cfg.Meta.Resume(ctx, p.UID)
		}
		if p.State != dataflow.PipelineFailed || p.Failure == nil || !p.Failure.HasRow {
			return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s and has not failed at a row, so there is none to skip", name, p.State).
				WithHint("%s", withoutSkip(p))
		}
		return s.cfg.Meta.Resume(ctx, p.UID, p.Failure.Row)
	})
}

// withoutSkip says how a pipeline goes on that has no failed row of a stream to leave out.
func withoutSkip(p *meta.Pipeline) string {
	if p.State == dataflow.PipelineFailed && p.Failure != nil && p.Failure.Reason == dataflow.ReasonExpressionFailed {
		return fmt.Sprintf("it failed at a row of a table, which no row of a stream stands for: weir pipeline set %[1]s on_error=skip, then weir pipeline resume %[1]s", p.Name)
	}
	return "resume it without --skip-failed-row"
}

// SetPipelineOptions changes options, also of a running pipeline.
func (s *Service) SetPipelineOptions(ctx context.Context, name string, options []dataflow.Option) (*api.Pipeline, error) {
	return s.control(ctx, name, func(p *meta.Pipeline) (*meta.Pipeline, error) {
		return s.cfg.Meta.SetOptions(ctx, p.UID, options)
	})
}

// FailPipeline crashes the dataflow as a fault would.
func (s *Service) FailPipeline(ctx context.Context, name string) (dataflow.Incarnation, error) {
	if !s.cfg.AllowFaults {
		return 0, dataflow.Errorf(dataflow.ReasonPipelineState, "this server does not allow faults to be injected").
			WithHint("start it with --allow-fault-injection")
	}
	p, err := s.pipeline(ctx, name)
	if err != nil {
		return 0, err
	}
	if p.State != dataflow.PipelineRunning {
		return 0, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s; only a running one can be crashed", name, p.State)
	}
	s.cfg.Leader.Fail(p.UID, p.Incarnation, "crashed on request")
	return p.Incarnation, nil
}
