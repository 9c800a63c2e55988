package node

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// catchUp returns when this node has applied what the group had acknowledged before the call, in all logs. A group of one node
// always has.
func (n *Node) catchUp(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := n.storage.meta.Barrier(ctx); err != nil {
			return fmt.Errorf("the meta log: %w", err)
		}
		return nil
	})
	for _, s := range n.storage.shards {
		g.Go(func() error {
			if err := s.Log.Barrier(ctx); err != nil {
				return fmt.Errorf("the log of shard %d: %w", s.ID, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// otherNodes names the other nodes of the group that serve clients.
func (n *Node) otherNodes() []string {
	var names []string
	for _, m := range n.storage.meta.State().InMembers() {
		if m.ID != n.cfg.NodeID {
			names = append(names, m.ID)
		}
	}
	return names
}
