package bench

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/pause"
)

// ringMeasure measures a pipeline that reads rings, in turns with its partners.
type ringMeasure struct {
	c      *weir.Client
	rings  []*ring
	gate   *gate
	seen   *cuts
	window time.Duration
	bare   *bare // nil = there are no partners

	rate, perCPU, allocs []float64 // with a checkpoint each second
	cost                 []float64 // percent of the rate without checkpoints
	bareRate, ratio      []float64
}

// turn measures once, and each partner once.
func (m *ringMeasure) turn(ctx context.Context) error {
	began, rows0, allocs0, cpu0 := time.Now(), rows(m.rings), allocations(), cpuTime(os.Getpid())
	if err := m.seen.watch(ctx, m.window); err != nil {
		return err
	}
	did := float64(rows(m.rings) - rows0)
	rate := did / time.Since(began).Seconds()
	m.rate = append(m.rate, rate)
	m.allocs = append(m.allocs, float64(allocations()-allocs0)/did)
	if cpu := cpuTime(os.Getpid()) - cpu0; cpu > 0 {
		m.perCPU = append(m.perCPU, did/cpu.Seconds())
	}
	if m.bare == nil {
		return nil
	}

	if err := m.checkpointEach(ctx, "off"); err != nil {
		return err
	}
	// Behind this one there is none under way; what it leaves to be done in the background is not counted either.
	last, err := m.c.TriggerCheckpoint(ctx, "bench", true)
	if err != nil {
		return err
	}
	if err := pause.For(ctx, m.window); err != nil {
		return err
	}
	began, rows0 = time.Now(), rows(m.rings)
	if err := pause.For(ctx, m.window); err != nil {
		return err
	}
	free := float64(rows(m.rings)-rows0) / time.Since(began).Seconds()
	m.cost = append(m.cost, 100*(1-rate/free))

	m.gate.set(gateShut)
	if err := pause.For(ctx, m.window/10); err != nil { // what was read is folded
		return err
	}
	loops := m.bare.run(m.window)
	m.bareRate, m.ratio = append(m.bareRate, loops), append(m.ratio, rate/loops)
	m.gate.set(gateOpen)
	if err := m.checkpointEach(ctx, "1 s"); err != nil {
		return err
	}
	m.seen.last = last.GetId()
	return m.seen.watch(ctx, m.window) // until checkpoints, and what they leave to be done, come as usual
}

func (m *ringMeasure) checkpointEach(ctx context.Context, interval string) error {
	_, err := m.c.SetPipelineOptions(ctx, "bench", map[string]string{"checkpoint.interval": interval})
	return err
}

func (m *ringMeasure) report(f *figures) {
	f.add("rows_per_second", "rows/s", m.rate...)
	f.add("rows_per_cpu_second", "rows/s", m.perCPU...)
	f.add("allocations_per_row", "allocations", m.allocs...)
	f.addTimes("checkpoint", m.seen.took)
	f.add("checkpoint_cost", "%", m.cost...)
	f.add("bare_rows_per_second", "rows/s", m.bareRate...)
	f.add("ratio_to_bare", "ratio", m.ratio...)
}

// allocations returns how many objects the process has allocated.
func allocations() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Mallocs
	}
	return s[0].Value.Uint64()
}

// cuts follows the checkpoints of a pipeline.
type cuts struct {
	c    *weir.Client
	last uint64
	took latencies // from trigger to commit
}

func newCuts(c *weir.Client) *cuts { return &cuts{c: c} }

// cutsEvery is how often the list of checkpoints is read: before any of the last three, which are kept, is gone.
const cutsEvery = 500 * time.Millisecond

// watch notes the checkpoints that are committed during d.
func (w *cuts) watch(ctx context.Context, d time.Duration) error {
	first := w.last == 0
	for began := time.Now(); ; {
		list, err := w.c.ListCheckpoints(ctx, "bench")
		if err != nil {
			return err
		}
		newest := w.last
		for _, c := range list {
			if c.GetId() > w.last && !first {
				w.took = append(w.took, c.GetCommittedAt().AsTime().Sub(c.GetTriggeredAt().AsTime()))
			}
			newest = max(newest, c.GetId())
		}
		w.last, first = newest, false
		left := d - time.Since(began)
		if left <= 0 {
			return nil
		}
		if err := pause.For(ctx, min(left, cutsEvery)); err != nil {
			return err
		}
	}
}
