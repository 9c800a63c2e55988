package raftlog

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/frame"
)

// Pending is a command that was handed to the log and whose outcome is not known yet.
type Pending struct {
	g      *Group
	frame  []byte // nil: a barrier
	future raft.Future
	origin frame.Origin      // of the frame; zero when it has none
	known  dataflow.LogIndex // where the leader says that it is; guarded by forwarding.mu
	last   bool              // the barrier of a transfer, behind which nothing may come

	done  chan struct{} // closed when the fields below are set
	index dataflow.LogIndex
	value any
	err   error
}

// Done is closed when the outcome is known; Wait then returns at once.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait returns the index at which the command was applied and what the FSM answered. When ctx ends first, the error is
// OUTCOME_UNKNOWN, and the command may still be applied later.
func (p *Pending) Wait(ctx context.Context) (dataflow.LogIndex, any, error) {
	select {
	case <-p.done:
		return p.index, p.value, p.err
	default:
	}
	select {
	case <-p.done:
		return p.index, p.value, p.err
	case <-ctx.Done():
		return 0, nil, p.g.errUnknown(context.Cause(ctx))
	}
}

// Propose appends a command to the log and returns when this node's FSM has applied it: the index and the FSM's answer.
// cmd is copied. Where another member leads, it carries the command into the log (Config.Forward). Errors are as rule R2
// says, and DEADLINE when ctx had ended before anything was done.
func (g *Group) Propose(ctx context.Context, cmd []byte) (dataflow.LogIndex, any, error) {
	if err := g.checkCtx(ctx); err != nil {
		return 0, nil, err
	}
	p, err := g.Submit(cmd)
	if err != nil {
		return 0, nil, err
	}
	return p.Wait(ctx)
}

// ProposeHere is Propose for commands that only the leader may propose: elsewhere it is NOT_LEADER.
func (g *Group) ProposeHere(ctx context.Context, cmd []byte) (dataflow.LogIndex, any, error) {
	if err := g.checkCtx(ctx); err != nil {
		return 0, nil, err
	}
	p, err := g.SubmitHere(cmd)
	if err != nil {
		return 0, nil, err
	}
	return p.Wait(ctx)
}

// Submit hands a command to the log without waiting. Commands submitted one after another enter the log in that order,
// if at all: when leadership is lost, later ones may enter without earlier ones. cmd is copied. What is wrong may be told
// by the Pending only, where another member leads.
func (g *Group) Submit(cmd []byte) (*Pending, error) {
	if !g.forwards() {
		return g.SubmitHere(cmd)
	}
	if err := g.checkSize(len(cmd)); err != nil {
		return nil, err
	}
	return g.enqueue(g.fwd.pending(cmd, false), g.fwd.queue)
}

func (g *Group) checkSize(n int) error {
	if n > g.cfg.MaxEntryBytes {
		return dataflow.Errorf(dataflow.ReasonTooLarge, "log %s: a command of %d bytes is over the limit of %d bytes",
			g.cfg.Group, n, g.cfg.MaxEntryBytes)
	}
	return nil
}

// forwards says whether a command has to go by way of the forwarding: because another member leads, or because earlier
// ones are still on that way, and must not be overtaken.
func (g *Group) forwards() bool {
	return g.fwd != nil && (!g.IsLeader() || g.fwd.waiting.Load() > 0)
}

// SubmitHere is Submit for commands that only the leader may propose: elsewhere it is NOT_LEADER.
func (g *Group) SubmitHere(cmd []byte) (*Pending, error) {
	if err := g.checkSize(len(cmd)); err != nil {
		return nil, err
	}
	if !g.IsLeader() {
		if g.isClosed() {
			return nil, g.errClosed()
		}
		return nil, g.errNotLeader() // cheaper than asking the log, which decides in any case
	}
	return g.enqueue(&Pending{g: g, frame: frame.Append(make([]byte, 0, frame.Overhead+len(cmd)), cmd)}, g.queue)
}

