package membership

import (
	"cmp"
	"slices"
)

// Node is a node of the group as a place for votes and leads.
type Node struct {
	ID  string
	Fit Fit
	// Away says that it has not been heard of for some seconds, which is long before it is Silent: it keeps its votes, and a lead can
	// neither be given to it nor taken from it.
	Away bool
}

// Fit says what a node is good for.
type Fit uint8

// From the least to the most. The order decides who gives way to whom.
const (
	Out      Fit = iota // it leaves: it neither votes nor leads
	Silent              // nobody has heard of it for long: others vote in its place, if there are any
	Drained             // it leads nothing, and others that are fit vote in its place, if there are any
	Returned            // it was not heard of lately: it keeps the votes that it has, and gets more only where others fail
	Well
)

func (f Fit) String() string { return [...]string{"out", "silent", "drained", "returned", "well"}[f] }

// Place returns which nodes are to vote in which log, each list ascending: so many of them in each, as even as can be, with the
// fewest changes of what is now. now has the lists as they are, none for a log that has no placement yet; leaders the nodes
// that lead the logs, "" where none is known: where there is a choice, a log keeps its leader.
//
// Who leaves is replaced, and so is who is silent or drained while somebody better has no vote yet. Beyond that, votes move only
// while one node has two more than another, and only to nodes that are well: one that comes and goes does not draw votes to and fro.
func Place(nodes []Node, replicas int, now [][]string, leaders []string) [][]string {
	b := &board{fit: make(map[string]Fit), votes: make(map[string]int), leaders: leaders}
	for _, n := range nodes {
		b.fit[n.ID] = n.Fit
		if n.Fit > Out {
			b.nodes = append(b.nodes, n.ID)
		}
	}
	slices.Sort(b.nodes)
	for _, voters := range now {
		kept := slices.DeleteFunc(slices.Clone(voters), func(id string) bool { return b.fit[id] == Out })
		b.logs = append(b.logs, kept)
		for _, id := range kept {
			b.votes[id]++
		}
	}
	for log := range b.logs {
		b.replace(log)
		b.fill(log, min(replicas, len(b.nodes)))
		b.thin(log, replicas)
	}
	b.even()
	for _, voters := range b.logs {
		slices.Sort(voters)
	}
	return b.logs
}

// board is a placement being made.
type board struct {
	nodes   []string // that may vote
	fit     map[string]Fit
	votes   map[string]int
	logs    [][]string
	leaders []string
}

func (b *board) give(log int, id string) {
	b.logs[log] = append(b.logs[log], id)
	b.votes[id]++
}

func (b *board) take(log int, id string) {
	b.logs[log] = slices.DeleteFunc(b.logs[log], func(v string) bool { return v == id })
	b.votes[id]--
}

func (b *board) leads(log int, id string) bool { return log < len(b.leaders) && b.leaders[log] == id }

// candidate returns the fittest node without a vote in a log, of several the one with the fewest votes; "" when none is at
// least so fit.
func (b *board) candidate(log int, least Fit) string {
	best := ""
	for _, id := range b.nodes {
		if b.fit[id] < least || slices.Contains(b.logs[log], id) {
			continue
		}
		if best == "" || cmp.Or(cmp.Compare(b.fit[best], b.fit[id]), cmp.Compare(b.votes[id], b.votes[best])) < 0 {
			best = id
		}
	}
	return best
}

// replace takes the votes of nodes that are silent or drained, for nodes that can do better.
func (b *board) replace(log int) {
	for _, id := range slices.Sorted(slices.Values(b.logs[log])) {
		least := Well
		switch b.fit[id] {
		case Silent:
			least = Returned
		case Drained:
		default:
			continue
		}
		if to := b.candidate(log, least); to != "" {
			b.take(log, id)
			b.give(log, to)
		}
	}
}

// fill gives votes until there are n.
func (b *board) fill(log, n int) {
	for len(b.logs[log]) < n {
		b.give(log, b.candidate(log, Silent))
	}
}

// thin takes votes until there are no more than n: first of those that are least fit, then of those that have most; the leader's
// last.
func (b *board) thin(log, n int) {
	for len(b.logs[log]) > n {
		b.take(log, slices.MinFunc(b.logs[log], func(x, y string) int {
			lead := func(id string) int {
				if b.leads(log, id) {
					return 1
				}
				return 0
			}
			return cmp.Or(cmp.Compare(min(b.fit[x], Returned), min(b.fit[y], Returned)), cmp.Compare(lead(x), lead(y)),
				cmp.Compare(b.votes[y], b.votes[x]), cmp.Compare(y, x))
		}))
	}
}

// even moves votes from the node that has most, of several one that was away, to the one that has least, as long as they differ
// by more than one. There is then a log in which the first votes and the second does not.
func (b *board) even() {
	for {
		var most, least string
		for _, id := range b.nodes {
			if b.fit[id] >= Returned && (most == "" || cmp.Or(cmp.Compare(b.votes[most], b.votes[id]), cmp.Compare(b.fit[id], b.fit[most])) < 0) {
				most = id
			}
			if b.fit[id] == Well && (least == "" || b.votes[id] < b.votes[least]) {
				least = id
			}
		}
		if least == "" || b.votes[most]-b.votes[least] <= 1 {
			return
		}
		log := -1
		for i := len(b.logs) - 1; i >= 0; i-- {
			if !slices.Contains(b.logs[i], most) || slices.Contains(b.logs[i], least) {
				continue
			}
			if log < 0 {
				log = i
			}
			if !b.leads(i, most) {
				log = i
				break
			}
		}
		b.take(log, most)
		b.give(log, least)
	}
}
