package membership

import (
	"context"
	"slices"
	"strings"
	"sync"

	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// Stay is a node that leaves the group and is in a log still, and what comes before it leaves that.
type Stay struct {
	Node string // that leaves
	Why  string
	For  []string // the nodes that have to answer, or to catch up, before; none while it goes on by itself
}

// Stays returns the node that leaves and is in a log still, as the leader of the log sees it; nil when there is none. The arguments are
// those of Next, and the answer says why Next does not remove it yet.
func Stays(members []meta.Member, want []string, servers []Server, self string) *Stay {
	i := slices.IndexFunc(servers, func(s Server) bool {
		m := find(members, s.ID)
		return m != nil && m.State == meta.MemberLeaving
	})
	if i < 0 {
		return nil
	}
	h := &Stay{Node: servers[i].ID, Why: "it is being taken out"}
	var away []string
	votes := make(map[string]bool)
	for _, s := range servers {
		votes[s.ID] = s.Voter
		if s.Voter && s.Away && s.ID != h.Node && s.ID != self {
			away = append(away, s.ID)
		}
	}
	lag := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return votes[id] })
	switch {
	case servers[i].Voter && !majorityWithout(servers, h.Node, self):
		h.Why, h.For = "without its vote too few answer for a majority; missing: "+strings.Join(away, ", "), away
	case servers[i].Voter && len(lag) > 0:
		h.Why, h.For = "others are to vote first: "+strings.Join(lag, ", "), lag
	case h.Node == self:
		h.Why = "it leads the log until another node does"
	}
	return h
}

// takesVote reports whether a step takes the vote of a node that has one.
func takesVote(s Step, servers []Server) bool {
	return (s.Do == Demote || s.Do == Remove) && slices.ContainsFunc(servers, func(v Server) bool { return v.ID == s.Node && v.Voter })
}

// confirmed reports whether, without the vote of a node, a majority of a log's voters answers at this moment. What the leader has heard
// of them is up to awayAfter old, and a log that takes a vote and then lacks a majority has no leader until those that are missing
// are back: the removal could not be taken back there either.
func (m *Membership) confirmed(ctx context.Context, servers []Server, without string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	now := slices.Clone(servers)
	var asked sync.WaitGroup
	for i := range now {
		s := &now[i]
		if !s.Voter || s.Away || s.ID == without || s.ID == m.cfg.Self.Node {
			continue
		}
		asked.Go(func() {
			c, err := m.cfg.Ask(s.ID)
			if err == nil {
				_, err = c.GetNodeStatus(ctx, &peerv1.GetNodeStatusRequest{})
			}
			s.Away = err != nil
		})
	}
	asked.Wait()
	return majorityWithout(now, without, m.cfg.Self.Node)
}

// local shows this node, and for each log that it leads what a node that leaves waits for.
func (m *Membership) local() *weirv1.NodeStatus {
	s := m.cfg.Local()
	st := m.cfg.Meta.State()
	if moving := st.Moving(); moving == nil || moving.State != meta.MemberLeaving {
		return s
	}
	s.Departures = m.departures(nil, metaLog, m.cfg.MetaLog, st.Members, st.Placement.Meta)
	for i, log := range m.cfg.Shards {
		s.Departures = m.departures(s.Departures, shardLog(i), log, st.Members, st.Placement.Voters(i))
	}
	return s
}

// departures adds the node that leaves a log, if this node leads it.
func (m *Membership) departures(to []*weirv1.Departure, name string, log Log, members []meta.Member, want []string) []*weirv1.Departure {
	if !log.IsLeader() {
		return to
	}
	servers, err := log.Servers()
	if err != nil {
		return to
	}
	h := Stays(members, want, servers, m.cfg.Self.Node)
	if h == nil {
		return to
	}
	if name == metaLog && len(h.For) == 0 && m.inShards(h.Node) {
		h.Why = "it leaves this log last"
	}
	return append(to, &weirv1.Departure{Log: name, Node: h.Node, WaitsFor: h.Why, Nodes: h.For})
}
