package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// lead does what the leader of the meta log does: it decides who votes, ends the moves of nodes, and has the leads of shards moved.
func (m *Membership) lead(ctx context.Context) {
	if !m.cfg.MetaLog.IsLeader() {
		m.mu.Lock()
		m.mu.presence = nil
		m.mu.Unlock()
		return
	}
	nodes, err := m.look()
	if err != nil {
		m.cfg.Logger.Debug("look at the members of the meta log", "error", err)
		return
	}
	if m.place(ctx, nodes) {
		m.settle(ctx, nodes)
		m.spread(ctx, nodes)
	}
}

// look returns what the nodes of the group are good for, by what this one, which leads the meta log, hears of them.
func (m *Membership) look() ([]Node, error) {
	servers, err := m.cfg.MetaLog.Servers()
	if err != nil {
		return nil, err
	}
	members, now := m.cfg.Meta.State().Members, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.presence == nil {
		m.mu.presence = newPresence(m.cfg.RepairAfter)
	}
	var nodes []Node
	for i := range members {
		id := members[i].ID
		if !members[i].In() {
			continue
		}
		var spoke time.Time
		if j := slices.IndexFunc(servers, func(s Server) bool { return s.ID == id }); j >= 0 {
			spoke = servers[j].Heard
		}
		m.mu.presence.look(now, id, spoke)
		nodes = append(nodes, Node{ID: id, Fit: m.mu.presence.fit(now, &members[i]), Away: m.mu.presence.isAway(now, id)})
	}
	return nodes, nil
}

// place decides who votes in which log, and reports whether that is as it was.
func (m *Membership) place(ctx context.Context, nodes []Node) bool {
	st := m.cfg.Meta.State()
	if len(nodes) == 0 {
		return false
	}
	leaders, _ := m.leaders()
	now := st.Placement.Shards
	if len(now) == 0 {
		now = make([][]string, st.Shards)
	}
	p := meta.Placement{
		Meta:   Place(nodes, meta.MaxMetaVoters, [][]string{st.Placement.Meta}, []string{m.cfg.Self.Node})[0],
		Shards: Place(nodes, st.Replicas(), now, leaders),
	}
	if p.Equal(&st.Placement) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := m.cfg.Meta.SetPlacement(ctx, st.Placement.Revision, p); err != nil {
		m.cfg.Logger.Warn("decide who votes", "error", err)
		return false
	}
	for _, n := range nodes {
		m.cfg.Logger.Debug("who votes is decided", "revision", st.Placement.Revision+1, "node", n.ID, "is", n.Fit.String())
	}
	m.cfg.Logger.Info("who votes has changed", "revision", st.Placement.Revision+1, "meta", p.Meta, "shards", p.Shards)
	return false
}

// settle ends the move of the node that joins or leaves: once it is in all logs, votes where it is to and is up to date, or is in none.
func (m *Membership) settle(ctx context.Context, nodes []Node) {
	st := m.cfg.Meta.State()
	moving := st.Moving()
	if moving == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	to := meta.MemberActive
	switch moving.State {
	case meta.MemberLeaving:
		to = meta.MemberGone
		for _, log := range m.logs() {
			if s, err := member(log, moving.ID); err != nil || s != nil {
				return
			}
		}
	default:
		if !slices.Contains(nodes, Node{ID: moving.ID, Fit: Well}) || !m.joined(ctx, moving.ID, &st.Placement) {
			return
		}
	}
	if _, err := m.cfg.Meta.SetMemberState(ctx, moving.ID, to); err != nil {
		m.cfg.Logger.Warn("end a node's move", "node", moving.ID, "to", to.String(), "error", err)
		return
	}
	m.cfg.Logger.Info("a node's move has ended", "node", moving.ID, "is", to.String())
}

// joined reports whether a node is in all logs, votes where it is to, and is up to date: it answers only once it is.
func (m *Membership) joined(ctx context.Context, node string, p *meta.Placement) bool {
	in := func(log Log, voters []string) bool {
		s, err := member(log, node)
		return err == nil && s != nil && (s.Voter || !slices.Contains(voters, node))
	}
	if !in(m.cfg.MetaLog, p.Meta) {
		return false
	}
	for i, log := range m.cfg.Shards {
		if !in(log, p.Voters(i)) {
			return false
		}
	}
	c, err := m.cfg.Ask(node)
	if err == nil {
		_, err = c.GetNodeStatus(ctx, &peerv1.GetNodeStatusRequest{})
	}
	return err == nil
}

// member returns a node as a member of a log; nil when it is none.
func member(log Log, node string) (*Server, error) {
	servers, err := log.Servers()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(servers, func(s Server) bool { return s.ID == node })
	if i < 0 {
		return nil, nil
	}
	return &servers[i], nil
}

