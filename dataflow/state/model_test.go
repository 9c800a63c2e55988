package state

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// The model test drives a replica through random histories as a node would: a shard log of deltas, incarnations, settled
// positions and dropped pipelines; a meta log of commits, retained cuts and floors; merges, restarts and crashes. Its model
// keeps the whole state of every cut as a map.
//
// After every step each retained cut must be readable and equal to the model's, or be missing for the reason that the
// model knows.

// entry is one entry of the model's shard log.
type entry struct {
	kind   byte // 'c' chunk, 'e' end, 'b' begin, 's' settle, 'd' drop
	id     dataflow.DeltaID
	chunk  int
	data   []byte
	chunks int
	digest uint64
	base   dataflow.DeltaRef // of begin; of settle, the position
}

// modelCut is a committed cut and the state that it must show.
type modelCut struct {
	commit *dataflow.CheckpointCommit
	ref    dataflow.DeltaRef // resolved: the delta that the state ends with
	state  rows
	needs  int // the log must have been fed so far
}

// modelDelta is a complete delta of the running incarnation.
type modelDelta struct {
	digest uint64
	end    int
	state  rows // at its end
}

// modelPipeline is one pipeline: the task's live state and the meta log's record.
type modelPipeline struct {
	uid       dataflow.PipelineUID
	inc       dataflow.Incarnation
	base      *modelCut // what the incarnation started from
	begun     int       // log position after the incarnation's begin
	deltas    []modelDelta
	live      rows
	openChunk int      // chunks of the next delta that are in the log already
	open      []change // its changes in order
	nextID    dataflow.CheckpointID
	cuts      []*modelCut // retained, oldest first
	past      []*modelCut // all that were committed and that the state has come from
	settled   dataflow.DeltaRef
}

// world is the model.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	mem     *vfs.MemFS
	fs      vfs.FS
	r       *Replica
	log     []entry
	fed     int
	pipes   []*modelPipeline
	commits []*modelCut // all commits in order, to be published in order
	told    int         // commits published to the replica
	nextUID dataflow.PipelineUID

	crash struct {
		sync.Mutex
		armed  bool
		every  int // take a clone at every so many operations
		ops    int
		rng    *rand.Rand
		clones []crashed
	}
}

// crashed is what a crash leaves: the disk, the shard's log, and what the meta log retains.
type crashed struct {
	op     string
	fs     *vfs.MemFS
	log    []entry
	fed    int
	pipes  []modelPipeline
	commit []*modelCut
}

const modelStages = 2

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 3)), mem: vfs.NewCrashableMem(), nextUID: 1}
	w.crash.rng = rand.New(rand.NewPCG(seed, 4))
	w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		w.mayCrash(op)
		return nil
	}))
	w.deploy()
	w.r = openTest(t, w.fs)
	return w
}

// mayCrash keeps, before a writing operation, what the disk would look like if the machine stopped now.
func (w *world) mayCrash(op errorfs.Op) {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpLock || op.Kind == errorfs.OpFileClose {
		return
	}
	w.crash.Lock()
	defer w.crash.Unlock()
	if !w.crash.armed {
		return
	}
	if w.crash.ops++; w.crash.ops%w.crash.every != 0 {
		return
	}
	c := crashed{op: fmt.Sprintf("op %d: kind %d of %s", w.crash.ops, op.Kind, op.Path), log: w.log, fed: w.fed, commit: w.commits}
	for _, p := range w.pipes {
		q := *p
		q.cuts = slices.Clone(p.cuts)
		c.pipes = append(c.pipes, q)
	}
	percent := []int{0, 50, 100}[w.crash.rng.IntN(3)]
	c.fs = w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: w.crash.rng})
	w.crash.clones = append(w.crash.clones, c)
}

// crashes returns how many crashes there are to look at.
func (w *world) crashes() (n int) {
	w.guarded(func() { n = len(w.crash.clones) })
	return n
}

