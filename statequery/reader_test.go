package statequery_test

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestAReadersRequestSeesOneCutAndTheNextANewerOne reads while the world goes on: between Begin and End nothing moves,
// whether values come from memory or from views.
func TestAReadersRequestSeesOneCutAndTheNextANewerOne(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	rd := e.NewReader()
	key := dataflow.Row{lit("x"), lit("1")}
	read := func(isolation dataflow.Isolation) (int64, dataflow.CheckpointID) {
		t.Helper()
		table, err := rd.Table([]byte(pipelineName + ".counts"))
		if err != nil {
			t.Fatal(err)
		}
		row, err := table.Get(t.Context(), key, isolation)
		if err != nil || row == nil || row.N != 1 {
			t.Fatal(row, err)
		}
		cut, err := table.Cut(t.Context(), isolation)
		if err != nil {
			t.Fatal(err)
		}
		return row.Cols[table.ValueCols()[0]].Ints[0], cut.Checkpoint
	}
	rd.Begin()
	first, cut := read(dataflow.ReadCommitted)
	w.add(g2("x", 1), 1)
	if n, _ := read(dataflow.ReadCommitted); n != first {
		t.Errorf("committed %d after a row, %d before", n, first)
	}
	if n, _ := read(dataflow.ReadUncommitted); n != first+1 {
		t.Errorf("live %d after a row, want %d", n, first+1)
	}
	w.commit()
	w.add(g2("x", 1), 1)
	if n, c := read(dataflow.ReadCommitted); n != first || c != cut {
		t.Errorf("in one request: %d in cut %d, then %d in cut %d", first, cut, n, c)
	}
	rd.End()
	w.unpinned()
	rd.Begin()
	if n, c := read(dataflow.ReadCommitted); n != first+1 || c <= cut {
		t.Errorf("the next request reads %d in cut %d", n, c)
	}
	rd.End()
	rd.End() // as often as one likes
	w.unpinned()
}

func TestAReaderRefusesWhatIsNotThere(t *testing.T) {
	w := seeded(t)
	rd := w.engine().NewReader()
	rd.Begin()
	defer rd.End()
	_, err := rd.Table([]byte("counts"))
	refused(t, err, dataflow.ReasonRequestInvalid)
	_, err = rd.Table([]byte("nope.counts"))
	refused(t, err, dataflow.ReasonPipelineNotFound)
	_, err = rd.Table([]byte(pipelineName + ".nope"))
	refused(t, err, dataflow.ReasonTableNotFound)
	table, err := rd.Table([]byte(pipelineName + ".counts"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = table.Get(t.Context(), dataflow.Row{lit("x")}, dataflow.ReadCommitted)
	refused(t, err, dataflow.ReasonKeyInvalid)
	row, err := table.Get(t.Context(), dataflow.Row{lit("not there"), lit("1")}, dataflow.ReadCommitted)
	if row != nil || err != nil {
		t.Error(row, err)
	}
}
