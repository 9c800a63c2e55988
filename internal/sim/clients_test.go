package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// errTimeout: a client has waited long enough. The outcome is unknown.
var errTimeout = errors.New("no answer in time")

// ask sends a request to a node. done is called once: with the answer, or errTimeout.
func (w *world) ask(n *node, limit int64, do func(reply func(v any, err error)), done func(v any, err error)) {
	over := false
	finish := func(v any, err error) {
		if !over {
			over = true
			done(v, err)
		}
	}
	w.send(nil, n, func() {
		do(func(v any, err error) {
			if w.chance(w.loss) {
				w.n.lost++
				return
			}
			w.after(w.latency(), nil, func() { finish(v, err) })
		})
	})
	w.after(limit, nil, func() { finish(nil, errTimeout) })
}

func (w *world) anyNode() *node { return w.nodes[w.rnd.IntN(len(w.nodes))] }

type clients struct {
	producers []*producer
	plains    []*plain
	sessions  []*reader
	waiters   uint64
	deploys   int
	settling  bool // the faults are over: no new work begins
	members   int
}

// open reports whether something is still to be sent or answered.
func (c *clients) open() bool {
	for _, p := range c.producers {
		if !p.finished() {
			return true
		}
	}
	for _, a := range c.plains {
		if a.state == asked {
			return true
		}
	}
	return false
}

// producer numbers its rows per shard (P8): a re-send carries the same numbers, through whatever node, cut in whatever way.
type producer struct {
	w        *world
	src      uint16
	rows     [][]row // by shard
	acked    []int   // by shard: rows that were acknowledged
	sessions int
	cur      *process
}

// process is one process of a producer.
type process struct {
	p     *producer
	n     int
	epoch dataflow.ProducerEpoch
	dead  bool
	next  []int // by shard: the number of the next row; 0 = the shard is not opened
}

func (w *world) newProducer(src uint16, rows int) {
	p := &producer{w: w, src: src, rows: make([][]row, w.shards), acked: make([]int, w.shards)}
	for range rows {
		s := w.rnd.IntN(w.shards)
		p.rows[s] = append(p.rows[s], row{src, uint8(w.rnd.IntN(numKeys)), uint8(s), uint32(len(p.rows[s]) + 1)})
	}
	w.clients.producers = append(w.clients.producers, p)
	p.restart()
}

func (p *producer) name() string { return fmt.Sprintf("producer%d", p.src) }

func (p *producer) finished() bool {
	for s, rows := range p.rows {
		if p.acked[s] < len(rows) {
			return false
		}
	}
	return true
}

// restart begins a new process that reads the same input. The old one may not have ended.
func (p *producer) restart() {
	p.sessions++
	s := &process{p: p, n: p.sessions, next: make([]int, p.w.shards)}
	p.cur = s
	p.w.logf("%s starts session %d", p.name(), s.n)
	s.open()
}

func (s *process) again(fn func()) { s.p.w.after(s.p.w.between(20*ms, 200*ms), nil, fn) }

// open gets an epoch from the meta log and writes it to every shard.
func (s *process) open() {
	w := s.p.w
	if s.dead {
		return
	}
	instance := fmt.Sprintf("instance%d", s.n)
	w.request("open producer", func(l *meta.Log) (any, error) { return l.OpenProducer(bg, s.p.name(), instance) }, func(v any, err error) {
		if err != nil {
			s.again(s.open)
			return
		}
		s.epoch = v.(dataflow.ProducerEpoch)
		for i := range w.shards {
			s.openShard(i)
		}
	})
}

