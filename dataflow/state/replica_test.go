package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

const uid = dataflow.PipelineUID(7)

func ref(i dataflow.Incarnation, s dataflow.DeltaSeq) dataflow.DeltaRef {
	return dataflow.DeltaRef{Incarnation: i, Seq: s}
}

func id(r dataflow.DeltaRef) dataflow.DeltaID {
	return dataflow.DeltaID{Pipeline: uid, Incarnation: r.Incarnation, Seq: r.Seq}
}

func TestACutIsReadableWhenDeltaAndCommitHaveComeInEitherOrder(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	changes := []change{{0, testKey(1), []byte("a")}}
	_, digest := encodeDelta(t, changes)
	if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	_, err := r.View(uid, 1)
	wantReason(t, err, dataflow.ReasonNoCommittedCheckpoint)
	changed := r.Changed()
	feed(t, r, id(ref(1, 1)), changes)
	<-changed
	v := mustView(t, r, uid, 1)
	if err := checkView(v, rows{}.with(changes), 3); err != nil {
		t.Fatal(err)
	}
	v.Release()

	more := []change{{0, testKey(1), nil}, {0, testKey(2), []byte("b")}}
	feed(t, r, id(ref(1, 2)), more)
	_, err = r.View(uid, 2)
	wantReason(t, err, dataflow.ReasonNoCommittedCheckpoint)
	_, d := encodeDelta(t, more)
	if err := r.Publish(commitOf(uid, 2, ref(1, 2), d)); err != nil {
		t.Fatal(err)
	}
	v = mustView(t, r, uid, 2)
	defer v.Release()
	if err := checkView(v, rows{}.with(changes).with(more), 3); err != nil {
		t.Fatal(err)
	}
}

