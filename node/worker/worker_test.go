package worker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// rowsOf reads how many rows an accumulator has: its first eight bytes.
func rowsOf(acc []byte) int64 {
	if len(acc) < 8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(acc))
}

func TestAnIncarnationStartsFromItsBase(t *testing.T) {
	h := open(t)
	p := h.deploy("p")
	h.must(h.start(p))
	h.append(0, "whale", "sea")
	h.append(1, "whale")
	_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
	h.must(err)
	c := h.checkpoint(p, 1)
	if got := h.count(p, c.ID, "whale"); got != 2 {
		t.Errorf("committed %d", got)
	}
	h.append(1, "whale") // in no cut
	_, err = h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
	h.must(err)
	if got := h.live(p, "whale"); got != 3 {
		t.Errorf("live %d", got)
	}
	p = h.begin(p)
	h.worker.Stop(p.UID, 1)
	if h.worker.Live(p.UID) != nil {
		t.Error("a stopped run is live")
	}
	h.must(h.start(p))
	_, err = h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads)) // reads the row again
	h.must(err)
	if got := h.live(p, "whale"); got != 3 || h.worker.Live(p.UID).Incarnation != 2 {
		t.Errorf("live %d", got)
	}
	if keys, bytes := h.worker.Live(p.UID).Size(); keys != 2 || bytes == 0 {
		t.Errorf("%d keys of %d bytes", keys, bytes)
	}
}

func TestAFencedIncarnationNeverRuns(t *testing.T) {
	stale := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, meta.ErrStaleIncarnation) {
			t.Errorf("got %v", err)
		}
	}
	t.Run("an older one", func(t *testing.T) {
		h := open(t)
		one := h.deploy("p")
		two := h.begin(one)
		h.must(h.start(two))
		stale(t, h.start(one)) // a deposed leader still asks for it
		if got := h.worker.Live(one.UID).Incarnation; got != 2 {
			t.Errorf("i%d runs", got)
		}
	})
	t.Run("one that has run", func(t *testing.T) {
		h := open(t)
		p := h.deploy("p")
		h.must(h.start(p))
		stale(t, h.start(p))
		h.worker.Stop(p.UID, p.Incarnation)
		stale(t, h.start(p))
	})
	t.Run("one that was told to stop before it was started", func(t *testing.T) {
		h := open(t)
		p := h.deploy("p")
		h.worker.Stop(p.UID, p.Incarnation)
		stale(t, h.start(p))
		h.must(h.start(h.begin(p)))
	})
	t.Run("one of a deleted pipeline", func(t *testing.T) {
		h := open(t)
		p := h.deploy("p")
		_, err := h.meta.DeletePipeline(t.Context(), "p")
		h.must(err)
		stale(t, h.start(p))
	})
	t.Run("one that is told to stop while it is being started", func(t *testing.T) {
		h := open(t)
		p := h.deploy("p")
		missing := *p
		missing.Base = p.Base.Clone()
		missing.Base.ID = 1 // a cut that is not committed yet: the start waits for it
		started := make(chan error, 1)
		go func() { started <- h.start(&missing) }()
		h.eventually("the start is under way", func() bool {
			for _, s := range h.shards {
				if len(s.Log.Pipelines()) == 0 {
					return false
				}
			}
			return true
		})
		h.worker.Stop(p.UID, p.Incarnation)
		c := &dataflow.CheckpointCommit{Pipeline: p.UID, Incarnation: 1, ID: 1, Guarantee: dataflow.GuaranteeExactlyOnce, Shards: make([]dataflow.ShardCommit, shards)}
		for i := range c.Shards {
			c.Shards[i].Shard = dataflow.ShardID(i)
		}
		_, err := h.meta.CommitCheckpoint(t.Context(), c)
		h.must(err)
		stale(t, <-started)
		if h.worker.Live(p.UID) != nil {
			t.Error("it runs")
		}
	})
}

func TestAStartEndsWithItsContext(t *testing.T) {
	h := open(t)
	p := h.deploy("p")
	missing := *p
	missing.Base = p.Base.Clone()
	missing.Base.ID = 1
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() {
		started <- h.worker.Start(ctx, p.UID, p.Incarnation, missing.Base, func(coordinator.Event) {})
	}()
	cancel()
	if err := <-started; err == nil {
		t.Error("it started")
	}
	if h.worker.Live(p.UID) != nil {
		t.Error("it runs")
	}
}

func TestAFailedRowIsReportedAsPermanent(t *testing.T) {
	h := open(t)
	p := h.deploy("p")
	h.must(h.start(p))
	h.append(1, "fine", "") // 10 / 0
	ev, ok := h.event().(coordinator.TaskFailed)
	if !ok || !ev.Permanent || ev.Incarnation != 1 {
		t.Fatalf("reported %v", ev)
	}
	f := ev.Failure
	if f.Reason != dataflow.ReasonExpressionFailed || f.View != "counts" || f.Line != 2 || !f.HasRow ||
		f.Row != (dataflow.SourceRow{Stream: p.Reads[0], Shard: 1, Offset: 1}) || f.Rendered == "" {
		t.Errorf("failure %+v", f)
	}
	h.eventually("the run is no longer live", func() bool { return h.worker.Live(p.UID) == nil })
	p = h.begin(p)
	h.worker.Stop(p.UID, 1)
	_, err := h.meta.MarkFailed(t.Context(), p.UID, dataflow.PipelineFailure{Incarnation: 2, Reason: f.Reason})
	h.must(err)
	p, err = h.meta.Resume(t.Context(), p.UID, f.Row)
	h.must(err)
	h.must(h.start(h.begin(p)))
	_, err = h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
	h.must(err)
	if got := h.live(p, "fine"); got != 1 {
		t.Errorf("live %d", got)
	}
}

