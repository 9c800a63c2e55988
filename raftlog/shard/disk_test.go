package shard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/shard"
)

// TestAnIdlePipelineKeepsNoRowsOfOthers: its last deltas and one row of a stream that keeps rows for ever are read back,
// while 4 MB of another stream come and go, which once stayed for as long as those.
func TestAnIdlePipelineKeepsNoRowsOfOthers(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.CacheBytes = -1 })
	ctx := testCtx(t)
	h.append(2, "old", 1)
	h.must(h.log.BeginIncarnation(ctx, 1, 1, dataflow.DeltaRef{}))
	h.delta("1/1.1", "a", "b")
	data := strings.Repeat("x", 10_000)
	most := 0
	for round := range 8 {
		for range 50 {
			h.append(1, data, 1)
		}
		h.must(h.log.TrimStream(ctx, 1, dataflow.Offset(50*(round+1)-5), shard.TrimSize, 1<<32))
		h.must(h.log.Snapshot(ctx))
		if round >= 2 {
			most = max(most, h.store.Stats().Segments)
		}
	}
	// What came after the older snapshot, 0.5 MB in 64 KiB files, twice because it goes at the next one; and the old one.
	if most > 22 {
		t.Errorf("%d segment files", most)
	}
	h = h.crash(func(c *shard.Config) { c.CacheBytes = -1 })
	h.replica.want(t, "1 begins 1 from 0.0", "1/1.1#0=a", "1/1.1#1=b", "1/1.1 end 2")
	h.wantRows(2, 0, "0+1:old")
	h.wantRows(1, 399, fmt.Sprintf("399+1:%s", data))
}

// TestAShardInWhichLittleHappensLetsGoOfTheStore: its few entries lie in every file that the other shards fill.
func TestAShardInWhichLittleHappensLetsGoOfTheStore(t *testing.T) {
	t.Parallel()
	slow := func(c *shard.Config) { c.SnapshotBytes, c.LookEvery = 64<<10, time.Millisecond }
	h := open(t, vfs.NewCrashableMem(), slow)
	other, err := h.store.Group("shard-4")
	h.must(err)
	busy, err := shard.Open(shard.Config{Shard: 4, Store: other, Replica: newRecorder(), SnapshotBytes: 64 << 10,
		Raft: raftlog.Config{NodeID: "n1", FS: h.fs, Dir: "node/shard-4", ElectionTimeout: 20 * time.Millisecond}})
	h.must(err)
	defer busy.Close()
	ctx := testCtx(t)
	h.must(busy.WaitLeader(ctx))
	rows := []byte(strings.Repeat("x", 10_000))
	for i := range 1000 { // 150 files
		a, err := busy.Append(ctx, shard.Append{Stream: 1, Rows: rows, Count: 1})
		h.must(err)
		h.must(busy.TrimStream(ctx, 1, a.Next, shard.TrimSize, 1<<32))
		if i%6 == 0 {
			a := h.append(1, "rare", 1)
			h.must(h.log.TrimStream(ctx, 1, a.Next, shard.TrimSize, 1<<32))
		}
	}
	for h.store.Stats().Segments > 40 {
		select {
		case <-h.entries.retained:
		case <-ctx.Done():
			t.Fatalf("%d segment files", h.store.Stats().Segments)
		}
		_, err := busy.Append(ctx, shard.Append{Stream: 1, Rows: []byte("x"), Count: 1}) // the store cleans up
		h.must(err)
	}
}
