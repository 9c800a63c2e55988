package membership

import (
	"slices"
	"time"

	"github.com/weirdb/weir/raftlog/meta"
)

// Server is a node as a member of a log.
type Server struct {
	ID    string
	Voter bool
	// CaughtUp says that it has nearly all that the leader has, and Away that it has not been heard of for some seconds. Only
	// the leader knows.
	CaughtUp, Away bool
	Heard          time.Time // when it was heard of last; zero when that is unknown
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
	Nothing  Do = iota
	Add         // as one that does not vote yet
	Promote     // to a voter
	Demote      // to one that only follows
	Remove      // the node leaves the group
	HandOver    // the lead to Node: the one that leads is not to
)

func (d Do) String() string {
	return [...]string{"nothing", "add", "promote", "demote", "remove", "hand over to"}[d]
}

// Next returns the one change that the leader of a log makes now, so that its members become those of the group, and its voters
// those that are wanted. members are the group's nodes, want the nodes that are to vote, none while nobody has said; servers
// are the log's members, and self is the one that leads.
//
// One change at a time keeps any two majorities overlapping. A node votes only once it has caught up: before, the group
// would need its vote and could not get it. Those that are to vote come before those that are not any more: a voter that answers
// keeps its vote until all of them have theirs, also one that was just added and does not answer yet. One that does not answer is
// of no use, and waits only for those that do. No vote is taken when too few of those that are left answer for a majority.
func Next(members []meta.Member, want []string, servers []Server, self string) Step {
	in := func(id string) *Server {
		i := slices.IndexFunc(servers, func(s Server) bool { return s.ID == id })
		if i < 0 {
			return nil
		}
		return &servers[i]
	}
	for i := range members {
		if m := &members[i]; m.In() && in(m.ID) == nil {
			return Step{Add, m.ID}
		}
	}
	if len(want) == 0 {
		return Step{}
	}
	lacks, lags := false, false // a voter; one that answers
	for _, id := range want {
		s := in(id)
		switch {
		case s == nil:
			lacks = true
		case s.Voter:
		case s.CaughtUp && !s.Away:
			return Step{Promote, id}
		default:
			lacks, lags = true, lags || !s.Away
		}
	}
	for i := range servers {
		s := &servers[i]
		m := find(members, s.ID)
		leaves := m == nil || !m.In()
		switch {
		case s.ID == self || slices.Contains(want, s.ID):
		case leaves && !s.Voter:
			return Step{Remove, s.ID}
		case !s.Voter || lags || lacks && !s.Away || !majorityWithout(servers, s.ID, self):
		case leaves:
			return Step{Remove, s.ID}
		default:
			return Step{Demote, s.ID}
		}
	}
	// The lead goes away from a node that is not to have it.
	if m := find(members, self); m == nil || m.State == meta.MemberDrained || !slices.Contains(want, self) {
		if to := successor(members, want, servers, self); to != "" {
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

// majorityWithout reports whether, without the vote of id, enough voters answer for a majority.
func majorityWithout(servers []Server, id, self string) bool {
	voters, answer := 0, 0
	for _, s := range servers {
		if s.Voter && s.ID != id {
			voters++
			if s.ID == self || !s.Away {
				answer++
			}
		}
	}
	return 2*answer > voters
}

// successor returns a node that can lead instead of self; "" = none.
func successor(members []meta.Member, want []string, servers []Server, self string) string {
	for _, s := range servers {
		if m := find(members, s.ID); s.ID != self && s.Voter && s.CaughtUp && !s.Away && m != nil && m.State == meta.MemberActive && slices.Contains(want, s.ID) {
			return s.ID
		}
	}
	return ""
}
