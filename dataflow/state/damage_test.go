package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

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
	noticed := 0
	for i, fs := range damaged(t, mergedStore(t), ".sst") {
		r, err := OpenReplica(Config{FS: fs, Dir: testDir, Shard: testShard, Logger: quiet()})
		if err != nil {
			noticed++
			continue
		}
		if err := checkMerged(t, r); err != nil {
			if reason := dataflow.ReasonOf(err); reason != dataflow.ReasonCorrupt && reason != dataflow.ReasonShuttingDown {
				t.Errorf("flip %d: %v", i, err)
			}
			noticed++
		}
		closeTest(t, r)
	}
	if noticed == 0 {
		t.Error("no flip was noticed")
	}
}
