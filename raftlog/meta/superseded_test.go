package meta_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
)

func TestCutsAreBoundedWhileTheClockStandsBehindTheLog(t *testing.T) {
	now := int64(1_000_000)
	m := &model{fsm: meta.NewFSM()}
	log := meta.New(m, m.fsm, func() int64 { return now })
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(log.Bootstrap(ctx, "test", 1))
	_, _, err := log.CreateStream(ctx, meta.StreamDefinition{Name: "s", Schema: dataflow.Schema{{Name: "x", Type: dataflow.TypeBigInt}}})
	must(err)
	p, _, err := log.CreatePipeline(ctx, meta.CreatePipeline{Name: "p", SQL: "SELECT 1", Fingerprint: "f", Reads: map[string]dataflow.StreamID{"s": 0},
		Options: []dataflow.Option{{Name: "checkpoint.retained", Value: "3"}}})
	must(err)
	_, _, err = log.ReserveAttempts(ctx, p.UID, 5000, false)
	must(err)
	commit := func(n dataflow.CheckpointID) {
		t.Helper()
		_, err := log.CommitCheckpoint(ctx, &dataflow.CheckpointCommit{Pipeline: p.UID, Incarnation: 1, ID: n, Guarantee: dataflow.GuaranteeExactlyOnce,
			Positions: dataflow.Positions{{Stream: 1}: dataflow.Offset(n)}, Shards: []dataflow.ShardCommit{{Seq: dataflow.DeltaSeq(n), Index: 9}}})
		must(err)
	}
	commit(1)
	_, err = log.Lease(ctx, p.UID, 1, time.Hour)
	must(err)
	commit(2)
	now -= time.Hour.Microseconds() // the clock had run ahead and is set right
	for n := dataflow.CheckpointID(3); n <= 2500; n++ {
		commit(n)
	}
	cuts := log.State().Pipelines[p.UID].Cuts
	if want := 1 + meta.MaxSuperseded + 3; len(cuts) != want {
		t.Errorf("%d cuts are kept, want %d: the leased one, those that are young, and the retained ones", len(cuts), want)
	}
	if cuts[0].ID != 1 || cuts[1].ID != 2500-meta.MaxSuperseded-2 {
		t.Errorf("the oldest are %d and %d", cuts[0].ID, cuts[1].ID)
	}
}
