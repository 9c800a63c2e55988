package weir

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// waitSlice is how long one call waits. Between calls the client looks whether the pipeline can still get there.
const waitSlice = 2 * time.Second

// WaitCommitted waits until a committed cut of every running pipeline that reads the token's streams covers it, and
// returns the cuts. It waits until ctx ends; then TOKEN_NOT_REACHED. A pipeline that fails meanwhile,
// or has failed before it came so far, ends it with PIPELINE_STATE. With names it waits for those pipelines only, whatever their state.
func (c *Client) WaitCommitted(ctx context.Context, token string, pipelines ...string) ([]*weirv1.Cut, error) {
	return c.wait(ctx, weirv1.WaitFor_WAIT_FOR_COMMITTED, token, pipelines)
}

// WaitProcessed is WaitCommitted for the live tables.
func (c *Client) WaitProcessed(ctx context.Context, token string, pipelines ...string) ([]*weirv1.Cut, error) {
	return c.wait(ctx, weirv1.WaitFor_WAIT_FOR_PROCESSED, token, pipelines)
}

func (c *Client) wait(ctx context.Context, what weirv1.WaitFor, token string, pipelines []string) ([]*weirv1.Cut, error) {
	req := &weirv1.WaitTokenRequest{Token: token, WaitFor: what, Pipelines: pipelines}
	var notReached error // the server's last word
	for {
		req.MaxWait = durationpb.New(slice(ctx))
		r, err := call(ctx, c, repeatable, c.pipelines.WaitToken, req)
		if err == nil {
			if what == weirv1.WaitFor_WAIT_FOR_COMMITTED {
				for _, cut := range r.GetCuts() {
					c.sessions.saw(cut)
				}
			}
			return r.GetCuts(), nil
		}
		reason := dataflow.ReasonOf(err)
		// The server, which is told of ctx's deadline, may see it pass a moment before ctx does.
		if notReached != nil && (reason == dataflow.ReasonDeadline || errors.Is(ctx.Err(), context.DeadlineExceeded)) {
			return nil, notReached // says what holds it up, which a call that was cut short does not
		}
		if reason == dataflow.ReasonTokenNotReached {
			notReached = err
		}
		if reason != dataflow.ReasonTokenNotReached && reason != dataflow.ReasonPipelineState || ctx.Err() != nil {
			return nil, err
		}
		if failed := c.failedPipeline(ctx, err); failed != nil {
			return nil, failed
		}
		if reason == dataflow.ReasonPipelineState {
			return nil, err
		}
	}
}

// slice returns how long the next call waits: not up to ctx's deadline, so that the server's answer comes before it.
func slice(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return waitSlice
	}
	return max(time.Millisecond, min(waitSlice, time.Until(deadline)*3/4))
}

// failedPipeline returns why a token will not be reached, when the pipeline that it waits for has failed.
func (c *Client) failedPipeline(ctx context.Context, notReached error) error {
	var e *dataflow.Error
	if !errors.As(notReached, &e) || e.Metadata["pipeline"] == "" {
		return nil
	}
	p, err := c.GetPipeline(ctx, e.Metadata["pipeline"])
	if err != nil || p.GetState() != weirv1.PipelineState_PIPELINE_STATE_FAILED {
		return nil // the next call says more
	}
	return dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s has failed: %s", p.GetName(), p.GetFailure().GetMessage()).
		WithHint("weir pipeline describe %s says how it goes on", p.GetName()).WithMeta("pipeline", p.GetName())
}
