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
		return pub.mergeIfDue(context.Background(), s, log.State().Pipelines[p.UID], foldable{layers: 1})
	}
	must(merge()) // the cut has not been published: next time
	must(replica.DropPipeline(1, p.UID))
	must(merge())
}

func TestFoldsAreWorthTheCompactionsThatTheyCause(t *testing.T) {
	var m MergePolicy
	m.ensureDefaults()
	const mib = 1 << 20
	for _, c := range []struct {
		what string
		f    foldable
		age  time.Duration
		due  bool
	}{
		{what: "nothing to fold", f: foldable{}, age: time.Hour},
		{what: "little", f: foldable{layers: 10, bytes: mib}},
		{what: "little, for long", f: foldable{layers: 10, bytes: mib}, age: m.Age, due: true},
		{what: "many layers", f: foldable{layers: m.Layers, bytes: mib}, due: true},
		{what: "much", f: foldable{layers: 1, bytes: 8 * mib}, due: true},
		{what: "much, but little beside the store", f: foldable{layers: 1, bytes: 8 * mib, store: 60 * mib}},
		{what: "as much as the store", f: foldable{layers: 1, bytes: 25 * mib, store: 25 * mib}, due: true},
		{what: "as much as memory and replay bear", f: foldable{layers: 1, bytes: 64 * mib, store: 1000 * mib}, due: true},
		{what: "much, but there is better to do", f: foldable{layers: m.Layers, bytes: 8 * mib, busy: true}, age: m.Age},
		{what: "too much to wait", f: foldable{layers: 1, bytes: 32 * mib, busy: true}, due: true},
	} {
		if got := m.due(c.f, c.age); got != c.due {
			t.Errorf("%s: due is %v", c.what, got)
		}
	}
}
