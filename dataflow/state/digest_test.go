package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pace"
	"github.com/weirdb/weir/internal/vfs"
)

// digestOf is what Digest must be of a state.
func digestOf(state rows) (d Digest) {
	type kv struct {
		stage    int
		key, val string
	}
	var all []kv
	for k, v := range state {
		stage, key, _ := strings.Cut(k, "/")
		n, err := strconv.Atoi(stage)
		if err != nil {
			panic(err)
		}
		all = append(all, kv{n, key, v})
	}
	slices.SortFunc(all, func(a, b kv) int {
		if a.stage != b.stage {
			return a.stage - b.stage
		}
		return strings.Compare(a.key, b.key)
	})
	var text []byte
	for _, e := range all {
		for _, n := range []int{e.stage, len(e.key), len(e.val)} {
			text = binary.LittleEndian.AppendUint32(text, uint32(n))
		}
		text = append(append(text, e.key...), e.val...)
		d.Entries++
		d.Bytes += int64(len(e.key) + len(e.val))
	}
	d.Sum = xxhash.Sum64(text)
	return d
}

func TestADigestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	var changes []change
	for i := range 3000 {
		changes = append(changes, change{0, fmt.Sprint("key", i), []byte("v")})
	}
	digest := feed(t, r, id(ref(1, 1)), changes)
	if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Digest(ctx, uid, 1, pace.NewLimiter(1<<30)); !errors.Is(err, context.Canceled) {
		t.Fatalf("digest after its context: %v", err)
	}
	if _, err := r.Digest(context.Background(), uid, 2, nil); dataflow.ReasonOf(err) != dataflow.ReasonNoCommittedCheckpoint {
		t.Fatalf("digest of a cut that is not here: %v", err)
	}
	got, err := r.Digest(context.Background(), uid, 1, pace.NewLimiter(1<<30))
	if err != nil || got.Entries != 3000 {
		t.Fatalf("%s, %v", got, err)
	}
}

func TestADamagedCopyIsFound(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	r := openTest(t, mem)
	defer closeTest(t, r)
	ctx := context.Background()
	digest := feed(t, r, id(ref(1, 1)), []change{{0, testKey(1), []byte(strings.Repeat("a", 5000))}, {0, testKey(2), []byte("b")}})
	if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Merge(ctx, uid, 1); err != nil {
		t.Fatal(err)
	}
	cfg := Config{FS: mem, Dir: "copy", Shard: testShard, Logger: quiet()}
	held, err := r.CopyTo(ctx, cfg.Dir)
	if err != nil || held[uid] != ref(1, 1) {
		t.Fatalf("%v, %v", held, err)
	}
	if _, err := r.CopyTo(ctx, cfg.Dir); err == nil {
		t.Error("a copy over another")
	}
	if _, err := CheckCopy(ctx, cfg, true, pace.NewLimiter(1<<30)); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.Shard++
	if _, err := CheckCopy(ctx, other, false, nil); err == nil {
		t.Error("the copy of another shard")
	}
	names, err := mem.List("copy/db")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasSuffix(n, ".sst") {
			continue
		}
		data, err := vfs.ReadFile(mem, "copy/db/"+n)
		if err != nil {
			t.Fatal(err)
		}
		data[20] ^= 1
		if err := vfs.WriteFile(mem, "copy/db/"+n, data); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := CheckCopy(ctx, cfg, true, nil); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
		t.Fatalf("a damaged copy: %v", err)
	}
	// The replica's own files are others: WriteFile has put a new one in the place of the link.
	if _, err := r.Digest(ctx, uid, 1, nil); err != nil {
		t.Fatal(err)
	}
}