// guarded changes what a crash clone would copy. The replica's goroutines may be in mayCrash meanwhile.
func (w *world) guarded(f func()) {
	w.crash.Lock()
	defer w.crash.Unlock()
	f()
}

func (w *world) append(e entry) int {
	w.guarded(func() { w.log = append(w.log, e) })
	return len(w.log)
}

// deploy creates a pipeline: its cut 0 is committed, then incarnation 1 begins.
func (w *world) deploy() {
	p := &modelPipeline{uid: w.nextUID, nextID: 1}
	w.nextUID++
	zero := &modelCut{commit: &dataflow.CheckpointCommit{Pipeline: p.uid, Timeline: 1, Incarnation: 1}, state: rows{}}
	w.guarded(func() {
		p.cuts = []*modelCut{zero}
		w.pipes = append(w.pipes, p)
		w.commits = append(w.commits, zero)
	})
	w.begin(p)
}

// begin starts the next incarnation from the newest committed cut (P4).
func (w *world) begin(p *modelPipeline) {
	base := p.cuts[len(p.cuts)-1]
	stale := dataflow.DeltaID{Pipeline: p.uid, Incarnation: p.inc, Seq: dataflow.DeltaSeq(len(p.deltas) + 1)}
	was := p.inc
	w.guarded(func() {
		p.inc++
		p.base, p.deltas, p.live, p.open, p.openChunk = base, nil, base.state, nil, 0
	})
	named := base.ref
	if w.rng.IntN(2) == 0 && base.commit.Shards != nil { // as committed, seq 0 and all
		named = dataflow.DeltaRef{Incarnation: base.commit.Incarnation, Seq: base.commit.Shard(testShard).Seq}
	}
	at := w.append(entry{kind: 'b', id: dataflow.DeltaID{Pipeline: p.uid, Incarnation: p.inc}, base: named})
	w.guarded(func() { p.begun = at })
	if was > 0 && w.rng.IntN(2) == 0 { // a late delta of the older incarnation
		chunks, digest := encodeDelta(w.t, []change{{0, testKey(1), []byte("late")}})
		w.append(entry{kind: 'c', id: stale, data: chunks[0]})
		w.append(entry{kind: 'e', id: stale, chunks: 1, digest: digest})
	}
}

func (w *world) someChanges() []change {
	var out []change
	for range w.rng.IntN(8) {
		c := change{stage: dataflow.StageID(w.rng.IntN(modelStages)), key: testKey(w.rng.IntN(45))}
		if w.rng.IntN(3) > 0 {
			c.val = fmt.Appendf(nil, "v%d", w.rng.IntN(1000))
		}
		out = append(out, c)
	}
	return out
}

// write puts a delta into the log, in up to two chunks, or leaves it open.
func (w *world) write(p *modelPipeline) {
	d := dataflow.DeltaID{Pipeline: p.uid, Incarnation: p.inc, Seq: dataflow.DeltaSeq(len(p.deltas) + 1)}
	changes := w.someChanges()
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.key, b.key))
	})
	var parts [][]change
	if cut := w.rng.IntN(len(changes) + 1); cut > 0 && cut < len(changes) &&
		rowKey(changes[cut-1].stage, []byte(changes[cut-1].key)) != rowKey(changes[cut].stage, []byte(changes[cut].key)) {
		parts = [][]change{changes[:cut], changes[cut:]}
	} else if len(changes) > 0 {
		parts = [][]change{changes}
	}
	var digest dataflow.DeltaDigest
	chunks := 0
	for _, part := range parts {
		data, _ := encodeDelta(w.t, part)
		digest = digest.Add(data[0])
		w.append(entry{kind: 'c', id: d, chunk: chunks, data: data[0]})
		chunks++
		if w.rng.IntN(10) == 0 { // sent twice
			w.append(entry{kind: 'c', id: d, chunk: chunks - 1, data: data[0]})
		}
		if w.rng.IntN(20) == 0 { // the task fails before the end
			w.begin(p)
			return
		}
	}
	at := w.append(entry{kind: 'e', id: d, chunks: chunks, digest: uint64(digest)})
	w.guarded(func() {
		p.live = p.live.with(changes)
		p.deltas = append(p.deltas, modelDelta{digest: uint64(digest), end: at, state: p.live})
	})
}

