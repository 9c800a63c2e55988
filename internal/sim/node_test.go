package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// streamID is the one stream that all rows go to.
const streamID dataflow.StreamID = 1

// node is one server: its members of the logs, the tasks that run on it, and the coordinators while it leads the meta log.
type node struct {
	w      *world
	id     int
	name   string
	life   int
	up     bool
	paused bool
	stash  []*event // what waits for the end of a pause
	skew   int64    // of its wall clock

	groups   []*raft // 0 = meta, 1.. = shards
	meta     *meta.FSM
	machines []*shard.Machine
	replicas []*replica

	worker   worker
	coord    *coord // while it leads the meta log
	serving  bool   // it has passed a barrier of the meta log since it started (P6)
	due      bool   // reconcile is scheduled
	answered map[dataflow.PipelineUID]dataflow.CheckpointID
}

func newNode(w *world, id int) *node {
	return &node{w: w, id: id, name: fmt.Sprintf("n%d", id+1)}
}

func (n *node) clock() int64 { return n.w.now + n.skew }

// boot starts a node, for the first time or after a crash.
func (n *node) boot() {
	w := n.w
	n.up, n.paused, n.stash, n.coord, n.serving, n.due = true, false, nil, nil, false, false
	n.answered = map[dataflow.PipelineUID]dataflow.CheckpointID{}
	n.worker = newWorker(n)
	n.meta = meta.NewFSM()
	n.machines = make([]*shard.Machine, w.shards)
	first := n.groups == nil
	if first {
		n.replicas = make([]*replica, w.shards)
		for s := range n.replicas {
			n.replicas[s] = newReplica(n, s)
		}
		n.groups = append(n.groups, newRaft(n, 0, metaMachine{n}))
	}
	for s := range w.shards {
		n.replicas[s].chains = map[dataflow.PipelineUID]*chain{} // the store stays
		n.machines[s] = shard.NewMachine(n.replicas[s])
		if first {
			n.groups = append(n.groups, newRaft(n, s+1, shardMachine{n, s}))
		}
	}
	if !first {
		for _, r := range n.groups {
			r.start()
			if r.snap != nil {
				r.sm.restore(&snap{index: r.snap.index, data: r.snap.data}) // the store is there
			}
		}
	}
	w.after(w.between(1, tickEvery), n, n.tick)
	w.after(w.between(1, 20*ms), n, n.beginServing)
}

func (n *node) crash() {
	n.w.logf("%s crashes", n.name)
	n.w.n.crashes++
	if n.coord != nil {
		n.coord.dead = true
	}
	for _, r := range n.groups {
		for _, p := range r.pend {
			n.w.oracle.abandoned(r, p)
		}
	}
	n.up = false
	n.life++
}

func (n *node) tick() {
	for _, r := range n.groups {
		r.tick()
	}
	if n.coord != nil {
		n.coord.tick()
	}
	n.worker.tick()
	n.housekeep()
	n.w.after(tickEvery, n, n.tick)
}

// beginServing lets committed reads be answered once the node knows what was committed before it started.
func (n *node) beginServing() {
	if n.serving {
		return
	}
	n.barrier(func(err error) {
		if err == nil && !n.serving {
			n.serving = true
			n.w.logf("%s serves", n.name)
		}
	})
	n.w.after(300*ms, n, n.beginServing)
}

func (n *node) leads(s int) bool { return n.groups[s+1].role == leading && n.groups[s+1].moving < 0 }

// leadershipChanged follows a change of role, or of the known leader.
func (n *node) leadershipChanged(r *raft) {
	if r.g == 0 {
		switch leads := r.role == leading; {
		case leads && n.coord == nil:
			n.coord = newCoord(n, r.term)
		case !leads && n.coord != nil:
			n.coord.depose()
			n.coord = nil
		}
		return
	}
	if r.role != leading {
		n.worker.lost(r.g - 1)
	}
}

// applied follows what a log has applied.
func (n *node) applied(r *raft) {
	if r.g > 0 {
		n.worker.kick(r.g - 1)
	}
	if !n.due {
		n.due = true
		n.w.after(n.w.between(10, 3*ms), n, func() {
			n.due = false
			n.reconcile()
		})
	}
}

// reconcile compares what the node holds with the meta log, as the publisher does, and tells who waits.
func (n *node) reconcile() {
	st := n.meta.State()
	for _, p := range st.PipelineList() {
		for s := range n.w.shards {
			r := n.replicas[s]
			if r.store(p.UID).dropped {
				continue
			}
			for _, c := range p.Cuts {
				r.publish(c)
			}
			r.retain(p.UID, p.Cuts)
		}
	}
	n.worker.reconcile(st)
	if n.coord != nil {
		n.coord.observe()
	}
}

