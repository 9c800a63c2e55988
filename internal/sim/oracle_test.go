package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// oracle knows what all logs have committed, and what must follow from it. It is told of each entry when the first member
// applies it.
type oracle struct {
	w        *world
	logs     [][]*entry // by group: what is committed
	meta     *meta.FSM
	machines []*shard.Machine
	replicas []*replica
	hashes   []map[uint64]uint64 // by group: of the state at some indexes
	leaders  map[[2]uint64]int   // (group, term) → node
	lost     map[*entry]bool     // entries whose proposers do not know what became of them

	rows   [][]row // by shard, from offset 0
	seqs   map[srcShard]uint32
	plain  map[uint16]int // rows in the log by source, of appends without producer
	epochs map[srcShard]dataflow.ProducerEpoch

	uids     []dataflow.PipelineUID
	newest   map[dataflow.PipelineUID]*dataflow.CheckpointCommit
	folds    map[cutKey]table
	starts   map[startKey]dataflow.Offset
	injects  map[cutKey]int64 // when an attempt was injected
	waiters  map[uint64]*waiter
	metaDone uint64 // the largest index of the meta log that a client has heard of
}

type srcShard struct {
	src uint16
	s   int
}

type cutKey struct {
	uid dataflow.PipelineUID
	id  dataflow.CheckpointID
}

type startKey struct {
	uid dataflow.PipelineUID
	inc dataflow.Incarnation
	s   int
}

type waiter struct {
	uid      dataflow.PipelineUID
	asked    int64
	answered bool
}

func (o *oracle) init(w *world) {
	*o = oracle{
		w: w, meta: meta.NewFSM(), leaders: map[[2]uint64]int{}, lost: map[*entry]bool{},
		seqs: map[srcShard]uint32{}, plain: map[uint16]int{}, epochs: map[srcShard]dataflow.ProducerEpoch{},
		newest: map[dataflow.PipelineUID]*dataflow.CheckpointCommit{}, folds: map[cutKey]table{},
		starts: map[startKey]dataflow.Offset{}, injects: map[cutKey]int64{}, waiters: map[uint64]*waiter{},
		logs: make([][]*entry, w.shards+1), rows: make([][]row, w.shards),
	}
	for s := range w.shards + 1 {
		o.hashes = append(o.hashes, map[uint64]uint64{})
		if s < w.shards {
			o.replicas = append(o.replicas, newReplica(nil, s))
			o.machines = append(o.machines, shard.NewMachine(o.replicas[s]))
		}
	}
}

// elected: at most one leader per term (I11).
func (o *oracle) elected(r *raft) {
	k := [2]uint64{uint64(r.g), r.term}
	if other, ok := o.leaders[k]; ok && other != r.n.id {
		o.w.fail("I11", "%s has two leaders in term %d: %s and %s", r.name, r.term, o.w.nodes[other].name, r.n.name)
	}
	o.leaders[k] = r.n.id
	o.w.n.elections++
	if r.g == 0 {
		o.w.n.metaElections++
	}
}

// abandoned: a proposer will not hear what became of its entry.
func (o *oracle) abandoned(r *raft, p pending) {
	e := r.log[p.index-1]
	if p.index <= uint64(len(o.logs[r.g])) && o.logs[r.g][p.index-1] == e {
		o.w.n.unknownCommitted++
		return
	}
	o.lost[e] = true
	o.w.n.lostProposals++
}

// committed is told of each entry that a member is about to apply.
func (o *oracle) committed(r *raft, index uint64, e *entry) {
	log := o.logs[r.g]
	switch n := uint64(len(log)); {
	case index <= n:
		if log[index-1] != e {
			o.w.fail("I11", "%s: entry %d of %s differs from the one that another member has applied", r.n.name, index, r.name)
		}
		return
	case index > n+1:
		o.w.fail("I11", "%s: %s commits entry %d after %d", r.n.name, r.name, index, n)
	}
	o.logs[r.g] = append(log, e)
	if o.lost[e] {
		o.w.n.unknownCommitted++
		o.w.n.lostProposals--
	}
	if e.cmd == nil {
		return
	}
	if r.g == 0 {
		o.metaApplied(o.w.applyMeta(nil, o.meta, index, e))
		return
	}
	o.shardApplied(r.g-1, e, o.w.applyShard(nil, o.machines[r.g-1], index, e).(shard.Outcome))
}

// compareEvery is how many entries lie between two comparisons of the members' states.
const compareEvery = 32