func TestReportsGoToWhoAttachedLast(t *testing.T) {
	h := open(t)
	p := h.deploy("p")
	if got, _ := h.worker.Attach(p.UID, func(coordinator.Event) {}); got != 0 {
		t.Errorf("i%d runs", got)
	}
	h.must(h.start(p))
	taken := make(chan coordinator.Event, shards)
	if got, _ := h.worker.Attach(p.UID, func(ev coordinator.Event) { taken <- ev }); got != 1 {
		t.Errorf("i%d runs", got)
	}
	h.worker.Inject(p.UID, 1, 1, false)
	for range shards {
		if ack, ok := (<-taken).(coordinator.Ack); !ok || ack.Checkpoint != 1 {
			t.Errorf("reported %v", ack)
		}
	}
	h.worker.Inject(p.UID, 2, 2, false) // another incarnation: not for these tasks
	select {
	case ev := <-h.events:
		t.Errorf("the last coordinator got %v", ev)
	default:
	}
}

func TestTasksWithAnotherOnErrorAreNotTakenOver(t *testing.T) {
	h := open(t)
	p := h.deploy("p")
	h.must(h.start(p))
	for _, c := range []struct {
		onError string
		want    dataflow.Incarnation
	}{{"fail", 1}, {"skip", 0}, {"fail", 1}} {
		_, err := h.meta.SetOptions(t.Context(), p.UID, []dataflow.Option{{Name: "on_error", Value: c.onError}})
		h.must(err)
		if got, _ := h.worker.Attach(p.UID, func(coordinator.Event) {}); got != c.want {
			t.Errorf("on_error = %s: i%d runs, want i%d", c.onError, got, c.want)
		}
	}
}

func TestPositionsOfALiveReadAreALowerBound(t *testing.T) {
	h := open(t)
	p := h.deploy("p")
	h.must(h.start(p))
	run := h.worker.Live(p.UID)
	if got := run.Covered(t.Context()); !got.Covers(p.Start) || len(got) != 0 {
		t.Errorf("at the start it covers %s", got)
	}
	for i := range 200 {
		h.append(dataflow.ShardID(i%shards), "w")
		covered := run.Covered(t.Context())
		var below int64
		for _, at := range covered {
			below += int64(at)
		}
		if got := h.live(p, "w"); got < below {
			t.Fatalf("the table has %d rows and claims to cover %s", got, covered)
		}
	}
	ends := h.worker.Ends(p.Reads)
	// Nobody asks for more than Covered: its markers tell by themselves that all has been taken.
	h.eventually("it covers everything", func() bool { return run.Covered(t.Context()).Covers(ends) })
	if got, err := run.Processed(t.Context(), ends); err != nil || !got.Covers(ends) {
		t.Errorf("%s %v", got, err)
	}
	h.worker.Stop(p.UID, 1)
	h.append(0, "w")
	if got := run.Covered(t.Context()); !got.Covers(ends) {
		t.Errorf("after its end it covers %s", got)
	}
	if _, err := run.Processed(t.Context(), h.worker.Ends(p.Reads)); err == nil {
		t.Error("a stopped run processes")
	}
}

func TestStoppingTheWorkerStopsItsRuns(t *testing.T) {
	h := open(t)
	p := h.deploy("p")
	h.must(h.start(p))
	run := h.worker.Live(p.UID)
	h.stop()
	select {
	case <-run.Run.Done():
	default:
		t.Error("the run goes on")
	}
	if h.worker.Live(p.UID) != nil {
		t.Error("the run is live")
	}
}

func TestAppendedTellsOfRows(t *testing.T) {
	h := open(t)
	h.deploy("p")
	appended := h.worker.Appended()
	h.append(1, "w")
	select {
	case <-appended:
	case <-time.After(30 * time.Second):
		t.Error("nobody was told")
	}
}

func TestRowsThatWereDroppedBeforeTheFirstCheckpoint(t *testing.T) {
	trimmed := func(why shard.TrimReason) (*host, *meta.Pipeline) {
		h := open(t)
		p := h.deploy("p")
		for range 3 {
			h.append(0, "w")
		}
		h.must(h.shards[0].Log.TrimStream(t.Context(), p.Reads[0], 2, why, 1<<32))
		h.must(h.start(p))
		return h, p
	}
	t.Run("while nobody held them are not missed", func(t *testing.T) {
		h, p := trimmed(shard.TrimAge)
		_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
		h.must(err)
		if got := h.live(p, "w"); got != 1 {
			t.Errorf("live %d", got)
		}
	})
	t.Run("although the pipeline held them fail it", func(t *testing.T) {
		h, _ := trimmed(shard.TrimGrace)
		if ev, ok := h.event().(coordinator.TaskFailed); !ok || !ev.Permanent || ev.Failure.Reason != dataflow.ReasonPositionsExpired {
			t.Errorf("reported %v", ev)
		}
	})
}
