package statequery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

func liveWatchOf(table string) dataflow.Watch {
	r := watchOf(table)
	r.Isolation = dataflow.ReadUncommitted
	return r
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestSlowLiveWatchersHoldNoCopyOfWhatWasTold is what --watch-memory promises: a hundred watchers that take their snapshot
// slowly hold about an event each.
func TestSlowLiveWatchersHoldNoCopyOfWhatWasTold(t *testing.T) {
	const rows, watchers = 30_000, 100
	w := newWorld(t, 1)
	for i := range rows {
		w.add(g2(fmt.Sprint(i), 0), 1)
	}
	e := w.engine(func(c *statequery.Config) { c.LiveEvery = time.Hour }) // it looks once, when the first watcher comes
	defer e.EndWatches()
	watch := func(all *sync.WaitGroup, fn func(*dataflow.WatchEvent) error) {
		all.Go(func() {
			if err := e.Watch(t.Context(), liveWatchOf("counts"), fn); !errors.Is(err, errEnough) {
				t.Error(err)
			}
		})
	}
	var first, slow sync.WaitGroup
	told, stay := make(chan struct{}), make(chan struct{})
	var once sync.Once
	seen := 0
	watch(&first, func(ev *dataflow.WatchEvent) error {
		if seen += len(ev.Changes); seen >= rows {
			once.Do(func() { close(told) })
			<-stay // the feed ends with the last watcher
			return errEnough
		}
		return nil
	})
	<-told
	before := heap()
	taking, leave := make(chan struct{}, watchers), make(chan struct{})
	for range watchers {
		watch(&slow, func(*dataflow.WatchEvent) error {
			taking <- struct{}{}
			<-leave
			return errEnough
		})
	}
	for range watchers {
		<-taking
	}
	if grown, most := int64(heap()-before), int64(watchers*512<<10); grown > most {
		t.Errorf("%d watchers that take %d keys hold %d MiB, want %d at most", watchers, rows, grown>>20, most>>20)
	}
	if s := e.WatchStats(); s.Open != watchers+1 || s.Bytes < rows*100 || s.Lagged != 0 {
		t.Errorf("the figures are %+v", s)
	}
	close(leave)
	slow.Wait()
	close(stay)
	first.Wait()
}

// TestLiveWatchersThatComeInBetweenHaveTheLiveTable lets watchers come and go, some slowly, while rows arrive, cuts are made
// and incarnations end. When all is quiet, each has the live table.
func TestLiveWatchersThatComeInBetweenHaveTheLiveTable(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, 2)
	e := w.engine(func(c *statequery.Config) { c.LiveEvery = time.Millisecond })
	for i := range 1200 { // several pages
		w.add(g2(fmt.Sprint(i), 0), 1)
	}
	w.commit()
	steps := make(chan struct{}) // one per event that a slow watcher takes
	quiet := make(chan struct{})
	var watchers sync.WaitGroup
	for i := range 12 {
		watchers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for done := false; !done; {
				p, left := &picture{}, 1+rng.IntN(30)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				err := e.Watch(ctx, liveWatchOf("counts"), func(ev *dataflow.WatchEvent) error {
					if i%2 == 0 {
						select {
						case <-steps:
						case <-quiet:
						}
					}
					complete := p.take(ev)
					select {
					case <-quiet:
						if complete && difference(p.rows, w.rowsAt("counts", 0, true)) == nil {
							done = true
							return errEnough
						}
						return nil
					default:
					}
					if left--; left == 0 {
						return errEnough
					}
					return nil
				})
				cancel()
				if !errors.Is(err, errEnough) && dataflow.ReasonOf(err) != dataflow.ReasonWatchLagged {
					t.Errorf("watcher %d: %v: %v", i, err, difference(p.rows, w.rowsAt("counts", 0, true)))
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	for range 60 {
		for range rng.IntN(40) {
			w.add(g2(fmt.Sprint(rng.IntN(1500)), 0), 1)
		}
		switch rng.IntN(10) {
		case 0:
			w.crash()
			w.recover()
		case 1, 2:
			w.commit()
		}
		for range 3 {
			select {
			case steps <- struct{}{}:
			case <-time.After(time.Second): // all are lagged or wait for a copy
			}
		}
	}
	close(quiet)
	ended := make(chan struct{})
	go func() { watchers.Wait(); close(ended) }()
	for waiting := true; waiting; { // who had it all already is told of something
		w.add(g2("last", 0), 1)
		select {
		case <-ended:
			waiting = false
		case <-time.After(200 * time.Millisecond):
		}
	}
	e.EndWatches()
	w.unpinned()
}
