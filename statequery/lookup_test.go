package statequery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

// absentKeys returns n keys of the table counts that no row has, with texts of size bytes.
func absentKeys(n, size int) []dataflow.Row {
	keys := make([]dataflow.Row, n)
	for i := range keys {
		text := fmt.Sprintf("%06d", i)
		keys[i] = dataflow.Row{lit(text + strings.Repeat("x", max(0, size-len(text)))), dataflow.BigInt(int64(i))}
	}
	return keys
}

// waitingStore holds back whoever opens a cut until told otherwise, and counts who is there.
type waitingStore struct {
	*world
	inside chan struct{} // one per caller who waits
	open   chan struct{} // closed to let all go on
}

func (s waitingStore) View(ctx context.Context, shard dataflow.ShardID, uid dataflow.PipelineUID, cut dataflow.CheckpointID) (statequery.View, error) {
	s.inside <- struct{}{}
	<-s.open
	return s.world.View(ctx, shard, uid, cut)
}

// Live has no values in memory, so that reads of cuts open views.
func (s waitingStore) Live(dataflow.PipelineUID) statequery.Live { return nil }

// atOnce starts a batch of look-ups of each size and returns how many are looked up at once, and their errors after.
func atOnce(t *testing.T, sizes []int, change func(*statequery.Config)) (together int, errs []error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.add(g2("a", 1), 1)
		w.commit()
		s := waitingStore{world: w, inside: make(chan struct{}, len(sizes)), open: make(chan struct{})}
		e := w.engine(func(c *statequery.Config) { c.Store = s; change(c) })
		ended := make(chan error, len(sizes))
		for _, n := range sizes {
			go func() {
				_, _, _, err := e.BatchGet(context.Background(), pipelineName, "counts", absentKeys(n, 0), dataflow.ReadOptions{})
				ended <- err
			}()
			synctest.Wait()
		}
		together = len(s.inside)
		close(s.open)
		for range sizes {
			errs = append(errs, <-ended)
		}
		w.unpinned()
	})
	return together, errs
}

func repeat(n, times int) []int {
	sizes := make([]int, times)
	for i := range sizes {
		sizes[i] = n
	}
	return sizes
}

func TestBatchesOfLookUpsAreAdmittedByWhatTheyCanTake(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		total int64
		want  int
	}{
		{"short ones together", repeat(100, 64), 0, 64},
		{"as many short ones as there is memory for", repeat(1024, 40), 0, 32},
		{"and less memory", repeat(1024, 40), 64 << 20, 4},
		{"one at least", repeat(1024, 3), 1, 1},
		{"long ones, by their keys", repeat(10_000, 12), 0, 8},
		{"long ones do not hold up short ones", append(repeat(10_000, 12), repeat(100, 20)...), 0, 28},
		{"short ones do not hold up long ones", append(repeat(1024, 40), repeat(10_000, 2)...), 0, 34},
		{"keys one by one need nothing", append(repeat(1024, 40), repeat(1, 20)...), 0, 52},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, errs := atOnce(t, c.sizes, func(cfg *statequery.Config) { cfg.TotalBytes = c.total })
			if got != c.want {
				t.Errorf("%d are looked up at once, want %d", got, c.want)
			}
			for _, err := range errs {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A batch whose answer is larger than its keys let expect is answered nonetheless, with the memory of a long one.
func TestAShortBatchWithALargeAnswerGetsMoreMemory(t *testing.T) {
	w := newWorld(t, 2)
	long := strings.Repeat("x", 600) // the key fits in what it is given, and with the row it does not
	var keys []dataflow.Row
	for i := range 8 {
		w.add(g2(fmt.Sprint(i, long), 1), int64(i))
		keys = append(keys, dataflow.Row{lit(fmt.Sprint(i, long)), lit("1")})
	}
	w.commit()
	e := w.engine()
	for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
		rows, found, _, err := e.BatchGet(t.Context(), pipelineName, "counts", keys, dataflow.ReadOptions{Isolation: iso})
		if err != nil || rows.N != len(keys) {
			t.Fatalf("%s: %v, %v", iso, rows, err)
		}
		for i, ok := range found {
			if !ok || rows.Cols[1].Value(i).Str != keys[i][0].Str {
				t.Errorf("%s: row %d is that of another key", iso, i)
			}
		}
	}
	w.unpinned()
}

// What a batch holds is bounded: state and rows together.
func TestStateAndRowsOfABatchAreBoundedTogether(t *testing.T) {
	w := newWorld(t, 2)
	var keys []dataflow.Row
	for i := range 100 {
		k := fmt.Sprintf("%04d", i) + strings.Repeat("y", 1000)
		w.add(g2(k, 1), int64(i))
		keys = append(keys, dataflow.Row{lit(k), lit("1")})
	}
	w.commit()
	const room = 400 << 10 // four hundred times the bytes of a row: 100 keys, their rows and what is noted of them
	ask := func(most int64) error {
		_, _, _, err := w.engine(func(c *statequery.Config) { c.MaxBytes = most }).
			BatchGet(t.Context(), pipelineName, "counts", keys, dataflow.ReadOptions{})
		return err
	}
	if err := ask(room); err != nil {
		t.Errorf("with room: %v", err)
	}
	if e := refused(t, ask(180<<10), dataflow.ReasonScanLimit); e.Metadata["limit"] != "bytes" {
		t.Errorf("metadata %v", e.Metadata)
	}
	w.unpinned()
}