func TestAwaitReturnsWhenTheDeltaComes(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	changes := []change{{0, testKey(1), []byte("a")}}
	_, digest := encodeDelta(t, changes)
	if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		v, err := r.Await(context.Background(), uid, 1, nil)
		if err == nil {
			v.Release()
		}
		got <- err
	}()
	feed(t, r, id(ref(1, 1)), changes)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Await(ctx, uid, 2, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestADigestThatDiffersIsCorruptAndNeverServed(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	digest := feed(t, r, id(ref(1, 1)), []change{{0, testKey(1), []byte("a")}})
	wantReason(t, r.Publish(commitOf(uid, 1, ref(1, 1), digest+1)), dataflow.ReasonCorrupt)
	_, err := r.View(uid, 1)
	wantReason(t, err, dataflow.ReasonCorrupt)
	above := feed(t, r, id(ref(1, 2)), nil)
	wantReason(t, r.Publish(commitOf(uid, 2, ref(1, 2), above)), dataflow.ReasonCorrupt)
	_, err = r.Merge(context.Background(), uid, 2)
	wantReason(t, err, dataflow.ReasonCorrupt)
}

func TestADigestThatDiffersFromTheStoresIsCorrupt(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	r := openTest(t, fs)
	digest := feed(t, r, id(ref(1, 1)), []change{{0, testKey(1), []byte("a")}})
	if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Merge(context.Background(), uid, 1); err != nil {
		t.Fatal(err)
	}
	closeTest(t, r)
	r = openTest(t, fs)
	defer closeTest(t, r)
	wantReason(t, r.Publish(commitOf(uid, 1, ref(1, 1), digest+1)), dataflow.ReasonCorrupt)
	d := feed(t, r, id(ref(1, 2)), nil)
	wantReason(t, r.Publish(commitOf(uid, 2, ref(1, 2), d)), dataflow.ReasonCorrupt)
}

func TestDamagedChunksAndEndsAreCorrupt(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	chunks, digest := encodeDelta(t, []change{{0, testKey(1), []byte("a")}})
	bad := append([]byte(nil), chunks[0]...)
	bad[len(bad)-1] ^= 1
	wantReason(t, r.ApplyChunk(1, id(ref(1, 1)), 0, bad), dataflow.ReasonCorrupt)
	wantReason(t, r.ApplyChunk(2, id(ref(1, 2)), 1, chunks[0]), dataflow.ReasonCorrupt)
	if err := r.ApplyChunk(3, id(ref(1, 3)), 0, chunks[0]); err != nil {
		t.Fatal(err)
	}
	wantReason(t, r.EndDelta(4, id(ref(1, 3)), 1, digest+1), dataflow.ReasonCorrupt)
	wantReason(t, r.EndDelta(5, id(ref(1, 3)), 2, digest), dataflow.ReasonCorrupt)
}

func TestAViewStaysAsItIsWhileEverythingMovesOn(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	state := rows{}
	var views []*View
	var wants []rows
	for n := range dataflow.DeltaSeq(30) {
		seq := n + 1
		changes := []change{
			{0, testKey(int(seq) % 45), fmt.Append(nil, seq)},
			{1, testKey(int(seq*7) % 45), fmt.Append(nil, seq)},
			{0, testKey(int(seq*11) % 45), nil},
		}
		if seq%5 == 0 {
			changes = nil
		}
		state = state.with(changes)
		digest := feed(t, r, id(ref(1, seq)), changes)
		cut := dataflow.CheckpointID(seq)
		if err := r.Publish(commitOf(uid, cut, ref(1, seq), digest)); err != nil {
			t.Fatal(err)
		}
		views, wants = append(views, mustView(t, r, uid, cut)), append(wants, state)
		if seq%6 == 0 {
			if _, err := r.Merge(context.Background(), uid, cut); err != nil {
				t.Fatal(err)
			}
			_, err := r.View(uid, cut-1)
			wantReason(t, err, dataflow.ReasonCheckpointExpired)
		}
	}
	if err := r.DropPipeline(0, uid); err != nil {
		t.Fatal(err)
	}
	_, err := r.View(uid, 30)
	wantReason(t, err, dataflow.ReasonPipelineNotFound)
	for i, v := range views {
		if err := checkView(v, wants[i], 3); err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
}

// Of those who read at once only the first makes a view, and none keeps alive what a merge has freed.
func TestThoseWhoHoldACutAtOnceShareItsView(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	state := rows{}
	commit := func(seq dataflow.DeltaSeq) {
		changes := []change{{0, testKey(int(seq)), fmt.Append(nil, seq)}}
		state = state.with(changes)
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq), ref(1, seq), feed(t, r, id(ref(1, seq)), changes))); err != nil {
			t.Fatal(err)
		}
	}
	for seq := range dataflow.DeltaSeq(4) {
		commit(seq + 1)
		cut := dataflow.CheckpointID(seq + 1)
		if seq%2 == 1 { // of a store that holds something, and of one that does not
			first := mustView(t, r, uid, cut)
			if _, err := r.Merge(context.Background(), uid, cut); err != nil {
				t.Fatal(err)
			}
			after := mustView(t, r, uid, cut)
			if after == first {
				t.Errorf("cut %d: a view is given out that keeps what a merge has freed", cut)
			}
			first.Release()
			after.Release()
		}
		first, second := mustView(t, r, uid, cut), mustView(t, r, uid, cut)
		if first != second {
			t.Errorf("cut %d: there are two views at once", cut)
		}
		first.Release()
		third := mustView(t, r, uid, cut)
		if err := checkView(third, state, 1); err != nil || third != second {
			t.Errorf("cut %d: the view that is still held: %v, %v", cut, third == second, err)
		}
		second.Release()
		third.Release()
		if n := r.Stats().OpenViews; n != 0 || r.mu.chains[uid].shared != nil {
			t.Errorf("cut %d: when all are released %d views are left", cut, n)
		}
	}
}

// TestCutsBelowAMergeAreRefusedFromItsStart asks in the middle of an ingest, when the store holds the new base already and
// the layers are still there: an older cut would be torn.
func TestCutsBelowAMergeAreRefusedFromItsStart(t *testing.T) {
	t.Parallel()
	var r *Replica
	var asked []error
	fs := errorfs.Wrap(vfs.NewCrashableMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove && strings.HasPrefix(op.Path, testDir+"/ingest/") {
			for cut := range dataflow.CheckpointID(2) {
				v, err := r.View(uid, cut+1)
				if err == nil {
					err = checkView(v, rows{rowKey(0, []byte(testKey(1))): "2"}, 1)
					v.Release()
				}
				asked = append(asked, err)
			}
		}
		return nil
	}))
	r = openTest(t, fs)
	defer closeTest(t, r)
	for seq := range dataflow.DeltaSeq(2) {
		digest := feed(t, r, id(ref(1, seq+1)), []change{{0, testKey(1), fmt.Append(nil, seq+1)}})
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq+1), ref(1, seq+1), digest)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Merge(context.Background(), uid, 2); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 {
		t.Fatalf("the merge removed its file %d times", len(asked)/2)
	}
	wantReason(t, asked[0], dataflow.ReasonCheckpointExpired)
	if asked[1] != nil {
		t.Fatal(asked[1])
	}
}

