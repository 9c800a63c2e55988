package raftlog

import (
	"hash/fnv"
	"time"

	"github.com/hashicorp/raft"
)

// succession decides whether this member stands for election before Raft's own timer makes it, and what it says to others that
// want to. Raft looks at intervals of one to two election timeouts, chosen at random, whether its leader was heard, and a
// member whose timer comes first is refused by those whose own has not: together that takes up to three of them. Here a member
// takes its leader for lost when nobody listens any more where it was, or when it has said nothing for an election timeout.
//
// It then asks the others, as in a pre-vote of Raft's. Of those that have lost the leader too, one alone has the consent of all:
// the one whose log is furthest, of equal ones that with the newest term, and then that which their names and the group's choose
// (so that the leads of a node are spread over the others). It stands with the votes of a majority as sure as they can be, and
// nobody stands against it: logs may still grow while members ask each other, from what the leader sent last, so one that has
// consented waits for a moment before it would stand itself. A member that has the leader refuses, so whoever has merely lost its
// way to the leader changes nothing.
//
// A member that starts knows no leader, which is as good as a lost one: of a group that starts as a whole, one stands as soon as a
// majority is there. Who stands by Raft's timer cannot be made to by this. A log that is further while its term is older is left
// to Raft's timers.
//
// It is a state machine without clock or I/O; safe are its mistakes too, because what follows is an election of Raft's.
type succession struct {
	group, self string
	silence     time.Duration // how long a leader may say nothing
	patience    time.Duration // how long a lost leader's succession is decided here; then Raft's timers decide
	courtesy    time.Duration // how long it leaves the field to one that it has consented to

	lost leadership // the zero value: none; without node, this member has known no leader since it started
	at   time.Time  // when it was found lost
	gave time.Time  // when this member consented last
}

// outlook is what a member knows at a moment.
type outlook struct {
	leadership           // node "": none is known
	follower   bool      // as opposed to one that leads or stands
	voter      bool      //
	contact    time.Time // when the leader was heard last
	last       position  // the end of its log
}

// position is where a log ends.
type position struct{ term, index uint64 }

// starts takes in that this member begins.
func (s *succession) starts(o outlook, now time.Time) {
	if o.follower && o.node == "" {
		s.lost, s.at = o.leadership, now
	}
}

// observe takes in what is known now.
func (s *succession) observe(o outlook, now time.Time) {
	switch {
	case s.lost != (leadership{}):
		led := o.node != "" && o.node != s.lost.node
		tired := s.lost.node != "" && now.Sub(s.at) >= s.patience // who starts waits for the others as long as it takes
		if led || o.term > s.lost.term+1 || o.contact.After(s.at) || tired {
			s.lost = leadership{}
		}
	case o.follower && o.node != "" && now.Sub(o.contact) >= s.silence:
		s.lost, s.at = o.leadership, now
	}
}

// gone takes in that nobody listens any more where a member was.
func (s *succession) gone(o outlook, node string, now time.Time) {
	if o.follower && o.node == node {
		s.lost, s.at = o.leadership, now
	}
}

// stands says whether this member should ask the others for their consent, or stand when it has it.
func (s *succession) stands(o outlook, now time.Time) bool {
	return s.lost != (leadership{}) && o.follower && o.voter && o.leadership == s.lost && now.Sub(s.gave) >= s.courtesy
}

// judge answers another member that asks for this one's consent; nil = Raft answers, as to a pre-vote.
func (s *succession) judge(o outlook, req *raft.RequestPreVoteRequest, now time.Time) *raft.RequestPreVoteResponse {
	from := string(req.ID)
	theirs := position{req.LastLogTerm, req.LastLogIndex}
	older := req.Term <= s.lost.term && theirs != o.last
	if s.lost == (leadership{}) || older || o.term > s.lost.term+1 || o.node != "" && o.node != s.lost.node || from == s.lost.node {
		return nil
	}
	resp := &raft.RequestPreVoteResponse{Term: max(req.Term, o.term), Granted: o.last.before(theirs)}
	if theirs == o.last {
		resp.Granted = !o.voter || s.precedes(o, from, req.Term)
	}
	if resp.Granted {
		s.gave = now
	}
	return resp
}

// precedes says whether a member with an equal log, which would stand in a term, goes before this one.
func (s *succession) precedes(o outlook, from string, term uint64) bool {
	switch {
	case term <= o.term:
		return false // this member may have given its vote of that term, and would stand in a newer one
	case term > o.term+1:
		return true // the other way round
	case !o.follower && o.term == s.lost.term, o.follower && o.leadership != s.lost:
		return true // this one cannot: it has asked by Raft's timer, and too few agreed; or it has given its vote since
	}
	return s.rank(from) > s.rank(s.self)
}

// before compares logs as Raft does.
func (p position) before(o position) bool {
	return p.term < o.term || p.term == o.term && p.index < o.index
}

// rank decides between members whose logs are equal.
func (s *succession) rank(node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.group + "/" + node)) // a hash never fails
	return h.Sum64()
}