// compare: members with the same applied index have the same state (I11).
func (o *oracle) compare(r *raft, index uint64) {
	if index%compareEvery != 0 {
		return
	}
	switch o.w.mutant {
	case "snapshot-without-dedup", "snapshot-without-deltas":
		return // what follows from these is to be found, not the difference itself
	}
	state := func(f *meta.FSM, m *shard.Machine) uint64 {
		if r.g == 0 {
			return dataflow.HashKey(metaBytes(f))
		}
		return dataflow.HashKey(m.Snapshot())
	}
	machineOf := func(ms []*shard.Machine) *shard.Machine {
		if r.g == 0 {
			return nil
		}
		return ms[r.g-1]
	}
	want, known := o.hashes[r.g][index]
	if !known {
		want = state(o.meta, machineOf(o.machines))
		o.hashes[r.g][index] = want
	}
	if got := state(r.n.meta, machineOf(r.n.machines)); got != want {
		o.w.fail("I11", "%s: the state of %s at %d differs", r.n.name, r.name, index)
	}
}

// appendInfo is what the simulation knows of an append.
type appendInfo struct {
	src      uint16
	rows     []row
	producer bool
	keyed    bool
	a        shard.Append
}

type openInfo struct {
	src   uint16
	epoch dataflow.ProducerEpoch
}

// shardApplied follows the rows of the log (I1, I2, I3, I12).
func (o *oracle) shardApplied(s int, e *entry, out shard.Outcome) {
	w := o.w
	switch i := e.info.(type) {
	case *appendInfo:
		switch a := out.Appended; {
		case out.Err != nil:
			if dataflow.ReasonOf(out.Err) == dataflow.ReasonProducerFenced {
				w.n.fencedProducers++
			}
		case a.Overlap:
			w.n.overlaps++
		case a.Duplicate && i.keyed:
			w.n.keyDuplicates++
		case a.Duplicate:
			w.n.duplicates++
		default:
			o.appended(s, i, a)
		}
	case openInfo:
		if k := (srcShard{i.src, s}); out.Err == nil {
			o.epochs[k] = max(o.epochs[k], i.epoch)
		}
	case *deltaInfo:
		if errors.Is(out.Err, shard.ErrStaleIncarnation) {
			w.n.fencedDeltas++
		}
		if p := o.meta.State().Pipelines[i.id.Pipeline]; out.Fresh && p != nil && p.Incarnation == i.id.Incarnation {
			if owner := p.Owners[s].Node; owner != i.r.n.name {
				w.fail("I12", "%s wrote delta %s of shard %d, which %s owns", i.r.n.name, i.id, s, owner)
			}
		}
		if st, ok := o.machines[s].Pipeline(i.id.Pipeline); out.Err == nil && ok && i.id.Incarnation < st.Incarnation {
			w.fail("I12", "delta %s of shard %d was taken in incarnation %d", i.id, s, st.Incarnation)
		}
	case trimInfo:
		w.n.trimmed++
	case settleInfo:
		if out.Fresh {
			w.n.settled++
		}
	}
}

func (o *oracle) appended(s int, i *appendInfo, a shard.Appended) {
	w := o.w
	if int(a.First) != len(o.rows[s]) {
		w.fail("I2", "shard %d: an append got offset %d, but %d rows were before it", s, a.First, len(o.rows[s]))
	}
	for _, r := range i.rows {
		if int(r.s) != s {
			w.fail("I2", "row %v is in shard %d", r, s)
		}
		k := srcShard{r.src, s}
		switch {
		case i.producer:
			if r.seq != o.seqs[k]+1 {
				w.fail("I2", "shard %d has row %d of producer %d after row %d", s, r.seq, r.src, o.seqs[k])
			}
			o.seqs[k] = r.seq
		default:
			if o.plain[r.src]++; o.plain[r.src] > 1 && i.keyed {
				w.fail("I2", "shard %d has the row of append %d twice, in spite of its key", s, r.src)
			} else if o.plain[r.src] > 1 {
				w.fail("I3", "shard %d has the row of append %d twice", s, r.src)
			}
		}
		o.rows[s] = append(o.rows[s], r)
	}
	if k := (srcShard{i.src, s}); i.producer && i.a.Epoch < o.epochs[k] {
		w.fail("I12", "shard %d has taken rows of session %d of producer %d, after session %d was opened", s, i.a.Epoch, i.src, o.epochs[k])
	}
}

