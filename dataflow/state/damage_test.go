package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// mergedStore returns a disk with one pipeline in a closed store, and one that was dropped, which only Pebble's log says.
func mergedStore(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	r := openTest(t, fs)
	for u := range dataflow.PipelineUID(2) {
		d := dataflow.DeltaID{Pipeline: u + 1, Incarnation: 1, Seq: 1}
		var changes []change
		for i := range 45 {
			changes = append(changes, change{key: testKey(i), val: []byte("value")})
		}
		digest := feed(t, r, d, changes)
		if err := r.Publish(commitOf(d.Pipeline, 1, d.Ref(), digest)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Merge(context.Background(), d.Pipeline, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.DropPipeline(1, 2); err != nil {
		t.Fatal(err)
	}
	closeTest(t, r)
	return fs
}

// flip changes one bit of a file.
func flip(t *testing.T, fs vfs.FS, path string, bit int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, bit/8); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	b[0] ^= 1 << (bit % 8)
	if _, err := f.WriteAt(b, bit/8); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// damaged returns copies of a disk with one bit flipped in the files with part in their name, at a few places each.
func damaged(t *testing.T, fs *vfs.MemFS, part string) []*vfs.MemFS {
	t.Helper()
	names, err := fs.List(testDir + "/db")
	if err != nil {
		t.Fatal(err)
	}
	var out []*vfs.MemFS
	for _, name := range names {
		path := testDir + "/db/" + name
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(name, part) {
			continue
		}
		for bit := int64(3); bit < info.Size()*8; bit += info.Size()*8/50 + 1 {
			c := fs.CrashClone(vfs.CrashCloneCfg{})
			flip(t, c, path, bit)
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no file *%s* among %v", part, names)
	}
	return out
}

// TestADamagedLogIsNoticedOrMendedByTheShardsLog flips bits in Pebble's log and manifest, whose last records Pebble takes
// for unfinished when they are damaged. What is lost with them the shard's log notices (a settled position that the store
// does not hold) or tells again (a dropped pipeline).
func TestADamagedLogIsNoticedOrMendedByTheShardsLog(t *testing.T) {
	t.Parallel()
	noticed := 0
	for i, fs := range slices.Concat(damaged(t, mergedStore(t), ".log"), damaged(t, mergedStore(t), "MANIFEST")) {
		r, err := OpenReplica(Config{FS: fs, Dir: testDir, Shard: testShard, Logger: quiet()})
		if err != nil {
			noticed++
			continue
		}
		if err := r.Settle(1, 1, ref(1, 1)); err != nil {
			wantReason(t, err, dataflow.ReasonCorrupt)
			closeTest(t, r)
			noticed++
			continue
		}
		if err := r.DropPipeline(2, 2); err != nil {
			t.Fatal(err)
		}
		if err := checkMerged(t, r); err != nil {
			t.Errorf("flip %d: %v", i, err)
		}
		closeTest(t, r)
	}
	if noticed == 0 {
		t.Error("no flip was noticed")
	}
}

// checkMerged checks what mergedStore has made.
func checkMerged(t *testing.T, r *Replica) error {
	t.Helper()
	if _, err := r.View(2, 1); dataflow.ReasonOf(err) != dataflow.ReasonPipelineNotFound {
		return fmt.Errorf("the dropped pipeline: %w", err)
	}
	base, _ := r.Base(1)
	if err := r.Publish(commitOf(1, 1, ref(1, 1), base.Digest)); err != nil {
		return err
	}
	v, err := r.View(1, 1)
	if err != nil {
		return err
	}
	defer v.Release()
	want := rows{}
	for i := range 45 {
		want[rowKey(0, []byte(testKey(i)))] = "value"
	}
	return checkView(v, want, 1)
}

// TestADamagedTableIsNeverServed flips bits of the SST files: reads answer right, or CORRUPT, or the store does not open.
func TestADamagedTableIsNeverServed(t *testing.T) {
	t.Parallel()
	noticed := 0
	for i, fs := range damaged(t, mergedStore(t), ".sst") {
		r, err := OpenReplica(Config{FS: fs, Dir: testDir, Shard: testShard, Logger: quiet()})
		if err != nil {
			noticed++
			continue
		}
		if err := checkMerged(t, r); err != nil {
			if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt || !strings.Contains(err.Error(), testDir+"/db/") || strings.Contains(err.Error(), "carrier") {
				t.Errorf("flip %d: %v", i, err)
			}
			noticed++
		}
		if err := r.Err(); err != nil {
			t.Errorf("flip %d: the store has failed: %v", i, err)
		}
		closeTest(t, r)
	}
	if noticed == 0 {
		t.Error("no flip was noticed")
	}
}

// largeTable puts a pipeline of many keys into the store, by one merge, and returns its rows.
func largeTable(t *testing.T, r *Replica, uid dataflow.PipelineUID, seq dataflow.DeltaSeq, every int) []change {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(uid), uint64(seq)))
	d := dataflow.DeltaID{Pipeline: uid, Incarnation: 1, Seq: seq}
	var changes []change
	for i := 0; i < 3000; i += every {
		val := make([]byte, 100) // which no compression makes smaller
		for j := range val {
			val[j] = byte(random.Uint32())
		}
		changes = append(changes, change{key: fmt.Sprintf("key%06d", i), val: val})
	}
	digest := feed(t, r, d, changes)
	if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq), d.Ref(), digest)); err != nil {
		t.Fatal(err)
	}
	return changes
}