func TestLayersBetweenRetainedCutsAreMerged(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	state := rows{}
	at := map[dataflow.CheckpointID]rows{}
	for seq := range dataflow.DeltaSeq(64) {
		changes := []change{{0, testKey(int(seq) % 45), fmt.Append(nil, seq)}, {0, testKey(int(seq+20) % 45), nil}}
		state = state.with(changes)
		cut := dataflow.CheckpointID(seq + 1)
		at[cut] = state
		if err := r.Publish(commitOf(uid, cut, ref(1, seq+1), feed(t, r, id(ref(1, seq+1)), changes))); err != nil {
			t.Fatal(err)
		}
	}
	keep := []dataflow.CheckpointID{20, 21, 64}
	r.SetRetained(uid, keep)
	for r.foldOne() { // the folder does the same; whoever is first
	}
	for _, cut := range keep {
		v := mustView(t, r, uid, cut)
		if err := checkView(v, at[cut], 1); err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	_, err := r.View(uid, 22)
	wantReason(t, err, dataflow.ReasonCheckpointExpired)
	closeTest(t, r) // waits for the folder
	if n := len(r.mu.chains[uid].layers); n > 16 {
		t.Fatalf("%d layers for three retained cuts", n)
	}
}

// A copy that knows of newer cuts than the one who settles has merged layers across the position, in memory. What it said then that
// its store holds, the store did not hold, and the next start, with a log that had forgotten these deltas, was without them.
func TestAPositionInsideAMergedLayerIsSettledWithAllOfTheLayer(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	r := openTest(t, fs)
	state := rows{}
	var changes [][]change
	var digests []uint64
	for s := range 6 {
		c := []change{{0, testKey(s), fmt.Appendf(nil, "%d", s)}}
		changes, state = append(changes, c), state.with(c)
		at := ref(1, dataflow.DeltaSeq(s+1))
		digests = append(digests, feed(t, r, id(at), c))
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(s+1), at, digests[s])); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		v := mustView(t, r, uid, 6)
		defer v.Release()
		if err := checkView(v, state, 9); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	r.SetRetained(uid, []dataflow.CheckpointID{6})
	for r.foldOne() || r.Stats().Pipelines[0].Layers > 1 { // the replica's own goroutine may be at it
		runtime.Gosched()
	}
	if err := r.Settle(9, uid, ref(1, 3)); err != nil {
		t.Fatal(err)
	}
	check("settled")
	if b, _ := r.Base(uid); b.Ref != ref(1, 6) {
		t.Errorf("the store holds %v", b)
	}
	// Up to where it is settled the log repeats nothing; what it repeats the store may hold.
	closeTest(t, r)
	r = openTest(t, fs)
	defer func() { closeTest(t, r) }()
	for s := 3; s < 6; s++ {
		feed(t, r, id(ref(1, dataflow.DeltaSeq(s+1))), changes[s])
	}
	if err := r.Publish(commitOf(uid, 6, ref(1, 6), digests[5])); err != nil {
		t.Fatal(err)
	}
	check("after a start")
	// The next incarnation begins with the newest cut, and goes on.
	if err := r.BeginIncarnation(20, uid, 2, ref(1, 6)); err != nil {
		t.Fatal(err)
	}
	c := []change{{0, testKey(1), []byte("again")}}
	d := feed(t, r, id(ref(2, 1)), c)
	if err := r.Publish(commitOf(uid, 7, ref(2, 1), d)); err != nil {
		t.Fatal(err)
	}
	v := mustView(t, r, uid, 7)
	defer v.Release()
	if err := checkView(v, state.with(c), 9); err != nil {
		t.Fatal(err)
	}
}