func (s *process) openShard(i int) {
	w := s.p.w
	if s.dead {
		return
	}
	n := w.anyNode()
	w.ask(n, second, func(reply func(any, error)) {
		n.forward(i+1, func(l *node, done func(uint64, any, error)) {
			e := &entry{cmd: shard.OpenProducerEntry(streamID, s.p.name(), s.epoch, 100, l.clock()), info: openInfo{s.p.src, s.epoch}}
			l.groups[i+1].propose(e, done)
		}, func(_ uint64, v any, err error) { reply(v, err) })
	}, func(v any, err error) {
		if err != nil {
			s.again(func() { s.openShard(i) })
			return
		}
		out := v.(shard.Outcome)
		if out.Err != nil {
			s.fenced()
			return
		}
		if int(out.Last) < s.p.acked[i] {
			w.fail("I1", "shard %d knows %d rows of %s, which was answered for %d", i, out.Last, s.p.name(), s.p.acked[i])
		}
		s.p.acked[i] = max(s.p.acked[i], int(out.Last))
		s.next[i] = max(1, int(out.Last)+1-w.rnd.IntN(4)) // it reads its input again
		s.send(i)
	})
}

// fenced ends the session. When no newer one is open, because an older one was opened late, it is opened again.
func (s *process) fenced() {
	if s.dead {
		return
	}
	s.dead = true
	if s.p.cur == s {
		s.again(s.p.restart)
	}
}

// send sends the next rows of a shard, or some that it has sent already.
func (s *process) send(i int) {
	w := s.p.w
	if s.dead {
		return
	}
	if !w.calm && s.p.cur == s && w.chance(20) {
		s.p.restart() // and this one goes on: a process that hangs
	}
	first := s.next[i]
	if w.chance(100) {
		first = max(1, first-w.rnd.IntN(6))
	}
	if first > len(s.p.rows[i]) {
		return
	}
	rows := s.p.rows[i][first-1:]
	rows = rows[:min(len(rows), 1+w.rnd.IntN(5))]
	w.n.appends++
	info := &appendInfo{src: s.p.src, rows: rows, producer: true, a: shard.Append{Stream: streamID, Rows: encodeRows(rows), Count: len(rows),
		Producer: s.p.name(), Epoch: s.epoch, First: dataflow.Seq(first)}}
	w.append(i, info, func(v any, err error) {
		if err != nil {
			if !errors.Is(err, errNotLeader) {
				w.n.unknown++
			}
			s.again(func() { s.send(i) })
			return
		}
		out := v.(shard.Outcome)
		switch dataflow.ReasonOf(out.Err) {
		case dataflow.ReasonProducerFenced:
			s.fenced()
			return
		case dataflow.ReasonOutOfOrder:
			w.fail("I1", "shard %d: %s sends row %d, and the shard wants an earlier one: %v", i, s.p.name(), first, out.Err)
		case dataflow.ReasonUnknownProducer:
			w.fail("P8", "shard %d does not know session %d of %s, which it has opened: %v", i, s.epoch, s.p.name(), out.Err)
		case dataflow.ReasonSequenceReused:
			w.fail("I2", "shard %d: %v", i, out.Err)
		}
		last := first + len(rows) - 1
		if out.Appended.Overlap {
			last = int(out.Appended.LastSeq)
		}
		w.n.appended++
		s.p.acked[i] = max(s.p.acked[i], last)
		s.next[i] = max(s.next[i], last+1)
		w.after(w.between(ms, 40*ms), nil, func() { s.send(i) })
	})
}

// append sends rows to a shard, through any node.
func (w *world) append(s int, info *appendInfo, done func(v any, err error)) {
	n := w.anyNode()
	w.ask(n, second, func(reply func(any, error)) {
		n.forward(s+1, func(l *node, done func(uint64, any, error)) {
			i := *info
			i.a.Now = l.clock()
			cmd, err := shard.AppendEntry(i.a, 1000)
			if err != nil {
				panic(err)
			}
			l.groups[s+1].propose(&entry{cmd: cmd, info: &i}, done)
		}, func(_ uint64, v any, err error) { reply(v, err) })
	}, done)
}

type plainState uint8

const (
	asked plainState = iota
	acked
	refused
	unknown
)

// plain is one append of one row without a producer, with or without an idempotency key.
type plain struct {
	src   uint16
	state plainState
}

