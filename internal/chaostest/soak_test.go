package chaostest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/pause"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

var minutes = flag.Int("minutes", 0, "how long the soak runs; 0 = it does not")

// The soak's rows are about so many sensors: the tables are as large after the first seconds as in the end. The stream keeps what
// is sent in some four minutes, a row of which takes about 5 bytes; the logs keep little behind a snapshot, and watches what changed
// in a minute. What still grows after some minutes grows without reason.
const (
	sensors = 200
	soakSQL = `
SET checkpoint.interval = '500 ms';
CREATE STREAM readings (n BIGINT NOT NULL, sensor BIGINT NOT NULL, value BIGINT NOT NULL) WITH (max_bytes = '128 KiB');
CREATE MATERIALIZED VIEW sums AS SELECT sensor, count(*) AS n, sum(value) AS total FROM readings GROUP BY sensor;
`
	// soakGuestSQL is of a pipeline that is deployed and deleted again and again.
	soakGuestSQL = `
CREATE STREAM readings (n BIGINT NOT NULL, sensor BIGINT NOT NULL, value BIGINT NOT NULL) WITH (max_bytes = '128 KiB');
CREATE MATERIALIZED VIEW peaks AS SELECT sensor, max(value) AS peak FROM readings GROUP BY sensor;
`
	// soakTrailing and soakSnapshot are small, so that the logs are as long as they get within minutes at this load.
	soakTrailing, soakSnapshot, soakSegment = 256 << 10, 1 << 20, 1 << 20
)

// TestAGroupNeedsNoMoreWithTime lets three servers live under a light load and a few faults, and compares what each needs at
// times at which all is done that was asked: goroutines, files, memory and disk of the second half of its life must not grow.
func TestAGroupNeedsNoMoreWithTime(t *testing.T) {
	if *minutes == 0 {
		t.Skip("needs -minutes")
	}
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked at on Linux only")
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	// Those that leave every process alive: what a process needs can only be compared with what it has needed before.
	keepFaults([]string{"pause", "pause leader", "isolate", "isolate one way", "cut pair", "cut one way", "delay", "half-open", "refuse", "reset", "drain", "rebalance"})
	inWorld(t, serverBinary(t), *seed, newSums(), func(w *world) error {
		w.size, w.calm = 3, true
		w.settings = []string{
			fmt.Sprintf("WEIR_SERVER_SEGMENT_BYTES=%d", soakSegment), fmt.Sprintf("WEIR_SERVER_SNAPSHOT_BYTES=%d", soakSnapshot),
			fmt.Sprintf("WEIR_SERVER_TRAILING_BYTES=%d", soakTrailing), "WEIR_SERVER_WATCH_RETAINED=1m",
		}
		if err := w.open(); err != nil {
			return err
		}
		w.senders, w.producers = nil, nil
		s := &soak{w: w, model: make(map[int64]reading)}
		w.check = s.whole
		return w.during(func() error { return s.life(time.Duration(*minutes) * time.Minute) })
	})
}

// reading is what the table sums says of a sensor.
type reading struct{ Sensor, N, Total int64 }

// soak is a long life of a group.
type soak struct {
	w *world
	// gate is held for reading by each call of an actor, and for writing while the nodes are compared: then none is under way.
	gate sync.RWMutex

	mu struct {
		sync.Mutex
		token string // covers all rows
	}
	model   map[int64]reading // guarded by gate: written by the one writer, read while nothing is under way
	samples samples
}

// life breaks and heals the group once in each interval, and looks at it.
func (s *soak) life(d time.Duration) error {
	w := s.w
	ctx := w.ctx
	for _, n := range w.all[:w.size] {
		if err := w.startNode(n); err != nil {
			return err
		}
	}
	for _, n := range w.all[:w.size] {
		if err := w.ready(ctx, n); err != nil {
			return err
		}
	}
	if _, err := w.client.Deploy(ctx, weir.Deploy{Pipeline: "meter", SQL: soakSQL}); err != nil {
		return err
	}
	w.begin(s.write)
	w.begin(s.read)
	w.begin(s.follow)
	if err := s.warm(ctx); err != nil {
		return err
	}
	every := min(time.Minute, max(15*time.Second, d/30))
	began := time.Now()
	for round := 1; time.Since(began) < d; round++ {
		next := began.Add(time.Duration(round) * every)
		if err := s.disturb(ctx, round); err != nil {
			return err
		}
		if err := pause.For(ctx, time.Until(next)); err != nil {
			return err
		}
		if err := s.look(ctx, time.Since(began)); err != nil {
			return err
		}
	}
	w.stop()
	w.beside.Wait()
	w.t.Log("\n" + s.samples.report())
	if err := w.complaints(); err != nil {
		return err
	}
	if grown := s.samples.grown(); len(grown) > 0 {
		return violation("I14: %v", errors.Join(grown...))
	}
	return nil
}