// Whatever makes such a merge, the store must not say that it holds what it does not.
func TestAMergeWhoseLayersLackADeltaIsRefused(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	for s := range 3 {
		at := ref(1, dataflow.DeltaSeq(s+1))
		digest := feed(t, r, id(at), []change{{0, testKey(s), []byte("v")}})
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(s+1), at, digest)); err != nil {
			t.Fatal(err)
		}
	}
	r.SetRetained(uid, []dataflow.CheckpointID{3})
	for r.foldOne() || r.Stats().Pipelines[0].Layers > 1 { // the replica's own goroutine may be at it
		runtime.Gosched()
	}
	r.mu.Lock()
	job := mergeJob{uid: uid, chain: r.mu.chains[uid], base: Base{Checkpoint: 2, Ref: ref(1, 2)}}
	err := r.beginMergeLocked(&job)
	r.mu.Unlock()
	if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt || !strings.Contains(err.Error(), "delta 1.1 would be left out") {
		t.Errorf("a merge up to the middle of the only layer: %v", err)
	}
	if upTo, err := r.Merge(context.Background(), uid, 3); err != nil || upTo != ref(1, 3) {
		t.Errorf("the merge of all of it: %s, %v", upTo, err)
	}
}

func TestAReplicaBehindTheSettledPositionMergesThen(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	r := openTest(t, fs)
	changes := []change{{0, testKey(1), []byte("a")}}
	digest := feed(t, r, id(ref(1, 1)), changes)
	wantReason(t, r.Settle(9, uid, ref(1, 2)), dataflow.ReasonCorrupt)
	if err := r.Settle(9, uid, ref(1, 1)); err != nil {
		t.Fatal(err)
	}
	closeTest(t, r)
	r = openTest(t, fs)
	defer closeTest(t, r)
	if base, ok := r.Base(uid); !ok || base.Ref != ref(1, 1) {
		t.Fatalf("base %+v, %v", base, ok)
	}
	if err := r.Publish(commitOf(uid, 4, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	v := mustView(t, r, uid, 4)
	defer v.Release()
	if err := checkView(v, rows{}.with(changes), 1); err != nil {
		t.Fatal(err)
	}
}

func TestAMergeLeavesNoFilesBehind(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	r := openTest(t, fs)
	defer closeTest(t, r)
	digest := feed(t, r, id(ref(1, 1)), []change{{0, testKey(1), []byte("a")}})
	if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Merge(ctx, uid, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if upTo, err := r.Merge(context.Background(), uid, 1); err != nil || upTo != ref(1, 1) {
		t.Fatal(upTo, err)
	}
	if left, err := fs.List(testDir + "/ingest"); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

func TestADirectoryOfAnotherShardIsRefused(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	closeTest(t, openTest(t, fs))
	_, err := OpenReplica(Config{FS: fs, Dir: testDir, Shard: testShard + 1, Logger: quiet()})
	if err == nil || !strings.Contains(err.Error(), "another shard") {
		t.Fatal(err)
	}
	if _, err := OpenReplica(Config{FS: fs, Logger: quiet()}); err == nil {
		t.Fatal("no directory is refused")
	}
}

func TestCloseReportsWhatWasNotReleased(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	digest := feed(t, r, id(ref(1, 1)), []change{{0, testKey(1), []byte("a")}})
	if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	v := mustView(t, r, uid, 1)
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "1 views or iterators") {
		t.Fatal(err)
	}
	v.Release()
	_, err := r.View(uid, 1)
	wantReason(t, err, dataflow.ReasonShuttingDown)
	_, err = r.Merge(context.Background(), uid, 1)
	wantReason(t, err, dataflow.ReasonShuttingDown)
	if err := r.Close(); err != nil {
		t.Fatal("closing twice:", err)
	}
}

func TestReplicasShareACache(t *testing.T) {
	t.Parallel()
	cache := NewCache(1 << 20)
	fs := vfs.NewCrashableMem()
	for shard := range dataflow.ShardID(2) {
		r, err := OpenReplica(Config{FS: fs, Dir: "data/" + shard.String(), Shard: shard, Cache: cache, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer closeTest(t, r)
	}
	defer func() { t.Cleanup(cache.Close) }()
}

// inChild runs the test in a process of its own, whose goroutines may stay, and reports whether this is it.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childEnv) == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
		child.Env = append(os.Environ(), childEnv+"=1")
		if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("%v\n%s", err, out)
		}
		return false
	}
	return true
}

// holdUp stops whoever logs that the store has failed, until it is let go.
type holdUp struct {
	slog.Handler
	failing, goOn chan struct{}
}

func (h *holdUp) Enabled(context.Context, slog.Level) bool { return true }
func (h *holdUp) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *holdUp) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "the state store has failed" {
		close(h.failing)
		<-h.goOn
	}
	return nil
}

