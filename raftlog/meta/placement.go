package meta

import (
	"context"
	"slices"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

// DefaultReplicas is how many nodes vote in each shard's log unless the group was told otherwise. Why not more: each row waits
// for a majority of them. Why not fewer: with two, no node may fail.
const DefaultReplicas = 3

// MaxMetaVoters is how many nodes vote in the meta log. Why not more: five survive the loss of any two, and each commit waits for
// a majority.
const MaxMetaVoters = 5

// Placement says which nodes vote in which log, each list ascending. All nodes of the group follow all logs; the leaders of the
// logs bring the votes to what is said here.
type Placement struct {
	Revision uint64 // counts the placements of the group; 0 = there is none yet
	Meta     []string
	Shards   [][]string
}

// Voters returns the nodes that are to vote in a shard's log; none while there is no placement.
func (p *Placement) Voters(shard int) []string {
	if shard >= len(p.Shards) {
		return nil
	}
	return p.Shards[shard]
}

// Equal reports whether both place all votes alike, whatever their revisions.
func (p *Placement) Equal(q *Placement) bool {
	return slices.Equal(p.Meta, q.Meta) && slices.EqualFunc(p.Shards, q.Shards, slices.Equal[[]string])
}

// Replicas returns how many nodes are to vote in each shard's log, if there are so many.
func (s *State) Replicas() int {
	if s.replicas == 0 {
		return DefaultReplicas
	}
	return s.replicas
}

func (s *State) setReplicas(c *metav1.SetReplicas) (any, error) {
	n := c.GetReplicas()
	switch {
	case len(s.Members) == 0:
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "this group has one node, and was made so that no other can join")
	case n%2 == 0 || n < DefaultReplicas || n > MaxMembers:
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "replicas: %d is not 3, 5 or 7", n).
			WithHint("an even number survives no more failures than the odd one below it")
	}
	s.replicas = int(n)
	return s.replicas, nil
}

// setPlacement takes a placement that was made from the one before it, and names nodes that are to be in the logs.
func (s *State) setPlacement(c *metav1.SetPlacement) (any, error) {
	if c.GetAfter() != s.Placement.Revision {
		return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "the placement of revision %d is not the newest, which is %d", c.GetAfter(), s.Placement.Revision)
	}
	p := decodePlacement(c.GetPlacement())
	if len(p.Shards) != s.Shards {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "a placement of %d shards is none of %d", len(p.Shards), s.Shards)
	}
	for _, voters := range append([][]string{p.Meta}, p.Shards...) {
		if len(voters) == 0 {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "a log without voters takes nothing")
		}
		for i, id := range voters {
			if i > 0 && id <= voters[i-1] {
				return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "node %s is out of place among the voters", id)
			}
			if m := s.Member(id); m == nil || !m.In() {
				return nil, dataflow.Errorf(dataflow.ReasonNodeConflict, "node %s is not in the group, or leaves it, and cannot vote", id)
			}
		}
	}
	p.Revision = s.Placement.Revision + 1
	s.Placement = p
	return none{}, nil
}

func encodePlacement(p *Placement) *metav1.Placement {
	if p.Revision == 0 && len(p.Shards) == 0 {
		return nil
	}
	out := &metav1.Placement{Revision: p.Revision, Meta: &metav1.Voters{Nodes: p.Meta}}
	for _, v := range p.Shards {
		out.Shards = append(out.Shards, &metav1.Voters{Nodes: v})
	}
	return out
}

func decodePlacement(m *metav1.Placement) Placement {
	p := Placement{Revision: m.GetRevision(), Meta: m.GetMeta().GetNodes()}
	for _, v := range m.GetShards() {
		p.Shards = append(p.Shards, v.GetNodes())
	}
	return p
}

// SetPlacement replaces the placement of revision after by p. It is refused with NODE_CONFLICT when there is a newer one, or p names
// a node that is not to vote.
func (l *Log) SetPlacement(ctx context.Context, after uint64, p Placement) error {
	_, err := propose[none](ctx, l, &metav1.Command{Command: &metav1.Command_SetPlacement{
		SetPlacement: &metav1.SetPlacement{After: after, Placement: encodePlacement(&p)}}})
	return err
}

// SetReplicas says how many nodes vote in each shard's log, 3, 5 or 7, and returns how many it is to be.
func (l *Log) SetReplicas(ctx context.Context, n int) (int, error) {
	return propose[int](ctx, l, &metav1.Command{Command: &metav1.Command_SetReplicas{SetReplicas: &metav1.SetReplicas{Replicas: uint32(max(n, 0))}}})
}