// metaApplied follows the cuts (I4, I5, I12), and what one entry after another says of nodes.
func (o *oracle) metaApplied(any) {
	st := o.meta.State()
	moving, drained := 0, 0
	for _, m := range st.Members {
		switch m.State {
		case meta.MemberJoining, meta.MemberLeaving:
			moving++
		case meta.MemberDrained:
			drained++
		}
	}
	if moving > 1 || drained > 1 {
		o.w.fail("I10", "%d nodes join or leave, %d are drained", moving, drained)
	}
	for _, p := range st.PipelineList() {
		c, last := p.Newest(), o.newest[p.UID]
		if last == nil {
			o.uids = append(o.uids, p.UID)
			o.newest[p.UID] = p.Cuts[0]
			o.folds[cutKey{p.UID, 0}] = table{}
			last = p.Cuts[0]
		}
		if c.ID == last.ID {
			if !slices.EqualFunc(c.Shards, last.Shards, func(a, b dataflow.ShardCommit) bool { return a == b }) {
				o.w.fail("I4", "%s was %s", c, last)
			}
			continue
		}
		o.newest[p.UID] = c
		o.cutCommitted(p, c, last)
	}
}

// cutCommitted: the state at the cut is the fold of exactly its positions (I4), and was written by the incarnation (I12).
func (o *oracle) cutCommitted(p *meta.Pipeline, c, last *dataflow.CheckpointCommit) {
	w := o.w
	w.n.commits++
	w.logf("the meta log commits %s of pipeline %d", c, p.UID)
	if c.ID < last.ID || !c.Positions.Covers(last.Positions) {
		w.fail("I5", "%s of pipeline %d follows %s", c, p.UID, last)
	}
	if c.Incarnation != p.Incarnation {
		w.fail("I12", "%s of pipeline %d was committed in incarnation %d", c, p.UID, p.Incarnation)
	}
	fold, ok := o.folds[cutKey{p.UID, p.Base.ID}]
	if !ok {
		w.fail("P4", "incarnation %d of pipeline %d begins from cut %d, which was never committed", p.Incarnation, p.UID, p.Base.ID)
	}
	for s := range w.shards {
		pos := c.Positions[dataflow.StreamShard{Stream: streamID, Shard: dataflow.ShardID(s)}]
		from, ok := o.starts[startKey{p.UID, c.Incarnation, s}]
		switch {
		case !ok:
			w.fail("I12", "%s of pipeline %d was committed, and shard %d never ran incarnation %d", c, p.UID, s, c.Incarnation)
		case int(pos) > len(o.rows[s]):
			w.fail("I1", "%s of pipeline %d covers row %d of shard %d, which has %d", c, p.UID, pos, s, len(o.rows[s]))
		}
		for i := from; i < pos; i++ {
			r := o.rows[s][i]
			fold[r.key] += r.hash()
		}
	}
	o.folds[cutKey{p.UID, c.ID}] = fold
	var got table
	for s := range w.shards {
		t, ok := o.replicas[s].view(c)
		if ok != ready {
			w.fail("I4", "%s of pipeline %d names a delta of shard %d that its log does not have", c, p.UID, s)
		}
		for k := s; k < numKeys; k += w.shards {
			got[k] = t[k]
		}
	}
	o.same(c, got, "the logs")
}

// same compares the state of a cut with the fold of its positions.
func (o *oracle) same(c *dataflow.CheckpointCommit, got table, where string) {
	want, ok := o.folds[cutKey{c.Pipeline, c.ID}]
	if !ok {
		o.w.fail("I4", "%s have cut %d of pipeline %d, which was never committed", where, c.ID, c.Pipeline)
	}
	if got != want {
		o.w.fail("I4", "%s: the state at %s of pipeline %d is not the fold of its positions: %s", where, c, c.Pipeline, difference(got, want))
	}
}

func difference(got, want table) string {
	var keys []int
	for k := range got {
		if got[k] != want[k] {
			keys = append(keys, k)
		}
	}
	return fmt.Sprintf("keys %v differ", keys)
}

// started: tasks start from the base that the meta log's entry names, and where it stands (P4).
func (o *oracle) started(r *run, base *dataflow.CheckpointCommit, s int, pos dataflow.Offset) {
	if p := o.meta.State().Pipelines[r.uid]; p != nil && p.Incarnation == r.inc && p.Base.ID != base.ID && o.w.mutant != "base-newest-known" {
		o.w.fail("P4", "%s starts i%d from cut %d, and the meta log says %d", r.n.name, r.inc, base.ID, p.Base.ID)
	}
	o.starts[startKey{r.uid, r.inc, s}] = pos
}

