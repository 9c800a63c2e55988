package bench

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/node"
)

// freshness measures the age of the committed view while rows come in at half of the maximum: now, less when the newest
// row of the shard that is most behind was due.
func (r *runner) freshness(ctx context.Context) (err error) {
	s, err := r.openSession(ctx, "freshness", loadSQL, nil, r.size.keys/10)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.fill(ctx); err != nil {
		return err
	}
	var found []*figures
	for _, interval := range []string{"1 s", "100 ms"} {
		f := &figures{bench: "freshness", name: "interval=" + interval}
		found = append(found, f)
		if _, err := s.client.SetPipelineOptions(ctx, "bench", map[string]string{"checkpoint.interval": interval}); err != nil {
			return err
		}
		most, err := s.maximum(ctx, 2*r.size.window)
		if err != nil {
			return err
		}
		r.progress("freshness %s", f.name)
		var runs []latencies
		if err := s.during(ctx, most/2, func(ctx context.Context) error {
			if err := pause.For(ctx, r.size.settle); err != nil {
				return err
			}
			for range r.size.windows {
				ages, err := s.ages(ctx, dataflow.ReadCommitted, 2*r.size.window)
				if err != nil {
					return err
				}
				runs = append(runs, ages)
			}
			return nil
		}); err != nil {
			return err
		}
		f.add("ingest", "rows/s", most/2)
		f.addLatency("age", runs...)
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

// agesEvery is how often the age of a view is looked at.
const agesEvery = 5 * time.Millisecond

// ages looks at a view again and again for a time, each look on its schedule, and returns how old it was.
func (s *session) ages(ctx context.Context, iso dataflow.Isolation, d time.Duration) (latencies, error) {
	var mu sync.Mutex
	var found latencies
	eg, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := 0; time.Duration(i)*agesEvery < d; i++ {
		if pause.For(ctx, time.Until(began.Add(time.Duration(i)*agesEvery))) != nil {
			break // eg knows why
		}
		eg.Go(func() error {
			age, err := s.age(ctx, iso)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, age)
			return err
		})
	}
	return found, eg.Wait()
}

// age returns how long ago the newest row of the shard that is most behind was due.
func (s *session) age(ctx context.Context, iso dataflow.Isolation) (time.Duration, error) {
	due, err := s.newest(ctx, iso)
	if err != nil {
		return 0, err
	}
	now, age := time.Now(), time.Duration(0)
	for _, t := range due {
		age = max(age, now.Sub(t))
	}
	return age, nil
}

// newest reads when the newest row of every shard was due.
func (s *session) newest(ctx context.Context, iso dataflow.Isolation) ([]time.Time, error) {
	keys := make([]dataflow.Row, node.DefaultShards)
	for shard := range keys {
		keys[shard] = weir.Key(shard)
	}
	a, err := s.client.BatchGet(ctx, "bench.shards", keys, weir.ReadOptions{Isolation: iso})
	if err != nil {
		return nil, err
	}
	due := make([]time.Time, len(keys))
	for i, row := range a.Rows {
		var r struct{ Shard, T int64 }
		if err := json.Unmarshal(row, &r); err != nil || r.Shard != int64(i) {
			return nil, voidf("the row of shard %d is %s", i, row)
		}
		due[i] = time.UnixMicro(r.T)
	}
	return due, nil
}
