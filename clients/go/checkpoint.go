package weir

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// ListCheckpoints returns the cuts that a pipeline keeps, newest first.
func (c *Client) ListCheckpoints(ctx context.Context, pipeline string) ([]*weirv1.Checkpoint, error) {
	r, err := call(ctx, c, repeatable, c.pipelines.ListCheckpoints, &weirv1.ListCheckpointsRequest{Pipeline: pipeline})
	return r.GetCheckpoints(), err
}

// GetCheckpoint returns one cut that a pipeline keeps.
func (c *Client) GetCheckpoint(ctx context.Context, pipeline string, id dataflow.CheckpointID) (*weirv1.Checkpoint, error) {
	r, err := call(ctx, c, repeatable, c.pipelines.GetCheckpoint, &weirv1.GetCheckpointRequest{Pipeline: pipeline, CheckpointId: uint64(id)})
	return r.GetCheckpoint(), err
}

// TriggerCheckpoint starts a checkpoint. With wait it returns when that has been committed; without, nil.
func (c *Client) TriggerCheckpoint(ctx context.Context, pipeline string, wait bool) (*weirv1.Checkpoint, error) {
	r, err := call(ctx, c, repeatable, c.pipelines.TriggerCheckpoint, &weirv1.TriggerCheckpointRequest{Pipeline: pipeline, Wait: wait})
	return r.GetCheckpoint(), err
}

// LeaseCheckpoint keeps a cut readable for a time; id nil is the newest. A lease is renewed by its id; "" is a new one.
func (c *Client) LeaseCheckpoint(ctx context.Context, pipeline string, id *dataflow.CheckpointID, ttl time.Duration, lease string) (*weirv1.LeaseCheckpointResponse, error) {
	req := &weirv1.LeaseCheckpointRequest{Pipeline: pipeline, Ttl: durationpb.New(ttl), LeaseId: lease}
	if id != nil {
		req.CheckpointId = uint64(*id)
	}
	return call(ctx, c, repeatable, c.pipelines.LeaseCheckpoint, req)
}

// ReleaseLease ends a lease early.
func (c *Client) ReleaseLease(ctx context.Context, pipeline, lease string) error {
	_, err := call(ctx, c, repeatable, c.pipelines.ReleaseLease, &weirv1.ReleaseLeaseRequest{Pipeline: pipeline, LeaseId: lease})
	return err
}