func (w *world) appendPlain() {
	a := &plain{src: uint16(1000 + len(w.clients.plains))}
	w.clients.plains = append(w.clients.plains, a)
	s := w.rnd.IntN(w.shards)
	rows := []row{{a.src, uint8(w.rnd.IntN(numKeys)), uint8(s), 1}}
	info := &appendInfo{src: a.src, rows: rows, a: shard.Append{Stream: streamID, Rows: encodeRows(rows), Count: 1}}
	if info.keyed = w.chance(500); info.keyed {
		info.a.IdempotencyKey = fmt.Sprintf("key%d", a.src)
	}
	var try func()
	try = func() {
		w.append(s, info, func(v any, err error) {
			switch {
			case err == nil && v.(shard.Outcome).Err == nil:
				a.state = acked
				w.n.appended++
			case info.keyed:
				w.after(w.between(10*ms, 100*ms), nil, try)
			case errors.Is(err, errNotLeader):
				a.state = refused
			default:
				a.state = unknown
				w.n.unknown++
			}
		})
	}
	try()
}

// request makes a proposal to the meta log through any node. What it says of the order of entries is checked (I10).
func (w *world) request(what string, call func(*meta.Log) (any, error), done func(v any, err error)) {
	n := w.anyNode()
	before := w.oracle.metaDone
	type answer struct {
		index uint64
		v     any
		err   error
	}
	w.ask(n, second, func(reply func(any, error)) {
		n.forwardMeta(metaOp{what, call}, func(index uint64, v any, err error) { reply(answer{index, v, err}, nil) })
	}, func(v any, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		a := v.(answer)
		if a.index > 0 {
			if a.index <= before {
				w.fail("I10", "%s took effect at %d, before %d, which had been answered when it was asked", what, a.index, before)
			}
			w.oracle.metaDone = max(w.oracle.metaDone, a.index)
		}
		done(a.v, a.err)
	})
}

// readMeta reads the meta log's state linearizably (I10).
func (w *world) readMeta() {
	n := w.anyNode()
	before := w.oracle.metaDone
	w.ask(n, second, func(reply func(any, error)) {
		n.barrier(func(err error) { reply(n.groups[0].applied, err) })
	}, func(v any, err error) {
		if err != nil {
			return
		}
		w.n.metaReads++
		if v.(uint64) < before {
			w.fail("I10", "%s read the metadata as of %d, after %d had been answered", n.name, v, before)
		}
		w.oracle.metaDone = max(w.oracle.metaDone, v.(uint64))
	})
}

// reader reads committed tables through any node, with a session's token.
type reader struct {
	w     *world
	token map[dataflow.PipelineUID]dataflow.CheckpointID
}

// readCut reads a cut that the node knows; false = it is not here, or no more.
func (n *node) readCut(c *dataflow.CheckpointCommit) (t table, ok bool) {
	w := n.w
	for s := range w.shards {
		part, is := n.replicas[s].view(c)
		if is == gone {
			if p := w.oracle.meta.State().Pipelines[c.Pipeline]; p != nil {
				if _, err := p.Cut(c.ID); err == nil && !n.replicas[s].store(c.Pipeline).dropped {
					w.fail("P6", "%s: cut %d of pipeline %d is kept, and shard %d has folded it or has another digest", n.name, c.ID, c.Pipeline, s)
				}
			}
		}
		if is != ready {
			return t, false
		}
		for k := s; k < numKeys; k += w.shards {
			t[k] = part[k]
		}
	}
	if w.mutant == "reads-from-live-state" {
		for _, r := range n.worker.runs {
			for _, s := range r.led {
				if r.uid == c.Pipeline {
					for k := s; k < numKeys; k += w.shards {
						t[k] = r.keyed[s].state[k]
					}
				}
			}
		}
	}
	w.oracle.same(c, t, n.name)
	return t, true
}

var errNoCut = errors.New("no cut that can be read")

