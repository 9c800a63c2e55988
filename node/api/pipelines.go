package api

import (
	"context"
	"time"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// pipelineService implements weirv1.PipelineServiceServer. Its RPCs stand in pipelines.go, tables.go, checkpoints.go and
// tokens.go.
type pipelineService struct {
	weirv1.UnimplementedPipelineServiceServer
	b              Backends
	names          *namer
	group          dataflow.GroupID
	faultInjection bool
}

// DeployPipeline implements weirv1.PipelineServiceServer.
func (s *pipelineService) DeployPipeline(ctx context.Context, r *weirv1.DeployPipelineRequest) (*weirv1.DeployPipelineResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	if err := checkSQL(r.GetSql()); err != nil {
		return nil, err
	}
	start, err := parseStart(r.GetStart(), s.group)
	if err != nil {
		return nil, err
	}
	d, err := s.b.Pipelines.Deploy(ctx, Deploy{Pipeline: r.GetPipeline(), SQL: r.GetSql(), Options: optionList(r.GetOptions()),
		Start: start, ValidateOnly: r.GetValidateOnly()})
	if err != nil {
		return nil, err
	}
	m := &weirv1.DeployPipelineResponse{Outcome: weirv1.DeployOutcome_DEPLOY_OUTCOME_CREATED, Pipeline: s.names.pipeline(d.Pipeline)}
	if d.Unchanged {
		m.Outcome = weirv1.DeployOutcome_DEPLOY_OUTCOME_UNCHANGED
	}
	for _, t := range d.Tables {
		m.Tables = append(m.Tables, tableMessage(t))
	}
	for _, st := range d.Streams {
		ds := &weirv1.DeployedStream{Name: st.Name, Created: st.Created, Read: st.Read, RowsDropped: st.RowsDropped}
		if st.Read && !d.Unchanged {
			ds.RowsToRead = &st.RowsToRead
		}
		m.Streams = append(m.Streams, ds)
	}
	return m, nil
}

// parseStart reads DeployPipelineRequest.start.
func parseStart(text string, group dataflow.GroupID) (Start, error) {
	switch text {
	case "", "earliest":
		return Start{Kind: StartEarliest}, nil
	case "latest":
		return Start{Kind: StartLatest}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return Start{Kind: StartTime, Time: t.UnixMicro()}, nil
	}
	tok, err := dataflow.ParseToken(text, group)
	if dataflow.ReasonOf(err) == dataflow.ReasonTokenForeign {
		return Start{}, err
	}
	if err != nil {
		return Start{}, invalid("start", "%s is not earliest, latest, a time such as 2026-11-29T12:00:00Z, or a token", short(text))
	}
	return Start{Kind: StartToken, Positions: tok.Positions}, nil
}

// ListPipelines implements weirv1.PipelineServiceServer.
func (s *pipelineService) ListPipelines(ctx context.Context, r *weirv1.ListPipelinesRequest) (*weirv1.ListPipelinesResponse, error) {
	all, err := s.b.Pipelines.ListPipelines(ctx)
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf("pipelines", all, func(p *Pipeline) string { return p.Name }, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	m := &weirv1.ListPipelinesResponse{NextPageToken: next}
	for _, p := range page {
		m.Pipelines = append(m.Pipelines, s.names.pipeline(p))
	}
	return m, nil
}

// GetPipeline implements weirv1.PipelineServiceServer.
func (s *pipelineService) GetPipeline(ctx context.Context, r *weirv1.GetPipelineRequest) (*weirv1.GetPipelineResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	p, err := s.b.Pipelines.GetPipeline(ctx, r.GetPipeline())
	if err != nil {
		return nil, err
	}
	return &weirv1.GetPipelineResponse{Pipeline: s.names.pipeline(p)}, nil
}

// DeletePipeline implements weirv1.PipelineServiceServer.
func (s *pipelineService) DeletePipeline(ctx context.Context, r *weirv1.DeletePipelineRequest) (*weirv1.DeletePipelineResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	kept, err := s.b.Pipelines.DeletePipeline(ctx, r.GetPipeline())
	if err != nil {
		return nil, err
	}
	return &weirv1.DeletePipelineResponse{KeptStreams: kept}, nil
}

// StopPipeline implements weirv1.PipelineServiceServer.
func (s *pipelineService) StopPipeline(ctx context.Context, r *weirv1.StopPipelineRequest) (*weirv1.StopPipelineResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	p, err := s.b.Control.StopPipeline(ctx, r.GetPipeline())
	if err != nil {
		return nil, err
	}
	return &weirv1.StopPipelineResponse{Pipeline: s.names.pipeline(p)}, nil
}

// ResumePipeline implements weirv1.PipelineServiceServer.
func (s *pipelineService) ResumePipeline(ctx context.Context, r *weirv1.ResumePipelineRequest) (*weirv1.ResumePipelineResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	p, err := s.b.Control.ResumePipeline(ctx, r.GetPipeline(), r.GetSkipFailedRow())
	if err != nil {
		return nil, err
	}
	return &weirv1.ResumePipelineResponse{Pipeline: s.names.pipeline(p)}, nil
}

// SetPipelineOptions implements weirv1.PipelineServiceServer.
func (s *pipelineService) SetPipelineOptions(ctx context.Context, r *weirv1.SetPipelineOptionsRequest) (*weirv1.SetPipelineOptionsResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	if len(r.GetOptions()) == 0 {
		return nil, invalid("options", "is missing")
	}
	p, err := s.b.Control.SetPipelineOptions(ctx, r.GetPipeline(), optionList(r.GetOptions()))
	if err != nil {
		return nil, err
	}
	return &weirv1.SetPipelineOptionsResponse{Pipeline: s.names.pipeline(p)}, nil
}

// FailPipeline implements weirv1.PipelineServiceServer.
func (s *pipelineService) FailPipeline(ctx context.Context, r *weirv1.FailPipelineRequest) (*weirv1.FailPipelineResponse, error) {
	if err := checkName("pipeline", r.GetPipeline()); err != nil {
		return nil, err
	}
	if !s.faultInjection {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "this server does not crash pipelines on request").
			WithHint("start it with --allow-fault-injection, on a test system")
	}
	i, err := s.b.Control.FailPipeline(ctx, r.GetPipeline())
	if err != nil {
		return nil, err
	}
	return &weirv1.FailPipelineResponse{Incarnation: uint64(i)}, nil
}
