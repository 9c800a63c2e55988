package worker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/meta"
)

// A merge can meet the deletion of its pipeline: the state that the loop looked at is a moment old.
func TestAMergeOfADroppedPipelineIsLeftAlone(t *testing.T) {
	now := int64(1)
	fsm := meta.NewFSM()
	log := meta.New(&memGroup{fsm: fsm}, fsm, func() int64 { return now })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	must(log.Bootstrap(ctx, "c", 1))
	p, _, err := log.CreatePipeline(ctx, meta.CreatePipeline{Name: "p", Fingerprint: "f", Options: []dataflow.Option{{Name: "checkpoint.retained", Value: "1"}}})
	must(err)
	_, _, err = log.ReserveAttempts(ctx, p.UID, 9, true)
	must(err)
	now += time.Hour.Microseconds()
	_, err = log.CommitCheckpoint(ctx, &dataflow.CheckpointCommit{Pipeline: p.UID, Incarnation: 1, ID: 1, Guarantee: dataflow.GuaranteeExactlyOnce, Shards: make([]dataflow.ShardCommit, 1)})
	must(err)
	now += time.Hour.Microseconds()
	must(log.Expire(ctx)) // the floor is cut 1
	quiet := slog.New(slog.DiscardHandler)
	replica, err := state.OpenReplica(state.Config{FS: vfs.NewCrashableMem(), Dir: "/state", Logger: quiet})
	must(err)
	defer func() { must(replica.Close()) }()
	s := &Shard{Replica: replica}
	pub := newPublisher(Config{Shards: []*Shard{s}, Meta: log, Logger: quiet, Merge: MergePolicy{Layers: 1}})
	merge := func() error {
		return pub.mergeIfDue(context.Background(), s, log.State().Pipelines[p.UID], foldable{Foldable: state.Foldable{Layers: 1}})
	}
	must(merge()) // the cut has not been published: next time
	must(replica.DropPipeline(1, p.UID))
	must(merge())
}

// A start fills its tables, and reads again what came behind its base, before anybody can say how late it is.
func TestAPipelineThatRecoversHasBetterToDoThanToFold(t *testing.T) {
	fsm := meta.NewFSM()
	log := meta.New(&memGroup{fsm: fsm}, fsm, func() int64 { return 1 })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(log.Bootstrap(t.Context(), "c", 1))
	p, _, err := log.CreatePipeline(t.Context(), meta.CreatePipeline{Name: "p", Fingerprint: "f"})
	must(err)
	w := New(Config{Meta: log, Logger: slog.New(slog.DiscardHandler)})
	if !w.busy(p.UID) {
		t.Error("it recovers, and is not busy")
	}
	_, err = log.MarkRunning(t.Context(), p.UID, 1)
	must(err)
	if w.busy(p.UID) {
		t.Error("it runs and has nothing to do, and is busy")
	}
}

// holds is layers in memory of some MiB, made of deltas of some MiB.
func holds(layers int, bytes, logged int64) foldable {
	return foldable{Foldable: state.Foldable{Layers: layers, Bytes: bytes << 20, Logged: logged << 20}}
}

func (f foldable) beside(store uint64) foldable {
	f.store = store << 20
	return f
}

func (f foldable) whileBusy() foldable {
	f.busy = true
	return f
}

func (f foldable) whenShort() foldable {
	f.short = true
	return f
}

func TestFoldsAreWorthTheCompactionsThatTheyCause(t *testing.T) {
	var m MergePolicy
	m.ensureDefaults()
	for _, c := range []struct {
		what string
		f    foldable
		age  time.Duration
		due  bool
	}{
		{what: "nothing to fold", f: holds(0, 0, 0), age: time.Hour},
		{what: "little", f: holds(10, 1, 1)},
		{what: "little, for long", f: holds(10, 1, 1), age: m.Age, due: true},
		{what: "many layers", f: holds(m.Layers, 1, 1), due: true},
		{what: "much", f: holds(1, 32, 32), due: true},
		{what: "much, and of few keys", f: holds(1, 1, 32), due: true},
		{what: "much, but little beside the store", f: holds(1, 32, 32).beside(25)},
		{what: "several times the store", f: holds(1, 25, 100).beside(25), due: true},
		{what: "as much as a replay bears", f: holds(1, 60, 128).beside(1000), due: true},
		{what: "as much as memory bears", f: holds(1, 64, 64).beside(1000), due: true},
		{what: "much, but there is better to do", f: holds(m.Layers, 32, 32).whileBusy(), age: m.Age},
		{what: "too much to wait", f: holds(1, 32, 128).whileBusy(), due: true},
		{what: "little, but memory is short", f: holds(1, 1, 1).beside(1000).whileBusy().whenShort(), due: true},
		{what: "next to nothing, and memory is short", f: holds(1, 0, 1).whenShort()},
		{what: "too much memory to wait", f: holds(1, 256, 256).beside(1000).whileBusy(), due: true},
	} {
		if got := m.due(c.f, c.age); got != c.due {
			t.Errorf("%s: due is %v", c.what, got)
		}
	}
}
