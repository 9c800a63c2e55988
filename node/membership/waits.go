package membership

import (
	"slices"
	"time"
)

// shunFor is how long a node gets no leads that was to take one and did not, or that is about to stop. Why not shorter: a node is only
// known to be away after some seconds. Why not longer: it may be back.
const shunFor = 5 * time.Second

// shunned holds until when nodes get no leads.
type shunned map[string]time.Time

// shun notes at a time that a node is to get no leads for a while.
func (s shunned) shun(node string, now time.Time) { s[node] = now.Add(shunFor) }

// among returns nodes as they are at a time, with those as away that are to get no leads.
func (s shunned) among(nodes []Node, now time.Time) []Node {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		if until, ok := s[nodes[i].ID]; ok {
			nodes[i].Away = nodes[i].Away || now.Before(until)
		}
	}
	return nodes
}

// moveWaits is until when leads stay because a move has failed: those that must move, and those that only might. The second do not hold up
// the first: who leaves or is drained would keep its leads for as long.
type moveWaits struct {
	must, even time.Time
	again      bool // the last move has failed
}

// hold reports whether sources are to be held for the next move. Behind one that has failed they are not: what does not move for
// minutes would hold them for as long.
func (w *moveWaits) hold() bool { return !w.again }

// succeeded notes that all that was to move has moved.
func (w *moveWaits) succeeded() { w.again = false }

// failed notes at a time that a move has failed.
func (w *moveWaits) failed(now time.Time, must bool) {
	w.again = true
	wait := settleTime
	if must {
		wait = againAfter
		w.must = now.Add(wait)
	}
	if even := now.Add(wait); even.After(w.even) {
		w.even = even
	}
}

// may reports whether leads may be moved at a time.
func (w *moveWaits) may(now time.Time, must bool) bool {
	if must {
		return !now.Before(w.must)
	}
	return !now.Before(w.even)
}
