package shard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/shard"
)

func TestAppendedRowsAreReadBackFromMemoryAndDisk(t *testing.T) {
	t.Parallel()
	for name, cache := range map[string]int64{"memory": 0, "disk": -1, "both": 6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.CacheBytes = cache })
			h.append(1, "aaa", 3)
			h.append(2, "other", 1)
			h.append(1, "bb", 2)
			h.append(1, "c", 1)
			h.wantRows(1, 0, "0+3:aaa", "3+2:bb", "5+1:c")
			h.wantRows(1, 4, "3+2:bb", "5+1:c")
			h.wantRows(1, 6)
			h.wantRows(1, 60)
			h.wantRows(7, 0)
			if start, end, bytes := h.log.Range(1); start != 0 || end != 6 || bytes != 6 {
				t.Errorf("range [%d,%d) of %d bytes", start, end, bytes)
			}
		})
	}
}

func TestReadEndsAfterAsManyRowsAsAskedFor(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), nil)
	for range 10 {
		h.append(1, "xx", 2)
	}
	for _, tc := range []struct {
		from    dataflow.Offset
		maxRows int
		batches int
	}{{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {1, 2, 2}, {0, 0, 1}, {18, 100, 1}, {20, 100, 0}, {0, 100, 10}} {
		rows, err := h.log.Read(1, tc.from, tc.maxRows)
		if err != nil || len(rows) != tc.batches {
			t.Errorf("from %d at most %d rows: %d batches, %v; want %d", tc.from, tc.maxRows, len(rows), err, tc.batches)
		}
	}
}

func TestWhoeverFetchedChangedBeforeReadingMissesNothing(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), nil)
	done := make(chan error, 1)
	go func() {
		for next := dataflow.Offset(0); next < 200; {
			changed := h.log.Changed()
			rows, err := h.log.Read(1, next, 10)
			if err != nil {
				done <- err
				return
			}
			for _, r := range rows {
				next = r.First + dataflow.Offset(r.Count)
			}
			if len(rows) == 0 {
				<-changed
			}
		}
		done <- nil
	}()
	for range 100 {
		h.append(1, "xx", 2)
	}
	select {
	case err := <-done:
		h.must(err)
	case <-testCtx(t).Done():
		t.Fatal("the reader was not woken")
	}
}

func TestSubmittedBatchesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), nil)
	_, err := h.log.OpenProducer(testCtx(t), 1, "p", 1)
	h.must(err)
	var pending []*shard.Pending
	for i := range 50 {
		p, err := h.log.Submit(shard.Append{Stream: 1, Rows: []byte("xx"), Count: 2, Producer: "p", Epoch: 1, First: dataflow.Seq(1 + 2*i)})
		h.must(err)
		pending = append(pending, p)
	}
	for i, p := range pending {
		a, err := p.Wait(testCtx(t))
		if err != nil || a.First != dataflow.Offset(2*i) || a.LastSeq != dataflow.Seq(2*i+2) || a.Duplicate {
			t.Fatalf("batch %d: %+v, %v", i, a, err)
		}
	}
}

