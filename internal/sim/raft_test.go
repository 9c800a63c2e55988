package sim

import (
	"fmt"
	"slices"
)

// errNotLeader: nothing was proposed. errUnknown: the proposal may or may not be committed.
var (
	errNotLeader = fmt.Errorf("not the leader")
	errUnknown   = fmt.Errorf("the outcome is unknown")
)

// Times of the modelled log. The product's are longer; only their order matters.
const (
	tickEvery   = 50 * ms
	electionMin = 250 * ms
	electionMax = 500 * ms
	// A leader that has not heard of a majority for so long steps down. Longer than an election, so that deposed leaders that
	// do not know it are there often; the product's is shorter.
	quorumLease = 700 * ms
)

// entry is an entry of a log. info is what the simulation knows of it, beside its bytes.
type entry struct {
	term uint64
	cmd  []byte // nil = the log's own
	info any
}

// snap is a snapshot of a state machine, with what a member needs that takes it: the entries that it refers to, and the
// replica's store.
type snap struct {
	index, term uint64
	data        []byte
	entries     []*entry // by index-1; nil where not referred to
	stores      map[uint64]*stored
}

type machine interface {
	apply(index uint64, e *entry) any
	snapshot() *snap
	restore(*snap)
	// keep reports the indexes up to last that must stay.
	keep(last uint64) func(index uint64) bool
}

type role uint8

const (
	follower role = iota
	candidate
	leading
)

type pending struct {
	index, term uint64
	done        func(index uint64, result any, err error)
}

// raft is one member of a modelled replicated log. It follows the Raft paper; what is written is durable at once.
type raft struct {
	w    *world
	n    *node
	g    int // the group: 0 = meta, 1.. = shards
	name string
	sm   machine

	// durable
	term  uint64
	vote  int // +1; 0 = none in this term
	log   []*entry
	first uint64 // the first entry that can be sent
	snap  *snap

	role            role
	leader          int // -1 = unknown
	commit, applied uint64
	votes           uint
	next, match     [maxNodes]uint64
	heard           [maxNodes]int64
	heardLeader     int64
	electAt         int64
	pend            []pending
	moving          int   // leadership is on its way to this node; -1
	holdTo          int64 // until when nothing is applied
}

func newRaft(n *node, g int, sm machine) *raft {
	name := "meta"
	if g > 0 {
		name = fmt.Sprintf("shard %d", g-1)
	}
	r := &raft{w: n.w, n: n, g: g, name: name, sm: sm, first: 1}
	r.start()
	return r
}

// start begins a life: what is not durable is gone.
func (r *raft) start() {
	r.role, r.leader, r.pend, r.moving = follower, -1, nil, -1
	r.commit, r.applied, r.holdTo = 0, 0, 0
	if r.snap != nil {
		r.commit, r.applied = r.snap.index, r.snap.index
	}
	r.resetElection()
}

func (r *raft) resetElection() { r.electAt = r.w.now + r.w.between(electionMin, electionMax) }

func (r *raft) last() uint64 { return uint64(len(r.log)) }

func (r *raft) termAt(i uint64) uint64 {
	switch {
	case i == 0:
		return 0
	case r.snap != nil && i == r.snap.index:
		return r.snap.term
	}
	return r.log[i-1].term
}

// tick is called every tickEvery.
func (r *raft) tick() {
	if r.role != leading {
		if r.w.now >= r.electAt {
			r.campaign()
		}
		return
	}
	live := 1
	for _, p := range r.w.nodes {
		if p != r.n && r.w.now-r.heard[p.id] < quorumLease {
			live++
		}
	}
	if live <= len(r.w.nodes)/2 {
		r.w.logf("%s: %s steps down: it hears no majority", r.n.name, r.name)
		r.stepDown(r.term, -1)
		return
	}
	r.moving = -1
	r.broadcast()
}

func (r *raft) campaign() {
	r.term++
	r.role, r.leader, r.votes, r.vote = candidate, -1, 1<<r.n.id, r.n.id+1
	r.resetElection()
	r.w.logf("%s: %s campaigns in term %d", r.n.name, r.name, r.term)
	for _, p := range r.w.nodes {
		if p != r.n {
			term, last, lastTerm, transfer := r.term, r.last(), r.termAt(r.last()), r.moving == r.n.id
			r.w.sendTwice(r.n, p, func() { p.groups[r.g].onVote(r.n, term, last, lastTerm, transfer) })
		}
	}
}

func (r *raft) onVote(from *node, term, last, lastTerm uint64, transfer bool) {
	if r.leader >= 0 && !transfer && r.w.now-r.heardLeader < electionMin {
		return // it has a leader
	}
	if term > r.term {
		r.stepDown(term, -1)
	}
	free := r.vote == 0 || r.vote == from.id+1 || r.w.mutant == "votes-twice"
	mine := r.termAt(r.last())
	if term < r.term || !free || lastTerm < mine || lastTerm == mine && last < r.last() {
		return
	}
	r.vote = from.id + 1
	r.resetElection()
	r.w.sendTwice(r.n, from, func() { from.groups[r.g].onVoted(r.n, term) })
}

