package shard_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/shard"
)

// untilSegments waits until the store has at most so many segment files.
func (h *host) untilSegments(most int) {
	h.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := testCtx(h.t); h.store.Stats().Segments > most; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			h.t.Fatalf("%d segment files, want %d", h.store.Stats().Segments, most)
		}
	}
}

// TestAQuietShardGivesBackWhatItDropped: no snapshot is due by its bytes, and none ever will be.
func TestAQuietShardGivesBackWhatItDropped(t *testing.T) {
	t.Parallel()
	quiet := func(c *shard.Config) { c.SnapshotBytes, c.LookEvery, c.CacheBytes = 1<<30, time.Millisecond, -1 }
	rows := strings.Repeat("x", 10_000)
	for name, drop := range map[string]func(h *host){
		"stream":   func(h *host) { h.must(h.log.DropStream(testCtx(h.t), 1)) },
		"trim":     func(h *host) { h.must(h.log.TrimStream(testCtx(h.t), 1, 199, shard.TrimAge, 1<<32)) },
		"pipeline": func(h *host) { h.must(h.log.DropPipeline(testCtx(h.t), 1)) },
		"settled":  func(h *host) { h.must(h.log.Settle(testCtx(h.t), 1, dataflow.DeltaRef{Incarnation: 1, Seq: 1})) },
		"never committed": func(h *host) {
			h.must(h.log.BeginIncarnation(testCtx(h.t), 1, 2, dataflow.DeltaRef{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, vfs.NewCrashableMem(), quiet)
			h.append(2, "stays", 1)
			h.must(h.log.BeginIncarnation(testCtx(t), 1, 1, dataflow.DeltaRef{}))
			if name == "stream" || name == "trim" {
				for range 200 { // 2 MB in files of 64 KiB
					h.append(1, rows, 1)
				}
			} else {
				chunks := make([]string, 200)
				for i := range chunks {
					chunks[i] = rows
				}
				h.delta("1/1.1", chunks...)
			}
			if n := h.store.Stats().Segments; n < 30 {
				t.Fatalf("%d segment files are too few for this test", n)
			}
			drop(h)
			h.untilSegments(3) // the first, which has the row that stays, and the newest
			h = h.crash(quiet)
			h.wantRows(2, 0, "0+1:stays")
		})
	}
}

// TestAStartGivesBackWhatWasDroppedBefore: nothing is dropped any more, and a second shard has nothing but what its
// elections wrote, in a file that the first has filled.
func TestAStartGivesBackWhatWasDroppedBefore(t *testing.T) {
	t.Parallel()
	never := func(c *shard.Config) { c.SnapshotBytes, c.LookEvery = 1<<30, time.Hour }
	h := open(t, vfs.NewCrashableMem(), never)
	second := func(look time.Duration) *shard.Log {
		g, err := h.store.Group("shard-4")
		h.must(err)
		l, err := shard.Open(shard.Config{Shard: 4, Store: g, Replica: newRecorder(), SnapshotBytes: 1 << 30, LookEvery: look,
			Raft: raftlog.Config{NodeID: "n1", FS: h.fs, Dir: "node/shard-4", ElectionTimeout: 20 * time.Millisecond}})
		h.must(err)
		h.must(l.WaitLeader(testCtx(t)))
		return l
	}
	other := second(time.Hour)
	for range 100 {
		h.append(1, strings.Repeat("x", 10_000), 1)
	}
	h.must(h.log.DropStream(testCtx(t), 1))
	h.must(other.Close())
	h = h.reopen(func(c *shard.Config) { c.SnapshotBytes, c.LookEvery = 1<<30, time.Millisecond })
	other = second(time.Millisecond)
	h.untilSegments(2)
	h.must(other.Close())
}

// TestAQuietShardWithNothingToGiveBackWritesNothing drops streams without rows, each of which has it look, and waits for the
// look: what one writes stands in the log before the next drop.
func TestAQuietShardWithNothingToGiveBackWritesNothing(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.SnapshotBytes, c.LookEvery = 1<<30, time.Millisecond })
	ctx := testCtx(t)
	wait := func(c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-ctx.Done():
			t.Fatal("no look")
		}
	}
	for range 50 {
		h.append(1, strings.Repeat("x", 10_000), 1)
	}
	h.must(h.log.TrimStream(ctx, 1, 10, shard.TrimAge, 1<<32)) // one file
	<-h.entries.retained
	<-h.entries.retained
	h.entries.upToDate.Store(true) // from here on, only a drop makes it look
	h.must(h.log.Barrier(ctx))
	h.must(h.log.DropStream(ctx, 100))
	wait(h.entries.looked)
	for len(h.entries.looked) > 0 {
		<-h.entries.looked
	}
	before := uint64(0)
	const drops = 20
	for i := range dataflow.StreamID(drops + 1) {
		h.must(h.log.DropStream(ctx, 101+i))
		wait(h.entries.looked)
		if i == 0 {
			var err error
			before, err = h.entries.LastIndex()
			h.must(err)
		}
	}
	if now, err := h.entries.LastIndex(); err != nil || now != before+drops {
		t.Errorf("the log went on from %d to %d, %v, with %d drops", before, now, err, drops)
	}
}

// TestADropIsLookedAtAgainWhenTheLogCouldNotBeAsked: nothing else would make the shard look.
func TestADropIsLookedAtAgainWhenTheLogCouldNotBeAsked(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.SnapshotBytes, c.LookEvery, c.CacheBytes = 1<<30, time.Millisecond, -1 })
	h.entries.upToDate.Store(true)
	for range 100 {
		h.append(1, strings.Repeat("x", 10_000), 1)
	}
	var failed atomic.Bool
	h.entries.beforeLast(func() error {
		if failed.Swap(true) {
			return nil
		}
		return errors.New("the disk is slow")
	})
	h.must(h.log.DropStream(testCtx(t), 1))
	h.untilSegments(3)
	if !failed.Load() {
		t.Error("the log was never asked")
	}
}
