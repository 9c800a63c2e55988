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

// TestReadersSeeWholeCutsWhileMergesRun commits cuts in each of which all keys have the cut's number as their value, merges
// and folds all the while, and lets readers check that what they see is one cut.
func TestReadersSeeWholeCutsWhileMergesRun(t *testing.T) {
	const keys, cuts = 50, 150
	r := openTest(t, vfs.NewCrashableMem())
	var newest atomic.Uint64
	stop := make(chan struct{})
	var background sync.WaitGroup
	for range 3 {
		background.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := readOneCut(r, dataflow.CheckpointID(newest.Load()), keys); err != nil {
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
		for k := range keys {
			changes = append(changes, change{key: testKey(k), val: fmt.Append(nil, seq)})
		}
		digest := feed(t, r, id(ref(1, seq)), changes)
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq), ref(1, seq), digest)); err != nil {
			t.Fatal(err)
		}
		newest.Store(uint64(seq))
		if seq%7 == 0 {
			r.SetRetained(uid, []dataflow.CheckpointID{dataflow.CheckpointID(seq)})
		}
	}
	close(stop)
	background.Wait()
	closeTest(t, r)
}

func readOneCut(r *Replica, cut dataflow.CheckpointID, keys int) error {
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
	n, want := 0, fmt.Sprint(cut)
	it := v.Iter(0, nil, nil)
	for it.Next() {
		if n++; string(it.Value()) != want {
			return errors.Join(fmt.Errorf("cut %s shows %q for %q", want, it.Value(), it.Key()), it.Close())
		}
	}
	if err := it.Close(); err != nil {
		return err
	}
	if n != keys {
		return fmt.Errorf("cut %s has %d keys", want, n)
	}
	val, ok, err := v.Get(0, []byte(testKey(keys/2)), nil)
	if err != nil || !ok || string(val) != want {
		return fmt.Errorf("cut %s: get %q, %v, %v", want, val, ok, err)
	}
	return nil
}