// Barrier returns when this node's FSM has applied every command that was committed before, by this or an earlier leader.
// It writes to the log, by way of the leader, and its errors are Propose's.
func (g *Group) Barrier(ctx context.Context) error {
	if g.forwards() {
		return g.barrier(ctx, g.fwd.pending(nil, true), g.fwd.queue)
	}
	return g.BarrierHere(ctx)
}

// BarrierHere is Barrier on the leader: elsewhere it is NOT_LEADER.
func (g *Group) BarrierHere(ctx context.Context) error {
	return g.barrier(ctx, &Pending{g: g}, g.queue)
}

func (g *Group) barrier(ctx context.Context, p *Pending, to chan<- *Pending) error {
	if err := g.checkCtx(ctx); err != nil {
		return err
	}
	p, err := g.enqueue(p, to)
	if err != nil {
		return err
	}
	_, _, err = p.Wait(ctx)
	return err
}

func (g *Group) checkCtx(ctx context.Context) error {
	if ctx.Err() != nil {
		return dataflow.Errorf(dataflow.ReasonDeadline, "log %s: nothing was proposed: %w", g.cfg.Group, context.Cause(ctx))
	}
	return nil
}

// enqueue takes a place for p in one of the queues, or refuses it.
func (g *Group) enqueue(p *Pending, to chan<- *Pending) (*Pending, error) {
	p.done = make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		return nil, g.errClosed()
	}
	if g.mu.transferring && !p.last {
		return nil, dataflow.Errorf(dataflow.ReasonNotLeader, "the leadership of log %s is being handed over", g.cfg.Group).WithRetry(retryElection)
	}
	if g.mu.pending >= g.cfg.MaxPending || g.mu.pending > 0 && g.mu.pendingBytes+int64(len(p.frame)) > g.cfg.MaxPendingBytes {
		return nil, dataflow.Errorf(dataflow.ReasonOverloaded, "log %s: %d commands of %d bytes are waiting",
			g.cfg.Group, g.mu.pending, g.mu.pendingBytes).WithRetry(retryOverload)
	}
	g.mu.pending++
	g.mu.pendingBytes += int64(len(p.frame))
	if g.fwd != nil && to == (chan<- *Pending)(g.fwd.queue) {
		g.fwd.waiting.Add(1)
	}
	to <- p // never blocks: the channel holds MaxPending
	return p, nil
}

// runQueue hands commands to hashicorp/raft, in order. It blocks while Raft writes.
func (g *Group) runQueue() {
	defer close(g.inflight)
	for p := range g.queue {
		if p.frame == nil {
			p.future = g.raft.Barrier(0)
		} else {
			p.future = g.raft.Apply(p.frame, 0)
		}
		g.inflight <- p // never blocks: the channel holds MaxPending
	}
}

// runInflight waits for outcomes, in order, which is also the order in which they come.
func (g *Group) runInflight() {
	for p := range g.inflight {
		g.settle(p, p.future.Error())
	}
}

// settle publishes p's outcome and frees its place.
func (g *Group) settle(p *Pending, err error) {
	if err != nil {
		p.err = g.proposeError(err)
	} else if f, ok := p.future.(raft.ApplyFuture); ok && p.frame != nil {
		p.index = dataflow.LogIndex(f.Index())
		if r, ok := f.Response().(applyResult); ok {
			p.value = r.value
			if r.err != nil {
				p.err = g.errUnknown(r.err)
			}
		} else {
			p.err = g.errUnknown(fmt.Errorf("the state machine answered %T", f.Response()))
		}
	}
	g.finish(p)
}

// finish tells that p's outcome is known and frees its place.
func (g *Group) finish(p *Pending) {
	g.mu.Lock()
	g.mu.pending--
	g.mu.pendingBytes -= int64(len(p.frame))
	idle := g.mu.closed && g.mu.pending == 0
	g.mu.Unlock()
	close(p.done)
	if idle {
		close(g.idle)
	}
}
