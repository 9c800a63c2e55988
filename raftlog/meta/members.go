package meta

import (
	"cmp"
	"context"
	"slices"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

// MaxMembers bounds the nodes of a group that have not left. Why not more: each of them holds every shard.
const MaxMembers = 7

// maxGone bounds the ids of nodes that have left, which are remembered so that none comes back.
const maxGone = 1000

// MemberState says what a node of the group is to do.
type MemberState uint8

// The states of a node. One node at a time is on its way from one to the next: joining or leaving.
const (
	MemberJoining MemberState = iota + 1 // it is being brought up to date, or back into the logs that it had left
	MemberActive
	MemberDrained // it leads nothing, if others can
	MemberLeaving // it is being taken out of all logs
	MemberGone    // it has left; its id is not given again
)

func (s MemberState) String() string {
	switch s {
	case MemberJoining:
		return "joining"
	case MemberActive:
		return "active"
	case MemberDrained:
		return "drained"
	case MemberLeaving:
		return "leaving"
	case MemberGone:
		return "gone"
	}
	return "unknown"
}

// Member is a node of the group.
type Member struct {
	ID     string
	DataID string // of its data directory: a node that has lost its disk is another node
	// PeerAddr is where other nodes reach it, GRPCAddr and HTTPAddr where clients do.
	PeerAddr, GRPCAddr, HTTPAddr string
	State                        MemberState
	Since                        int64 // of State, µs since 1970
}

// In reports whether the node is to be in the group's logs.
func (m *Member) In() bool { return m.State != MemberLeaving && m.State != MemberGone }

// Member returns the node called id, also one that has left; nil = there is none.
func (s *State) Member(id string) *Member {
	i, ok := s.memberIndex(id)
	if !ok {
		return nil
	}
	return &s.Members[i]
}

func (s *State) memberIndex(id string) (int, bool) {
	return slices.BinarySearchFunc(s.Members, id, func(m Member, id string) int { return cmp.Compare(m.ID, id) })
}

// InMembers returns the nodes that are to be in the group's logs, by id.
func (s *State) InMembers() []Member {
	var in []Member
	for _, m := range s.Members {
		if m.In() {
			in = append(in, m)
		}
	}
	return in
}

// Moving returns the node that is joining or leaving; nil = none is.
func (s *State) Moving() *Member {
	for i, m := range s.Members {
		if m.State == MemberJoining || m.State == MemberLeaving {
			return &s.Members[i]
		}
	}
	return nil
}

func (s *State) foundMembers(ms []*metav1.Member) error {
	var members []Member
	for _, m := range ms {
		if !dataflow.ValidName(m.Id) || m.DataId == "" || m.PeerAddr == "" {
			return dataflow.Errorf(dataflow.ReasonRequestInvalid, "node %q has no valid name, no identity or no address, and founds no group", m.Id)
		}
		d := decodeMember(m)
		d.State, d.Since = MemberActive, s.Now
		members = append(members, d)
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for i := range members {
		if i > 0 && members[i].ID == members[i-1].ID {
			return dataflow.Errorf(dataflow.ReasonRequestInvalid, "two nodes are called %s", members[i].ID)
		}
	}
	s.Members = members
	return nil
}

// putMember adds a node, which joins then, or changes the addresses of one.
func (s *State) putMember(c *metav1.PutMember) (any, error) {
	m := decodeMember(c.GetMember())
	switch {
	case !dataflow.ValidName(m.ID):
		return nil, dataflow.Errorf(dataflow.ReasonNameInvalid, "%q cannot name a node", m.ID)
	case m.DataID == "" || m.PeerAddr == "":
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "node %s has no identity or no address", m.ID)
	case len(s.Members) == 0:
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "this group has one node, and was made so that no other can join").
			WithHint("a group of several nodes is made by starting each of them with --peer-addr, --join and --bootstrap-expect")
	}
	i, known := s.memberIndex(m.ID)
	s.Members = slices.Clone(s.Members)
	if known {
		old := &s.Members[i]
		switch {
		case old.State == MemberGone:
			return nil, leftForGood(m.ID)
		case old.DataID != m.DataID:
			return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s is known with another data directory: what it had acknowledged is not in this one", m.ID).
				WithHint("start the node with another --node-id and an empty data directory, then weir cluster add it and weir cluster remove %s", m.ID)
		}
		old.PeerAddr, old.GRPCAddr, old.HTTPAddr = m.PeerAddr, m.GRPCAddr, m.HTTPAddr
		return *old, nil
	}
	if err := s.refuseMove("add node " + m.ID); err != nil {
		return nil, err
	}
	if n := len(s.InMembers()); n >= MaxMembers {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "the group has %d nodes; more are not possible", n)
	}
	m.State, m.Since = MemberJoining, s.Now
	s.Members = slices.Insert(s.Members, i, m)
	return m, nil
}