// Pebble parks a goroutine that could not write its manifest with its lock held, which who asks for figures or a view, or ends one,
// needs too. Asked just before that was known, they never came back, and the node that should have stopped did not.
func TestNobodyWaitsForAStoreThatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	for what, c := range map[string]struct {
		inside string // the function of Pebble that waits
		do     func(r *Replica, held *View)
	}{
		"figures": {"(*DB).Metrics", func(r *Replica, held *View) {
			r.Stats()
			held.Release()
		}},
		"a view": {"(*DB).NewSnapshot", func(r *Replica, held *View) {
			if v, err := r.View(uid, 2); err == nil {
				v.Release()
			}
			held.Release()
		}},
		"the end of a view": {"(*Snapshot).Close", func(_ *Replica, held *View) { held.Release() }},
	} {
		t.Run(what, func(t *testing.T) { failMeanwhile(t, c.inside, c.do) })
	}
}

func failMeanwhile(t *testing.T, inside string, do func(*Replica, *View)) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewCrashableMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "MANIFEST") {
			return errors.New("injected")
		}
		return nil
	}))
	h := &holdUp{Handler: slog.DiscardHandler, failing: make(chan struct{}), goOn: make(chan struct{})}
	r, err := OpenReplica(Config{FS: fs, Dir: "state", Shard: testShard, Logger: slog.New(h)})
	if err != nil {
		t.Fatal(err)
	}
	merge := func(to dataflow.CheckpointID) error {
		_, err := r.Merge(context.Background(), uid, to)
		return err
	}
	for n := dataflow.CheckpointID(1); n <= 2; n++ {
		delta := ref(1, dataflow.DeltaSeq(n))
		digest := feed(t, r, id(delta), []change{{0, testKey(int(n)), []byte("a")}})
		if err := r.Publish(commitOf(uid, n, delta, digest)); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			if err := merge(1); err != nil { // from then on a view has a snapshot of the store
				t.Fatal(err)
			}
		}
	}
	held, err := r.View(uid, 1)
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	merged := make(chan error, 1)
	go func() { merged <- merge(2) }()
	<-h.failing
	asked := make(chan struct{})
	go func() {
		do(r, held)
		close(asked)
	}()
	for stacks := new(strings.Builder); !strings.Contains(stacks.String(), inside); runtime.Gosched() {
		stacks.Reset()
		if err := pprof.Lookup("goroutine").WriteTo(stacks, 2); err != nil {
			t.Fatal(err)
		}
	}
	close(h.goOn)
	<-asked
	if err := <-merged; err == nil {
		t.Error("the merge succeeded")
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing a failed replica: %v", err)
	}
}

func TestAFailedDiskIsReportedAndNothingExits(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	for _, kind := range []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileWrite, errorfs.OpCreate} {
		var broken atomic.Bool
		fs := errorfs.Wrap(vfs.NewCrashableMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && op.Kind == kind {
				return errors.New("injected")
			}
			return nil
		}))
		r := openTest(t, fs)
		digest := feed(t, r, id(ref(1, 1)), []change{{0, testKey(1), []byte("a")}})
		if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		_, err := r.Merge(context.Background(), uid, 1)
		if err == nil {
			err = r.DropPipeline(1, uid) // through the log
		}
		if err == nil && kind != errorfs.OpCreate {
			t.Fatalf("kind %d: a merge and a drop succeed on a broken disk", kind)
		}
		select {
		case <-r.Failed():
			if r.Err() == nil {
				t.Fatal("failed without a reason")
			}
			_, err := r.View(uid, 1)
			if reason := dataflow.ReasonOf(err); reason != dataflow.ReasonShuttingDown && reason != dataflow.ReasonPipelineNotFound {
				t.Fatalf("a failed replica answers %v", err)
			}
			if err := r.Close(); err != nil {
				t.Fatalf("closing a failed replica: %v", err)
			}
		default: // The merge failed before it touched the store, so another one may succeed.
			broken.Store(false)
			if _, err := r.Merge(context.Background(), uid, 1); err != nil {
				t.Fatal(err)
			}
			closeTest(t, r)
		}
	}
}
