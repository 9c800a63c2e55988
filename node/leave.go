package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/founding"
	"github.com/weirdb/weir/raftlog"
)

// leftEvery is how often a node looks whether it still hears of its group, and leftAfter how long it hears nothing before it
// asks why.
const (
	leftEvery = time.Second
	leftAfter = 3 * time.Second
)

// belong returns an error once this node has left the group, or ctx's. Nobody sends the meta log to a node that was taken out:
// without asking, one that was cut off or down meanwhile would go on for ever, and answer from what it had then.
func (p *peers) belong(ctx context.Context, g *raftlog.Group) error {
	tick := time.NewTicker(leftEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if g.IsLeader() || time.Since(g.LastContact()) < leftAfter {
			continue
		}
		if err := p.left(ctx); err != nil {
			return err
		}
	}
}

// left asks the other nodes whether this one has left the group. Names are not given again, so one that says so is right,
// however little it knows of what came later.
func (p *peers) left(ctx context.Context) error {
	self := p.report()
	var others []string
	p.mu.Lock()
	if p.mu.meta != nil {
		for _, m := range p.mu.meta.State().Members {
			others = append(others, m.PeerAddr)
		}
	}
	for _, m := range p.mu.book {
		others = append(others, m.PeerAddr)
	}
	p.mu.Unlock()
	others = append(others, p.cfg.Join...)
	slices.Sort(others)
	gone := func(r *founding.Report) bool {
		return slices.ContainsFunc(r.Left, func(m founding.Member) bool { return m.Node == self.Node && m.Data == self.Data })
	}
	var asked sync.WaitGroup
	said := make(chan string, len(others))
	for _, addr := range slices.Compact(others) {
		asked.Go(func() {
			if r, err := p.ask(ctx, addr); err == nil && r != nil && gone(r) {
				said <- r.Node
			}
		})
	}
	asked.Wait()
	select {
	case by := <-said:
		return dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s has left the group for good, as node %s says", self.Node, by).
			WithHint("the directory is of no more use; to join again, start with another --node-id and an empty one, and weir cluster add it")
	default:
		return nil
	}
}