// leftForGood refuses to have a node back.
func leftForGood(id string) error {
	return dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s has left the group, and its name is not given again", id).
		WithHint("start the node with another --node-id")
}

// refuseMove lets one node at a time join or leave.
func (s *State) refuseMove(what string) error {
	if m := s.Moving(); m != nil {
		e := dataflow.Errorf(dataflow.ReasonNodeConflict, "%s: node %s is %s, and one node at a time can", what, m.ID, m.State)
		if m.State == MemberJoining {
			return e.WithHint("weir cluster status shows how far it is; if it cannot finish, weir cluster remove %s takes it out first", m.ID)
		}
		return e.WithHint("weir cluster status shows what it waits for; try again then, or take its removal back: weir cluster remove %s --undo", m.ID)
	}
	return nil
}

// setMemberState moves a node from one state to another.
func (s *State) setMemberState(c *metav1.SetMemberState) (any, error) {
	i, ok := s.memberIndex(c.Id)
	if !ok {
		return nil, dataflow.Errorf(dataflow.ReasonNodeNotFound, "there is no node %q", c.Id)
	}
	s.Members = slices.Clone(s.Members)
	m, to := &s.Members[i], MemberState(c.State)
	if m.State == to {
		return *m, nil
	}
	refused := func() (any, error) {
		return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s is %s and cannot become %s", m.ID, m.State, to)
	}
	switch to {
	case MemberJoining: // a removal is taken back, which may have begun
		switch m.State {
		case MemberActive, MemberDrained:
			return *m, nil // it does not leave
		case MemberGone:
			return nil, leftForGood(m.ID)
		}
	case MemberActive:
		if m.State != MemberJoining && m.State != MemberDrained {
			return refused()
		}
	case MemberDrained:
		if m.State != MemberActive {
			return refused()
		}
		for _, o := range s.Members {
			if o.State == MemberDrained {
				return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s is drained, and one node at a time can be", o.ID).
					WithHint("weir cluster drain %s --undo ends that", o.ID)
			}
		}
	case MemberLeaving:
		if m.State == MemberGone {
			return refused()
		}
		if o := s.Moving(); o != nil && o.ID != m.ID {
			return nil, s.refuseMove("remove node " + m.ID)
		}
		if len(s.InMembers()) <= 1 {
			return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s is the last one of the group", m.ID)
		}
	case MemberGone:
		if m.State != MemberLeaving {
			return refused()
		}
	default:
		return refused()
	}
	m.State, m.Since = to, s.Now
	done := *m
	s.forgetGone()
	return done, nil
}

// forgetGone drops the nodes that left first when there are too many of them.
func (s *State) forgetGone() {
	gone := 0
	oldest := -1
	for i, m := range s.Members {
		if m.State == MemberGone {
			gone++
			if oldest < 0 || m.Since < s.Members[oldest].Since {
				oldest = i
			}
		}
	}
	if gone > maxGone {
		s.Members = slices.Delete(s.Members, oldest, oldest+1)
	}
}

func encodeMember(m *Member) *metav1.Member {
	return &metav1.Member{Id: m.ID, DataId: m.DataID, PeerAddr: m.PeerAddr, GrpcAddr: m.GRPCAddr, HttpAddr: m.HTTPAddr,
		State: metav1.MemberState(m.State), Since: m.Since}
}

func decodeMember(m *metav1.Member) Member {
	return Member{ID: m.GetId(), DataID: m.GetDataId(), PeerAddr: m.GetPeerAddr(), GRPCAddr: m.GetGrpcAddr(), HTTPAddr: m.GetHttpAddr(),
		State: MemberState(m.GetState()), Since: m.GetSince()}
}

// Found is Bootstrap of a group that other nodes can join: members are the nodes that it begins with.
func (l *Log) Found(ctx context.Context, clusterID string, shards int, members []Member) error {
	c := &metav1.Bootstrap{ClusterId: clusterID, Shards: uint32(shards)}
	for i := range members {
		c.Members = append(c.Members, encodeMember(&members[i]))
	}
	_, err := propose[none](ctx, l, &metav1.Command{Command: &metav1.Command_Bootstrap{Bootstrap: c}})
	return err
}

// PutMember adds a node, or changes the addresses of one. A node with another data directory, or one that has left, is
// refused with NODE_CONFLICT, and so is a second one that joins.
func (l *Log) PutMember(ctx context.Context, m Member) (Member, error) {
	return propose[Member](ctx, l, &metav1.Command{Command: &metav1.Command_PutMember{PutMember: &metav1.PutMember{Member: encodeMember(&m)}}})
}

// SetMemberState moves a node to another state, or refuses with NODE_CONFLICT. Asking again changes nothing.
func (l *Log) SetMemberState(ctx context.Context, id string, to MemberState) (Member, error) {
	return propose[Member](ctx, l, &metav1.Command{Command: &metav1.Command_SetMemberState{
		SetMemberState: &metav1.SetMemberState{Id: id, State: metav1.MemberState(to)}}})
}
