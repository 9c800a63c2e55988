package weir

import (
	"context"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Deploy describes a deployment.
type Deploy struct {
	// Pipeline is the pipeline's name.
	Pipeline string
	// SQL is the text of the file.
	SQL string
	// Options win over the file's SET.
	Options map[string]string
	// Start is where a new pipeline starts to read: earliest (also when empty), latest, an RFC 3339 time, or a token.
	Start string
	// ValidateOnly changes nothing.
	ValidateOnly bool
}

// Deploy makes a pipeline of a SQL file. Deploying the same again is UNCHANGED; another program under the same name is
// PIPELINE_EXISTS.
func (c *Client) Deploy(ctx context.Context, d Deploy) (*weirv1.DeployPipelineResponse, error) {
	return call(ctx, c, repeatable, c.pipelines.DeployPipeline, &weirv1.DeployPipelineRequest{
		Pipeline: d.Pipeline, Sql: d.SQL, Options: d.Options, Start: d.Start, ValidateOnly: d.ValidateOnly,
	})
}

// ListPipelines returns all pipelines by name.
func (c *Client) ListPipelines(ctx context.Context) ([]*weirv1.Pipeline, error) {
	var all []*weirv1.Pipeline
	for token := ""; ; {
		r, err := call(ctx, c, repeatable, c.pipelines.ListPipelines, &weirv1.ListPipelinesRequest{PageToken: token})
		if err != nil {
			return nil, err
		}
		all = append(all, r.GetPipelines()...)
		if token = r.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// GetPipeline returns one pipeline.
func (c *Client) GetPipeline(ctx context.Context, name string) (*weirv1.Pipeline, error) {
	r, err := call(ctx, c, repeatable, c.pipelines.GetPipeline, &weirv1.GetPipelineRequest{Pipeline: name})
	return r.GetPipeline(), err
}

// DeletePipeline removes a pipeline with its tables, state and checkpoints, and returns the streams that it read, which
// stay. It is not made twice by itself: after UNREACHABLE or OUTCOME_UNKNOWN, look whether it is still there.
func (c *Client) DeletePipeline(ctx context.Context, name string) (keptStreams []string, err error) {
	r, err := call(ctx, c, once, c.pipelines.DeletePipeline, &weirv1.DeletePipelineRequest{Pipeline: name})
	return r.GetKeptStreams(), err
}

// StopPipeline stops processing after a last checkpoint, and returns when it has stopped. The tables stay readable.
func (c *Client) StopPipeline(ctx context.Context, name string) (*weirv1.Pipeline, error) {
	r, err := call(ctx, c, repeatable, c.pipelines.StopPipeline, &weirv1.StopPipelineRequest{Pipeline: name})
	return r.GetPipeline(), err
}

// ResumePipeline starts a stopped or failed pipeline from its last cut, without the row that it failed at if so asked.
func (c *Client) ResumePipeline(ctx context.Context, name string, skipFailedRow bool) (*weirv1.Pipeline, error) {
	safe := repeatable
	if skipFailedRow { // made twice it could skip a second row
		safe = once
	}
	r, err := call(ctx, c, safe, c.pipelines.ResumePipeline, &weirv1.ResumePipelineRequest{Pipeline: name, SkipFailedRow: skipFailedRow})
	return r.GetPipeline(), err
}

// SetPipelineOptions changes options of a pipeline, also while it runs.
func (c *Client) SetPipelineOptions(ctx context.Context, name string, options map[string]string) (*weirv1.Pipeline, error) {
	r, err := call(ctx, c, repeatable, c.pipelines.SetPipelineOptions, &weirv1.SetPipelineOptionsRequest{Pipeline: name, Options: options})
	return r.GetPipeline(), err
}

// FailPipeline makes the pipeline's dataflow crash, as a fault would, and returns the incarnation that crashed. Servers
// refuse it unless they run with --allow-fault-injection.
func (c *Client) FailPipeline(ctx context.Context, name string) (incarnation uint64, err error) {
	r, err := call(ctx, c, once, c.pipelines.FailPipeline, &weirv1.FailPipelineRequest{Pipeline: name})
	return r.GetIncarnation(), err
}
