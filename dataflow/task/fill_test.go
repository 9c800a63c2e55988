package task_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/dataflow/task"
)

// filled is a world whose tables are being filled, as long as a test wants.
type filled struct {
	*world
	memory *state.Budget
	tables []*state.Table // by shard
	want   map[string]string
}

// startUnfilled commits words, and begins an incarnation whose tables have none of them yet.
func startUnfilled(t *testing.T, patience time.Duration, words ...string) *filled {
	f := &filled{world: newWorldOf(t, `CREATE STREAM words (word TEXT);
CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM words GROUP BY word;`), memory: state.NewBudget(1 << 30), want: map[string]string{}}
	f.start()
	f.feed(words...)
	f.checkpoint()
	f.run.Stop()
	f.change = func(cfg *task.Config) {
		for range shards {
			table := state.NewTable(task.Shape(f.plan.Stages[0]), f.memory)
			t.Cleanup(table.Close)
			table.BeginAsPartials(task.Merge(f.plan, f.plan.Stages[0]))
			table.Committed(f.base.ID)
			table.BeginFill()
			f.tables = append(f.tables, table)
		}
		cfg.Table = func(_ dataflow.StageID, s dataflow.ShardID) *state.Table { return f.tables[s] }
		cfg.View = func(s dataflow.ShardID, cut dataflow.CheckpointID) (*state.View, error) {
			return f.logs[s].replica.View(1, cut)
		}
		cfg.FillPatience, cfg.Memory = patience, f.memory
	}
	f.start()
	t.Cleanup(f.run.Stop)
	return f
}

// feed counts words, and waits until they are in the tables.
func (f *filled) feed(words ...string) {
	f.t.Helper()
	l := f.logs[0]
	l.append(f.plan.Reads[0].Schema, words...)
	for _, w := range words {
		var n int
		_, _ = fmt.Sscan(f.want["counts "+w], &n) // none at first
		f.want["counts "+w] = fmt.Sprint(n + 1)
	}
	f.pass()
}

// pass lets every task handle all that it has been sent.
func (f *filled) pass() {
	f.t.Helper()
	if _, err := f.run.Processed(f.t.Context(), dataflow.Positions{{Stream: 1, Shard: 0}: f.logs[0].mu.end}); err != nil {
		f.t.Fatal(err)
	}
}

// barrier injects a barrier and lets every task do what it does next.
func (f *filled) barrier() {
	f.attempt++
	f.run.Inject(f.attempt, false)
	for range 3 {
		f.pass()
	}
}

func (f *filled) fill() {
	f.t.Helper()
	for s, table := range f.tables {
		view, err := f.logs[s].replica.View(1, f.base.ID)
		if err != nil {
			f.t.Fatal(err)
		}
		if _, more, err := table.FillFrom(context.Background(), view, 0, 0); more || err != nil {
			f.t.Fatal(more, err)
		}
		view.Release()
	}
}

func (f *filled) check() {
	f.t.Helper()
	f.commit(nil)
	if got := f.world.tables(); !maps.Equal(got, f.want) {
		f.t.Errorf("cut %d has %v, want %v", f.base.ID, got, f.want)
	}
}

func TestACheckpointWaitsForTheFillingOfItsTables(t *testing.T) {
	f := startUnfilled(t, time.Hour, "whale", "sea", "sea", "ship")
	f.feed("whale", "sea", "new")
	f.barrier()
	if n := f.memory.LookedUp(); n != 0 {
		t.Errorf("%d keys were looked up that the filling is about to bring", n)
	}
	f.fill()
	f.check()
	if n := f.memory.LookedUp(); n != 0 {
		t.Errorf("%d keys were looked up in all", n)
	}
}

func TestACheckpointWaitsForTheFillingOfItsTablesForATime(t *testing.T) {
	f := startUnfilled(t, time.Millisecond, "whale", "sea", "sea", "ship")
	f.feed("whale", "sea", "new")
	f.barrier()
	f.check()
	if n := f.memory.LookedUp(); n != 3 {
		t.Errorf("%d keys were looked up, not 3", n)
	}
}

func TestARowWhoseKeyIsInACheckpointThatWaitsHasItLookedUp(t *testing.T) {
	f := startUnfilled(t, time.Hour, "whale", "sea", "sea", "ship")
	f.feed("whale", "sea", "new")
	f.barrier()
	before := maps.Clone(f.want)
	f.feed("sea", "ship", "sea")
	after := f.want
	if n := f.memory.LookedUp(); n == 0 {
		t.Error("nothing was looked up")
	}
	f.want = before
	f.fill()
	f.check()
	f.want = after
	f.barrier()
	f.check()
}
