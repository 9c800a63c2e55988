package membership

import (
	"time"

	"github.com/weirdb/weir/raftlog/meta"
)

// awayAfter is how long a node is not heard of before it counts as away. Why not shorter: a leader's heartbeats come every few
// hundred milliseconds, and wait for a slow machine.
const awayAfter = 3 * time.Second

// presence is what the leader of the meta log, of which every node is a member, has heard of the nodes. It has no clock: who calls
// says what time it is.
type presence struct {
	after time.Duration // until a node is Silent
	nodes map[string]*heard
}

// heard is what is known of one node.
type heard struct {
	spoke  time.Time // it was heard of last; zero = never
	last   time.Time // the same, but not before this node could hear of it
	missed time.Time // it was found away last; zero = never
}

// newPresence knows of no node. One that is not heard of for after is Silent, and one that is back is Returned for as long.
func newPresence(after time.Duration) *presence {
	return &presence{after: after, nodes: make(map[string]*heard)}
}

// look notes at a time when a node was last heard of, zero when that is unknown.
func (p *presence) look(now time.Time, id string, last time.Time) {
	h := p.nodes[id]
	if h == nil {
		h = &heard{last: now}
		p.nodes[id] = h
	}
	if last.After(h.last) {
		h.last = last
	}
	h.spoke = last
	if now.Sub(h.last) >= p.away() {
		h.missed = now
	}
}

// isAway reports whether a node is not heard of at a time, after look.
func (p *presence) isAway(now time.Time, id string) bool {
	return now.Sub(p.nodes[id].last) >= p.away()
}

// away is how long a node is not heard of before it counts as away.
func (p *presence) away() time.Duration { return min(awayAfter, p.after/2) }

// fit returns what a node is good for at a time. One that joins is well as soon as it is heard of: it had no vote to lose.
func (p *presence) fit(now time.Time, m *meta.Member) Fit {
	h := p.nodes[m.ID]
	switch {
	case !m.In():
		return Out
	case h == nil || now.Sub(h.last) >= p.after:
		return Silent
	case m.State == meta.MemberJoining:
		h.missed = time.Time{}
		if h.spoke.IsZero() || now.Sub(h.spoke) >= p.away() {
			return Silent
		}
		return Well
	case m.State == meta.MemberDrained:
		return Drained
	case !h.missed.IsZero() && now.Sub(h.missed) < p.after:
		return Returned
	}
	return Well
}
