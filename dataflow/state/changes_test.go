package state

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// TestChangesAreReadFromLayersWhileTheyAreThereAndComparedAfterwards makes three cuts, looks at what changed, and again when
// the cut in the middle is no longer retained and the layers are one.
func TestChangesAreReadFromLayersWhileTheyAreThereAndComparedAfterwards(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	const uid = dataflow.PipelineUID(1)
	state, states := rows{}, []rows{{}}
	if err := r.BeginIncarnation(1, uid, 1, dataflow.DeltaRef{}); err != nil {
		t.Fatal(err)
	}
	for i, changes := range [][]change{
		{{0, "a", []byte("1")}, {0, "b", []byte("1")}, {1, "z", []byte("1")}},
		{{0, "b", []byte("2")}, {0, "c", []byte("2")}},
		{{0, "a", nil}, {0, "c", []byte("3")}},
	} {
		seq := dataflow.DeltaSeq(i + 1)
		digest := feed(t, r, dataflow.DeltaID{Pipeline: uid, Incarnation: 1, Seq: seq}, changes)
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq), ref(1, seq), digest)); err != nil {
			t.Fatal(err)
		}
		state = state.with(changes)
		states = append(states, state)
	}
	look := func(older, newer *View, layered bool) {
		t.Helper()
		c := newer.Changes(older, 0, nil, nil)
		if (c.m != nil) != layered {
			t.Errorf("from cut %d to %d: read from layers: %v", older.Checkpoint(), newer.Checkpoint(), c.m != nil)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := checkChanges(older, newer, states[older.Checkpoint()], states[newer.Checkpoint()], 2); err != nil {
			t.Error(err)
		}
	}
	one, two, three := mustView(t, r, uid, 1), mustView(t, r, uid, 2), mustView(t, r, uid, 3)
	look(one, two, true)
	look(one, three, true)
	look(two, three, true)
	look(three, three, true)
	if _, err := r.Merge(t.Context(), uid, 2); err != nil {
		t.Fatal(err)
	}
	after := mustView(t, r, uid, 3)
	look(two, after, true)
	look(one, after, false) // the store has what lies between
	for _, v := range []*View{one, two, three, after} {
		v.Release()
	}
}
