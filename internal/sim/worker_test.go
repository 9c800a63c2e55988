package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// row is one row of the stream. Its source, shard and number are its identity.
type row struct {
	src uint16
	key uint8
	s   uint8
	seq uint32
}

func encodeRows(rows []row) []byte {
	var b []byte
	for _, r := range rows {
		b = binary.LittleEndian.AppendUint16(b, r.src)
		b = append(b, r.key, r.s)
		b = binary.LittleEndian.AppendUint32(b, r.seq)
	}
	return b
}

func decodeRows(b []byte) []row {
	out := make([]row, 0, len(b)/8)
	for ; len(b) >= 8; b = b[8:] {
		out = append(out, row{binary.LittleEndian.Uint16(b), b[2], b[3], binary.LittleEndian.Uint32(b[4:])})
	}
	return out
}

// hash stands for the row in the keyed state: sums of hashes tell multisets of rows apart.
func (r row) hash() uint64 {
	h := uint64(r.src)<<48 | uint64(r.s)<<40 | uint64(r.seq)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// worker models node/worker: it runs the tasks that are placed on its node. It decides nothing.
type worker struct {
	n       *node
	runs    []*run
	fences  map[dataflow.PipelineUID]fence
	steps   map[dataflow.PipelineUID]func(coordinator.Event)
	term    uint64 // the newest of a coordinator that was here
	session *session
	early   []early
}

type fence struct{ started, stopped dataflow.Incarnation }

// early is a message for tasks that do not run yet.
type early struct {
	uid dataflow.PipelineUID
	inc dataflow.Incarnation
	at  int64
	fn  func(*run)
}

func newWorker(n *node) worker {
	return worker{n: n, fences: map[dataflow.PipelineUID]fence{}, steps: map[dataflow.PipelineUID]func(coordinator.Event){}}
}

// run is an incarnation's tasks on a node.
type run struct {
	n      *node
	uid    dataflow.PipelineUID
	inc    dataflow.Incarnation
	owners []int // node by shard
	led    []int // shards whose tasks run here
	// By shard; nil where its tasks do not run here.
	sources []*source
	keyed   []*keyed
	writers []*writer

	injected dataflow.CheckpointID // the last barrier that was put in
	live     bool                  // registered
	failed   bool                  // it was reported
	ended    bool                  // its tasks have ended by themselves
	stopped  bool
	zombieTo int64 // until when it goes on although it was stopped
}

// over says that the run must do nothing more.
func (r *run) over() bool { return r.ended || r.stopped && r.n.w.now >= r.zombieTo }

type source struct {
	r     *run
	s     int
	pos   dataflow.Offset
	edges []*conn // by keyed task
	due   bool
}

type keyed struct {
	r     *run
	s     int
	al    *checkpoint.Aligner[[]row]
	state table
	dirty uint16
	seen  dataflow.CheckpointID // for a mutant
}

// message is what an edge carries: rows, or a barrier.
type message struct {
	rows    []row
	barrier dataflow.CheckpointID
}

// start starts the tasks of an incarnation whose shards this node owns. alive says whether the caller still wants it. done is
// called once, unless the node crashes.
func (w *worker) start(uid dataflow.PipelineUID, inc dataflow.Incarnation, step func(coordinator.Event), alive func() bool, done func(error)) {
	n := w.n
	p := n.meta.State().Pipelines[uid]
	f := w.fences[uid]
	blind := n.w.mutant == "base-newest-known"
	if p == nil || p.Incarnation != inc && !blind || inc <= f.started || inc <= f.stopped {
		done(meta.ErrStaleIncarnation)
		return
	}
	f.started = inc
	w.fences[uid], w.steps[uid] = f, step
	w.stop(uid, inc-1)
	base, owners := p.Base, p.Owners
	if blind && p.Incarnation != inc {
		base, owners = p.Newest(), n.w.oracle.meta.State().Pipelines[uid].Owners
	}
	r := &run{n: n, uid: uid, inc: inc, sources: make([]*source, n.w.shards), keyed: make([]*keyed, n.w.shards), writers: make([]*writer, n.w.shards)}
	for _, o := range owners {
		id := slices.IndexFunc(n.w.nodes, func(m *node) bool { return m.name == o.Node })
		r.owners = append(r.owners, id)
		if id == n.id {
			r.led = append(r.led, int(o.Shard))
		}
	}
	w.load(r, base, r.led, alive, func(err error) {
		if f := w.fences[uid]; err == nil && (inc <= f.stopped || inc < f.started) {
			err = meta.ErrStaleIncarnation
		}
		if err != nil {
			done(err)
			return
		}
		n.w.logf("%s: tasks of i%d run from cut %d, shards %v", n.name, inc, base.ID, r.led)
		r.live = true
		w.runs = append(w.runs, r)
		for _, e := range w.early {
			if e.uid == uid && e.inc == inc {
				e.fn(r)
			}
		}
		w.early = slices.DeleteFunc(w.early, func(e early) bool { return e.uid == uid && e.inc <= inc })
		for _, s := range r.led {
			if !n.leads(s) {
				w.lost(s)
			}
			r.sources[s].kick()
		}
		done(nil)
	})
}

// load begins the incarnation in the logs of the shards and takes over the state of the base, one shard after another.
func (w *worker) load(r *run, base *dataflow.CheckpointCommit, left []int, alive func() bool, done func(error)) {
	n := w.n
	if len(left) == 0 {
		done(nil)
		return
	}
	s := left[0]
	k := dataflow.StreamShard{Stream: streamID, Shard: dataflow.ShardID(s)}
	ref := dataflow.DeltaRef{Incarnation: base.Incarnation, Seq: base.Shard(k.Shard).Seq}
	e := &entry{cmd: shard.BeginIncarnationEntry(r.uid, r.inc, ref)}
	n.groups[s+1].propose(e, func(_ uint64, v any, err error) {
		if err == nil {
			err = v.(shard.Outcome).Err
		}
		if err != nil {
			done(fmt.Errorf("begin i%d on shard %d: %w", r.inc, s, err))
			return
		}
		n.await(func() bool {
			_, ok := n.replicas[s].view(base)
			return ok != waiting || !alive()
		}, 10*second, func(bool) {
			t, ok := n.replicas[s].view(base)
			if ok != ready || !alive() {
				done(fmt.Errorf("the base %d on shard %d is not here", base.ID, s))
				return
			}
			pos := base.Positions[k]
			start, end := n.machines[s].Range(streamID)
			if base.ID == 0 {
				pos = max(pos, start) // nothing is committed yet: it begins with the first row there is
			}
			n.w.oracle.started(r, base, s, pos)
			if n.w.mutant == "rows-lost-on-recovery" {
				pos = end
			}
			r.sources[s] = &source{r: r, s: s, pos: pos, edges: make([]*conn, n.w.shards)}
			r.keyed[s] = &keyed{r: r, s: s, al: checkpoint.NewAligner[[]row](n.w.shards), state: t}
			r.writers[s] = &writer{r: r, s: s, index: base.Shard(k.Shard).Index}
			w.load(r, base, left[1:], alive, done)
		})
	})
}

// stop ends the pipeline's run of inc or an older one. None of them is started afterwards.
func (w *worker) stop(uid dataflow.PipelineUID, inc dataflow.Incarnation) {
	f := w.fences[uid]
	f.stopped = max(f.stopped, inc)
	w.fences[uid] = f
	w.runs = slices.DeleteFunc(w.runs, func(r *run) bool {
		if r.uid != uid || r.inc > inc {
			return false
		}
		w.end(r)
		return true
	})
}

// end stops a run. Sometimes its tasks do not hear of it at once.
func (w *worker) end(r *run) {
	r.stopped = true
	if !w.n.w.calm && w.n.w.chance(250) {
		w.n.w.n.zombies++
		r.zombieTo = w.n.w.now + w.n.w.between(10*ms, 600*ms)
	}
	r.live = false
}

func (w *worker) find(uid dataflow.PipelineUID, inc dataflow.Incarnation) *run {
	for _, r := range w.runs {
		if r.uid == uid && r.inc == inc {
			return r
		}
	}
	return nil
}

// attach lets step take the reports of a pipeline's tasks, and returns which incarnation runs here, with the last barrier that was
// put in; none when it does not lead its shards any more.
func (w *worker) attach(uid dataflow.PipelineUID, step func(coordinator.Event)) attached {
	w.steps[uid] = step
	for _, r := range w.runs {
		if r.uid == uid && !r.failed && !slices.ContainsFunc(r.led, func(s int) bool { return !w.n.leads(s) }) {
			return attached{r.inc, r.injected}
		}
	}
	return attached{}
}

// report tells the pipeline's coordinator something.
func (w *worker) report(uid dataflow.PipelineUID, ev coordinator.Event) {
	if step := w.steps[uid]; step != nil {
		step(ev)
	}
}

// inject puts a barrier into the sources of an incarnation, unless a later one is in.
func (w *worker) inject(uid dataflow.PipelineUID, inc dataflow.Incarnation, n dataflow.CheckpointID) {
	if r := w.find(uid, inc); r != nil && !r.failed && n > r.injected {
		r.injected = n
		for _, s := range r.led {
			r.sources[s].barrier(n)
		}
	}
}

// lost reports the runs that have tasks on a shard which this node does not lead any more.
func (w *worker) lost(s int) {
	for _, r := range slices.Clone(w.runs) { // a coordinator here may stop them at once
		if slices.Contains(r.led, s) {
			r.fail(fmt.Sprintf("%s does not lead shard %d any more", w.n.name, s))
		}
	}
}

// kick tells the sources of a shard that there may be rows.
func (w *worker) kick(s int) {
	for _, r := range w.runs {
		if r.sources[s] != nil {
			r.sources[s].kick()
		}
	}
}

func (w *worker) tick() {
	if ses := w.session; ses != nil && w.n.w.now-ses.heard > second {
		ses.end()
	}
	w.early = slices.DeleteFunc(w.early, func(e early) bool { return w.n.w.now-e.at > 5*second })
}

// reconcile ends the runs of deleted pipelines.
func (w *worker) reconcile(st *meta.State) {
	for _, r := range slices.Clone(w.runs) {
		if st.PipelineDeleted(r.uid) {
			w.stop(r.uid, r.inc)
		}
	}
}

// deliver hands a message of an edge to the task, when it runs.
func (w *worker) deliver(c *conn, uid dataflow.PipelineUID, inc dataflow.Incarnation, from, to int, m message) {
	if r := w.find(uid, inc); r != nil {
		r.keyed[to].take(from, m)
		return
	}
	if f := w.fences[uid]; inc <= f.stopped || inc < f.started {
		c.sever()
		return
	}
	w.early = append(w.early, early{uid, inc, w.n.w.now, func(r *run) { r.keyed[to].take(from, m) }})
}

// fail reports the end of the run, once.
func (r *run) fail(why string) { r.end(why, false) }

// end reports the end of the run, once. With permanent set a restart would meet the same end.
func (r *run) end(why string, permanent bool) {
	if r.failed || r.stopped {
		return
	}
	r.failed = true
	r.n.w.n.tasksFailed++
	r.n.w.logf("%s: tasks of i%d fail: %s", r.n.name, r.inc, why)
	r.n.worker.report(r.uid, coordinator.TaskFailed{Incarnation: r.inc, Permanent: permanent,
		Failure: dataflow.PipelineFailure{Reason: dataflow.ReasonPipelineRecovering, Message: why, Incarnation: r.inc}})
}

// kick lets the source read soon.
func (s *source) kick() {
	if s.due || s.r.over() {
		return
	}
	s.due = true
	s.r.n.w.after(s.r.n.w.between(ms/2, 15*ms), s.r.n, s.read)
}

// read takes some rows of the shard's log and sends them to the tasks that their keys belong to.
func (s *source) read() {
	s.due = false
	n := s.r.n
	w := n.w
	if s.r.over() || s.r.failed || !s.r.live && s.r.zombieTo == 0 {
		return
	}
	rows, ok := n.rows(s.s, s.pos)
	if !ok {
		if p := w.oracle.meta.State().Pipelines[s.r.uid]; p != nil && p.State.Active() && p.Incarnation == s.r.inc {
			if p.Newest().ID > 0 {
				w.fail("P6", "%s: row %d of shard %d, which i%d of pipeline %d needs, was trimmed", n.name, s.pos, s.s, s.r.inc, s.r.uid)
			}
			// A shard's leader that had not heard of the new pipeline has trimmed. A resume begins with the first row there is.
			w.n.expired++
			s.r.end("positions expired", true)
		}
		return
	}
	if len(rows) == 0 {
		return
	}
	rows = rows[:min(len(rows), 1+w.rnd.IntN(6))]
	s.pos += dataflow.Offset(len(rows))
	for t := range w.shards {
		var part []row
		for _, r := range rows {
			if int(r.key)%w.shards == t {
				part = append(part, r)
			}
		}
		if len(part) > 0 {
			s.send(t, message{rows: part})
		}
	}
	s.kick()
}

func (s *source) send(to int, m message) {
	r := s.r
	if s.edges[to] == nil {
		s.edges[to] = r.n.w.connect(r.n, r.n.w.nodes[r.owners[to]], func() {
			r.n.w.n.brokenEdges++
			r.fail(fmt.Sprintf("the edge from shard %d to %d broke", s.s, to))
		})
	}
	c := s.edges[to]
	c.send(func() { c.to.worker.deliver(c, r.uid, r.inc, s.s, to, m) })
}

// barrier puts barrier n behind the rows that were read, whose end is the shard's position.
func (s *source) barrier(n dataflow.CheckpointID) {
	wr := s.r.writers[s.s]
	wr.part(n).source = s
	wr.part(n).pos, wr.part(n).injected = s.pos, true
	for t := range s.edges {
		s.send(t, message{barrier: n})
	}
}

// take takes a message that came by an edge, and does what the aligner says.
func (k *keyed) take(from int, m message) {
	w := k.r.n.w
	if k.r.over() {
		return
	}
	if w.mutant == "barrier-not-aligned" {
		if m.barrier == 0 {
			k.fold(m.rows)
		} else if m.barrier > k.seen {
			k.seen = m.barrier
			k.freeze(m.barrier)
		}
		return
	}
	acts, err := k.al.Message(from, m.rows), error(nil)
	if m.barrier != 0 {
		acts, err = k.al.Barrier(from, m.barrier)
	}
	for {
		if err != nil {
			// Every source gets every barrier, or its edge breaks: what one coordinator has put in at some nodes only, the next
			// one hands on. A task that meets another barrier than it waits for would end the run, and lose nothing; but tasks
			// would begin anew that need not.
			w.fail("T3", "%s: i%d, alignment of shard %d: %v", k.r.n.name, k.r.inc, k.s, err)
			k.r.fail(fmt.Sprintf("alignment of shard %d: %v", k.s, err))
			k.r.ended = true
			return
		}
		for _, d := range acts.Deliver {
			k.fold(d.Msg)
		}
		if acts.Aligned == 0 {
			return
		}
		k.freeze(acts.Aligned)
		acts, err = k.al.Resume()
	}
}

func (k *keyed) fold(rows []row) {
	for _, r := range rows {
		k.state[r.key] += r.hash()
		k.dirty |= 1 << r.key
	}
}

// freeze hands what has changed since the last barrier to the writer.
func (k *keyed) freeze(n dataflow.CheckpointID) {
	var data []byte
	for i := range numKeys {
		if k.dirty>>i&1 != 0 {
			data = binary.LittleEndian.AppendUint64(append(data, byte(i)), k.state[i])
		}
	}
	k.dirty = 0
	wr := k.r.writers[k.s]
	p := wr.part(n)
	p.data, p.frozen = data, true
	wr.write()
}

// writer models dataflow/checkpoint.Writer: it writes what a shard's tasks froze as deltas, in order, and acknowledges (P2).
type writer struct {
	r      *run
	s      int
	open   []*part
	busy   bool
	seq    dataflow.DeltaSeq // of the last delta
	digest dataflow.DeltaDigest
	index  dataflow.LogIndex
}

type part struct {
	n                dataflow.CheckpointID
	pos              dataflow.Offset
	injected, frozen bool
	data             []byte
	source           *source
}

func (wr *writer) part(n dataflow.CheckpointID) *part {
	for _, p := range wr.open {
		if p.n == n {
			return p
		}
	}
	p := &part{n: n}
	wr.open = append(wr.open, p)
	return p
}

// deltaInfo is what the simulation knows of an entry of a delta.
type deltaInfo struct {
	r      *run
	id     dataflow.DeltaID
	chunk  int
	data   []byte
	end    bool
	chunks int
	digest dataflow.DeltaDigest
}

func (i *deltaInfo) entry() *entry {
	if i.end {
		return &entry{cmd: shard.EndDeltaEntry(i.id, i.chunks, uint64(i.digest)), info: i}
	}
	return &entry{cmd: shard.AppendDeltaEntry(i.id, i.chunk, i.data), info: i}
}

// write writes the oldest part when all of it has come.
func (wr *writer) write() {
	if wr.busy || len(wr.open) == 0 || wr.r.over() {
		return
	}
	p := wr.open[0]
	if !p.injected || !p.frozen {
		return
	}
	wr.busy = true
	done := func() {
		wr.busy = false
		wr.open = wr.open[1:]
		wr.ack(p)
		wr.write()
	}
	if len(p.data) == 0 {
		done()
		return
	}
	var todo []*deltaInfo
	id := dataflow.DeltaID{Pipeline: wr.r.uid, Incarnation: wr.r.inc, Seq: wr.seq + 1}
	var digest dataflow.DeltaDigest
	chunks := 0
	for data := p.data; len(data) > 0; chunks++ {
		cut := len(data)
		if cut > 9 && wr.r.n.w.chance(300) {
			cut = 9 * (1 + wr.r.n.w.rnd.IntN(cut/9-1))
		}
		todo = append(todo, &deltaInfo{r: wr.r, id: id, chunk: chunks, data: data[:cut]})
		digest = digest.Add(data[:cut])
		data = data[cut:]
	}
	todo = append(todo, &deltaInfo{r: wr.r, id: id, end: true, chunks: chunks, digest: digest})
	wr.propose(todo, func(index dataflow.LogIndex) {
		wr.seq, wr.digest, wr.index = id.Seq, digest, index
		done()
	})
}

// propose writes entries, one after another.
func (wr *writer) propose(todo []*deltaInfo, done func(dataflow.LogIndex)) {
	n := wr.r.n
	if wr.r.over() {
		return
	}
	i := todo[0]
	g := n.groups[wr.s+1]
	n.w.lateCopy(wr.s+1, func(l *node) { l.groups[wr.s+1].propose(i.entry(), func(uint64, any, error) {}) })
	g.propose(i.entry(), func(_ uint64, v any, err error) {
		switch {
		case wr.r.over():
		case errors.Is(err, errUnknown):
			n.w.after(20*ms, n, func() { wr.propose(todo, done) })
		case err != nil:
			wr.r.fail(fmt.Sprintf("write delta %s: %v", i.id, err))
		case v.(shard.Outcome).Err != nil:
			wr.r.fail(fmt.Sprintf("write delta %s: %v", i.id, v.(shard.Outcome).Err))
		case len(todo) > 1:
			wr.propose(todo[1:], done)
		case n.w.mutant != "ack-before-delta":
			done(v.(shard.Outcome).Index)
		}
	})
	if n.w.mutant == "ack-before-delta" && i.end {
		done(dataflow.LogIndex(g.last()))
	}
}

func (wr *writer) ack(p *part) {
	pos := p.pos
	if wr.r.n.w.mutant == "positions-after-barrier" {
		pos = p.source.pos
	}
	ack := coordinator.Ack{Incarnation: wr.r.inc, Checkpoint: p.n, Shard: dataflow.ShardID(wr.s),
		Seq: wr.seq, Digest: uint64(wr.digest), Index: wr.index,
		Positions: dataflow.Positions{{Stream: streamID, Shard: dataflow.ShardID(wr.s)}: pos}}
	n := wr.r.n
	n.worker.report(wr.r.uid, ack)
	if !n.w.calm && n.w.chance(100) { // and again, perhaps to another coordinator
		n.w.after(n.w.between(ms, 2*second), n, func() { n.worker.report(wr.r.uid, ack) })
	}
}
