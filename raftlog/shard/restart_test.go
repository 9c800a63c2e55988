package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/shard"
)

func TestARestartGoesOnFromSnapshotAndLog(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*host) *host{
		"close": func(h *host) *host { return h.reopen(nil) },
		"crash": func(h *host) *host { return h.crash(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, vfs.NewCrashableMem(), nil)
			ctx := testCtx(t)
			p := shard.Append{Stream: 1, Rows: []byte("one"), Count: 3, Producer: "p", Epoch: 1, First: 1}
			_, err := h.log.OpenProducer(ctx, 1, "p", 1)
			h.must(err)
			first, err := h.log.Append(ctx, p)
			h.must(err)
			h.append(1, "two", 2)
			h = again(h) // The log alone.
			h.wantRows(1, 0, "0+3:one", "3+2:two")

			h.must(h.log.Snapshot(ctx))
			h.append(1, "three", 4)
			h = again(h) // Snapshot and log.
			h.wantRows(1, 0, "0+3:one", "3+2:two", "5+4:three")
			dup, err := h.log.Append(ctx, p)
			h.must(err)
			if !dup.Duplicate || dup.First != first.First || dup.Next != first.Next || dup.AppendTime != first.AppendTime {
				t.Errorf("after the restart %+v, before %+v", dup, first)
			}

			h.must(h.log.Snapshot(ctx))
			h = again(h) // The snapshot alone.
			h.append(1, "four", 1)
			h.wantRows(1, 0, "0+3:one", "3+2:two", "5+4:three", "9+1:four")
		})
	}
}

func TestSnapshotsAreTakenByLogBytes(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.SnapshotBytes = 8 << 10 })
	data := strings.Repeat("x", 1000)
	for range 8 {
		h.append(1, data, 1)
	}
	select {
	case f := <-h.entries.retained:
		t.Fatalf("a snapshot before its time; floor %d", f)
	default:
	}
	h.append(1, data, 1)
	select {
	case <-h.entries.retained:
	case <-testCtx(t).Done():
		t.Fatal("no snapshot")
	}
	info, r, err := raftlog.NewestSnapshot(h.fs, "node/shard-3")
	h.must(err)
	h.must(r.Close())
	if info.Size > 1000 {
		t.Errorf("the snapshot has %d bytes: are there rows in it?", info.Size)
	}
}

// TestRowsStayReadableAfterRaftDeletedThem: the log is cut behind a snapshot, and yet its files are the streams' storage.
func TestRowsStayReadableAfterRaftDeletedThem(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.CacheBytes = -1 })
	ctx := testCtx(t)
	data := strings.Repeat("x", 1000)
	var want []string
	for i := range 400 { // Several segments, and more entries than are kept behind a snapshot.
		h.append(1, data, 1)
		want = append(want, fmt.Sprintf("%d+1:%s", i, data))
	}
	h.must(h.log.Snapshot(ctx))
	if first, err := h.entries.FirstIndex(); err != nil || first < 100 {
		t.Fatalf("Raft's log still begins at %d, %v", first, err)
	}
	h.wantRows(1, 0, want...)
	h = h.crash(func(c *shard.Config) { c.CacheBytes = -1 })
	h.wantRows(1, 0, want...)

	// What is trimmed is let go two snapshots later, because two are kept.
	h.must(h.log.TrimStream(ctx, 1, 300, shard.TrimSize, 1<<32))
	_, err := h.log.Read(1, 299, 1)
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Reason != dataflow.ReasonPositionsExpired || e.Metadata["start"] != "300" {
		t.Errorf("read what was trimmed: %v", err)
	}
	h.wantRows(1, 300, want[300:]...)
	if trim := h.log.LastTrim(1); trim.To != 300 || trim.Reason != shard.TrimSize {
		t.Errorf("last trim: %+v", trim)
	}
	h.must(h.log.Snapshot(ctx))
	low := <-h.entries.retained
	h.append(1, "new", 1)
	h.must(h.log.Snapshot(ctx))
	high := <-h.entries.retained
	if low > 10 || high < 300 {
		t.Errorf("the floors after the trim are %d, then %d", low, high)
	}
	h = h.crash(func(c *shard.Config) { c.CacheBytes = -1 })
	h.wantRows(1, 300, append(slices.Clone(want[300:]), "400+1:new")...)
}

// TestAReadThatMeetsTheTrimSaysSo: rows may be trimmed and freed between the look-up and the read.
func TestAReadThatMeetsTheTrimSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.CacheBytes = -1 })
	h.append(1, "a", 1)
	h.append(1, "b", 1)
	h.entries.before(func(dataflow.LogIndex) error { return errDisk })
	if _, err := h.log.Read(1, 0, 10); !errors.Is(err, errDisk) {
		t.Errorf("rows that cannot be read: %v", err)
	}
	h.entries.before(func(dataflow.LogIndex) error {
		h.must(h.log.TrimStream(testCtx(t), 1, 1, shard.TrimAge, 1<<32))
		return errDisk
	})
	if _, err := h.log.Read(1, 0, 10); dataflow.ReasonOf(err) != dataflow.ReasonPositionsExpired {
		t.Errorf("rows that went in between: %v", err)
	}
}