// readCommitted reads the newest cut that all shards have here, which must not be older than the token's.
func (n *node) readCommitted(uid dataflow.PipelineUID, token dataflow.CheckpointID, reply func(any, error)) {
	var found *dataflow.CheckpointCommit
	look := func() bool {
		p := n.meta.State().Pipelines[uid]
		if p == nil || !n.serving {
			return false
		}
		for i := len(p.Cuts) - 1; i >= 0; i-- {
			c := p.Cuts[i]
			if c.ID < token && n.w.mutant != "token-ignored" {
				return false
			}
			if n.w.mutant == "token-ignored" && i > 0 && n.w.chance(300) {
				continue
			}
			if _, ok := n.readCut(c); ok {
				found = c
				return true
			}
		}
		return false
	}
	if !look() && token > 0 {
		n.w.n.tokenWaits++
	}
	n.await(look, 300*ms, func(ok bool) {
		if !ok {
			reply(nil, errNoCut)
			return
		}
		if last := n.answered[uid]; found.ID < last && n.w.mutant != "token-ignored" {
			n.w.fail("I5", "%s answered with cut %d of pipeline %d, and now with %d", n.name, last, uid, found.ID)
		}
		n.answered[uid] = found.ID
		if n.groups[0].role != leading {
			n.w.n.followerReads++
		}
		if p := n.meta.State().Pipelines[uid]; p != nil && !p.State.Active() {
			n.w.n.idleReads++
		}
		reply(found, nil)
	})
}

func (r *reader) read() {
	w := r.w
	if len(w.oracle.uids) == 0 {
		return
	}
	uid := w.oracle.uids[w.rnd.IntN(len(w.oracle.uids))]
	n, token := w.anyNode(), r.token[uid]
	w.ask(n, second, func(reply func(any, error)) { n.readCommitted(uid, token, reply) }, func(v any, err error) {
		if err != nil {
			return
		}
		w.n.reads++
		c := v.(*dataflow.CheckpointCommit)
		if c.ID < token {
			w.fail("I5", "%s answers a session with cut %d of pipeline %d, which has seen %d", n.name, c.ID, uid, token)
		}
		r.token[uid] = max(r.token[uid], c.ID)
	})
}

// lease keeps a cut readable, and reads it on any node as long as that is promised (P6).
func (w *world) lease() {
	if len(w.oracle.uids) == 0 {
		return
	}
	uid := w.oracle.uids[w.rnd.IntN(len(w.oracle.uids))]
	n := w.anyNode()
	p := n.meta.State().Pipelines[uid]
	if p == nil {
		return
	}
	id := p.Cuts[w.rnd.IntN(len(p.Cuts))].ID
	w.request("lease", func(l *meta.Log) (any, error) { return l.Lease(bg, uid, id, 3*time.Second) }, func(_ any, err error) {
		if err != nil {
			return
		}
		w.n.leases++
		for range 4 {
			w.after(w.between(ms, 3*second), nil, func() {
				n := w.anyNode()
				if p := n.meta.State().Pipelines[uid]; n.up && !n.paused && p != nil {
					if c, err := p.Cut(id); err == nil {
						if _, ok := n.readCut(c); ok {
							w.n.leasedReads++
						}
					}
				}
			})
		}
	})
}

// deploy creates a pipeline through any node that knows the leaders of all shards.
func (w *world) deploy(name string, latest bool, done func(ok bool)) {
	n := w.anyNode()
	w.ask(n, 2*second, func(reply func(any, error)) {
		c := meta.CreatePipeline{Name: name, Fingerprint: name, Reads: map[string]dataflow.StreamID{"s": streamID}, Start: dataflow.Positions{},
			Options: []dataflow.Option{{Name: "checkpoint.interval", Value: "100ms"}, {Name: "checkpoint.timeout", Value: "1s"}, {Name: "checkpoint.tolerable_failures", Value: "2"}}}
		for s := range w.shards {
			l := n.groups[s+1].leader
			if l < 0 {
				reply(nil, errNotLeader)
				return
			}
			c.Owners = append(c.Owners, meta.Owner{Shard: dataflow.ShardID(s), Node: w.nodes[l].name, Term: n.groups[s+1].term})
			if _, end := n.machines[s].Range(streamID); latest {
				c.Start[dataflow.StreamShard{Stream: streamID, Shard: dataflow.ShardID(s)}] = end
			}
		}
		n.forwardMeta(metaOp{"deploy " + name, func(l *meta.Log) (any, error) {
			p, _, err := l.CreatePipeline(bg, c)
			return p, err
		}}, func(_ uint64, v any, err error) { reply(v, err) })
	}, func(_ any, err error) { done(err == nil) })
}