// leaders returns the nodes that lead the shards, and since when nothing has changed.
func (m *Membership) leaders() ([]string, time.Time) {
	now := make([]string, len(m.cfg.Shards))
	for i, l := range m.cfg.Shards {
		now[i] = l.Leader()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(now, m.mu.leaders) {
		m.mu.leaders, m.mu.since = now, time.Now()
	}
	return now, m.mu.since
}

// voters returns the nodes that vote in each shard's log and are to, and whether these are all that are to, and no others do.
func (m *Membership) voters(p *meta.Placement) (voters [][]string, settled bool) {
	voters, settled = make([][]string, len(m.cfg.Shards)), true
	for i, log := range m.cfg.Shards {
		servers, err := log.Servers()
		if err != nil {
			settled = false
			continue
		}
		want := p.Voters(i)
		vote := 0
		for _, s := range servers {
			if !s.Voter {
				continue
			}
			if vote++; slices.Contains(want, s.ID) {
				voters[i] = append(voters[i], s.ID)
			}
		}
		settled = settled && vote == len(want) && len(voters[i]) == len(want)
	}
	return voters, settled
}

// spread moves the leads of shards: at once where the one that leads is not to, and so that they are even when nothing has moved
// for a while, or at once while there is no pipeline that would have to recover.
func (m *Membership) spread(ctx context.Context, nodes []Node) {
	leaders, since := m.leaders()
	m.mu.Lock()
	waits := m.mu.waits
	nodes = m.mu.shunned.among(nodes, time.Now())
	m.mu.Unlock()
	st := m.cfg.Meta.State()
	voters, settled := m.voters(&st.Placement)
	if moves := Leads(nodes, voters, leaders, false); len(moves) > 0 {
		if waits.may(time.Now(), true) {
			_ = m.move(ctx, moves, true) // each was said; what did not move does later
		}
		return
	}
	if !waits.may(time.Now(), false) || !settled || st.Moving() != nil || slices.Contains(leaders, "") || len(st.Pipelines) > 0 && time.Since(since) < settleTime {
		return
	}
	if moves := Leads(nodes, voters, leaders, true); len(moves) > 0 {
		_ = m.move(ctx, moves, false) // the same
	}
}

// survey returns what Leads decides from, on the leader of the meta log: it knows who is there.
func (m *Membership) survey() (nodes []Node, leaders []string, voters [][]string, err error) {
	m.mu.Lock()
	known := m.mu.presence != nil
	m.mu.Unlock()
	if !known || !m.cfg.MetaLog.IsLeader() {
		return nil, nil, nil, dataflow.Errorf(dataflow.ReasonNotLeader, "node %s does not lead the meta log, or only since a moment", m.cfg.Self.Node).WithRetry(lookEvery)
	}
	if nodes, err = m.look(); err != nil {
		return nil, nil, nil, err
	}
	leaders, _ = m.leaders()
	voters, _ = m.voters(&m.cfg.Meta.State().Placement)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.shunned.among(nodes, time.Now()), leaders, voters, nil
}

// shun has a node get no leads for a while.
func (m *Membership) shun(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.shunned.shun(node, time.Now())
}

// rebalance spreads the leads now.
func (m *Membership) rebalance(ctx context.Context) ([]Move, error) {
	nodes, leaders, voters, err := m.survey()
	if err != nil {
		return nil, err
	}
	moves := Leads(nodes, voters, leaders, true)
	if err := m.move(ctx, moves, true); err != nil {
		return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "not every lead has moved: %w", err).WithHint("weir cluster status shows where they are; try again")
	}
	return moves, nil
}

// errNobody says that no node can take the leads of one that is about to stop.
var errNobody = errors.New("no other node can take its leads")

// takeLeads moves the leads of shards away from a node that is about to stop, and to which this node then gives none for a while. errNobody
// in the error says that there is nobody to move one to.
func (m *Membership) takeLeads(ctx context.Context, node string) error {
	m.shun(node)
	nodes, leaders, voters, err := m.survey()
	if err != nil {
		return err
	}
	for i := range nodes {
		if nodes[i].ID == node { // it can be asked
			nodes[i].Fit, nodes[i].Away = Drained, false
		}
	}
	moves := slices.DeleteFunc(Leads(nodes, voters, leaders, false), func(v Move) bool { return v.From != node })
	for shard, leader := range leaders {
		if leader == node && !slices.ContainsFunc(moves, func(v Move) bool { return v.Shard == shard }) {
			return fmt.Errorf("shard %d of node %s: %w", shard, node, errNobody)
		}
	}
	return m.move(ctx, moves, true)
}

