package membership

import (
	"cmp"
	"slices"

	"github.com/weirdb/weir/raftlog/meta"
)

// Server is a node as a member of a log.
type Server struct {
	ID    string
	Voter bool
	// CaughtUp says that it has nearly all that the leader has.
	CaughtUp bool
}

// Step is one change of a log's members.
type Step struct {
	Do   Do
	Node string
}

// Do is what a step does.
type Do uint8

// The steps.
const (
	Nothing Do = iota
	Add        // as one that does not vote yet
	Promote    // to a voter
	Remove
	HandOver // the lead to Node: the one that leads is to leave, or is drained
)

func (d Do) String() string {
	return [...]string{"nothing", "add", "promote", "remove", "hand over to"}[d]
}

// Next returns the one change that the leader of a log makes now, so that its members become those of the group. members are
// the group's nodes, servers those of the log, self is the one that leads.
//
// One change at a time keeps any two majorities overlapping. A node votes only once it has caught up: before, the group
// would need its vote and could not get it. Those that join come before those that leave.
func Next(members []meta.Member, servers []Server, self string) Step {
	in := func(id string) *Server {
		i := slices.IndexFunc(servers, func(s Server) bool { return s.ID == id })
		if i < 0 {
			return nil
		}
		return &servers[i]
	}
	for i := range members {
		m := &members[i]
		s := in(m.ID)
		switch {
		case !m.In():
		case s == nil:
			return Step{Add, m.ID}
		case !s.Voter && s.CaughtUp:
			return Step{Promote, m.ID}
		}
	}
	for _, s := range servers {
		if m := find(members, s.ID); (m == nil || !m.In()) && s.ID != self {
			return Step{Remove, s.ID}
		}
	}
	// The lead goes away from a node that is not to have it.
	if m := find(members, self); m == nil || !m.In() || m.State == meta.MemberDrained {
		if to := successor(members, servers, self); to != "" {
			return Step{HandOver, to}
		}
	}
	return Step{}
}

func find(members []meta.Member, id string) *meta.Member {
	i := slices.IndexFunc(members, func(m meta.Member) bool { return m.ID == id })
	if i < 0 {
		return nil
	}
	return &members[i]
}

// successor returns a node that can lead instead of self; "" = none.
func successor(members []meta.Member, servers []Server, self string) string {
	for _, s := range servers {
		if m := find(members, s.ID); s.ID != self && s.Voter && s.CaughtUp && m != nil && m.State == meta.MemberActive {
			return s.ID
		}
	}
	return ""
}

// Move takes the lead of a shard from one node to another.
type Move struct {
	Shard    int
	From, To string
}

// Balance returns the moves after which the shards' leads are spread evenly over the active nodes: none leads more than one
// shard more than another. leaders has the node that leads each shard, "" where none is known; such a shard stays out. The
// fewest shards move, those with the highest numbers.
func Balance(members []meta.Member, leaders []string) []Move {
	var nodes []string
	lead := make(map[string]int)
	for _, m := range members {
		if m.State == meta.MemberActive {
			nodes = append(nodes, m.ID)
			lead[m.ID] = 0
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	now := slices.Clone(leaders)
	for _, n := range now {
		if _, ok := lead[n]; ok {
			lead[n]++
		}
	}
	least := func() string {
		return slices.MinFunc(nodes, func(a, b string) int { return cmp.Or(cmp.Compare(lead[a], lead[b]), cmp.Compare(a, b)) })
	}
	var moves []Move
	for shard := len(now) - 1; shard >= 0; shard-- {
		from := now[shard]
		if from == "" {
			continue
		}
		to := least()
		if n, active := lead[from]; active {
			if n-lead[to] <= 1 {
				continue
			}
			lead[from]--
		}
		lead[to]++
		now[shard] = to
		moves = append(moves, Move{Shard: shard, From: from, To: to})
	}
	return moves
}