func TestUnsettledDeltasAreFedAgainInLogOrder(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), nil)
	ctx := testCtx(t)
	h.must(h.log.BeginIncarnation(ctx, 1, 1, dataflow.DeltaRef{}))
	h.delta("1/1.1", "a", "b")
	h.must(h.log.BeginIncarnation(ctx, 2, 1, dataflow.DeltaRef{}))
	h.delta("1/1.2", "c")
	h.delta("2/1.1", "d")
	h.delta("1/1.3", "e")
	h.must(h.log.Settle(ctx, 1, dataflow.DeltaRef{Incarnation: 1, Seq: 1}))
	h.must(h.log.BeginIncarnation(ctx, 1, 2, dataflow.DeltaRef{Incarnation: 1, Seq: 2}))
	h.must(h.log.AppendDelta(ctx, deltaID("1/2.1"), 0, []byte("f")))
	h.must(h.log.BeginIncarnation(ctx, 3, 1, dataflow.DeltaRef{}))
	h.delta("3/1.1", "g")
	h.must(h.log.DropPipeline(ctx, 3))
	for range 300 { // So that Raft lets go of all of it.
		h.append(1, "x", 1)
	}
	h.must(h.log.Snapshot(ctx))
	if err := h.log.AppendDelta(ctx, deltaID("1/2.1"), 1, []byte("h")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"2 begins 1 from 0.0",
		"1/1.2#0=c", "1/1.2 end 1",
		"2/1.1#0=d", "2/1.1 end 1",
		"1 settled to 1.1",
		"1 begins 2 from 1.2",
		"1/2.1#0=f",
		"3 dropped",
		"1/2.1#1=h", // From the log.
	}
	h = h.reopen(nil)
	// Where a pipeline was dropped is not remembered, so that comes last.
	h.replica.want(t, want...)
	// A second restart tells the same.
	h = h.crash(nil)
	h.replica.want(t, want...)
	// The delta goes on where it was.
	index, err := h.log.EndDelta(ctx, deltaID("1/2.1"), 2, uint64(dataflow.DeltaDigest(0).Add([]byte("f")).Add([]byte("h"))))
	h.must(err)
	if index != h.log.AppliedIndex() {
		t.Errorf("ended at %d, applied %d", index, h.log.AppliedIndex())
	}
}

func TestOpenRefusesALogWithoutWhatItsSnapshotRefersTo(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), nil)
	ctx := testCtx(t)
	h.must(h.log.BeginIncarnation(ctx, 1, 1, dataflow.DeltaRef{}))
	h.delta("1/1.1", "a")
	h.must(h.log.Snapshot(ctx))
	h.close()
	_, err := shard.Open(shard.Config{
		Store: &watchedStore{Store: h.entries.Store, onEntry: func(dataflow.LogIndex) error { return errDisk }}, Replica: newRecorder(),
		Raft: raftlog.Config{NodeID: "n1", FS: h.fs, Dir: "node/shard-3"},
	})
	if !errors.Is(err, errDisk) {
		t.Errorf("open: %v", err)
	}
}

// TestAckedRowsSurviveCrashesOnce: producers send, each batch until it is acknowledged, while the disk is cut off at
// random moments with unsynced data lost in part, and snapshots and trims go on. Every row that was acknowledged is
// there, once, in its producer's order (G5).
func TestAckedRowsSurviveCrashesOnce(t *testing.T) {
	t.Parallel()
	const producers, rounds = 3, 6
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.SnapshotBytes = 20 << 10 })
	acked := make([]int, producers) // rows per producer
	for p := range producers {
		_, err := h.log.OpenProducer(testCtx(t), 1, fmt.Sprint("p", p), 1)
		h.must(err)
	}
	for round := range rounds {
		var wg sync.WaitGroup
		cut := make(chan *vfs.MemFS, 1)
		stop := 20 + rnd.IntN(60)
		counts := make([]int, producers) // acknowledged on the disk that survives
		var mu sync.Mutex
		sent := 0
		for p := range producers {
			wg.Go(func() {
				for next := acked[p]; ; {
					a := shard.Append{
						Stream: 1, Rows: fmt.Appendf(nil, "%d:%d,%d", p, next, next+1), Count: 2,
						Producer: fmt.Sprint("p", p), Epoch: dataflow.ProducerEpoch(round + 1), First: dataflow.Seq(next + 1),
					}
					got, err := h.log.Append(testCtx(t), a)
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
					next = int(got.LastSeq)
					mu.Lock()
					if sent++; sent == stop {
						cut <- h.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(seed, uint64(round)))})
					}
					over := sent >= stop
					if !over || sent == stop {
						counts[p] = next
					}
					mu.Unlock()
					if over {
						return
					}
				}
			})
		}
		wg.Wait()
		left := <-cut
		h.close()
		h = open(t, left, func(c *shard.Config) { c.SnapshotBytes = 20 << 10; c.CacheBytes = -1 })
		next := make([]int, producers)
		for _, r := range h.rows(1, 0) {
			var first, count, p, a, b int
			if _, err := fmt.Sscanf(r, "%d+%d:%d:%d,%d", &first, &count, &p, &a, &b); err != nil {
				t.Fatalf("%q: %v", r, err)
			}
			if a != next[p] || b != a+1 {
				t.Fatalf("producer %d: row %d comes where %d should", p, a, next[p])
			}
			next[p] += 2
		}
		for p := range producers {
			if next[p] < counts[p] {
				t.Fatalf("producer %d: %d rows acknowledged, %d left", p, counts[p], next[p])
			}
			last, err := h.log.OpenProducer(testCtx(t), 1, fmt.Sprint("p", p), dataflow.ProducerEpoch(round+2))
			h.must(err)
			if int(last) != next[p] {
				t.Fatalf("producer %d: last %d, but %d rows", p, last, next[p])
			}
			acked[p] = next[p]
		}
	}
}
