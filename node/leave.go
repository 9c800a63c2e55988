package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/founding"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/meta"
)

const (
	// leftAfter is how long a node hears nothing of its group before it asks why, and leavingAfter how long one that knows that it is
	// to leave: it is likely that it has.
	leftAfter    = 3 * time.Second
	leavingAfter = 300 * time.Millisecond
	// leftLook is how often it looks for how long it has heard nothing, and leftEvery how often it asks at most.
	leftLook  = 100 * time.Millisecond
	leftEvery = time.Second
)

// belong returns an error once this node has left the group, or ctx's. Nobody sends the meta log to a node that was taken out:
// without asking, one that was cut off or down meanwhile would go on for ever, and answer from what it had then.
func (p *peers) belong(ctx context.Context, g *raftlog.Group) error {
	tick := time.NewTicker(leftLook)
	defer tick.Stop()
	var asked time.Time
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if g.IsLeader() || time.Since(g.LastContact()) < p.patience() || time.Since(asked) < leftEvery {
			continue
		}
		asked = time.Now()
		if err := p.left(ctx); err != nil {
			return err
		}
	}
}

// patience is how long this node hears nothing before it asks whether it has left.
func (p *peers) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.meta != nil {
		if m := p.mu.meta.State().Moving(); m != nil && m.ID == p.cfg.NodeID && m.State == meta.MemberLeaving {
			return leavingAfter
		}
	}
	return leftAfter
}

// left asks the other nodes whether this one has left the group. Names are not given again, so one that says so is right,
// however little it knows of what came later.
func (p *peers) left(ctx context.Context) error {
	ctx, enough := context.WithCancel(ctx) // one that says so is enough
	defer enough()
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
				enough()
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
