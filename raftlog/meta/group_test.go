package meta_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/meta"
)

var _ meta.Group = (*raftlog.Group)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A node that restarts has the state it had, whether it comes from a snapshot, from entries, or from both.
func TestTheStateSurvivesRestarts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dir := t.TempDir()
	var before []byte
	for life := range 4 {
		store, err := raftlog.OpenBolt(filepath.Join(dir, "meta.db"))
		if err != nil {
			t.Fatal(err)
		}
		fsm := meta.NewFSM()
		group, err := raftlog.Open(raftlog.Config{Group: "meta", NodeID: "n1", FS: vfs.Default, Dir: filepath.Join(dir, "meta"), Log: store, FSM: fsm,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := group.WaitLeader(ctx); err != nil {
			t.Fatal(err)
		}
		log := meta.New(group, fsm, func() int64 { return time.Now().UnixMicro() })
		if err := log.Barrier(ctx); err != nil {
			t.Fatal(err)
		}
		if after := snapshotOf(t, fsm); life > 0 && !bytes.Equal(before, after) {
			t.Fatalf("life %d begins in another state", life)
		}
		if err := log.Bootstrap(ctx, "c", 2); err != nil {
			t.Fatal(err)
		}
		name := []string{"a", "b", "c", "d"}[life]
		p, _, err := log.CreatePipeline(ctx, meta.CreatePipeline{Name: name, Fingerprint: "f", Reads: map[string]dataflow.StreamID{name: 0},
			Declared: []meta.StreamDefinition{{Name: name, Schema: dataflow.Schema{{Name: "x", Type: dataflow.TypeText}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if life == 1 || life == 2 {
			if err := group.Snapshot(ctx); err != nil {
				t.Fatal(err)
			}
		}
		first, _, err := log.ReserveAttempts(ctx, p.UID, 5, true)
		if err != nil {
			t.Fatal(err)
		}
		c := &dataflow.CheckpointCommit{Pipeline: p.UID, Incarnation: 1, ID: first, Guarantee: dataflow.GuaranteeExactlyOnce,
			Shards: []dataflow.ShardCommit{{Shard: 0, Seq: 1, Index: 7}, {Shard: 1}}}
		if _, err := log.CommitCheckpoint(ctx, c); err != nil {
			t.Fatal(err)
		}
		c.ID, c.Incarnation = 2, 9
		if _, err := log.CommitCheckpoint(ctx, c); !errors.Is(err, meta.ErrStaleIncarnation) || dataflow.ReasonOf(err) != dataflow.ReasonPipelineState {
			t.Fatalf("a refusal does not come through the log whole: %v", err)
		}
		before = snapshotOf(t, fsm)
		if err := group.Close(); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