// admin does one random thing that a user or an operator does.
func (w *world) admin() {
	st := w.oracle.meta.State()
	var p *meta.Pipeline
	if ps := st.PipelineList(); len(ps) > 0 {
		p = ps[w.rnd.IntN(len(ps))]
	}
	switch x := w.rnd.IntN(100); {
	case x < 35:
		w.member()
	case x < 45:
		w.lease()
	case p == nil || len(st.Pipelines) < 2 && x < 60:
		w.clients.deploys++
		w.deploy(fmt.Sprintf("p%d", w.clients.deploys), w.chance(500), func(bool) {})
	case x < 62 && p.State.Active():
		w.request("stop", func(l *meta.Log) (any, error) { return l.Stop(bg, p.UID) }, func(_ any, err error) {
			if err == nil {
				w.n.stops++
			}
		})
	case x < 80 && !p.State.Active():
		w.resume(p.UID)
	case x < 66:
		w.request("delete", func(l *meta.Log) (any, error) { return l.DeletePipeline(bg, p.Name) }, func(_ any, err error) {
			if err == nil {
				w.n.deletes++
			}
		})
	case x < 74:
		value := []string{"off", "50ms", "100ms", "300ms"}[w.rnd.IntN(4)]
		w.request("set", func(l *meta.Log) (any, error) {
			return l.SetOptions(bg, p.UID, []dataflow.Option{{Name: "checkpoint.interval", Value: value}})
		}, func(any, error) {})
	default:
		w.trigger(p.UID)
	}
}

func (w *world) resume(uid dataflow.PipelineUID) {
	w.request("resume", func(l *meta.Log) (any, error) { return l.Resume(bg, uid) }, func(_ any, err error) {
		if err == nil {
			w.n.resumes++
		}
	})
}

// trigger asks the coordinator for a checkpoint.
func (w *world) trigger(uid dataflow.PipelineUID) {
	n := w.anyNode()
	if l := n.groups[0].leader; l >= 0 {
		n = w.nodes[l]
	}
	w.send(nil, n, func() {
		if n.coord == nil {
			return
		}
		if d := n.coord.driver(uid); d != nil {
			w.clients.waiters++
			w.oracle.waiters[w.clients.waiters] = &waiter{uid: uid, asked: w.now}
			d.trigger(w.clients.waiters)
		}
	})
}

// member changes what the meta log says of nodes.
func (w *world) member() {
	id := fmt.Sprintf("m%d", w.clients.members)
	done := func(_ any, err error) {
		if err == nil {
			w.n.memberOps++
		}
	}
	if w.chance(300) {
		w.clients.members++
		id = fmt.Sprintf("m%d", w.clients.members)
		w.request("put member "+id, func(l *meta.Log) (any, error) {
			return l.PutMember(bg, meta.Member{ID: id, DataID: "d" + id, PeerAddr: id + ":1"})
		}, done)
		return
	}
	to := []meta.MemberState{meta.MemberActive, meta.MemberDrained, meta.MemberLeaving, meta.MemberGone}[w.rnd.IntN(4)]
	w.request(fmt.Sprintf("member %s becomes %s", id, to), func(l *meta.Log) (any, error) { return l.SetMemberState(bg, id, to) }, done)
}

func newReader(w *world) *reader {
	return &reader{w: w, token: map[dataflow.PipelineUID]dataflow.CheckpointID{}}
}

// oneColumn is the schema of the stream: the simulation looks at no row's columns.
var oneColumn = dataflow.Schema{{Name: "a", Type: dataflow.TypeBigInt}}

func position(s int) dataflow.StreamShard {
	return dataflow.StreamShard{Stream: streamID, Shard: dataflow.ShardID(s)}
}

// empty reports whether a pipeline began behind a shard's last row, so that there is nothing for a cut to cover.
func (w *world) empty(p *meta.Pipeline, s int) bool {
	return int(p.Start[position(s)]) == len(w.oracle.rows[s])
}
