package raftlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/dataflow"
)

// ErrNotTransferred says that leadership was not handed over. The group goes on, with this or another leader.
var ErrNotTransferred = errors.New("raftlog: leadership was not handed over")

// transferPoll is how often a leader looks how far the one is that is to lead; nothing tells it.
const transferPoll = 5 * time.Millisecond

// MemberStatus is a member as this one sees it.
type MemberStatus struct {
	Member
	Voter  bool
	Leader bool
	// LastContact is when the member was heard last: by the leader of its followers, by a follower of its leader. Zero when
	// that is unknown.
	LastContact time.Time
	// Match is the index up to which the member's log is known to equal the leader's; 0 when that is unknown, as everywhere
	// but on the leader.
	Match dataflow.LogIndex
}

// Members returns the members of the newest configuration in this member's log, committed or not.
func (g *Group) Members() ([]MemberStatus, error) {
	f := g.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("members of log %s: %w", g.cfg.Group, err)
	}
	leads, leader, term := g.IsLeader(), g.Leader(), g.Term()
	var out []MemberStatus
	for _, s := range f.Configuration().Servers {
		m := MemberStatus{Member: Member{ID: string(s.ID), Addr: string(s.Address)}, Voter: s.Suffrage == raft.Voter, Leader: string(s.ID) == leader}
		switch {
		case m.ID == g.cfg.NodeID:
			m.LastContact = time.Now()
			if leads {
				m.Match = dataflow.LogIndex(g.raft.LastIndex())
			}
		case leads:
			if p, ok := g.trans.PeerProgress(m.ID); ok {
				m.LastContact = p.LastContact
				if p.Term == term {
					m.Match = dataflow.LogIndex(p.Match)
				}
			}
		case m.Leader:
			m.LastContact = g.raft.LastContact()
		}
		out = append(out, m)
	}
	return out, nil
}

// LastContact returns when this member last heard of its leader; now, when it leads.
func (g *Group) LastContact() time.Time {
	if g.IsLeader() {
		return time.Now()
	}
	return g.raft.LastContact()
}

// AddVoter makes m a voting member, or gives a member that votes a new address. Only the leader can; the group must have
// finished the change before. A new member should be added by AddNonvoter first, and get the vote when it has caught up:
// otherwise the group may be without a quorum for that time. Errors are as rule R2 says.
func (g *Group) AddVoter(ctx context.Context, m Member) error {
	s := m.server()
	return g.changeMembers(ctx, "add "+m.ID, func(t time.Duration) raft.Future { return g.raft.AddVoter(s.ID, s.Address, 0, t) })
}

// AddNonvoter makes m a member that gets everything and does not vote. A voter stays one.
func (g *Group) AddNonvoter(ctx context.Context, m Member) error {
	s := m.server()
	return g.changeMembers(ctx, "add "+m.ID, func(t time.Duration) raft.Future { return g.raft.AddNonvoter(s.ID, s.Address, 0, t) })
}

// DemoteVoter takes a member's vote and lets it follow. A leader that demotes itself steps down.
func (g *Group) DemoteVoter(ctx context.Context, id string) error {
	return g.changeMembers(ctx, "demote "+id, func(t time.Duration) raft.Future { return g.raft.DemoteVoter(raft.ServerID(id), 0, t) })
}

// RemoveServer takes a member out of the group. A leader that removes itself steps down.
func (g *Group) RemoveServer(ctx context.Context, id string) error {
	return g.changeMembers(ctx, "remove "+id, func(t time.Duration) raft.Future { return g.raft.RemoveServer(raft.ServerID(id), 0, t) })
}

// changeMembers does one change and waits for it. The library lets one change happen at a time.
func (g *Group) changeMembers(ctx context.Context, what string, change func(time.Duration) raft.Future) error {
	if err := g.checkCtx(ctx); err != nil {
		return err
	}
	if !g.IsLeader() {
		return g.errNotLeader()
	}
	timeout := g.cfg.WriteDeadline
	if by, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(by), time.Millisecond)
	}
	done := make(chan error, 1)
	g.mu.Lock()
	closed := g.mu.closed
	if !closed {
		g.proposals.Go(func() { done <- change(timeout).Error() }) // the library answers all of them, at its end too
	}
	g.mu.Unlock()
	if closed {
		return g.errClosed()
	}
	select {
	case err := <-done:
		return g.changeError(what, err)
	case <-ctx.Done():
		return g.errUnknown(fmt.Errorf("%s: %w", what, context.Cause(ctx)))
	}
}