// corruptLookups looks every row up, and returns how many are CORRUPT; the others must be right.
func corruptLookups(t *testing.T, r *Replica, uid dataflow.PipelineUID, cut dataflow.CheckpointID, want []change) (n int) {
	t.Helper()
	v := mustView(t, r, uid, cut)
	defer v.Release()
	for _, c := range want {
		got, ok, err := v.Get(c.stage, []byte(c.key), nil)
		switch {
		case err != nil:
			wantReason(t, err, dataflow.ReasonCorrupt)
			n++
		case !ok || !bytes.Equal(got, c.val):
			t.Fatalf("%s is %x, %t", c.key, got, ok)
		}
	}
	return n
}

// watched is a log handler that says when a message comes, and counts it.
type watched struct {
	slog.Handler
	part string
	came chan struct{} // holds many
}

func (w watched) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, w.part) {
		w.came <- struct{}{}
	}
	return nil
}

func (w watched) WithAttrs([]slog.Attr) slog.Handler { return w }

// TestADamagedBlockCostsTheReadsThatNeedItAndNothingElse damages the middle of a large table's file, and goes on merging
// into the store until a compaction meets the block.
func TestADamagedBlockCostsTheReadsThatNeedItAndNothingElse(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	r := openTest(t, fs)
	const bad, good = 1, 2
	rows := map[dataflow.PipelineUID][]change{}
	for _, uid := range []dataflow.PipelineUID{bad, good} {
		rows[uid] = largeTable(t, r, uid, 1, 1)
		if _, err := r.Merge(t.Context(), uid, 1); err != nil {
			t.Fatal(err)
		}
	}
	closeTest(t, r)
	flip(t, fs, largestTable(t, fs), 8*150_000)

	log := watched{quiet().Handler(), "not compacted", make(chan struct{}, 100)}
	r, err := OpenReplica(Config{FS: fs, Dir: testDir, Shard: testShard, Logger: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeTest(t, r)
	for uid := range rows {
		base, _ := r.Base(uid)
		if err := r.Publish(commitOf(uid, 1, base.Ref, base.Digest)); err != nil {
			t.Fatal(err)
		}
	}
	damaged := map[dataflow.PipelineUID]int{bad: corruptLookups(t, r, bad, 1, rows[bad]), good: corruptLookups(t, r, good, 1, rows[good])}
	if damaged[bad]+damaged[good] == 0 || damaged[bad] > 100 || damaged[good] > 100 || damaged[bad]*damaged[good] > 0 {
		t.Fatalf("CORRUPT: %v rows", damaged)
	}
	seq := dataflow.DeltaSeq(1)
	for len(log.came) == 0 && seq < 1000 {
		seq++
		for uid := range rows {
			largeTable(t, r, uid, seq, 2999) // the first key and the last: it overlaps all
			if _, err := r.Merge(t.Context(), uid, dataflow.CheckpointID(seq)); err != nil && dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
				t.Fatal(err)
			}
		}
	}
	for range 20 { // Pebble looks for compactions after each
		seq++
		largeTable(t, r, good, seq, 2999)
		if _, err := r.Merge(t.Context(), good, dataflow.CheckpointID(seq)); err != nil && dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
			t.Fatal(err)
		}
	}
	if n := len(log.came); n != 1 {
		t.Errorf("%d times it was said that compactions end", n)
	}
	if err := r.Err(); err != nil {
		t.Errorf("the store has failed: %v", err)
	}
}

