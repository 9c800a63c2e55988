package weir

import (
	"context"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Status returns what the node that answers knows of the group.
func (c *Client) Status(ctx context.Context) (*weirv1.GetStatusResponse, error) {
	return call(ctx, c, repeatable, c.cluster.GetStatus, &weirv1.GetStatusRequest{})
}

// ListNodes returns where the nodes of the group are, as the one that answers knows; none of a group of one. Unless the client
// keeps to its own addresses, it knows these nodes afterwards.
func (c *Client) ListNodes(ctx context.Context) ([]*weirv1.NodeAddress, error) {
	var nodes []*weirv1.NodeAddress
	err := c.retry(ctx, repeatable, func(ctx context.Context) (err error) {
		nodes, err = c.nodes.list(ctx)
		return err
	})
	return nodes, err
}

// AddNode takes the node called name, which listens for peers at an address, into the group. It returns before the node has
// joined.
func (c *Client) AddNode(ctx context.Context, name, peerAddr string) (*weirv1.NodeStatus, error) {
	r, err := call(ctx, c, repeatable, c.cluster.AddNode, &weirv1.AddNodeRequest{Node: name, PeerAddr: peerAddr})
	return r.GetNode(), err
}

// RemoveNode takes a node out of the group, for good, and returns before the node has left. With undo it takes that back, as long
// as the node is not gone.
func (c *Client) RemoveNode(ctx context.Context, name string, undo bool) (*weirv1.NodeStatus, error) {
	r, err := call(ctx, c, repeatable, c.cluster.RemoveNode, &weirv1.RemoveNodeRequest{Node: name, Undo: undo})
	return r.GetNode(), err
}

// DrainNode keeps the lead of all logs away from a node, or, with undo, lets it lead again.
func (c *Client) DrainNode(ctx context.Context, name string, undo bool) (*weirv1.NodeStatus, error) {
	r, err := call(ctx, c, repeatable, c.cluster.DrainNode, &weirv1.DrainNodeRequest{Node: name, Undo: undo})
	return r.GetNode(), err
}

// Rebalance spreads the lead of the shards evenly over the nodes.
func (c *Client) Rebalance(ctx context.Context) (*weirv1.RebalanceResponse, error) {
	return call(ctx, c, repeatable, c.cluster.Rebalance, &weirv1.RebalanceRequest{})
}

// SetReplicas says how many nodes vote in each shard's log: 3, 5 or 7.
func (c *Client) SetReplicas(ctx context.Context, n int) error {
	_, err := call(ctx, c, repeatable, c.cluster.SetReplicas, &weirv1.SetReplicasRequest{Replicas: uint32(max(n, 0))})
	return err
}

// VerifyCluster compares what the nodes hold of pipelines at one cut; no names = of all.
func (c *Client) VerifyCluster(ctx context.Context, pipelines ...string) (*weirv1.VerifyClusterResponse, error) {
	return call(ctx, c, repeatable, c.cluster.VerifyCluster, &weirv1.VerifyClusterRequest{Pipelines: pipelines})
}

// Version returns what the server that answers is.
func (c *Client) Version(ctx context.Context) (*weirv1.GetVersionResponse, error) {
	return call(ctx, c, repeatable, c.cluster.GetVersion, &weirv1.GetVersionRequest{})
}
