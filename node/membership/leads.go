package membership

import (
	"cmp"
	"slices"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Move takes the lead of a shard from one node to another.
type Move struct {
	Shard    int
	From, To string
}

// Message shows the move.
func (v Move) Message() *weirv1.Move {
	return &weirv1.Move{Shard: uint32(v.Shard), From: v.From, To: v.To}
}

// Leads returns the moves after which every shard is led by a node that votes in its log and may lead: Well or Returned. With
// even, the leads are also spread: as evenly as the votes allow, with few moves. voters has the nodes that can lead each shard,
// as they vote now and are to vote; leaders the node that does, "" where none is known: such a shard stays out, and so does one
// whose leader is silent or away, which nobody can ask. Who is away gets no lead.
func Leads(nodes []Node, voters [][]string, leaders []string, even bool) []Move {
	t := &table{deaf: make(map[string]bool), leads: make(map[string]int), voters: voters, now: slices.Clone(leaders)}
	for _, n := range nodes {
		t.deaf[n.ID] = n.Fit == Silent || n.Away
		if n.Fit >= Returned && !n.Away {
			t.nodes = append(t.nodes, n.ID)
		}
	}
	slices.Sort(t.nodes)
	for _, id := range t.now {
		t.leads[id]++
	}
	for shard := len(t.now) - 1; shard >= 0; shard-- {
		if t.stays(shard) {
			continue
		}
		if to := t.least(t.candidates(shard)); to != "" {
			t.move(shard, to)
		}
	}
	for even && t.improve() {
	}
	var moves []Move
	for shard := len(leaders) - 1; shard >= 0; shard-- {
		if from, to := leaders[shard], t.now[shard]; from != to {
			moves = append(moves, Move{Shard: shard, From: from, To: to})
		}
	}
	return moves
}

// table is a distribution of leads being made.
type table struct {
	nodes  []string        // that may lead
	deaf   map[string]bool // those that nobody can ask
	leads  map[string]int
	voters [][]string
	now    []string
}

func (t *table) move(shard int, to string) {
	t.leads[t.now[shard]]--
	t.leads[to]++
	t.now[shard] = to
}

// candidates returns the nodes that may lead a shard.
func (t *table) candidates(shard int) []string {
	var out []string
	for _, id := range t.nodes {
		if slices.Contains(t.voters[shard], id) {
			out = append(out, id)
		}
	}
	return out
}

// stays reports whether a shard need not be moved, or cannot be.
func (t *table) stays(shard int) bool {
	id := t.now[shard]
	return id == "" || t.deaf[id] || slices.Contains(t.candidates(shard), id)
}

func (t *table) least(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return slices.MinFunc(ids, func(x, y string) int { return cmp.Or(cmp.Compare(t.leads[x], t.leads[y]), cmp.Compare(x, y)) })
}

// improve takes one lead from a node and gives one to a node that has two fewer: directly when that one votes in one of its shards, else
// over others in between. It reports whether it could.
func (t *table) improve() bool {
	var best []Move
	for _, from := range slices.SortedFunc(slices.Values(t.nodes), func(x, y string) int {
		return cmp.Or(cmp.Compare(t.leads[y], t.leads[x]), cmp.Compare(x, y))
	}) {
		if path := t.path(from); path != nil && (best == nil || len(path) < len(best)) {
			best = path
		}
	}
	for _, v := range best {
		t.move(v.Shard, v.To)
	}
	return best != nil
}

// path returns the shortest chain of moves from a node to one that leads at least two fewer; nil when there is none.
func (t *table) path(from string) []Move {
	came := map[string]Move{from: {}} // how each node was reached
	for at := []string{from}; len(at) > 0; {
		var next, found []string
		for _, id := range at {
			for shard := len(t.now) - 1; shard >= 0; shard-- {
				if t.now[shard] != id {
					continue
				}
				for _, to := range t.candidates(shard) {
					if _, seen := came[to]; seen {
						continue
					}
					came[to] = Move{Shard: shard, From: id, To: to}
					next = append(next, to)
					if t.leads[to]+1 < t.leads[from] {
						found = append(found, to)
					}
				}
			}
		}
		if to := t.least(found); to != "" {
			var path []Move
			for ; to != from; to = came[to].From {
				path = append(path, came[to])
			}
			return path
		}
		at = next
	}
	return nil
}
