package statequery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

var errEnough = errors.New("seen enough")

// picture is a table as a watcher has it: rows by key, both in JSON.
type picture struct {
	rows    map[string]string
	pending []*dataflow.WatchEvent // of the cut that is not complete
}

// take applies an event as a careful reader does, and reports whether a cut is complete.
func (p *picture) take(ev *dataflow.WatchEvent) (complete bool) {
	p.pending = append(p.pending, ev)
	if !ev.EndOfCut && ev.Cut == nil {
		return false
	}
	if ev.Snapshot {
		p.rows = make(map[string]string)
	}
	seen := make(map[string]bool)
	for _, e := range p.pending {
		for _, c := range e.Changes {
			if seen[string(c.Key)] {
				panic("a key comes twice in a cut")
			}
			seen[string(c.Key)] = true
			if c.Row == nil {
				delete(p.rows, string(c.Key))
			} else {
				p.rows[string(c.Key)] = string(c.Row)
			}
		}
	}
	p.pending = nil
	return true
}

// rowsAt returns what a table is at a cut, or live, by the model.
func (w *world) rowsAt(table string, id dataflow.CheckpointID, live bool) map[string]string {
	model, _ := w.model(id, live)
	out := make(map[string]string)
	for g, s := range model {
		a, b := "null", "null"
		if g.aOK {
			a = fmt.Sprintf("%q", g.a)
		}
		if g.bOK {
			b = fmt.Sprint(g.b)
		}
		k := fmt.Sprintf(`{"a":%s,"b":%s}`, a, b)
		switch {
		case table == "counts":
			out[k] = fmt.Sprintf(`{"b":%s,"a":%s,"n":%d,"total":%d}`, b, a, s.n, s.v)
		case s.n%2 == 1:
			out[k] = fmt.Sprintf(`{"a":%s,"b":%s,"n":%d}`, a, b, s.n)
		}
	}
	return out
}

func difference(got, want map[string]string) error {
	if maps.Equal(got, want) {
		return nil
	}
	for k, row := range want {
		if got[k] != row {
			return fmt.Errorf("row %s is %q, want %q; %d rows, want %d", k, got[k], row, len(got), len(want))
		}
	}
	return fmt.Errorf("%d rows, want %d", len(got), len(want))
}

func watchOf(table string) dataflow.Watch {
	return dataflow.Watch{Pipeline: pipelineName, Table: table}
}