// housekeep is what a shard's leader proposes to its own log because of the meta log (P1).
func (n *node) housekeep() {
	st := n.meta.State()
	for s, m := range n.machines {
		if !n.leads(s) {
			continue
		}
		for _, uid := range n.w.oracle.uids {
			if _, known := m.Pipeline(uid); known && st.PipelineDeleted(uid) && n.w.chance(200) {
				n.groups[s+1].propose(&entry{cmd: shard.DropPipelineEntry(uid)}, func(uint64, any, error) {})
			}
		}
		if !n.w.chance(100) {
			continue
		}
		claim := dataflow.Offset(1 << 60)
		k := dataflow.StreamShard{Stream: streamID, Shard: dataflow.ShardID(s)}
		for _, p := range st.PipelineList() {
			n.settle(s, p)
			claim = min(claim, p.Newest().Positions[k])
			if n.w.mutant == "trim-past-claims" {
				_, claim = m.Range(streamID)
			}
		}
		// It has asked the meta log for what is current: a pipeline that this node has not heard of may need rows.
		current := st.Index == n.w.oracle.meta.State().Index || n.w.mutant == "trim-past-claims"
		if start, _ := m.Range(streamID); current && claim < 1<<60 && claim > start+20 && n.w.chance(300) {
			e := &entry{cmd: shard.TrimStreamEntry(streamID, claim, shard.TrimSize, n.clock(), st.NextPipeline), info: trimInfo{}}
			n.groups[s+1].propose(e, func(uint64, any, error) {})
		}
	}
}

type trimInfo struct{}

// settle folds the deltas up to the release floor (P6).
func (n *node) settle(s int, p *meta.Pipeline) {
	r := n.replicas[s]
	floor := p.Floor()
	if n.w.mutant == "settle-past-floor" {
		floor = p.Newest()
	}
	if _, ok := r.view(floor); ok != ready {
		return
	}
	if ref := r.lastDelta(floor); ref.Seq > 0 {
		n.groups[s+1].propose(&entry{cmd: shard.SettleEntry(p.UID, ref), info: settleInfo{}}, func(uint64, any, error) {})
	}
}

type settleInfo struct{}

// metaOp is a command for the meta log, made by the methods of meta.Log.
type metaOp struct {
	what string
	call func(*meta.Log) (any, error)
}

// oneProposal is a meta.Group that takes the bytes of a proposal, or gives the result of one.
type oneProposal struct {
	cmd    []byte
	index  uint64
	result any
	answer bool
}

var errTaken = errors.New("taken")

func (o *oneProposal) Propose(_ context.Context, cmd []byte) (dataflow.LogIndex, any, error) {
	if !o.answer {
		o.cmd = cmd
		return 0, nil, errTaken
	}
	return dataflow.LogIndex(o.index), o.result, nil
}

func (o *oneProposal) Barrier(context.Context) error { return nil }

func (op metaOp) encode(now int64) []byte {
	var o oneProposal
	_, _ = op.call(meta.New(&o, nil, func() int64 { return now }))
	return o.cmd
}

func (op metaOp) result(index uint64, result any) (any, error) {
	return op.call(meta.New(&oneProposal{index: index, result: result, answer: true}, nil, func() int64 { return 0 }))
}

// proposeMeta proposes a command as the leader of the meta log.
func (n *node) proposeMeta(op metaOp, done func(index uint64, v any, err error)) {
	cmd := op.encode(n.clock())
	n.groups[0].propose(&entry{cmd: cmd, info: op}, func(index uint64, result any, err error) {
		if err != nil {
			done(0, nil, err)
			return
		}
		v, err := op.result(index, result)
		done(index, v, err)
	})
}

// forwardMeta proposes a command here, or where this node knows the leader to be. done may never be called.
func (n *node) forwardMeta(op metaOp, done func(index uint64, v any, err error)) {
	n.forward(0, func(l *node, done func(uint64, any, error)) { l.proposeMeta(op, done) }, done)
}

// forward does something at the leader of a group, one hop away at most.
func (n *node) forward(g int, do func(*node, func(uint64, any, error)), done func(uint64, any, error)) {
	r := n.groups[g]
	switch {
	case r.role == leading:
		do(n, done)
	case r.leader < 0 || r.leader == n.id:
		done(0, nil, errNotLeader)
	default:
		l := n.w.nodes[r.leader]
		n.w.send(n, l, func() {
			do(l, func(index uint64, v any, err error) { n.w.send(l, n, func() { done(index, v, err) }) })
		})
	}
}

// barrier calls done when this node has applied everything that the meta log had committed before the call.
func (n *node) barrier(done func(err error)) {
	n.forward(0, func(l *node, done func(uint64, any, error)) {
		if n.w.mutant == "read-without-barrier" {
			done(l.groups[0].applied, nil, nil)
			return
		}
		l.groups[0].propose(&entry{}, done)
	}, func(index uint64, _ any, err error) {
		if err != nil {
			done(err)
			return
		}
		n.await(func() bool { return n.groups[0].applied >= index }, 2*second, func(ok bool) {
			if !ok {
				done(errUnknown)
				return
			}
			done(nil)
		})
	})
}

// await calls done when cond is true, or with false after a time.
func (n *node) await(cond func() bool, limit int64, done func(ok bool)) {
	end := n.w.now + limit
	var look func()
	look = func() {
		switch {
		case cond():
			done(true)
		case n.w.now >= end:
			done(false)
		default:
			n.w.after(n.w.between(2*ms, 10*ms), n, look)
		}
	}
	look()
}