// warm lets each node give all its leads away once. After that every node has the connections to every other that it keeps, and
// its stores have the files that they have while they work: a short life's second half would still show how these come.
func (s *soak) warm(ctx context.Context) error {
	w := s.w
	for _, n := range w.all[:w.size] {
		w.drained = append(w.drained, n)
		if err := w.until(ctx, n.name+" is drained", func(ctx context.Context) error {
			_, err := w.client.DrainNode(ctx, n.name, false)
			return err
		}); err != nil {
			return err
		}
		if err := w.until(ctx, n.name+" leads nothing", func(ctx context.Context) error {
			st, err := w.client.Status(ctx)
			for _, l := range append(st.GetShardLogs(), st.GetMeta()) {
				if l.GetLeader() == n.name {
					err = errors.Join(err, fmt.Errorf("it leads %s", l.GetGroup()))
				}
			}
			return err
		}); err != nil {
			return err
		}
		if err := w.heal(ctx); err != nil {
			return err
		}
	}
	return nil
}

// disturb breaks something, lets a pipeline come and go, and heals. n3 alone is killed, in every third round: the others are to
// live from the beginning to the end, and to meet a node that is new to them.
func (s *soak) disturb(ctx context.Context, round int) error {
	w := s.w
	if round%3 == 0 {
		w.all[2].kill()
		w.sum.faults["kill"]++
		w.faults++
		w.history.log("FAULT %d, kill: n3", w.faults)
	}
	if err := w.fault(ctx); err != nil {
		return err
	}
	if err := w.heal(ctx); err != nil {
		return err
	}
	if err := w.until(ctx, "guest is deployed", func(ctx context.Context) error {
		_, err := w.client.Deploy(ctx, weir.Deploy{Pipeline: "guest", SQL: soakGuestSQL})
		return err
	}); err != nil {
		return err
	}
	return s.dismiss(ctx)
}

// dismiss deletes the pipeline that comes and goes.
func (s *soak) dismiss(ctx context.Context) error {
	return s.w.until(ctx, "guest is deleted", func(ctx context.Context) error {
		_, err := s.w.client.DeletePipeline(ctx, "guest")
		if e := reasonOf(err); e != nil && e.Reason == dataflow.ReasonPipelineNotFound {
			return nil // an earlier try has done it
		}
		return err
	})
}

