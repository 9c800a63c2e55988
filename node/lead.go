package node

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// lead runs the coordinators while this node leads the meta log, until ctx ends.
func (n *Node) lead(ctx context.Context) error {
	for {
		changed := n.storage.group.Changed()
		if n.storage.group.IsLeader() {
			if err := n.coordinate(ctx); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// coordinate drives the pipelines for one term of the meta log. The error is of something else than the term's end.
func (n *Node) coordinate(ctx context.Context) error {
	term := n.storage.group.Term()
	work, stop := context.WithCancel(ctx)
	defer stop()
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return n.fleet.Coordinate(work, term) })
	g.Go(func() error { return n.leader.Run(work) })
	g.Go(func() error {
		defer stop()
		for {
			changed := n.storage.group.Changed()
			if !n.storage.group.IsLeader() || n.storage.group.Term() != term {
				n.cfg.Logger.Info("another node leads the meta log", "term", n.storage.group.Term())
				return nil
			}
			select {
			case <-changed:
			case <-work.Done():
				return nil
			}
		}
	})
	if err := g.Wait(); ctx.Err() == nil && work.Err() == nil {
		return err
	}
	return ctx.Err()
}