// TestAWatcherHasTheTableAtEveryCut runs watchers that come, go and resume at random while rows arrive, cuts are made and
// forgotten, and incarnations end.
func TestAWatcherHasTheTableAtEveryCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, 3)
	e := w.engine()
	defer e.EndWatches()
	stop := make(chan struct{})
	var watchers sync.WaitGroup
	for i := range 6 {
		watchers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			table := []string{"counts", "uneven"}[i%2]
			p := &picture{}
			r := watchOf(table)
			for {
				select {
				case <-stop:
					return
				default:
				}
				left := 1 + rng.IntN(5)
				err := e.Watch(t.Context(), r, func(ev *dataflow.WatchEvent) error {
					if !p.take(ev) {
						return nil
					}
					if err := difference(p.rows, w.rowsAt(table, ev.Cut.Checkpoint, false)); err != nil {
						return fmt.Errorf("%s at cut %d: %w", table, ev.Cut.Checkpoint, err)
					}
					r.Resume = &ev.Cut.Session
					select {
					case <-stop:
						return errEnough
					default:
					}
					if left--; left == 0 {
						return errEnough
					}
					return nil
				})
				p.pending = nil // of a cut that was not complete
				switch {
				case errors.Is(err, errEnough):
				case slices.Contains([]dataflow.Reason{dataflow.ReasonCheckpointExpired, dataflow.ReasonWatchLagged, dataflow.ReasonNoCommittedCheckpoint}, dataflow.ReasonOf(err)):
					r.Resume = nil
				default:
					t.Errorf("watcher %d: %v", i, err)
					return
				}
				if rng.IntN(8) == 0 {
					r.Resume = nil
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	for range 400 {
		for range rng.IntN(12) {
			w.add(g2(fmt.Sprint(rng.IntN(40)), int64(rng.IntN(2))), int64(rng.IntN(3)))
		}
		switch rng.IntN(20) {
		case 0:
			w.crash()
			w.recover()
		case 1:
			w.pass(time.Minute)
		}
		w.commit()
	}
	close(stop)
	w.commit() // wakes those who wait
	watchers.Wait()
	e.EndWatches()
	w.unpinned()
}

func TestManyWatchersShareWhatACutChanged(t *testing.T) {
	w := newWorld(t, 2)
	w.mu.retained = 1 << 20
	e := w.engine()
	defer e.EndWatches()
	const watchers, rows = 200, 50
	var mu sync.Mutex
	first := make(map[string]*byte) // of each row's text, by key
	var all sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(watchers)
	for range watchers {
		all.Go(func() {
			cuts := 0
			err := e.Watch(t.Context(), dataflow.Watch{Pipeline: pipelineName, Table: "counts", ChangesOnly: true}, func(ev *dataflow.WatchEvent) error {
				if cuts++; cuts == 1 {
					ready.Done()
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				for _, c := range ev.Changes {
					if p := first[string(c.Key)]; p != nil && p != &c.Row[0] {
						return errors.New("a row was encoded twice")
					}
					first[string(c.Key)] = &c.Row[0]
				}
				return errEnough
			})
			if !errors.Is(err, errEnough) {
				t.Error(err)
			}
		})
	}
	ready.Wait()
	for i := range rows {
		w.add(g2("k", int64(i)), 1)
	}
	w.commit()
	all.Wait()
	if len(first) != rows {
		t.Errorf("%d rows were told of, want %d", len(first), rows)
	}
}

func TestAResumeTooOldIsExpiredAndASlowWatcherIsToldSo(t *testing.T) {
	w := newWorld(t, 2)
	e := w.engine(func(c *statequery.Config) { c.WatchBytes = 1 }) // nothing is kept
	defer e.EndWatches()
	w.add(g2("a", 1), 1)
	w.commit()
	err := e.Watch(t.Context(), watchOf("counts"), func(ev *dataflow.WatchEvent) error {
		if !ev.EndOfCut {
			return nil
		}
		for range 5 { // the consumer is busy meanwhile
			w.add(g2("a", 1), 1)
			w.commit()
		}
		return nil
	})
	refused(t, err, dataflow.ReasonWatchLagged)
	if s := e.WatchStats(); s.Lagged != 1 || s.Open != 0 {
		t.Errorf("the figures are %+v", s)
	}
	r := watchOf("counts")
	r.Resume = &dataflow.SessionToken{Group: group, Pipeline: 5, Timeline: 1, Checkpoint: 1}
	refused(t, e.Watch(t.Context(), r, func(*dataflow.WatchEvent) error { return nil }), dataflow.ReasonCheckpointExpired)
	r.Resume = &dataflow.SessionToken{Group: group, Pipeline: 4, Timeline: 1, Checkpoint: 1}
	refused(t, e.Watch(t.Context(), r, func(*dataflow.WatchEvent) error { return nil }), dataflow.ReasonTimelineChanged)
}

func TestARangeAndNumbersAsText(t *testing.T) {
	w := newWorld(t, 2)
	w.mu.retained = 10
	e := w.engine()
	defer e.EndWatches()
	w.add(g2("apple", 1), 1)
	w.add(g2("bread", 1), 1)
	w.commit()
	r := watchOf("counts")
	r.Range, r.NumbersAsText = dataflow.ScanRange{Prefix: "b"}, true
	var got []string
	err := e.Watch(t.Context(), r, func(ev *dataflow.WatchEvent) error {
		for _, c := range ev.Changes {
			got = append(got, string(c.Row))
		}
		if ev.Snapshot {
			w.add(g2("apple", 1), 1)
			w.commit() // nothing that is watched
			w.add(g2("bread", 1), 1)
			w.commit()
			return nil
		}
		if len(ev.Changes) == 0 {
			return nil
		}
		return errEnough
	})
	want := []string{`{"b":"1","a":"bread","n":"1","total":"1"}`, `{"b":"1","a":"bread","n":"2","total":"2"}`}
	if !errors.Is(err, errEnough) || !slices.Equal(got, want) {
		t.Errorf("%v: %v, want %v", err, got, want)
	}
}

func TestAWatchEndsWithThePipelineAndWithTheNode(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world, e *statequery.Engine)
		want dataflow.Reason
	}{
		"replaced": {func(w *world, _ *statequery.Engine) { w.set(func(p *statequery.Pipeline) { p.UID++ }) }, dataflow.ReasonTimelineChanged},
		"rewound":  {func(w *world, _ *statequery.Engine) { w.set(func(p *statequery.Pipeline) { p.Timeline++ }) }, dataflow.ReasonTimelineChanged},
		"stopping": {func(_ *world, e *statequery.Engine) { e.EndWatches() }, dataflow.ReasonShuttingDown},
	} {
		for _, isolation := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
			t.Run(name+" "+isolation.String(), func(t *testing.T) {
				w := newWorld(t, 2)
				e := w.engine()
				defer e.EndWatches()
				var once sync.Once
				r := watchOf("counts")
				r.Isolation = isolation
				var ending sync.WaitGroup
				err := e.Watch(t.Context(), r, func(*dataflow.WatchEvent) error {
					once.Do(func() { ending.Go(func() { c.end(w, e) }) })
					return nil
				})
				ending.Wait()
				refused(t, err, c.want)
				if name == "stopping" {
					refused(t, e.Watch(t.Context(), r, func(*dataflow.WatchEvent) error { return nil }), c.want)
				}
			})
		}
	}
}