// rows returns rows of a shard from an offset on, at most those of one batch; false = they have been trimmed.
func (n *node) rows(s int, from dataflow.Offset) (rows []row, ok bool) {
	m := n.machines[s]
	start, end := m.Range(streamID)
	if from < start {
		return nil, false
	}
	if from >= end {
		return nil, true
	}
	index, first := m.Batch(streamID, from)
	e := n.groups[s+1].log[index-1]
	if e == nil {
		n.w.fail("P7", "%s: shard %d has lost entry %d, which holds row %d", n.name, s, index, from)
	}
	return decodeRows(shard.RowsOf(e.cmd))[from-first:], true
}

// metaMachine is the meta log's state machine on a node.
type metaMachine struct{ n *node }

func (m metaMachine) apply(index uint64, e *entry) any {
	return m.n.w.applyMeta(m.n, m.n.meta, index, e)
}

func (m metaMachine) keep(uint64) func(uint64) bool { return func(uint64) bool { return false } }

func (m metaMachine) snapshot() *snap { return &snap{data: metaBytes(m.n.meta)} }

func (m metaMachine) restore(s *snap) {
	fsm := meta.NewFSM()
	if err := fsm.Restore(bytes.NewReader(s.data)); err != nil {
		m.n.w.fail("P7", "%s: restore the meta log: %v", m.n.name, err)
	}
	m.n.meta = fsm
}

func metaBytes(f *meta.FSM) []byte {
	s, _ := f.Snapshot()
	var b bytes.Buffer
	_ = s.Persist(&b)
	return b.Bytes()
}

// shardMachine is a shard's state machine on a node.
type shardMachine struct {
	n *node
	s int
}

func (m shardMachine) apply(index uint64, e *entry) any {
	return m.n.w.applyShard(m.n, m.n.machines[m.s], index, e)
}

func (m shardMachine) keep(last uint64) func(uint64) bool {
	_, islands := m.n.machines[m.s].References()
	return func(i uint64) bool {
		_, ok := slices.BinarySearchFunc(islands, dataflow.LogIndex(i), func(r dataflow.LogRange, i dataflow.LogIndex) int {
			switch {
			case r.Last < i:
				return -1
			case r.First > i:
				return 1
			}
			return 0
		})
		return ok
	}
}

func (m shardMachine) snapshot() *snap {
	data := m.n.machines[m.s].Snapshot()
	switch m.n.w.mutant {
	case "snapshot-without-dedup", "snapshot-without-deltas":
		data = m.n.w.oracle.partialSnapshot(m.s, m.n.groups[m.s+1].applied)
	}
	return &snap{data: data, stores: cloneStores(m.n.replicas[m.s].stores)}
}

// restore takes a snapshot: another node's with its store, or this one's with the store that is here.
func (m shardMachine) restore(s *snap) {
	n := m.n
	r := n.replicas[m.s]
	r.chains = map[dataflow.PipelineUID]*chain{}
	if s.stores != nil {
		r.stores = cloneStores(s.stores)
	}
	fresh := shard.NewMachine(r)
	err := fresh.Restore(s.data, func(i dataflow.LogIndex) ([]byte, error) {
		e := n.groups[m.s+1].log[i-1]
		if e == nil {
			return nil, fmt.Errorf("entry %d is not here", i)
		}
		return e.cmd, nil
	})
	if err != nil {
		n.w.fail("P7", "%s: restore shard %d: %v", n.name, m.s, err)
	}
	n.machines[m.s] = fresh
}

// applyShard applies an entry to a shard's machine, of a node or of the oracle (nil).
func (w *world) applyShard(n *node, m *shard.Machine, index uint64, e *entry) any {
	out, err := m.Apply(dataflow.LogIndex(index), e.cmd)
	if err != nil {
		who := "the oracle"
		if n != nil {
			who = n.name
		}
		w.fail("P2", "%s: entry %d: %v", who, index, err)
	}
	if w.mutant != "" && out.Err != nil {
		out = w.applyShardMutated(m, index, e, out)
	}
	return out
}

// applyMeta applies an entry to the meta log's machine, of a node or of the oracle (nil).
func (w *world) applyMeta(n *node, f *meta.FSM, index uint64, e *entry) any {
	result := f.Apply(dataflow.LogIndex(index), e.cmd)
	if err, refused := result.(error); refused && w.mutant != "" {
		result = w.applyMetaMutated(f, index, e, err)
	}
	if n != nil && w.mutant == "clock-in-apply" {
		if op, ok := e.info.(metaOp); ok {
			result = f.Apply(dataflow.LogIndex(index), op.encode(n.clock()))
		}
	}
	return result
}

// view is what the meta log says of a pipeline, for its coordinator.
func view(st *meta.State, p *meta.Pipeline) coordinator.View {
	return coordinator.View{State: p.State, Incarnation: p.Incarnation, Fresh: p.AttemptsTo == 1, Base: p.Base,
		Committed: p.Newest().ID, Options: p.Options, Shards: st.Shards}
}
