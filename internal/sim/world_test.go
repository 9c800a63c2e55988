package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
)

// Durations in µs of virtual time.
const (
	ms     int64 = 1000
	second       = 1000 * ms
)

const maxNodes = 5

// world is one simulated group with its clients: the clock, the network, the nodes, the faults, and what all of it must come
// to. Everything happens in step, one event after another, in an order that follows from the seed.
type world struct {
	seed   uint64
	mutant string
	rnd    *rand.Rand
	now    int64
	queue  eventQueue
	serial uint64
	trace  bool
	hist   []string

	nodes  []*node
	shards int
	cut    [maxNodes][maxNodes]bool // messages from, to are lost
	loss   int                      // per mille of messages lost
	slow   int                      // per mille of messages late
	calm   bool                     // no more faults: everything must become live

	oracle  oracle
	clients clients
	n       counts
}

// violation is a broken invariant: the run ends with it.
type violation struct{ invariant, text string }

func (v violation) Error() string { return v.invariant + ": " + v.text }

// fail ends the run.
func (w *world) fail(invariant, format string, args ...any) {
	v := violation{invariant, fmt.Sprintf(format, args...)}
	w.logf("VIOLATION %v", v)
	panic(v)
}

func (w *world) logf(format string, args ...any) {
	if w.trace {
		w.hist = append(w.hist, fmt.Sprintf("%9.3fms  ", float64(w.now)/1e3)+fmt.Sprintf(format, args...))
	}
}

// event is something that happens at a time: on a node, or to the world when n is nil. It does not happen when the node has
// crashed meanwhile, nor, for a message, when the network is cut then.
type event struct {
	at     int64
	serial uint64
	n      *node
	life   int
	from   *node
	fn     func()
}

type eventQueue []*event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}

func (w *world) push(e *event) {
	w.serial++
	e.serial = w.serial
	heap.Push(&w.queue, e)
}

// after lets fn happen on n, if it lives then, or to the world (nil).
func (w *world) after(d int64, n *node, fn func()) {
	e := &event{at: w.now + d, n: n, fn: fn}
	if n != nil {
		e.life = n.life
	}
	w.push(e)
}

// step lets the next event happen; false = there is none.
func (w *world) step() bool {
	if len(w.queue) == 0 {
		return false
	}
	e := heap.Pop(&w.queue).(*event)
	w.now = max(w.now, e.at)
	if n := e.n; n != nil {
		if !n.up || n.life != e.life || e.from != nil && w.cut[e.from.id][n.id] {
			return true
		}
		if n.paused {
			n.stash = append(n.stash, e)
			return true
		}
	}
	e.fn()
	return true
}

// between returns a random duration in [lo, hi).
func (w *world) between(lo, hi int64) int64 { return lo + w.rnd.Int64N(hi-lo) }

func (w *world) chance(perMille int) bool { return perMille > 0 && w.rnd.IntN(1000) < perMille }

// latency is how long a message is on its way.
func (w *world) latency() int64 {
	d := w.between(200, 2*ms)
	if w.chance(w.slow) {
		d += w.between(20*ms, 400*ms)
	}
	return d
}

// send delivers a message, perhaps late, perhaps out of order, perhaps not at all. from is nil for a client's.
func (w *world) send(from, to *node, fn func()) {
	if from == to {
		w.after(w.between(10, 200), to, fn)
		return
	}
	if w.chance(w.loss) {
		w.n.lost++
		return
	}
	w.push(&event{at: w.now + w.latency(), n: to, life: to.life, from: from, fn: fn})
}

// sendTwice is send for what may also come twice: Raft's messages.
func (w *world) sendTwice(from, to *node, fn func()) {
	w.send(from, to, fn)
	if w.chance(w.loss / 2) {
		w.n.doubled++
		w.send(from, to, fn)
	}
}

// lateCopy lets a proposal come once more, much later, to whoever leads the group then: as from a process that hung.
func (w *world) lateCopy(g int, propose func(l *node)) {
	if !w.calm && w.chance(40) {
		w.hang(g, propose)
	}
}

// hang lets a proposal come much later, to whoever leads the group then.
func (w *world) hang(g int, propose func(l *node)) {
	w.after(w.between(10*ms, 2*second), nil, func() {
		for _, n := range w.nodes {
			if n.up && !n.paused && n.groups[g].role == leading {
				propose(n)
				return
			}
		}
		w.hang(g, propose)
	})
}