// injected: attempt numbers never repeat (P3).
func (o *oracle) injected(uid dataflow.PipelineUID, a coordinator.InjectBarrier) {
	k := cutKey{uid, a.Checkpoint}
	if _, used := o.injects[k]; used {
		o.w.fail("P3", "attempt %d of pipeline %d is used twice", a.Checkpoint, uid)
	}
	o.injects[k] = o.w.now
}

// answered: who waits for a checkpoint hears once, and of one that began after it asked.
func (o *oracle) answered(uid dataflow.PipelineUID, id uint64, cut dataflow.CheckpointID) {
	wt := o.waiters[id]
	if wt.answered {
		o.w.fail("I16", "waiter %d was answered twice", id)
	}
	wt.answered = true
	if cut == 0 {
		return
	}
	o.w.n.triggers++
	if _, ok := o.folds[cutKey{uid, cut}]; !ok {
		o.w.fail("I16", "waiter %d was told of cut %d, which is not committed", id, cut)
	}
	if o.injects[cutKey{uid, cut}] < wt.asked {
		o.w.fail("I16", "waiter %d was told of cut %d, whose barrier is older than its question", id, cut)
	}
}

// asIfApplied is what an append would be answered if it were applied, for a mutant.
func (o *oracle) asIfApplied(_ *raft, e *entry) shard.Outcome {
	i := e.info.(*appendInfo)
	return shard.Outcome{Fresh: true, Appended: shard.Appended{LastSeq: i.a.First + dataflow.Seq(i.a.Count) - 1}}
}

// partialSnapshot is the snapshot of a shard at an index that leaves something out, for mutants.
func (o *oracle) partialSnapshot(s int, index uint64) []byte {
	whole, part := shard.NewMachine(newReplica(nil, s)), shard.NewMachine(newReplica(nil, s))
	for at, e := range o.logs[s+1][:index] {
		if e.cmd == nil {
			continue
		}
		idx := dataflow.LogIndex(at + 1)
		out, _ := whole.Apply(idx, e.cmd)
		switch i := e.info.(type) {
		case *appendInfo:
			if o.w.mutant != "snapshot-without-dedup" {
				break
			}
			if !out.Fresh {
				continue
			}
			a := i.a
			a.Producer, a.Epoch, a.First, a.IdempotencyKey = "", 0, 0, ""
			cmd, _ := shard.AppendEntry(a, 0)
			_, _ = part.Apply(idx, cmd)
			continue
		case openInfo:
			if o.w.mutant == "snapshot-without-dedup" {
				continue
			}
		case *deltaInfo, settleInfo:
			if o.w.mutant == "snapshot-without-deltas" {
				continue
			}
		}
		_, _ = part.Apply(idx, e.cmd)
	}
	return part.Snapshot()
}

// finish checks what must be true when everything has come to rest.
func (o *oracle) finish() {
	w := o.w
	for _, p := range w.clients.producers {
		for s := range w.shards {
			if n := int(o.seqs[srcShard{p.src, s}]); n != len(p.rows[s]) {
				w.fail("I1", "producer %d was answered for %d rows in shard %d, which has %d", p.src, len(p.rows[s]), s, n)
			}
		}
	}
	for _, a := range w.clients.plains {
		switch n := o.plain[a.src]; {
		case a.state == acked && n != 1:
			w.fail("I1", "append %d was acknowledged and is there %d times", a.src, n)
		case a.state == refused && n != 0:
			w.fail("I16", "append %d was refused and is there %d times", a.src, n)
		}
	}
	for g := range o.logs {
		for _, n := range w.nodes {
			if n.groups[g].applied == uint64(len(o.logs[g])) {
				o.compareNow(n, g)
			}
		}
	}
	for _, n := range w.nodes {
		for _, p := range n.meta.State().PipelineList() {
			for _, c := range p.Cuts {
				n.readCut(c)
			}
		}
	}
}

func (o *oracle) compareNow(n *node, g int) {
	switch {
	case o.w.mutant == "snapshot-without-dedup" || o.w.mutant == "snapshot-without-deltas":
	case g == 0 && string(metaBytes(n.meta)) != string(metaBytes(o.meta)),
		g > 0 && string(n.machines[g-1].Snapshot()) != string(o.machines[g-1].Snapshot()):
		o.w.fail("I11", "%s: the state of group %d differs in the end", n.name, g)
	}
}