// TestALiveWatcherIsToldWhatARecoveryTookBack adds rows, ends incarnations and checks, each time that all is quiet, that a
// watcher's picture is the live table.
func TestALiveWatcherIsToldWhatARecoveryTookBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, table := range []string{"counts", "uneven"} {
		w := newWorld(t, 2)
		e := w.engine(func(c *statequery.Config) { c.LiveEvery = time.Millisecond })
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		p, rolledBack, speculative := &picture{}, 0, true
		changed := make(chan struct{}, 1)
		var watcher sync.WaitGroup
		watcher.Go(func() {
			r := watchOf(table)
			r.Isolation = dataflow.ReadUncommitted
			_ = e.Watch(ctx, r, func(ev *dataflow.WatchEvent) error { // ended by the test
				mu.Lock()
				defer mu.Unlock()
				if ev.RolledBack {
					rolledBack++
				}
				p.take(ev)
				speculative = speculative && (ev.Cut == nil || ev.Cut.Speculative)
				select {
				case changed <- struct{}{}:
				default:
				}
				return nil
			})
		})
		until := func(what string, ok func() bool) {
			t.Helper()
			for {
				mu.Lock()
				done := ok()
				mu.Unlock()
				if done {
					return
				}
				select {
				case <-changed:
				case <-time.After(20 * time.Second):
					mu.Lock()
					defer mu.Unlock()
					t.Fatalf("%s: %s: %v", table, what, difference(p.rows, w.rowsAt(table, 0, true)))
				}
			}
		}
		until("the snapshot comes", func() bool { return p.rows != nil })
		for round := range 25 {
			for range 1 + rng.IntN(15) {
				w.add(g2(fmt.Sprint(rng.IntN(10)), 1), 1)
			}
			if rng.IntN(3) == 0 {
				w.commit()
			}
			if rng.IntN(2) == 0 {
				until("it has the live rows", func() bool { return difference(p.rows, w.rowsAt(table, 0, true)) == nil })
			}
			if rng.IntN(3) == 0 || round == 24 {
				mu.Lock()
				before := rolledBack
				mu.Unlock()
				w.crash()
				w.recover()
				until("it is told of the recovery", func() bool { return rolledBack > before })
			}
			until("it has the live rows", func() bool { return difference(p.rows, w.rowsAt(table, 0, true)) == nil })
		}
		cancel()
		watcher.Wait()
		e.EndWatches()
		w.unpinned()
		if !speculative {
			t.Error("a live event does not say that it is speculative")
		}
	}
}

// TestWhatASlowWatcherHoldsIsCounted stops taking a snapshot in the middle: what was read of it for him is in the figures, and
// leaves them when he takes it.
func TestWhatASlowWatcherHoldsIsCounted(t *testing.T) {
	w := newWorld(t, 2)
	for i := range 3000 {
		w.add(g2(fmt.Sprintf("a key that is long enough to fill events %d", i), int64(i)), 1)
	}
	w.commit()
	e := w.engine()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	most, after := int64(0), int64(-1)
	err := e.Watch(ctx, dataflow.Watch{Pipeline: pipelineName, Table: "counts"}, func(ev *dataflow.WatchEvent) error {
		if ev.EndOfCut {
			after = e.WatchStats().Bytes
			cancel()
			return nil
		}
		most = max(most, e.WatchStats().Bytes)
		return nil
	})
	refused(t, err, dataflow.ReasonDeadline)
	e.EndWatches()
	if most < 128<<10 || after != 0 {
		t.Errorf("%d bytes while the page was sent, %d afterwards", most, after)
	}
	w.unpinned()
}