// commit commits a cut of what the log holds.
func (w *world) commit(p *modelPipeline) {
	last := p.cuts[len(p.cuts)-1]
	from := 0
	if last.commit.Incarnation == p.inc && last.commit.Shards != nil {
		from = int(last.commit.Shard(testShard).Seq)
	}
	seq := from + w.rng.IntN(len(p.deltas)-from+1)
	c := &modelCut{commit: commitOf(p.uid, p.nextID, ref(p.inc, dataflow.DeltaSeq(seq)), 0), ref: p.base.ref, state: p.base.state, needs: max(p.begun, p.base.needs)}
	if seq > 0 {
		d := p.deltas[seq-1]
		c.commit.Shards[0].Digest = d.digest
		c.ref, c.state, c.needs = ref(p.inc, dataflow.DeltaSeq(seq)), d.state, d.end
	}
	w.guarded(func() {
		p.nextID += dataflow.CheckpointID(1 + w.rng.IntN(3))
		p.cuts, p.past = append(p.cuts, c), append(p.past, c)
		w.commits = append(w.commits, c)
	})
}

func apply(r *Replica, i int, e entry) error {
	idx := dataflow.LogIndex(i + 1)
	switch e.kind {
	case 'c':
		return r.ApplyChunk(idx, e.id, e.chunk, e.data)
	case 'e':
		return r.EndDelta(idx, e.id, e.chunks, e.digest)
	case 'b':
		return r.BeginIncarnation(idx, e.id.Pipeline, e.id.Incarnation, e.base)
	case 's':
		return r.Settle(idx, e.id.Pipeline, e.base)
	default:
		return r.DropPipeline(idx, e.id.Pipeline)
	}
}

func (w *world) feed(n int) {
	for ; n > 0 && w.fed < len(w.log); n-- {
		if err := apply(w.r, w.fed, w.log[w.fed]); err != nil {
			w.t.Fatalf("entry %d %+v: %v", w.fed, w.log[w.fed], err)
		}
		w.fed++
	}
}

func (w *world) publish(n int) {
	for ; n > 0 && w.told < len(w.commits); n-- {
		c := w.commits[w.told]
		w.told++
		if err := w.r.Publish(c.commit); err != nil {
			w.t.Fatal(err)
		}
	}
}

// retain keeps a random part of the cuts, with the newest.
func (w *world) retain(p *modelPipeline) {
	var keep []dataflow.CheckpointID
	w.guarded(func() {
		p.cuts = slices.DeleteFunc(slices.Clone(p.cuts), func(c *modelCut) bool {
			return w.rng.IntN(3) == 0 && c != p.cuts[len(p.cuts)-1]
		})
	})
	for _, c := range p.cuts {
		keep = append(keep, c.commit.ID)
	}
	w.r.SetRetained(p.uid, keep)
}