func (r *raft) onVoted(from *node, term uint64) {
	if r.role != candidate || term != r.term {
		return
	}
	r.votes |= 1 << from.id
	count := 0
	for i := range r.w.nodes {
		count += int(r.votes >> i & 1)
	}
	if count <= len(r.w.nodes)/2 {
		return
	}
	r.role, r.leader, r.moving = leading, r.n.id, -1
	r.w.logf("%s: %s leads in term %d", r.n.name, r.name, r.term)
	r.w.oracle.elected(r)
	for _, p := range r.w.nodes {
		r.next[p.id], r.match[p.id], r.heard[p.id] = r.last()+1, 0, r.w.now
	}
	r.log = append(r.log, &entry{term: r.term})
	r.broadcast()
	r.n.leadershipChanged(r)
}

// stepDown follows a term, whose leader is known or -1.
func (r *raft) stepDown(term uint64, leader int) {
	if term > r.term {
		r.term, r.vote = term, 0
	}
	was := r.role
	r.role = follower
	changed := r.leader != leader
	r.leader = leader
	if was == leading {
		lost := r.pend
		r.pend = nil
		for _, p := range lost {
			r.w.oracle.abandoned(r, p)
			p.done(0, nil, errUnknown)
		}
		r.resetElection()
	}
	if was == leading || changed {
		r.n.leadershipChanged(r)
	}
}

// propose adds an entry. done is called once, unless the node crashes.
func (r *raft) propose(e *entry, done func(uint64, any, error)) {
	if r.role != leading || r.moving >= 0 {
		done(0, nil, errNotLeader)
		return
	}
	e.term = r.term
	r.log = append(r.log, e)
	r.pend = append(r.pend, pending{r.last(), r.term, done})
	if r.w.mutant == "ack-before-quorum" && r.g > 0 {
		if _, ok := e.info.(*appendInfo); ok {
			r.pend = r.pend[:len(r.pend)-1]
			r.w.after(1, r.n, func() { done(r.last(), r.w.oracle.asIfApplied(r, e), nil) })
		}
	}
	r.broadcast()
}

func (r *raft) broadcast() {
	for _, p := range r.w.nodes {
		if p != r.n {
			r.replicate(p)
		}
	}
}

const maxSent = 32 // entries of one message

func (r *raft) replicate(p *node) {
	term, commit := r.term, r.commit
	if r.next[p.id] < r.first {
		s := r.snap
		r.w.send(r.n, p, func() { p.groups[r.g].onInstall(r.n, term, s) })
		return
	}
	prev := r.next[p.id] - 1
	prevTerm := r.termAt(prev)
	ents := slices.Clone(r.log[prev:min(prev+maxSent, r.last())])
	r.w.sendTwice(r.n, p, func() { p.groups[r.g].onAppend(r.n, term, prev, prevTerm, ents, commit) })
}

// follow takes a message of a leader; false = of an old one.
func (r *raft) follow(from *node, term uint64) bool {
	if term < r.term {
		mine := r.term
		r.w.send(r.n, from, func() { from.groups[r.g].onAppended(r.n, mine, 0, 0) })
		return false
	}
	if term > r.term || r.role != follower || r.leader != from.id {
		r.stepDown(term, from.id)
	}
	r.heardLeader = r.w.now
	r.resetElection()
	return true
}

func (r *raft) onAppend(from *node, term, prev, prevTerm uint64, ents []*entry, commit uint64) {
	if !r.follow(from, term) {
		return
	}
	reply := func(match, hint uint64) {
		r.w.sendTwice(r.n, from, func() { from.groups[r.g].onAppended(r.n, term, match, hint) })
	}
	snapped := uint64(0)
	if r.snap != nil {
		snapped = r.snap.index
	}
	if prev > r.last() || prev > snapped && r.termAt(prev) != prevTerm {
		reply(0, r.commit+1)
		return
	}
	for i, e := range ents {
		at := prev + uint64(i) + 1
		if at <= snapped {
			continue
		}
		if at <= r.last() {
			if r.log[at-1].term == e.term {
				continue
			}
			if at <= r.commit {
				r.w.fail("I11", "%s: %s is to drop entry %d, which is committed", r.n.name, r.name, at)
			}
			r.w.n.truncated++
			r.log = r.log[: at-1 : at-1]
		}
		r.log = append(r.log, e)
	}
	r.commitTo(min(commit, prev+uint64(len(ents))))
	reply(prev+uint64(len(ents)), 0)
}