func TestProposalsThatCannotBeAppliedAreNotProposed(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), nil)
	ctx := testCtx(t)
	long := strings.Repeat("x", 2000)
	for name, a := range map[string]shard.Append{
		"no rows":             {Stream: 1},
		"producer and key":    {Stream: 1, Count: 1, Producer: "p", Epoch: 1, First: 1, IdempotencyKey: "k"},
		"epoch alone":         {Stream: 1, Count: 1, Epoch: 1},
		"row 0":               {Stream: 1, Count: 1, Producer: "p", Epoch: 1},
		"far row":             {Stream: 1, Count: 1, Producer: "p", Epoch: 1, First: 1 << 63},
		"no epoch":            {Stream: 1, Count: 1, Producer: "p", First: 1},
		"long name":           {Stream: 1, Count: 1, Producer: long, Epoch: 1, First: 1},
		"long key":            {Stream: 1, Count: 1, IdempotencyKey: long},
		"more than one entry": {Stream: 1, Count: 1, Rows: make([]byte, 2<<20)},
	} {
		_, err := h.log.Append(ctx, a)
		if r := dataflow.ReasonOf(err); r != dataflow.ReasonRequestInvalid && r != dataflow.ReasonTooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := h.log.AppendDelta(ctx, deltaID("1/1.1"), -1, nil); dataflow.ReasonOf(err) != dataflow.ReasonInternal {
		t.Errorf("chunk -1: %v", err)
	}
	if err := h.log.AppendDelta(ctx, deltaID("1/1.1"), 0, make([]byte, dataflow.MaxDeltaChunkEntry+1)); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Errorf("large chunk: %v", err)
	}
	if _, err := h.log.OpenProducer(ctx, 1, "", 1); dataflow.ReasonOf(err) != dataflow.ReasonRequestInvalid {
		t.Errorf("producer without a name: %v", err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := h.log.Append(over, shard.Append{Stream: 1, Count: 1}); dataflow.ReasonOf(err) != dataflow.ReasonDeadline {
		t.Errorf("after the deadline: %v", err)
	}
	h.append(1, "fine", 1)
	h.wantRows(1, 0, "0+1:fine")
}

func TestAFullQueueIsOverloaded(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.Raft.MaxPending = 2 })
	ctx := testCtx(t)
	h.must(h.log.BeginIncarnation(ctx, 1, 1, dataflow.DeltaRef{}))
	h.replica.mu.Lock()
	h.replica.gate = make(chan struct{})
	h.replica.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- h.log.AppendDelta(ctx, deltaID("1/1.1"), 0, []byte("x")) }()
	<-h.replica.begun // The apply goroutine is held up.
	p, err := h.log.Submit(shard.Append{Stream: 1, Count: 1})
	h.must(err)
	_, err = h.log.Append(ctx, shard.Append{Stream: 1, Count: 1})
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Reason != dataflow.ReasonOverloaded || e.RetryAfter == 0 {
		t.Errorf("third command: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := p.Wait(short); dataflow.ReasonOf(err) != dataflow.ReasonOutcomeUnknown {
		t.Errorf("second command after its deadline: %v", err)
	}
	close(h.replica.gate)
	h.must(<-done)
	if a, err := p.Wait(ctx); err != nil || a.Next != 1 {
		t.Errorf("second command: %+v, %v", a, err)
	}
}

func TestOldSendersAreForgottenWhileTheLogLeads(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	clock.Store(1_000_000)
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) {
		c.Now = clock.Load
		c.ExpireEvery = time.Millisecond
		c.KeyTTL, c.ProducerTTL = time.Minute, time.Hour
	})
	ctx := testCtx(t)
	// pass lets time go by until the log has proposed to forget something, which is then the only new entry.
	pass := func(d time.Duration) {
		before := h.log.AppliedIndex()
		clock.Add(d.Microseconds())
		for {
			changed := h.log.Changed()
			if h.log.AppliedIndex() > before {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatal("nothing is forgotten")
			}
		}
	}
	key := shard.Append{Stream: 1, Rows: []byte("a"), Count: 1, IdempotencyKey: "k"}
	sender := shard.Append{Stream: 1, Rows: []byte("b"), Count: 2, Producer: "p", Epoch: 1, First: 1}
	duplicate := func(a shard.Append) bool {
		got, err := h.log.Append(ctx, a)
		h.must(err)
		return got.Duplicate
	}
	open := func() {
		_, err := h.log.OpenProducer(ctx, 1, "p", 1)
		h.must(err)
	}
	open()
	if duplicate(key) || duplicate(sender) || !duplicate(key) || !duplicate(sender) {
		t.Fatal("a sender is not remembered, or one that was never here is")
	}
	pass(2 * time.Minute)
	if duplicate(key) {
		t.Error("the key is not forgotten")
	}
	if !duplicate(sender) {
		t.Error("the producer was forgotten with the key")
	}
	pass(2 * time.Hour) // The key, and the producer in the same entry.
	if _, err := h.log.Append(ctx, sender); dataflow.ReasonOf(err) != dataflow.ReasonUnknownProducer {
		t.Errorf("a forgotten producer sends: %v", err)
	}
	if open(); duplicate(sender) {
		t.Error("the producer is not forgotten")
	}
	h.must(h.log.ExpireProducers(ctx, clock.Load()+1))
	sender.First = 3
	if _, err := h.log.Append(ctx, sender); dataflow.ReasonOf(err) != dataflow.ReasonUnknownProducer {
		t.Errorf("a forgotten producer goes on: %v", err)
	}
	if duplicate(key) {
		t.Error("the key is not forgotten the second time")
	}
	h.must(h.log.ExpireKeys(ctx, clock.Load()+1))
	if duplicate(key) {
		t.Error("the key is not forgotten when asked for")
	}
}

