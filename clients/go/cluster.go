package weir

import (
	"context"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Status returns what the node that answers knows of the group.
func (c *Client) Status(ctx context.Context) (*weirv1.GetStatusResponse, error) {
	return call(ctx, c, repeatable, c.cluster.GetStatus, &weirv1.GetStatusRequest{})
}

// Version returns what the server that answers is.
func (c *Client) Version(ctx context.Context) (*weirv1.GetVersionResponse, error) {
	return call(ctx, c, repeatable, c.cluster.GetVersion, &weirv1.GetVersionRequest{})
}
