package state

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// The keys of the test below are written in turn, keysPerCut by each cut, with the cut's number as the value.
const (
	concurrentKeys = 50
	keysPerCut     = 5
)

// valueAt returns what key k must be at a cut: the number of the last cut up to it that wrote k, or 0 for none.
func valueAt(k int, cut dataflow.CheckpointID) dataflow.CheckpointID {
	const turn = concurrentKeys / keysPerCut
	back := (int(cut)%turn - k/keysPerCut + turn) % turn
	return max(cut, dataflow.CheckpointID(back)) - dataflow.CheckpointID(back)
}

// TestReadersSeeWholeCutsWhileMergesRun commits cuts, merges and folds all the while, and lets readers check that what
// they see of the newest few cuts is one cut.
func TestReadersSeeWholeCutsWhileMergesRun(t *testing.T) {
	t.Parallel()
	const cuts = 300
	r := openTest(t, vfs.NewCrashableMem())
	var newest atomic.Uint64
	stop := make(chan struct{})
	var background sync.WaitGroup
	for back := range dataflow.CheckpointID(3) {
		background.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := dataflow.CheckpointID(newest.Load())
				if err := readOneCut(r, max(n, back)-back); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	background.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if n := newest.Load(); n > 0 {
				if _, err := r.Merge(context.Background(), uid, dataflow.CheckpointID(n)); err != nil && !errors.Is(err, &dataflow.Error{Reason: dataflow.ReasonCheckpointExpired}) {
					t.Error(err)
					return
				}
			}
		}
	})
	for n := range dataflow.DeltaSeq(cuts) {
		seq := n + 1
		var changes []change
		for k := range concurrentKeys {
			if valueAt(k, dataflow.CheckpointID(seq)) == dataflow.CheckpointID(seq) {
				changes = append(changes, change{key: testKey(k), val: fmt.Append(nil, seq)})
			}
		}
		digest := feed(t, r, id(ref(1, seq)), changes)
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq), ref(1, seq), digest)); err != nil {
			t.Fatal(err)
		}
		newest.Store(uint64(seq))
		if seq%7 == 0 {
			r.SetRetained(uid, []dataflow.CheckpointID{dataflow.CheckpointID(seq - 1), dataflow.CheckpointID(seq)})
		}
	}
	close(stop)
	background.Wait()
	closeTest(t, r)
}

func readOneCut(r *Replica, cut dataflow.CheckpointID) error {
	if cut == 0 {
		return nil
	}
	v, err := r.View(uid, cut)
	if dataflow.ReasonOf(err) == dataflow.ReasonCheckpointExpired {
		return nil // a merge has passed it
	}
	if err != nil {
		return err
	}
	defer v.Release()
	got := map[string]string{}
	it := v.Iter(0, nil, nil)
	for it.Next() {
		got[string(it.Key())] = string(it.Value())
	}
	if err := it.Close(); err != nil {
		return err
	}
	for k := range concurrentKeys {
		want := ""
		if n := valueAt(k, cut); n > 0 {
			want = n.String()
		}
		if got[testKey(k)] != want {
			return fmt.Errorf("cut %d shows %q for key %d, want %q", cut, got[testKey(k)], k, want)
		}
		val, _, err := v.Get(0, []byte(testKey(k)), nil)
		if err != nil {
			return fmt.Errorf("cut %d: get of key %d: %w", cut, k, err)
		}
		if string(val) != want {
			return fmt.Errorf("cut %d: get of key %d = %q, want %q", cut, k, val, want)
		}
	}
	return nil
}