// merge raises the floor to a cut and merges up to it, then settles.
func (w *world) merge(p *modelPipeline) {
	floor := p.cuts[w.rng.IntN(len(p.cuts))]
	if w.fed < floor.needs {
		return
	}
	if v, err := w.r.View(p.uid, floor.commit.ID); err != nil {
		return // not published yet
	} else {
		v.Release()
	}
	w.guarded(func() {
		p.cuts = slices.DeleteFunc(slices.Clone(p.cuts), func(c *modelCut) bool { return c.commit.ID < floor.commit.ID })
	})
	upTo, err := w.r.Merge(context.Background(), p.uid, floor.commit.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	if upTo != floor.ref {
		w.t.Fatalf("merged up to %s, the cut is at %s", upTo, floor.ref)
	}
	if upTo.Seq != 0 {
		w.settle(p, upTo)
	}
}

func (w *world) settle(p *modelPipeline, upTo dataflow.DeltaRef) {
	w.append(entry{kind: 's', id: dataflow.DeltaID{Pipeline: p.uid}, base: upTo})
	w.guarded(func() { p.settled = upTo })
}

// settleElsewhere settles what another node has merged: up to a cut that was the oldest one at some time. This one may know of
// newer cuts by then.
func (w *world) settleElsewhere(p *modelPipeline) {
	floor := p.cuts[0].ref
	var refs []dataflow.DeltaRef
	for _, c := range p.past {
		if c.ref.Seq != 0 && c.ref.Compare(floor) <= 0 && c.ref.Compare(p.settled) > 0 {
			refs = append(refs, c.ref)
		}
	}
	if len(refs) > 0 {
		w.settle(p, refs[w.rng.IntN(len(refs))])
	}
}

func (w *world) drop(p *modelPipeline) {
	w.guarded(func() {
		w.pipes = slices.DeleteFunc(slices.Clone(w.pipes), func(o *modelPipeline) bool { return o == p })
	})
	w.append(entry{kind: 'd', id: dataflow.DeltaID{Pipeline: p.uid}})
	w.feed(len(w.log))
	w.deploy()
}

// replay feeds a fresh replica as the shard's log does when it is opened with a snapshot at entry snap: the deltas that
// are not settled there, and the newest incarnation, in log order; then the rest of the log.
func replay(r *Replica, log []entry, snap int) error {
	keep := make([]bool, snap)
	begins := map[dataflow.PipelineUID]int{}
	for i, e := range log[:snap] {
		switch e.kind {
		case 'c', 'e':
			keep[i] = true
			if b, ok := begins[e.id.Pipeline]; ok && e.id.Incarnation < log[b].id.Incarnation {
				keep[i] = false
			}
		case 'b':
			if b, ok := begins[e.id.Pipeline]; ok {
				keep[b] = false
			}
			begins[e.id.Pipeline], keep[i] = i, true
			complete := map[dataflow.DeltaID]bool{}
			for _, o := range log[:i] {
				if o.kind == 'e' {
					complete[o.id] = true
				}
			}
			for j, o := range log[:i] {
				if (o.kind == 'c' || o.kind == 'e') && o.id.Pipeline == e.id.Pipeline && (o.id.Ref().Compare(e.base) > 0 || !complete[o.id]) {
					keep[j] = false
				}
			}
		case 's', 'd':
			for j, o := range log[:i] {
				if o.id.Pipeline == e.id.Pipeline && (e.kind == 'd' || o.kind != 'b' && o.id.Ref().Compare(e.base) <= 0) {
					keep[j] = false
				}
			}
			keep[i] = e.kind == 's' // the newest one
			if e.kind == 'd' {
				delete(begins, e.id.Pipeline)
			}
		}
	}
	for i, e := range log {
		if i >= snap || keep[i] {
			if err := apply(r, i, e); err != nil {
				return fmt.Errorf("replay from %d: entry %d %+v: %w", snap, i, e, err)
			}
		}
	}
	return nil
}

// restart opens the replica again on fs and feeds it as a node would.
func (w *world) restart(fs vfs.FS) {
	closeTest(w.t, w.r)
	w.r = openTest(w.t, fs)
	w.goOn(w.rng.IntN(w.fed + 1)) // a log has its snapshots of what was applied
}

// goOn feeds a replica that was just opened.
func (w *world) goOn(snap int) {
	if err := replay(w.r, w.log, snap); err != nil {
		w.t.Fatal(err)
	}
	w.fed, w.told = len(w.log), len(w.commits)
	for _, p := range w.pipes {
		for _, c := range p.cuts {
			if err := w.r.Publish(c.commit); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// rebuild goes on with a replica that was made of a copy, while the first one has gone on: its log starts from a snapshot
// that is older than the copy.
func (w *world) rebuild() {
	const dir = "data/export"
	if _, err := w.r.CopyTo(context.Background(), dir); err != nil {
		w.t.Fatal(err)
	}
	snap := w.rng.IntN(w.fed + 1)
	for range w.rng.IntN(3) {
		p := w.pipes[w.rng.IntN(len(w.pipes))]
		w.write(p)
		w.commit(p)
		w.feed(len(w.log))
		w.publish(len(w.commits))
		w.merge(p)
	}
	fresh := vfs.NewCrashableMem()
	moveAll(w.t, w.fs, dir, fresh, testDir)
	if _, err := CheckCopy(context.Background(), Config{FS: fresh, Dir: testDir, Shard: testShard, Logger: quiet()}, true, nil); err != nil {
		w.t.Fatal(err)
	}
	old := w.r
	w.r = openTest(w.t, fresh)
	closeTest(w.t, old)
	w.guarded(func() { w.mem = fresh })
	w.fs = errorfs.Wrap(fresh, errorfs.InjectorFunc(func(op errorfs.Op) error {
		w.mayCrash(op)
		return nil
	}))
	closeTest(w.t, w.r)
	w.r = openTest(w.t, w.fs)
	w.goOn(snap)
}

// moveAll copies a directory's files into another file system, synced.
func moveAll(t testing.TB, from vfs.FS, dir string, to vfs.FS, as string) {
	t.Helper()
	if err := vfs.MkdirDurable(to, as); err != nil {
		t.Fatal(err)
	}
	names, err := from.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		path := from.PathJoin(dir, n)
		if st, err := from.Stat(path); err != nil {
			t.Fatal(err)
		} else if st.IsDir() {
			moveAll(t, from, path, to, to.PathJoin(as, n))
			continue
		}
		data, err := vfs.ReadFile(from, path)
		if err == nil {
			err = vfs.WriteFile(to, to.PathJoin(as, n), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := from.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// check compares every retained cut.
func (w *world) check() {
	told := map[*modelCut]bool{}
	for _, c := range w.commits[:w.told] {
		told[c] = true
	}
	for _, p := range w.pipes {
		var before *View // the cut before that could be read
		var was rows
		for _, c := range p.cuts {
			v, err := w.r.View(p.uid, c.commit.ID)
			switch {
			case err == nil:
				if err := checkView(v, c.state, modelStages); err != nil {
					w.t.Fatalf("pipeline %d, cut %s: %v", p.uid, c.commit, err)
				}
				if got, err := w.r.Digest(context.Background(), p.uid, c.commit.ID, nil); err != nil || got != digestOf(c.state) {
					w.t.Fatalf("pipeline %d, cut %s: digest %s, %v, want %s", p.uid, c.commit, got, err, digestOf(c.state))
				}
				if before != nil {
					if err := checkChanges(before, v, was, c.state, modelStages); err != nil {
						w.t.Fatalf("pipeline %d, cut %s: %v", p.uid, c.commit, err)
					}
				}
				if before == nil || w.rng.IntN(2) == 0 { // not only neighbours
					if before != nil {
						before.Release()
					}
					before, was = v, c.state
				} else {
					v.Release()
				}
			case dataflow.ReasonOf(err) != dataflow.ReasonNoCommittedCheckpoint || told[c] && w.fed >= c.needs:
				w.t.Fatalf("pipeline %d, cut %s, told %v, fed %d of the %d it needs: %v", p.uid, c.commit, told[c], w.fed, c.needs, err)
			}
		}
		if before != nil {
			before.Release()
		}
	}
}

func (w *world) step() {
	p := w.pipes[w.rng.IntN(len(w.pipes))]
	switch n := w.rng.IntN(100); {
	case n < 40:
		w.write(p)
	case n < 60:
		w.commit(p)
	case n < 66:
		w.begin(p)
	case n < 74:
		w.feed(w.rng.IntN(20))
	case n < 80:
		w.publish(w.rng.IntN(8))
	case n < 86:
		w.feed(len(w.log))
		w.publish(len(w.commits))
		w.retain(p)
	case n < 90:
		w.feed(len(w.log))
		w.publish(len(w.commits))
		w.merge(p)
	case n < 94:
		w.settleElsewhere(p)
	case n < 95:
		w.publish(len(w.commits))
		w.drop(p)
	case n < 97 && len(w.pipes) < 3:
		w.deploy()
	case n < 98:
		w.restart(w.fs)
	case n < 99:
		w.rebuild()
	default:
		w.crashNow()
	}
}

// crashNow loses what was not synced.
func (w *world) crashNow() {
	mem := w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: w.rng})
	old := w.r
	w.r = openTest(w.t, mem)
	closeTest(w.t, old)
	w.guarded(func() { w.mem = mem })
	w.fs = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		w.mayCrash(op)
		return nil
	}))
	w.restart(w.fs)
}

var histories = flag.Uint64("histories", 24, "how many random histories TestRandomHistoriesGiveTheModelsCuts drives a replica through")

func TestRandomHistoriesGiveTheModelsCuts(t *testing.T) {
	t.Parallel()
	seeds := *histories
	if testing.Short() {
		seeds = min(seeds, 5)
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			for i := range 150 {
				w.step()
				if i%3 == 0 {
					w.check()
				}
			}
			w.feed(len(w.log))
			w.publish(len(w.commits))
			w.check()
			closeTest(t, w.r)
		})
	}
}

