// Package founding decides how a node with an empty data directory comes to its group: it founds one with others, adopts
// what another has founded, or joins one that has been told to take it.
//
// It is pure: Decide looks at what this node and those that it can reach say of themselves.
//
// Why no group is ever founded twice. A node founds only when every address of --join answers, all answering nodes are
// empty, give the same list of addresses, and are as many as each expects; and of those only the one with the least name
// does. The list is the same everywhere, so the nodes behind it are, and there is one least name among them. It writes the
// founding down before it tells anybody. The founding names every founder with the id of its data directory: a founder
// whose disk was emptied since is not the one that it names, and is refused.
package founding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// Member is a node as a founding names it.
type Member struct {
	Node string `json:"node"`
	Data string `json:"data"` // the id of its data directory
	// Where other nodes reach it, and where clients do.
	PeerAddr string `json:"peer_addr,omitempty"`
	GRPCAddr string `json:"grpc_addr,omitempty"`
	HTTPAddr string `json:"http_addr,omitempty"`
}

// Founding is what a group begins with.
type Founding struct {
	Group   string   `json:"group"` // its id in hexadecimal
	Shards  int      `json:"shards"`
	Members []Member `json:"members"` // by name
}

// Member returns the founder of a name; nil = it is none.
func (f *Founding) Member(node string) *Member {
	for i := range f.Members {
		if f.Members[i].Node == node {
			return &f.Members[i]
		}
	}
	return nil
}

// Report is what a node says of itself to one that looks for its group.
type Report struct {
	Member
	// Expect is how many nodes are to found the group, Join the addresses where they are, Shards what the operator said; 0
	// = nothing.
	Expect int      `json:"expect"`
	Join   []string `json:"join"`
	Shards int      `json:"shards"`
	// Founding is set once the node belongs to a group that it has founded.
	Founding *Founding `json:"founding,omitempty"`
	// Group is the id of the group that the node belongs to, and In who is in it, once it knows.
	Group       string   `json:"group,omitempty"`
	GroupShards int      `json:"group_shards,omitempty"`
	In          []Member `json:"in,omitempty"`
	// Left are the nodes that have left the group, for good.
	Left []Member `json:"left,omitempty"`
}

// Kind says what to do.
type Kind int

// What Decide can say.
const (
	Wait  Kind = iota // look again soon
	Found             // write Decision.Founding down, then tell it
	Adopt             // the same: another has founded it
	Join              // the group has this node: open its logs and be brought up to date
)

// Decision is what a node does next.
type Decision struct {
	Kind     Kind
	Founding *Founding // of Found, its Group still to be chosen, and Adopt
	Group    string    // of Join
	Shards   int       // of Join
	Why      string    // of Wait, for people
}

// Decide says what the node self does, which knows of no group yet. others are the answers of the other addresses of
// self.Join, missing those that did not answer. The error says what an operator must change.
func Decide(self Report, others []Report, missing []string) (Decision, error) {
	for _, o := range others {
		if o.Node == self.Node && o.Data != self.Data {
			return Decision{}, dataflow.Errorf(dataflow.ReasonNodeConflict, "two nodes are called %s: this one and the one at %s", self.Node, o.PeerAddr).
				WithHint("give each node another --node-id")
		}
	}
	for _, o := range others {
		known := func(m *Member) error {
			if m.Data == self.Data {
				return nil
			}
			return dataflow.Errorf(dataflow.ReasonNodeConflict, "the group knows node %s with another data directory: what it had acknowledged is not in this one, which is empty", self.Node).
				WithHint("start the node with another --node-id; then weir cluster add it, and weir cluster remove %s", self.Node)
		}
		if i := slices.IndexFunc(o.In, func(m Member) bool { return m.Node == self.Node }); i >= 0 {
			if err := known(&o.In[i]); err != nil {
				return Decision{}, err
			}
			if o.Founding == nil || o.Founding.Member(self.Node) == nil {
				return Decision{Kind: Join, Group: o.Group, Shards: o.GroupShards}, nil
			}
		}
		if o.Founding == nil {
			continue
		}
		if m := o.Founding.Member(self.Node); m != nil {
			if err := known(m); err != nil {
				return Decision{}, err
			}
			return Decision{Kind: Adopt, Founding: o.Founding}, nil
		}
	}
	for _, o := range others {
		if o.Group != "" || o.Founding != nil {
			return Decision{Why: fmt.Sprintf("the group of node %s does not have this node: weir cluster add %s --peer-addr %s", o.Node, self.Node, self.PeerAddr)}, nil
		}
	}
	return found(self, others, missing)
}

// found decides whether the nodes that are there found a group now.
func found(self Report, others []Report, missing []string) (Decision, error) {
	if self.Expect == 0 {
		return Decision{Why: "no node of a group answers, and without --bootstrap-expect this one founds none"}, nil
	}
	if n := len(others) + 1 + len(missing); n != self.Expect {
		return Decision{}, dataflow.Errorf(dataflow.ReasonRequestInvalid, "--bootstrap-expect is %d, but --join names %d nodes with this one", self.Expect, n).
			WithHint("--join names exactly the nodes that found the group, each by one address")
	}
	if len(missing) > 0 {
		return Decision{Why: "waiting for " + strings.Join(missing, ", ")}, nil
	}
	all := append([]Report{self}, others...)
	slices.SortFunc(all, func(a, b Report) int { return strings.Compare(a.Node, b.Node) })
	f := &Founding{}
	for i, o := range all {
		switch {
		case i > 0 && o.Node == all[i-1].Node:
			return Decision{}, dataflow.Errorf(dataflow.ReasonNodeConflict, "two nodes are called %s, at %s and %s", o.Node, all[i-1].PeerAddr, o.PeerAddr).
				WithHint("give each node another --node-id")
		case o.Expect != self.Expect:
			return Decision{}, differ(self.Node, o.Node, "--bootstrap-expect", self.Expect, o.Expect)
		case !slices.Equal(o.Join, self.Join):
			return Decision{}, differ(self.Node, o.Node, "--join", strings.Join(self.Join, ","), strings.Join(o.Join, ","))
		case o.Shards != self.Shards:
			return Decision{}, differ(self.Node, o.Node, "--shards", self.Shards, o.Shards)
		}
		f.Members = append(f.Members, o.Member)
	}
	if all[0].Node != self.Node {
		return Decision{Why: fmt.Sprintf("waiting for node %s to found the group", all[0].Node)}, nil
	}
	f.Shards = self.Shards
	return Decision{Kind: Found, Founding: f}, nil
}

func differ(a, b, flag string, of, other any) error {
	return dataflow.Errorf(dataflow.ReasonRequestInvalid, "nodes %s and %s differ in %s: %v and %v", a, b, flag, of, other).
		WithHint("all nodes that found a group are started with the same %s", flag)
}
