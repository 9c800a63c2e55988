package worker_test

import (
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/worker"
)

func lazy(c *worker.Config) { c.Merge = worker.MergePolicy{Every: time.Hour} }

func TestCutsArePublishedUntilNothingKeepsThem(t *testing.T) {
	h := open(t, lazy)
	p := h.deploy("p")
	h.must(h.start(p))
	h.append(0, "w")
	_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
	h.must(err)
	h.checkpoint(p, 1)
	lease, err := h.meta.Lease(t.Context(), p.UID, 1, time.Hour)
	h.must(err)
	for n := dataflow.CheckpointID(2); n <= 5; n++ {
		h.append(0, "w")
		_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
		h.must(err)
		h.checkpoint(p, n)
		for old := dataflow.CheckpointID(1); old <= n; old++ { // all are younger than what is kept anyway
			if got := h.count(p, old, "w"); got != int64(old) {
				t.Errorf("after cut %d, cut %d has %d", n, old, got)
			}
		}
	}
	expired := func(n dataflow.CheckpointID) bool {
		v, err := h.shards[0].Replica.View(p.UID, n)
		if err == nil {
			v.Release()
			return false
		}
		if got := dataflow.ReasonOf(err); got != dataflow.ReasonCheckpointExpired {
			t.Fatalf("cut %d: %v", n, err)
		}
		return true
	}
	h.pass(time.Minute) // two are retained, one is leased
	h.eventually("cuts 2 and 3 have gone", func() bool { return expired(2) && expired(3) })
	for n, want := range map[dataflow.CheckpointID]int64{1: 1, 4: 4, 5: 5} {
		if got := h.count(p, n, "w"); got != want {
			t.Errorf("cut %d has %d", n, got)
		}
	}
	h.must(h.meta.ReleaseLease(t.Context(), p.UID, lease.ID))
	h.eventually("cut 1 has gone", func() bool { return expired(1) })
}

func TestLayersAreFoldedUpToTheFloor(t *testing.T) {
	h := open(t)
	p := h.deploy("p")
	h.must(h.start(p))
	for n := dataflow.CheckpointID(1); n <= 4; n++ {
		h.append(0, "w")
		h.append(1, "x")
		_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
		h.must(err)
		h.checkpoint(p, n)
	}
	h.pass(time.Minute) // cuts 3 and 4 are retained
	h.eventually("every replica has folded up to cut 3", func() bool {
		for _, s := range h.shards {
			if base, ok := s.Replica.Base(p.UID); !ok || base.Checkpoint != 3 {
				return false
			}
		}
		return true
	})
	for n := dataflow.CheckpointID(3); n <= 4; n++ {
		if w, x := h.count(p, n, "w"), h.count(p, n, "x"); w != int64(n) || x != int64(n) {
			t.Errorf("cut %d has %d and %d", n, w, x)
		}
	}
}

func TestWhatIsDeletedIsDropped(t *testing.T) {
	h := open(t)
	never := h.deploy("never") // its tasks are never started: the shards' logs do not know it
	p := h.deploy("p")
	h.must(h.start(p))
	h.append(0, "w")
	_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
	h.must(err)
	h.checkpoint(p, 1)
	known := func() (n int) {
		for _, s := range h.shards {
			n += len(s.Replica.Stats().Pipelines)
		}
		return n
	}
	h.eventually("the replicas know both", func() bool { return known() == 2*shards })
	for _, name := range []string{"p", "never"} {
		_, err := h.meta.DeletePipeline(t.Context(), name)
		h.must(err)
	}
	h.eventually("the replicas know none", func() bool { return known() == 0 })
	for _, s := range h.shards {
		if got := s.Log.Pipelines(); len(got) != 0 {
			t.Errorf("the log of shard %d knows pipelines %v", s.ID, got)
		}
		if _, err := s.Replica.View(never.UID, 0); dataflow.ReasonOf(err) != dataflow.ReasonPipelineNotFound {
			t.Errorf("shard %d: %v", s.ID, err)
		}
	}
	h.worker.Stop(p.UID, 1)
	_, err = h.meta.DropStream(t.Context(), "words")
	h.must(err)
	h.eventually("the stream has gone", func() bool {
		for _, s := range h.shards {
			if len(s.Log.Streams()) > 0 {
				return false
			}
		}
		return true
	})
}

// A replica hears of a pipeline when its first cut is published or its log has a delta. One that is deleted before is never
// heard of.
func TestAViewOfAPipelineIsNotWaitedForOnceItIsDeleted(t *testing.T) {
	h := open(t)
	h.stop() // nothing is published
	p := h.deploy("p")
	answer := make(chan error)
	go func() {
		_, err := h.worker.View(t.Context(), 0, p.UID, 0)
		answer <- err
	}()
	_, err := h.meta.DeletePipeline(t.Context(), "p")
	h.must(err)
	if err := <-answer; dataflow.ReasonOf(err) != dataflow.ReasonPipelineNotFound {
		t.Error(err)
	}
}

// The worker's Run ends with an error when something durable has failed, which stops the node; a deletion is no failure.
func TestAPipelineDeletedDuringItsMergesDoesNotStopTheNode(t *testing.T) {
	h := open(t)
	for range 20 {
		p := h.deploy("p")
		h.must(h.start(p))
		h.append(0, "w", "x", "y", "z")
		_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
		h.must(err)
		for n := dataflow.CheckpointID(1); n <= 3; n++ {
			h.checkpoint(p, n)
		}
		h.pass(time.Minute)
		_, err = h.meta.DeletePipeline(t.Context(), "p")
		h.must(err)
		h.worker.Stop(p.UID, p.Incarnation)
	}
	h.stop() // fails the test when Run has failed
}
