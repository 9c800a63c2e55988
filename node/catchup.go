package node

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
)

// catchUp returns when this node has applied what the group had acknowledged before the call, in all logs. A group of one node
// always has.
func (n *Node) catchUp(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return passed("the meta log", n.storage.meta.Barrier(ctx)) })
	for _, s := range n.storage.shards {
		g.Go(func() error { return passed(fmt.Sprintf("the log of shard %d", s.ID), s.Log.Barrier(ctx)) })
	}
	return g.Wait()
}

// passed says of which log it was not heard. Nothing is in doubt after a Barrier whose outcome is unknown: a read has no effect.
func passed(log string, err error) error {
	switch {
	case err == nil:
		return nil
	case dataflow.ReasonOf(err).Kind() == dataflow.KindUnknown:
		return dataflow.Errorf(dataflow.ReasonNotLeader, "the leader of %s did not answer: %w", log, err).WithRetry(time.Second)
	}
	return fmt.Errorf("%s: %w", log, err)
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