func (r *raft) onAppended(from *node, term, match, hint uint64) {
	if term > r.term {
		r.stepDown(term, -1)
		return
	}
	if r.role != leading || term < r.term {
		return
	}
	r.heard[from.id] = r.w.now
	if hint > 0 {
		r.next[from.id] = max(r.match[from.id]+1, min(hint, r.last()+1))
		r.replicate(from)
		return
	}
	if match > r.match[from.id] {
		r.match[from.id] = match
	}
	r.next[from.id] = max(r.next[from.id], r.match[from.id]+1)
	if r.next[from.id] <= r.last() && match > 0 && r.last()-r.match[from.id] > maxSent {
		r.replicate(from)
	}
	r.match[r.n.id] = r.last()
	all := make([]uint64, 0, maxNodes)
	for _, p := range r.w.nodes {
		all = append(all, r.match[p.id])
	}
	slices.Sort(all)
	if n := all[(len(all)-1)/2]; n > r.commit && r.termAt(n) == r.term {
		r.commitTo(n)
		if r.role == leading && r.w.chance(500) {
			r.broadcast() // so that followers know soon; otherwise the next tick tells them
		}
	}
	if r.moving >= 0 && r.moving == from.id && r.match[from.id] == r.last() {
		r.w.send(r.n, from, func() { from.groups[r.g].onTimeoutNow(r.term) })
	}
}

// transfer gives the leadership away, if the target follows soon.
func (r *raft) transfer(to *node) {
	if r.role != leading || to == r.n {
		return
	}
	r.w.n.transfers++
	r.w.logf("%s: %s goes to %s", r.n.name, r.name, to.name)
	r.moving = to.id
	r.replicate(to)
}

func (r *raft) onTimeoutNow(term uint64) {
	if term == r.term && r.role == follower {
		r.moving = r.n.id
		r.campaign()
		r.moving = -1
	}
}

func (r *raft) onInstall(from *node, term uint64, s *snap) {
	if !r.follow(from, term) {
		return
	}
	if s.index > r.commit {
		r.w.n.installed++
		r.w.logf("%s: %s takes %s's snapshot at %d", r.n.name, r.name, from.name, s.index)
		var rest []*entry // what follows the snapshot here and may have been acknowledged
		if r.last() > s.index && r.log[s.index-1] != nil && r.log[s.index-1].term == s.term {
			rest = r.log[s.index:]
		}
		r.log = append(slices.Clone(s.entries), rest...)
		r.first = s.index + 1
		r.snap = s
		r.commit, r.applied = s.index, s.index
		r.sm.restore(s)
		r.n.applied(r)
	}
	r.w.send(r.n, from, func() { from.groups[r.g].onAppended(r.n, term, s.index, 0) })
}

// commitTo applies what is committed.
func (r *raft) commitTo(index uint64) {
	if index <= r.commit {
		return
	}
	if r.role != leading && !r.w.calm { // sometimes a follower applies late
		if r.w.now < r.holdTo {
			return
		}
		if r.w.chance(8) {
			r.holdTo = r.w.now + r.w.between(20*ms, 400*ms)
			return
		}
	}
	r.commit = index
	life := r.n.life
	for r.applied < r.commit && r.n.life == life {
		r.applied++
		e := r.log[r.applied-1]
		r.w.oracle.committed(r, r.applied, e)
		var result any
		if e.cmd != nil {
			result = r.sm.apply(r.applied, e)
		}
		r.w.oracle.compare(r, r.applied)
		for len(r.pend) > 0 && r.pend[0].index <= r.applied {
			p := r.pend[0]
			r.pend = r.pend[1:]
			if p.index == r.applied && p.term == e.term {
				p.done(p.index, result, nil)
			} else {
				p.done(0, nil, errUnknown)
			}
		}
	}
	if r.n.life == life {
		r.n.applied(r)
		r.compact()
	}
}

// compact takes a snapshot now and then and lets the log go before it, but for some entries.
func (r *raft) compact() {
	from := uint64(0)
	if r.snap != nil {
		from = r.snap.index
	}
	if r.applied-from < 40 || !r.w.chance(200) {
		return
	}
	s := r.sm.snapshot()
	s.index, s.term = r.applied, r.termAt(r.applied)
	keep := r.sm.keep(s.index)
	s.entries = make([]*entry, s.index)
	for i := range s.entries {
		if keep(uint64(i) + 1) {
			s.entries[i] = r.log[i]
		}
	}
	r.snap = s
	to := s.index - uint64(r.w.rnd.IntN(10))
	log := slices.Clone(r.log)
	for i := r.first; i < to; i++ { // the last one stays for its term
		log[i-1] = nil
	}
	for i, e := range s.entries {
		if e != nil {
			log[i] = e
		}
	}
	r.log, r.first = log, max(r.first, to+1)
}
