package meta_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
)

func snapshotOf(t testing.TB, fsm *meta.FSM) []byte {
	t.Helper()
	s, err := fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	var b bytes.Buffer
	if err := s.Persist(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func restore(t testing.TB, snapshot []byte) *meta.FSM {
	t.Helper()
	fsm := meta.NewFSM()
	if err := fsm.Restore(bytes.NewReader(snapshot)); err != nil {
		t.Fatal(err)
	}
	return fsm
}

// history applies n random commands, most of which make sense, and returns the log.
func history(t testing.TB, seed uint64, n int, each func(log *meta.Log, m *model)) *model {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 2))
	now := int64(1_000_000)
	m := &model{fsm: meta.NewFSM()}
	log := meta.New(m, m.fsm, func() int64 { return now })
	ctx := context.Background()
	if err := log.Bootstrap(ctx, "test", 2); err != nil {
		t.Fatal(err)
	}
	pick := func(names ...string) string { return names[rnd.IntN(len(names))] }
	for range n {
		now += rnd.Int64N(3_000_000) - 200_000
		name, stream := pick("p", "q", "r"), pick("a", "b", "c")
		p, _ := log.State().Pipeline(name)
		if p == nil {
			p = &meta.Pipeline{UID: 77}
		}
		// Refusals are as good as successes here: what matters is that every member does the same.
		switch rnd.IntN(25) {
		case 0:
			_, _, _ = log.CreateStream(ctx, meta.StreamDefinition{Name: stream, Schema: dataflow.Schema{{Name: "x", Type: dataflow.TypeBigInt, NotNull: rnd.IntN(3) > 0}},
				Options: []dataflow.Option{{Name: "retention.grace", Value: pick("1 min", "1 h")}}})
		case 1:
			_, _ = log.DropStream(ctx, stream)
		case 2:
			_, _, _ = log.CreatePipeline(ctx, meta.CreatePipeline{Name: name, SQL: "SELECT 1", Fingerprint: pick("f", "g"), Reads: map[string]dataflow.StreamID{stream: 0},
				Options: []dataflow.Option{{Name: "checkpoint.retained", Value: pick("1", "3")}, {Name: "on_error", Value: pick("fail", "skip")}}})
		case 3:
			if rnd.IntN(4) == 0 {
				_, _ = log.DeletePipeline(ctx, name)
			}
		case 4:
			_, _ = log.SetOptions(ctx, p.UID, []dataflow.Option{{Name: "checkpoint.interval", Value: pick("off", "100 ms", "1.001 s", "17 us", "3 days")}})
		case 5:
			_, _ = log.Stop(ctx, p.UID)
		case 6:
			_, _ = log.Resume(ctx, p.UID, dataflow.SourceRow{Stream: 1, Offset: dataflow.Offset(rnd.IntN(5))})
		case 7:
			_, _ = log.MarkRunning(ctx, p.UID, p.Incarnation)
			_, _ = log.MarkStopped(ctx, p.UID, p.Incarnation)
		case 8:
			_, _ = log.MarkFailed(ctx, p.UID, dataflow.PipelineFailure{Reason: dataflow.ReasonExpressionFailed, Message: "m", Incarnation: p.Incarnation,
				HasRow: rnd.IntN(2) == 0, Row: dataflow.SourceRow{Stream: 3}, Rendered: "(1, 'x')"})
		case 9:
			_, _, _ = log.ReserveAttempts(ctx, p.UID, rnd.IntN(200), rnd.IntN(10) == 0)
		case 10:
			_, _ = log.BeginIncarnation(ctx, p.UID, p.Incarnation, []meta.Owner{{Shard: 1, Node: "n", Term: 3}}, pick("crash", "resumed"))
		case 11:
			_, _ = log.OpenProducer(ctx, fmt.Sprintf("producer %d", rnd.IntN(50)), pick("i", "j"))
		case 12:
			_ = log.Expire(ctx)
		case 13:
			_, _ = log.Lease(ctx, p.UID, dataflow.CheckpointID(rnd.IntN(50)), time.Duration(rnd.IntN(100))*time.Second)
		case 14:
			_, _ = log.RenewLease(ctx, p.UID, uint64(rnd.IntN(5)), time.Minute)
			_ = log.ReleaseLease(ctx, p.UID, uint64(rnd.IntN(10)))
		case 15:
			_, _ = log.SetStreamOptions(ctx, stream, []dataflow.Option{{Name: "retention.grace", Value: pick("1 s", "1 min", "2 h")}, {Name: "max_bytes", Value: pick("unbounded", "1 GiB", "0")}})
		default:
			if len(p.Cuts) > 0 && len(p.Reads) > 0 {
				c := p.Newest().Clone()
				c.Incarnation, c.ID, c.TriggeredAt = p.Incarnation, c.ID+dataflow.CheckpointID(rnd.IntN(4)), now
				c.Positions[dataflow.StreamShard{Stream: p.Reads[0], Shard: 1}] += 5
				c.Shards = []dataflow.ShardCommit{{Shard: 0, Seq: c.Shard(0).Seq + 1, Digest: rnd.Uint64(), Index: 9, AckMicros: 70}, {Shard: 1, Seq: c.Shard(1).Seq, Skipped: c.Shard(1).Skipped}}
				_, _ = log.CommitCheckpoint(ctx, c)
			}
		}
		if each != nil {
			each(log, m)
		}
	}
	return m
}