// largestTable returns the path of the largest SST.
func largestTable(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List(testDir + "/db")
	if err != nil {
		t.Fatal(err)
	}
	var path string
	var size int64
	for _, name := range names {
		info, err := fs.Stat(testDir + "/db/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".sst") && info.Size() > size {
			path, size = testDir+"/db/"+name, info.Size()
		}
	}
	return path
}

// TestAMissingFileOfTheStoreIsCorruptAtOpen: without the marker of its manifest, Pebble would take the directory for an
// empty one.
func TestAMissingFileOfTheStoreIsCorruptAtOpen(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"MANIFEST-", "marker.manifest", ".sst"} {
		fs := mergedStore(t)
		names, err := fs.List(testDir + "/db")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.Contains(name, part) {
				if err := fs.Remove(testDir + "/db/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}
		_, err = OpenReplica(Config{FS: fs, Dir: testDir, Shard: testShard, Logger: quiet()})
		wantReason(t, err, dataflow.ReasonCorrupt)
		if !strings.Contains(err.Error(), testDir+"/db") {
			t.Errorf("without %s: %v", part, err)
		}
	}
}

func TestAFileOfTheStoreThatWasCutShortIsCorruptAtOpen(t *testing.T) {
	t.Parallel()
	fs := mergedStore(t)
	path := largestTable(t, fs)
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fs, path, b[:len(b)/2]); err != nil {
		t.Fatal(err)
	}
	_, err = OpenReplica(Config{FS: fs, Dir: testDir, Shard: testShard, Logger: quiet()})
	wantReason(t, err, dataflow.ReasonCorrupt)
}

// TestCompactionsBeginByThemselves, one after another: the scheduler is Pebble's own without a part of it, by a constructor
// that Pebble has for its tests.
func TestCompactionsBeginByThemselves(t *testing.T) {
	t.Parallel()
	cfg := Config{FS: vfs.NewCrashableMem(), Dir: testDir, Logger: quiet()}
	opts := storeOptions(&cfg, newFailure(cfg.Logger))
	opts.L0StopWritesThreshold = 1000 // writes do not wait for compactions
	compacted := make(chan struct{}, 1000)
	opts.EventListener.CompactionEnd = func(info pebble.CompactionInfo) {
		if len(info.Input) > 0 && info.Reason != "move" { // a file that only moves is not compacted
			compacted <- struct{}{}
		}
	}
	db, err := pebble.Open(testDir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, n := 0, 0; n < 3; i++ {
		for _, key := range []string{"a", "m", "z"} { // all files overlap
			if err := db.Set([]byte(key), []byte{byte(i)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		if i%100 < 99 {
			continue
		}
		select {
		case <-compacted:
			n++
		case <-time.After(30 * time.Second):
			t.Fatalf("%d compactions of %d files", n, i+1)
		}
	}
}
