package statequery

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/weirdb/weir/dataflow"
)

func newTestFeed(told int) *liveFeed {
	f := &liveFeed{pipeline: "p", key: feedKey{1, "t"}}
	f.mu.cut, f.mu.changed, f.mu.sent = &dataflow.CheckpointCommit{}, make(chan struct{}), make(map[string][]byte)
	f.mu.limit = 1 << 20
	for i := range told {
		f.mu.sent[fmt.Sprint(i)] = []byte("v")
	}
	return f
}

// says adds n sets as say does.
func (f *liveFeed) says(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.mu.sets = append(f.mu.sets, &liveSet{})
	}
	drop := max(0, len(f.mu.sets)-maxLiveSets)
	f.mu.sets, f.mu.first = f.mu.sets[drop:], f.mu.first+uint64(drop)
	f.dropBasesLocked(func(b *liveBase) bool { return b.next < f.mu.first })
	f.announceLocked()
}

func TestSnapshotsOfALiveFeedShareTwoCopies(t *testing.T) {
	f := newTestFeed(10)
	join := func() *liveBase {
		t.Helper()
		b, err := f.joinBase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if told, err := f.toldAt(b); err != nil || len(told) != 10 {
			t.Fatalf("%d rows, %v", len(told), err)
		}
		return b
	}
	first := join()
	if again := join(); again != first {
		t.Error("nothing has changed, and the second snapshot has a copy of its own")
	}
	f.says(1)
	second := join()
	if second == first {
		t.Error("the second copy is old while there is room for a new one")
	}
	f.says(maxLiveSets / 2)
	for range 1000 {
		if b := join(); b != second {
			t.Fatal("there is a third copy")
		}
	}
	f.leaveBase(first)
	f.leaveBase(first)
	if third := join(); third == second || len(f.mu.bases) != 2 {
		t.Error("the place of a copy that was given back is not used")
	}
}

func TestASnapshotWaitsWhenNeitherCopyHasTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFeed(1)
		first, _ := f.joinBase(t.Context())
		f.says(1)
		if _, err := f.joinBase(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.says(maxLiveSets/2 + 1)
		ctx, cancel := context.WithCancel(t.Context())
		errs, joined := make(chan error, 1), make(chan *liveBase, 1)
		go func() {
			_, err := f.joinBase(ctx)
			errs <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-errs; err == nil {
			t.Error("it did not wait")
		}
		go func() {
			b, _ := f.joinBase(t.Context())
			joined <- b
		}()
		synctest.Wait()
		f.leaveBase(first)
		if b := <-joined; b == nil || b.next != f.nextLocked() {
			t.Error("it does not begin where the feed is")
		}
	})
}

func TestASnapshotTooSlowForItsFeedLosesItsCopy(t *testing.T) {
	f := newTestFeed(1)
	b, err := f.joinBase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.says(maxLiveSets)
	if _, err := f.toldAt(b); err != nil {
		t.Error(err)
	}
	f.says(1)
	if _, err := f.toldAt(b); dataflow.ReasonOf(err) != dataflow.ReasonWatchLagged || b.told != nil || len(f.mu.bases) != 0 {
		t.Errorf("%v, %d copies", err, len(f.mu.bases))
	}
	f.leaveBase(b)
}
