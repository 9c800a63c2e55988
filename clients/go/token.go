package weir

import (
	"context"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// WaitCommitted waits until a committed cut of every running pipeline that reads the token's streams covers it, and
// returns the cuts. It waits until ctx ends; then TOKEN_NOT_REACHED.
func (c *Client) WaitCommitted(ctx context.Context, token string, pipelines ...string) ([]*weirv1.Cut, error) {
	return c.wait(ctx, weirv1.WaitFor_WAIT_FOR_COMMITTED, token, pipelines)
}

// WaitProcessed is WaitCommitted for the live tables.
func (c *Client) WaitProcessed(ctx context.Context, token string, pipelines ...string) ([]*weirv1.Cut, error) {
	return c.wait(ctx, weirv1.WaitFor_WAIT_FOR_PROCESSED, token, pipelines)
}

func (c *Client) wait(ctx context.Context, what weirv1.WaitFor, token string, pipelines []string) ([]*weirv1.Cut, error) {
	r, err := call(ctx, c, repeatable, c.pipelines.WaitToken, &weirv1.WaitTokenRequest{Token: token, WaitFor: what, Pipelines: pipelines})
	if err != nil {
		return nil, err
	}
	if what == weirv1.WaitFor_WAIT_FOR_COMMITTED {
		for _, cut := range r.GetCuts() {
			c.sessions.saw(cut)
		}
	}
	return r.GetCuts(), nil
}