func TestAReplicaThatFailsStopsTheShard(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), nil)
	ctx := testCtx(t)
	h.must(h.log.BeginIncarnation(ctx, 1, 1, dataflow.DeltaRef{}))
	h.append(1, "before", 1)
	h.replica.failWith(errDisk)
	if err := h.log.AppendDelta(ctx, deltaID("1/1.1"), 0, []byte("x")); !errors.Is(err, errDisk) {
		t.Errorf("the proposer learns: %v", err)
	}
	if err := <-h.log.Failed(); !errors.Is(err, errDisk) {
		t.Errorf("the node learns: %v", err)
	}
	if _, open := <-h.log.Failed(); open {
		t.Error("Failed is not closed")
	}
	applied := h.log.AppliedIndex()
	if _, err := h.log.Append(ctx, shard.Append{Stream: 1, Rows: []byte("after"), Count: 1}); !errors.Is(err, errDisk) {
		t.Errorf("an append afterwards: %v", err)
	}
	if err := h.log.Snapshot(ctx); err == nil {
		t.Error("a snapshot was taken of a machine that its replica does not match")
	}
	if h.log.AppliedIndex() != applied {
		t.Error("something was applied")
	}
	h.wantRows(1, 0, "0+1:before")

	// After a restart with a sound replica, all that was committed is there.
	h = h.reopen(nil)
	h.replica.want(t, "1 begins 1 from 0.0", "1/1.1#0=x")
	h.wantRows(1, 0, "0+1:before", "1+1:after")
}

func TestAClosedLogSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), nil)
	h.append(1, "x", 1)
	h.close()
	_, err := h.log.Append(testCtx(t), shard.Append{Stream: 1, Count: 1})
	if r := dataflow.ReasonOf(err); r != dataflow.ReasonShuttingDown {
		t.Errorf("append after close: %v", err)
	}
}

func TestConfigNamesAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := shard.Open(shard.Config{MaxKeys: -1, KeyTTL: -1})
	for _, want := range []string{"Store", "Replica", "Raft.FS", "Raft.NodeID", "MaxKeys", "KeyTTL"} {
		if err == nil || !strings.Contains(err.Error(), "shard.Config."+want+":") {
			t.Errorf("%v says nothing of %s", err, want)
		}
	}
}

func TestTheLogReportsItself(t *testing.T) {
	t.Parallel()
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) { c.Now = func() int64 { return 77 } })
	ctx := testCtx(t)
	h.append(5, "x", 1)
	h.append(4, "x", 1)
	h.must(h.log.BeginIncarnation(ctx, 9, 3, dataflow.DeltaRef{Incarnation: 2}))
	h.delta("9/3.1", "x")
	if got := fmt.Sprint(h.log.Streams(), h.log.Pipelines()); got != "[4 5] [9]" {
		t.Errorf("streams and pipelines: %s", got)
	}
	p, ok := h.log.Pipeline(9)
	want := shard.PipelineStatus{Incarnation: 3, Base: dataflow.DeltaRef{Incarnation: 2}, Last: dataflow.DeltaRef{Incarnation: 3, Seq: 1}, Unsettled: 1}
	if !ok || p != want {
		t.Errorf("pipeline: %+v", p)
	}
	if h.log.LogTime() != 77 || !h.log.IsLeader() || h.log.Leader() != "n1" || h.log.Term() == 0 || h.log.AppliedIndex() == 0 {
		t.Errorf("time %d, leader %v %q, term %d, applied %d", h.log.LogTime(), h.log.IsLeader(), h.log.Leader(), h.log.Term(), h.log.AppliedIndex())
	}
}