// TestACrashAtAnyWriteKeepsEveryCut takes the disk as a crash would leave it before every writing operation of some
// histories, opens it, feeds it again and compares every retained cut.
func TestACrashAtAnyWriteKeepsEveryCut(t *testing.T) {
	t.Parallel()
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1000+seed)
			w.guarded(func() { w.crash.armed, w.crash.every = true, 1 })
			// How many writes a history makes depends a little on how flushes and merges fall together.
			for steps := 0; steps < 60 || w.crashes() < 100; steps++ {
				if steps == 1000 {
					t.Fatalf("only %d operations", w.crashes())
				}
				p := w.pipes[w.rng.IntN(len(w.pipes))]
				for range 3 {
					w.write(p)
				}
				w.commit(p)
				w.feed(len(w.log))
				w.publish(len(w.commits))
				switch w.rng.IntN(12) {
				case 0, 1, 2:
					w.merge(p)
				case 3:
					w.begin(p)
				case 4:
					if len(w.pipes) < 2 {
						w.deploy()
					}
				case 5:
					w.drop(p)
				}
				w.feed(len(w.log))
			}
			w.check()
			closeTest(t, w.r)
			for _, c := range w.crash.clones {
				verifyCrash(t, c, w.rng)
			}
			t.Logf("%d crashes", len(w.crash.clones))
		})
	}
}

func verifyCrash(t *testing.T, c crashed, rng *rand.Rand) {
	t.Helper()
	r := openTest(t, c.fs)
	defer closeTest(t, r)
	if err := replay(r, c.log, rng.IntN(c.fed+1)); err != nil {
		t.Fatalf("%s: %v", c.op, err)
	}
	for _, p := range c.pipes {
		for _, cut := range p.cuts {
			if err := r.Publish(cut.commit); err != nil {
				t.Fatalf("%s: %v", c.op, err)
			}
			v, err := r.View(p.uid, cut.commit.ID)
			if err == nil {
				err = checkView(v, cut.state, modelStages)
				v.Release()
			} else if len(c.log) < cut.needs {
				continue
			}
			if err != nil {
				t.Fatalf("%s: pipeline %d, cut %s: %v", c.op, p.uid, cut.commit, err)
			}
		}
	}
}
