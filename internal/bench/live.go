package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/pause"
)

// live measures how long after its acknowledgement an append shows in a live read, while rows come in at half of the
// maximum.
func (r *runner) live(ctx context.Context) (err error) {
	s, most, err := r.openFilled(ctx, "live", r.size.keys/10)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f := &figures{bench: "live", name: fmt.Sprintf("keys=%d", s.load.keys)}
	var acks, visible []latencies
	var probes []int64
	r.progress("live")
	if err := s.during(ctx, most/2, func(ctx context.Context) error {
		if err := pause.For(ctx, r.size.settle); err != nil {
			return err
		}
		for range r.size.windows {
			p, err := s.probe(ctx, int64(s.load.keys)+int64(len(probes)), 2*r.size.window)
			if err != nil {
				return err
			}
			acks, visible, probes = append(acks, p.ack), append(visible, p.visible), append(probes, p.keys...)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, k := range probes {
		s.load.note(uint64(k), true)
	}
	// The producer's token covers its own rows. Some more of them, spread over all shards, are behind every probe.
	if err := s.producer.Append(ctx, s.load.next(1024, time.Now())); err != nil {
		return err
	}
	s.foreign += uint64(len(probes))
	if err := s.check(ctx, loadCheck); err != nil {
		return err
	}
	f.add("ingest", "rows/s", most/2)
	f.addLatency("append", acks...)
	f.addLatency("visible_after_ack", visible...)
	return r.cfg.Report(f.list)
}

// probed is what a run of probes found.
type probed struct {
	keys         []int64
	ack, visible latencies
}

// probesEvery is how often a row is appended and waited for. Looking for one takes a few reads, so more would measure the
// reads.
const probesEvery = 20 * time.Millisecond

// probe appends single rows with new keys from first on, each on its schedule, for a time. A row's acknowledgement is timed
// from when it was due; when it is visible, from its acknowledgement, by reading again and again.
func (s *session) probe(ctx context.Context, first int64, d time.Duration) (p probed, err error) {
	var mu sync.Mutex
	eg, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := 0; time.Duration(i)*probesEvery < d; i++ {
		due := began.Add(time.Duration(i) * probesEvery)
		if pause.For(ctx, time.Until(due)) != nil {
			break // eg knows why
		}
		key := first + int64(i)
		p.keys = append(p.keys, key)
		eg.Go(func() error {
			if _, err := s.client.Append(ctx, weir.Append{Stream: "events", Rows: probeRow(key, due)}); err != nil {
				return err
			}
			acked := time.Now()
			if err := s.await(ctx, key); err != nil {
				return err
			}
			seen := time.Now()
			mu.Lock()
			defer mu.Unlock()
			p.ack = append(p.ack, acked.Sub(due))
			p.visible = append(p.visible, seen.Sub(acked))
			return nil
		})
	}
	return p, eg.Wait()
}

func probeRow(key int64, due time.Time) *batch.Batch {
	b := batch.NewBatch(loadSchema)
	b.AppendRow(dataflow.Row{dataflow.BigInt(key), dataflow.BigInt(due.UnixMicro()), dataflow.Text("probe")})
	return b
}

// await reads the live row of a key until it is there.
func (s *session) await(ctx context.Context, key int64) error {
	for {
		a, err := s.client.Get(ctx, "bench.counts", weir.Key(key), weir.ReadOptions{Isolation: dataflow.ReadUncommitted})
		if dataflow.ReasonOf(err) == dataflow.ReasonRowNotFound {
			continue
		}
		if err != nil {
			return err
		}
		var row struct{ K, N int64 }
		if err := json.Unmarshal(a.Row, &row); err != nil || row.K != key || row.N != 1 {
			return voidf("the row of key %d, which was appended once, is %s", key, a.Row)
		}
		return nil
	}
}
