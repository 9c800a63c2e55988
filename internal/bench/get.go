package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
)

// get measures reads by key while rows come in at half of the maximum: of tables that fit in memory, and of tables that do
// not, so that committed reads go to the layers and the store.
func (r *runner) get(ctx context.Context) error {
	var warm, cold []*getter
	for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
		for _, batch := range []int{1, 100} {
			if g := (&getter{isolation: iso, batch: batch}); r.wants(g.String()) {
				warm = append(warm, g)
			}
			if g := (&getter{isolation: iso, batch: batch, cold: true}); iso == dataflow.ReadCommitted && r.wants(g.String()) {
				cold = append(cold, g)
			}
		}
	}
	if err := r.getFrom(ctx, "get", 0, warm); err != nil {
		return err
	}
	return r.getFrom(ctx, "get-cold", r.size.keys*coldKeyBytes, cold)
}

// coldKeyBytes is the memory per key of a node whose tables do not fit: about a sixth of what they take.
const coldKeyBytes = 8

// getFrom makes getters measure, of a node of their own with a budget for live tables; 0 = its default.
func (r *runner) getFrom(ctx context.Context, profileName string, memory uint64, getters []*getter) (err error) {
	if len(getters) == 0 {
		return nil
	}
	s, most, err := r.openFilledWithin(ctx, int64(memory), profileName, r.size.keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f := &figures{bench: "get", name: fmt.Sprintf("keys=%d", s.load.keys)}
	if memory > 0 {
		f.name += fmt.Sprintf(" memory=%dKiB", memory>>10)
	}
	f.add("ingest_during_reads", "rows/s", most/2)
	found := []*figures{f}
	err = s.during(ctx, most/2, func(ctx context.Context) error {
		for _, g := range getters {
			g.s = s
			f := &figures{bench: "get", name: g.String()}
			r.progress("get %s", g)
			if err := g.measure(ctx, f); err != nil {
				return fmt.Errorf("%s: %w", g, err)
			}
			found = append(found, f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.check(ctx, loadCheck); err != nil {
		return err
	}
	for _, f := range found {
		if err := r.cfg.Report(f.list); err != nil {
			return err
		}
	}
	return nil
}

// getter makes reads of one kind.
type getter struct {
	s         *session
	isolation dataflow.Isolation
	batch     int  // keys per call; 1 = Get, else BatchGet
	cold      bool // the live tables hold a part of the keys only
	seed      atomic.Uint64
}

func (g *getter) String() string {
	iso := "committed"
	if g.isolation == dataflow.ReadUncommitted {
		iso = "live"
	}
	if g.cold {
		iso += " cold"
	}
	if g.batch == 1 {
		return "unary " + iso
	}
	return fmt.Sprintf("batch=%d %s", g.batch, iso)
}

// callers is how many calls are under way when the most is wanted: enough for the server never to wait for a client.
const callers = 32

func (g *getter) measure(ctx context.Context, f *figures) error {
	size := g.s.r.size
	var rates []float64
	for i := range size.windows + 1 {
		rate, err := g.closedLoop(ctx, size.window)
		if err != nil {
			return err
		}
		if i > 0 { // the first warms up
			rates = append(rates, rate)
		}
	}
	f.add("calls_per_second", "calls/s", rates...)
	if g.batch > 1 {
		keys := make([]float64, len(rates))
		for i, r := range rates {
			keys[i] = r * float64(g.batch)
		}
		f.add("keys_per_second", "keys/s", keys...)
	}
	var runs []latencies
	for range size.windows {
		l, err := g.openLoop(ctx, f.list[0].Value/2, size.window)
		if err != nil {
			return err
		}
		runs = append(runs, l)
	}
	f.addLatency("latency_at_half_rate", runs...)
	return nil
}

// closedLoop keeps the callers busy for a time and returns calls per second.
func (g *getter) closedLoop(ctx context.Context, d time.Duration) (float64, error) {
	var calls atomic.Uint64
	eg, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range callers {
		eg.Go(func() error {
			c := g.caller()
			for time.Since(began) < d {
				if err := c.call(ctx); err != nil {
					return err
				}
				calls.Add(1)
			}
			return nil
		})
	}
	err := eg.Wait()
	return float64(calls.Load()) / time.Since(began).Seconds(), err
}

// openCallers bounds the calls under way in an open loop. A call that has to wait for one of them waits on its own account
// (B3).
const openCallers = 256

// openLoop makes rate calls per second for a time and returns how long after they were due they were answered.
func (g *getter) openLoop(ctx context.Context, rate float64, d time.Duration) (latencies, error) {
	due := make(chan time.Time, int(rate*d.Seconds())+1) // room for all: the schedule never waits
	var mu sync.Mutex
	var found latencies
	eg, ctx := errgroup.WithContext(ctx)
	for range openCallers {
		eg.Go(func() error {
			c := g.caller()
			var mine latencies
			for at := range due {
				if err := c.call(ctx); err != nil {
					return err
				}
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, mine...)
			return nil
		})
	}
	began := time.Now()
	for i := 0; ; i++ {
		at := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if at.Sub(began) >= d || pause.For(ctx, time.Until(at)) != nil { // eg knows why ctx has ended
			break
		}
		due <- at
	}
	close(due)
	return found, eg.Wait()
}

// caller makes the calls of one goroutine.
type caller struct {
	g      *getter
	random xorshift
	newest uint64 // cut seen
	keys   []dataflow.Row
	want   []byte // scratch of call
}

func (g *getter) caller() *caller {
	c := &caller{g: g, random: xorshift(g.seed.Add(0x9e3779b97f4a7c15)), keys: make([]dataflow.Row, g.batch)}
	for i := range c.keys {
		c.keys[i] = weir.Key(int64(0))
	}
	return c
}

// call reads random keys, all of which exist, and checks what cannot be otherwise: the rows are those of the keys, and
// committed cuts do not go back (G3).
func (c *caller) call(ctx context.Context) error {
	g := c.g
	keys := c.keys
	for i := range keys {
		keys[i][0].Int = int64(c.random.below(g.s.load.keys))
	}
	o := weir.ReadOptions{Isolation: g.isolation}
	var found []weir.Row
	var cut uint64
	if g.batch == 1 {
		a, err := g.s.client.Get(ctx, "bench.counts", keys[0], o)
		if err != nil {
			return err
		}
		found, cut = []weir.Row{a.Row}, a.Cut.GetCheckpointId()
	} else {
		a, err := g.s.client.BatchGet(ctx, "bench.counts", keys, o)
		if err != nil {
			return err
		}
		found, cut = a.Rows, a.Cut.GetCheckpointId()
	}
	if cut < c.newest {
		return voidf("a read of cut %d came after one of cut %d", cut, c.newest)
	}
	c.newest = cut
	if len(found) != len(keys) {
		return voidf("%d keys were asked for and %d rows answered", len(keys), len(found))
	}
	for i, row := range found {
		c.want = append(strconv.AppendInt(append(c.want[:0], `{"k":`...), keys[i][0].Int, 10), ',')
		if !bytes.HasPrefix(row, c.want) {
			return voidf("the row of key %d is %s", keys[i][0].Int, row)
		}
	}
	return nil
}