// look waits until every node has everything and leads its part, while nobody asks for anything, and then looks at what each needs:
// what leads it has, and to whom it is connected for them, is then no chance of the last faults.
func (s *soak) look(ctx context.Context, at time.Duration) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	w := s.w
	if err := w.until(ctx, "the leads are spread", func(ctx context.Context) error {
		r, err := w.client.Rebalance(ctx)
		if err == nil && len(r.GetMoves()) > 0 {
			err = fmt.Errorf("%d have just been moved", len(r.GetMoves()))
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.exact(ctx); err != nil {
		return err
	}
	// What calls have left behind ends within this time, and a pause of garbage collection falls into it.
	if err := pause.For(ctx, 3*time.Second); err != nil {
		return err
	}
	sum := make(map[string]float64)
	for i, n := range w.all[:w.size] {
		var got map[string]float64
		if err := w.until(ctx, n.name+" shows its figures", func(ctx context.Context) (err error) {
			got, err = n.needs(ctx)
			return err
		}); err != nil {
			return err
		}
		w.history.log("%s needs %s", n.name, show(got))
		for _, f := range figures {
			switch v := got[f.key()]; {
			case f.together:
				sum[f.key()] += v
				delete(got, f.key())
			case i == 2 && f.metric != "":
				delete(got, f.key()) // its process is not the same one
			}
		}
		s.samples.add(n.name, at, got)
	}
	s.samples.add("all", at, sum)
	return nil
}

// whole is what makes the group whole, beside that all nodes serve: the tables are exact everywhere.
func (s *soak) whole(ctx context.Context) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	return s.exact(ctx)
}

// exact waits until every node answers from a cut that covers all rows, and compares its answer with the model. The caller
// holds gate.
func (s *soak) exact(ctx context.Context) error {
	s.mu.Lock()
	token := s.mu.token
	s.mu.Unlock()
	for _, n := range s.w.all[:s.w.size] {
		if err := s.w.until(ctx, n.name+" has all rows", func(ctx context.Context) error {
			r, err := weirv1.NewQueryServiceClient(n.conn).Query(ctx, &weirv1.QueryRequest{Sql: "SELECT sensor, n, total FROM meter.sums", MinToken: token, Limit: sensors})
			if err != nil {
				return err
			}
			if len(r.GetRows()) != len(s.model) {
				return violation("C2: %s has %d sensors, %d have sent something", n.name, len(r.GetRows()), len(s.model))
			}
			for _, row := range r.GetRows() {
				var got reading
				if err := json.Unmarshal(row, &got); err != nil || got != s.model[got.Sensor] {
					return violation("C2: %s answers %s at cut %d, want %+v (%v)", n.name, row, r.GetCut().GetCheckpointId(), s.model[got.Sensor], err)
				}
			}
			s.w.compared++
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// write sends a few rows at a time, as one producer for the whole life.
func (s *soak) write(ctx context.Context) error {
	p, err := s.w.client.OpenProducer(ctx, "readings", weir.ProducerConfig{Name: "meter", RetryFor: producerPatience, Linger: 2 * time.Millisecond})
	if err != nil {
		return err
	}
	defer func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Close(gone) // all that counts was flushed
	}()
	rng := dice("soak", int64(s.w.seed))
	send := func(n int64) error {
		s.gate.RLock()
		defer s.gate.RUnlock()
		b := batch.NewBatch(p.Schema())
		for i := range int64(20) {
			sensor, value := rng.Int64N(sensors), rng.Int64N(1000)
			b.AppendRow(dataflow.Row{dataflow.BigInt(n + i), dataflow.BigInt(sensor), dataflow.BigInt(value)})
			m := s.model[sensor]
			s.model[sensor] = reading{sensor, m.N + 1, m.Total + value}
		}
		if err := p.Append(ctx, b); err != nil {
			return err
		}
		if err := p.Flush(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.token = p.Token()
		s.w.acked += 20
		return nil
	}
	for n := int64(1); ctx.Err() == nil; n += 20 {
		if err := send(n); err != nil {
			return fmt.Errorf("the soak's producer: %w", err)
		}
		_ = pause.For(ctx, 100*time.Millisecond) // the loop looks at ctx
	}
	return nil
}

// read asks the nodes in turn, committed and not.
func (s *soak) read(ctx context.Context) error {
	rng := dice("soak reader", int64(s.w.seed))
	ask := func(i int) error {
		s.gate.RLock()
		defer s.gate.RUnlock()
		call, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		n := s.w.all[i%s.w.size]
		req := &weirv1.QueryRequest{Sql: fmt.Sprintf("SELECT * FROM meter.sums WHERE sensor = %d", rng.IntN(sensors))}
		if i%4 == 0 {
			req.Isolation = weirv1.Read_READ_UNCOMMITTED
		}
		_, err := weirv1.NewQueryServiceClient(n.conn).Query(call, req)
		if err == nil {
			return nil
		}
		return explain("query on "+n.name, err)
	}
	for i := 0; ctx.Err() == nil; i++ {
		if err := ask(i); err != nil && !errors.Is(err, errAway) {
			return err
		}
		_ = pause.For(ctx, 50*time.Millisecond) // the loop looks at ctx
	}
	return nil
}

// follow watches the table, for some seconds each time.
func (s *soak) follow(ctx context.Context) error {
	watch := func() error {
		s.gate.RLock()
		defer s.gate.RUnlock()
		call, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		for _, err := range s.w.client.Watch(call, "meter.sums", weir.WatchOptions{}) {
			if err != nil && call.Err() == nil {
				return explain("watch", err)
			}
		}
		return nil
	}
	for ctx.Err() == nil {
		if err := watch(); err != nil && !errors.Is(err, errAway) {
			return err
		}
		_ = pause.For(ctx, 500*time.Millisecond) // the loop looks at ctx
	}
	return nil
}