// move makes moves, all at once, so that pipelines recover once, and right behind a checkpoint, while the sources are held, so that
// they read nothing again. Without the checkpoint it moves nothing, unless it must.
func (m *Membership) move(ctx context.Context, moves []Move, must bool) (err error) {
	if len(moves) == 0 {
		return nil
	}
	select {
	case m.moving <- struct{}{}:
		defer func() { <-m.moving }()
	default:
		return dataflow.Errorf(dataflow.ReasonNodeConflict, "leads are being moved already")
	}
	m.mu.Lock()
	hold := m.mu.waits.hold()
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.mu.waits.failed(time.Now(), must)
		} else {
			m.mu.waits.succeeded()
		}
	}()
	held, err := m.cut(ctx, hold)
	defer func() {
		if held && err != nil {
			m.release(ctx)
		}
	}()
	if err != nil {
		m.cfg.Logger.Warn("checkpoint before leads move", "moves", len(moves), "must", must, "error", err)
		if !must || ctx.Err() != nil || !m.cfg.MetaLog.IsLeader() {
			return err // who leads the meta log then looks again
		}
	}
	m.transferring.Store(true)
	defer m.transferring.Store(false)
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	var g errgroup.Group
	for _, v := range moves {
		g.Go(func() error {
			err := m.transfer(ctx, v)
			if s := status.Code(err); err != nil && (v.From == m.cfg.Self.Node || s == codes.FailedPrecondition) {
				m.shun(v.To) // the one that leads was asked, and could not give it
			}
			if err == nil {
				err = m.arrived(ctx, v)
			}
			if err != nil {
				m.cfg.Logger.Warn("move the lead of a shard", "shard", v.Shard, "from", v.From, "to", v.To, "error", err)
				return err
			}
			m.cfg.Logger.Info("the lead of a shard has moved", "shard", v.Shard, "from", v.From, "to", v.To)
			return nil
		})
	}
	return g.Wait()
}

// Transferring reports whether leads of shards are on their way, moved by this node.
func (m *Membership) Transferring() bool { return m.transferring.Load() }

// arrived returns when this node has heard that a lead is elsewhere than it was.
func (m *Membership) arrived(ctx context.Context, v Move) error {
	ctx, cancel := context.WithTimeout(ctx, arriveTime)
	defer cancel()
	tick := time.NewTicker(arriveEvery)
	defer tick.Stop()
	for {
		if l := m.cfg.Shards[v.Shard].Leader(); l != "" && l != v.From {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it is not known who leads now: %w", context.Cause(ctx))
		}
	}
}

// cut has every pipeline that runs commit a checkpoint. With hold each then commits another, which takes a moment, and reads nothing
// behind it; where the first has taken long the next would too, and pipelines that are quicker would stand still for as long. It reports
// whether sources may be held.
func (m *Membership) cut(ctx context.Context, hold bool) (held bool, err error) {
	began := time.Now()
	err = m.checkpoints(ctx, cutTime, false)
	if err != nil || !hold || time.Since(began) > holdCut {
		return false, err
	}
	return true, m.checkpoints(ctx, holdCut, true)
}

// release lets the sources read on that were held for a move which has failed. With nobody there to commit a checkpoint it leaves them
// to themselves: they go on after a while.
func (m *Membership) release(ctx context.Context) {
	ctx, stop := m.cfg.MetaLog.WhileInReach(context.WithoutCancel(ctx))
	defer stop()
	if err := m.checkpoints(ctx, holdCut, false); err != nil {
		m.cfg.Logger.Debug("let sources go on", "error", err)
	}
}

// checkpoints has every pipeline that runs commit a checkpoint, within a time.
func (m *Membership) checkpoints(ctx context.Context, within time.Duration, hold bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var g errgroup.Group
	for uid, p := range m.cfg.Meta.State().Pipelines {
		g.Go(func() error {
			if err := m.checkpoint(ctx, uid, hold); err != nil {
				return fmt.Errorf("pipeline %s: %w", p.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// checkpoint has a pipeline commit a checkpoint, if it runs. It tries again while its coordinator is about to begin, or its tasks
// start anew meanwhile.
func (m *Membership) checkpoint(ctx context.Context, uid dataflow.PipelineUID, hold bool) error {
	for {
		p := m.cfg.Meta.State().Pipelines[uid]
		if p == nil || p.State != dataflow.PipelineRunning {
			return nil
		}
		err := m.cfg.Checkpoint(ctx, uid, hold)
		if k := dataflow.ReasonOf(err).Kind(); err == nil || k != dataflow.KindUnavailable || !m.cfg.MetaLog.IsLeader() {
			return err
		}
		select {
		case <-time.After(checkpointAgain):
		case <-ctx.Done():
			return err
		}
	}
}

func (m *Membership) transfer(ctx context.Context, v Move) error {
	if v.From == m.cfg.Self.Node {
		return m.handOver(ctx, m.cfg.Shards[v.Shard], v.To)
	}
	c, err := m.cfg.Ask(v.From)
	if err != nil {
		return err
	}
	_, err = c.TransferLead(ctx, &peerv1.TransferLeadRequest{Log: shardLog(v.Shard), To: v.To})
	return err
}

// handOver hands the lead of a log to a node that can take it at once: while a transfer is under way, the log takes nothing.
func (m *Membership) handOver(ctx context.Context, log Log, to string) error {
	switch s, err := member(log, to); {
	case err != nil:
		return err
	case s == nil || !s.Voter || !s.CaughtUp || s.Away:
		return dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s does not vote in the log, or lags, or is away", to)
	}
	return log.TransferLead(ctx, to)
}