// A follower that restores a snapshot at any point and applies the rest has the leader's state, byte for byte.
func TestRestoredMembersStayEqual(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		var snapshots [][]byte
		m := history(t, seed, 300, func(_ *meta.Log, m *model) { snapshots = append(snapshots, snapshotOf(t, m.fsm)) })
		want := snapshotOf(t, m.fsm)
		for i, snapshot := range snapshots {
			if i%37 != 0 {
				continue
			}
			fsm := restore(t, snapshot)
			if again := snapshotOf(t, fsm); !bytes.Equal(again, snapshot) {
				t.Fatalf("seed %d: snapshot %d differs when it is restored and taken again", seed, i)
			}
			from := fsm.State().Index
			for j, e := range m.entries[from:] {
				fsm.Apply(from+dataflow.LogIndex(j)+1, e)
			}
			if got := snapshotOf(t, fsm); !bytes.Equal(got, want) {
				t.Fatalf("seed %d: a member restored after command %d ends in another state", seed, i)
			}
		}
	}
}

// Readers keep a State as long as they like: no later entry changes it.
func TestAStateNeverChanges(t *testing.T) {
	type kept struct {
		state *meta.State
		text  string
	}
	for seed := uint64(100); seed < 110; seed++ {
		var states []kept
		history(t, seed, 300, func(log *meta.Log, _ *model) {
			s := log.State()
			states = append(states, kept{s, show(s) + fmt.Sprint(s.ProducerEpoch("producer 1"))})
		})
		for i, k := range states {
			if now := show(k.state) + fmt.Sprint(k.state.ProducerEpoch("producer 1")); now != k.text {
				t.Fatalf("seed %d: the state after command %d changed from\n%s\nto\n%s", seed, i, k.text, now)
			}
		}
	}
}

// The floor never goes back, the newest cut is always readable, leased cuts are, and positions of cuts increase.
func TestTheFloorOnlyRises(t *testing.T) {
	commits := 0
	for seed := uint64(200); seed < 230; seed++ {
		floors, newest := map[dataflow.PipelineUID]dataflow.CheckpointID{}, map[dataflow.PipelineUID]dataflow.CheckpointID{}
		history(t, seed, 400, func(log *meta.Log, _ *model) {
			for uid, p := range log.State().Pipelines {
				if p.Floor().ID < floors[uid] || p.Newest().ID < newest[uid] {
					t.Fatalf("seed %d: pipeline %d went back from %d..%d to %d..%d", seed, uid, floors[uid], newest[uid], p.Floor().ID, p.Newest().ID)
				}
				if p.Newest().ID > newest[uid] {
					commits++
				}
				floors[uid], newest[uid] = p.Floor().ID, p.Newest().ID
				for _, l := range p.Leases {
					if _, err := p.Cut(l.Checkpoint); err != nil {
						t.Fatalf("seed %d: lease %d: %v", seed, l.ID, err)
					}
				}
				for i := 1; i < len(p.Cuts); i++ {
					if !p.Cuts[i].Positions.Covers(p.Cuts[i-1].Positions) {
						t.Fatalf("seed %d: %s follows %s", seed, p.Cuts[i], p.Cuts[i-1])
					}
				}
			}
		})
	}
	if commits < 100 {
		t.Errorf("only %d commits: the histories prove little", commits)
	}
}

func TestWaitReturnsTheFirstStateThatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsm := meta.NewFSM()
		log := meta.New(&model{fsm: fsm}, fsm, func() int64 { return 1 })
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *meta.State)
		go func() {
			s, _ := log.Wait(ctx, func(s *meta.State) bool { return len(s.Streams) == 1 })
			got <- s
		}()
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			if _, _, err := log.CreateStream(ctx, meta.StreamDefinition{Name: name, Schema: dataflow.Schema{{Name: "x", Type: dataflow.TypeText}}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if s := <-got; s == nil || len(s.Streams) != 1 {
			t.Fatalf("got %v", s)
		}
		cancel()
		if _, err := log.Wait(ctx, func(*meta.State) bool { return false }); err == nil {
			t.Fatal("Wait outlived its context")
		}
	})
}

// Whatever stands in an entry, Apply returns, every member does the same, and the state can be saved and restored.
func FuzzApply(f *testing.F) {
	m := history(f, 1, 200, nil)
	for _, e := range m.entries {
		f.Add(e)
	}
	f.Add([]byte{})
	f.Add([]byte("\x62\x00")) // a commit without a record
	base := snapshotOf(f, m.fsm)
	f.Fuzz(func(t *testing.T, entry []byte) {
		a, b := restore(t, base), restore(t, base)
		a.Apply(1000, entry)
		b.Apply(1000, entry)
		snapshot := snapshotOf(t, a)
		if !bytes.Equal(snapshot, snapshotOf(t, b)) {
			t.Fatal("two members differ")
		}
		if again := snapshotOf(t, restore(t, snapshot)); !bytes.Equal(again, snapshot) {
			t.Fatal("the state changes when it is restored")
		}
		for _, p := range a.State().PipelineList() {
			for _, id := range p.Reads {
				a.State().StreamHolders(id)
			}
		}
		a.State().ExpireDue(1 << 60)
	})
}

// A damaged snapshot is refused, or is a state that can be used.
func FuzzRestore(f *testing.F) {
	for seed := uint64(1); seed <= 5; seed++ {
		f.Add(snapshotOf(f, history(f, seed, 100, nil).fsm))
	}
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		fsm := meta.NewFSM()
		if err := fsm.Restore(bytes.NewReader(snapshot)); err != nil {
			if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		s := snapshotOf(t, fsm)
		if again := snapshotOf(t, restore(t, s)); !bytes.Equal(again, s) {
			t.Fatal("the state changes when it is restored")
		}
		for _, st := range fsm.State().StreamList() {
			fsm.State().StreamHolders(st.ID)
		}
		fsm.State().ExpireDue(1 << 60)
	})
}