func (g *Group) changeError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return g.errNotLeader()
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return dataflow.Errorf(dataflow.ReasonOverloaded, "log %s: %s: another change of the members is under way", g.cfg.Group, what).WithRetry(retryElection)
	case errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore):
		return g.errUnknown(fmt.Errorf("%s: raft: %w", what, err))
	}
	return fmt.Errorf("log %s: %s: %w", g.cfg.Group, what, err) // refused before anything was written
}

// Transfer hands leadership over to another voter, and returns when this member does not lead any more. While it is under
// way, commands are refused with NOT_LEADER. It takes no longer than three election timeouts; ErrNotTransferred in the
// error says that it did not come about, and this member goes on leading when it can.
//
// The library's own transfer is not used: when it fails at the wrong moment, the node refuses all commands for good
// (hashicorp/raft#696). This one is made of the library's messages and leaves nothing behind.
func (g *Group) Transfer(ctx context.Context, to string) (err error) {
	if !g.IsLeader() {
		return g.errNotLeader()
	}
	ctx, cancel := context.WithTimeout(ctx, 3*g.cfg.ElectionTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("log %s: to node %s: %w: %w", g.cfg.Group, to, ErrNotTransferred, err)
		}
	}()
	target, err := g.successor(to)
	if err != nil {
		return err
	}
	if g.heirs != nil { // so nobody need wait for the transfer's end
		if !g.heirs.answers(ctx, to) {
			return errSilent
		}
		watched, unwatch := g.heirs.whileThere(ctx, to)
		defer unwatch()
		ctx = watched
	}
	barrier, err := g.closeForTransfer()
	if err != nil {
		return err
	}
	defer g.reopen()
	// After the barrier, nothing of this member is in flight.
	if _, _, err := barrier.Wait(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	term := g.Term()
	if err := g.awaitMatch(ctx, to, term); err != nil {
		return err
	}
	changed := g.Changed()
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(g.cfg.NodeID),
		Addr: g.trans.EncodePeer(raft.ServerID(g.cfg.NodeID), g.trans.LocalAddr())}}
	if err := g.trans.TimeoutNow(target.ID, target.Address, req, &raft.TimeoutNowResponse{}); err != nil {
		return err
	}
	for g.IsLeader() && g.Term() == term {
		select {
		case <-changed:
			changed = g.Changed()
		case <-g.done:
			return g.errClosed()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// errSilent says why nothing is handed over to a member.
var errSilent = errors.New("it does not answer")

// successor returns the member that is to lead.
func (g *Group) successor(to string) (raft.Server, error) {
	f := g.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return raft.Server{}, err
	}
	for _, s := range f.Configuration().Servers {
		if string(s.ID) == to && s.Suffrage == raft.Voter && to != g.cfg.NodeID {
			return s, nil
		}
	}
	return raft.Server{}, errors.New("it is no other voting member")
}

// closeForTransfer refuses more commands and puts a barrier behind those that there are.
func (g *Group) closeForTransfer() (*Pending, error) {
	g.mu.Lock()
	other := g.mu.transferring
	g.mu.transferring = true
	g.mu.Unlock()
	if other {
		return nil, errors.New("another transfer is under way")
	}
	barrier, err := g.enqueue(&Pending{g: g, last: true}, g.queue)
	if err != nil {
		g.reopen()
	}
	return barrier, err
}

// reopen takes commands again.
func (g *Group) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.transferring = false
}

// awaitMatch waits until a member has everything that this one has.
func (g *Group) awaitMatch(ctx context.Context, id string, term uint64) error {
	tick := time.NewTicker(transferPoll)
	defer tick.Stop()
	for {
		p, ok := g.trans.PeerProgress(id)
		if !ok || p.Term == term && p.Match >= g.raft.LastIndex() {
			return nil
		}
		if !g.IsLeader() || g.Term() != term {
			return g.errNotLeader()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it lags: it has %d of %d entries: %w", p.Match, g.raft.LastIndex(), context.Cause(ctx))
		case <-g.done:
			return g.errClosed()
		}
	}
}