// conn is a connection, in one direction: what is sent comes in order, or the connection breaks and nothing more comes.
type conn struct {
	w        *world
	from, to *node
	fromLife int
	toLife   int
	last     int64 // when the last message arrives
	broken   bool
	onBroken func() // happens at from, some time later
}

func (w *world) connect(from, to *node, onBroken func()) *conn {
	return &conn{w: w, from: from, to: to, fromLife: from.life, toLife: to.life, onBroken: onBroken}
}

func (c *conn) send(fn func()) {
	w := c.w
	if c.broken {
		return
	}
	if c.from != c.to && w.chance(w.loss/4) {
		if w.mutant == "edge-resumes" {
			return // the message is lost and the connection goes on
		}
		c.sever()
		return
	}
	d := w.latency()
	if c.from == c.to {
		d = w.between(10, 3*ms)
	}
	c.last = max(c.last+1, w.now+d)
	w.push(&event{at: c.last, n: c.to, life: c.to.life, fn: func() {
		if c.broken {
			return
		}
		if c.toLife != c.to.life || w.cut[c.from.id][c.to.id] {
			c.sever()
			return
		}
		fn()
	}})
}

// sever breaks the connection. The sender learns of it.
func (c *conn) sever() {
	if c.broken {
		return
	}
	c.broken = true
	c.w.n.severed++
	if c.onBroken != nil && c.from.life == c.fromLife {
		c.w.after(c.w.between(50*ms, 400*ms), c.from, c.onBroken)
	}
}

// counts say what a run has met: a history without these proves little.
type counts struct {
	events, lost, doubled, severed                                                           int
	crashes, pauses, partitions, oneWayCuts, clockJumps                                      int
	elections, metaElections, transfers, truncated, installed                                int
	lostProposals, unknownCommitted                                                          int
	appends, appended, unknown, duplicates, overlaps, fencedProducers                        int
	keyDuplicates                                                                            int
	commits, refused, racing, recoveries, takeovers, cancelled, midway                       int
	fencedDeltas, zombies, halfBarriers, expired, settled, trimmed, tasksFailed, brokenEdges int
	stops, failures, resumes, deletes, triggers, leases, memberOps                           int
	reads, followerReads, idleReads, leasedReads, tokenWaits, metaReads                      int
}

// sometimes lists what must have happened at least once over all runs.
func (c *counts) sometimes() map[string]int {
	return map[string]int{
		"lost messages": c.lost, "doubled messages": c.doubled, "severed connections": c.severed,
		"crashes": c.crashes, "pauses": c.pauses, "partitions": c.partitions, "one-way cuts": c.oneWayCuts, "clock jumps": c.clockJumps,
		"elections": c.elections, "elections of the meta log": c.metaElections, "leadership transfers": c.transfers,
		"truncated log tails": c.truncated, "installed snapshots": c.installed,
		"lost proposals": c.lostProposals, "proposals committed without the proposer's knowledge": c.unknownCommitted,
		"acknowledged appends": c.appended, "unknown outcomes": c.unknown, "suppressed duplicates": c.duplicates,
		"overlapping re-sends": c.overlaps, "fenced producers": c.fencedProducers, "suppressed duplicates by key": c.keyDuplicates,
		"commits": c.commits, "refused commits": c.refused, "commits racing a recovery": c.racing, "recoveries": c.recoveries,
		"take-overs by a new coordinator": c.takeovers, "cancelled attempts": c.cancelled, "leader changes in mid-commit": c.midway,
		"fenced deltas": c.fencedDeltas, "barriers of a deposed coordinator that not all sources had": c.halfBarriers, "zombie writers": c.zombies, "settled deltas": c.settled, "trimmed streams": c.trimmed,
		"failed tasks": c.tasksFailed, "broken edges": c.brokenEdges, "stops": c.stops, "failed pipelines": c.failures, "resumes": c.resumes, "deletions": c.deletes,
		"triggered checkpoints": c.triggers, "leases": c.leases, "membership operations": c.memberOps,
		"committed reads": c.reads, "reads from followers": c.followerReads, "reads while no task runs": c.idleReads,
		"reads of leased cuts": c.leasedReads, "waits for a session's token": c.tokenWaits, "linearizable reads of metadata": c.metaReads,
	}
}
