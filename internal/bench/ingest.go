package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/pause"
)

// ingestSQL adds all rows up, which costs next to nothing once the rows are in the log.
const (
	ingestStream = `CREATE STREAM events (k BIGINT NOT NULL, t BIGINT NOT NULL, pad TEXT NOT NULL);`
	ingestView   = `CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS rows, sum(k) AS sum FROM events;`
	ingestCheck  = `SELECT rows, sum, %d AS keys FROM bench.totals`
)

// ingest measures appends: rows of 100 bytes through the Go client's Producer with its default settings, beside a file that
// takes the same bytes. In the first case nothing reads the stream while it is measured; in the second the pipeline of the
// other benchmarks does.
func (r *runner) ingest(ctx context.Context) error {
	for _, c := range []struct {
		name string
		run  func(context.Context, *figures) error
	}{{"plan=none", r.ingestAlone}, {"plan=counts", r.ingestWithPlan}} {
		if !r.wants(c.name) {
			continue
		}
		f := &figures{bench: "ingest", name: c.name}
		r.progress("ingest %s", c.name)
		if err := c.run(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := r.cfg.Report(f.list); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) ingestAlone(ctx context.Context, f *figures) (err error) {
	// The plan is made and deleted: its stream stays.
	s, err := r.openSession(ctx, "ingest", ingestStream+ingestView, nil, r.size.keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if _, err := s.client.DeletePipeline(ctx, "bench"); err != nil {
		return err
	}
	if err := r.ingestRates(ctx, s, f); err != nil {
		return err
	}
	// Now the plan reads all of it, and counts.
	r.progress("ingest: check")
	if err := s.producer.Flush(ctx); err != nil {
		return err
	}
	if _, err := s.client.Deploy(ctx, weir.Deploy{Pipeline: "bench", SQL: ingestView}); err != nil {
		return err
	}
	return s.check(ctx, fmt.Sprintf(ingestCheck, s.load.truth.keys))
}

func (r *runner) ingestWithPlan(ctx context.Context, f *figures) (err error) {
	s, err := r.openSession(ctx, "ingest-plan", loadSQL, nil, r.size.keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.fill(ctx); err != nil {
		return err
	}
	if err := r.ingestRates(ctx, s, f); err != nil {
		return err
	}
	return s.check(ctx, loadCheck)
}

// ingestRates measures rate and ratio in turns, then acknowledgements at half of the rate. With a plan that reads the
// stream a rate counts rows until they are processed.
func (r *runner) ingestRates(ctx context.Context, s *session, f *figures) error {
	if err := s.send(ctx, r.size.settle); err != nil { // warm up
		return err
	}
	var rates, mbs, disk, ratios, nodeCPU, clientCPU []float64
	for range r.size.windows {
		sent, node, client := s.load.rows, cpuTime(s.node.cmd.Process.Pid), cpuTime(os.Getpid())
		rate, err := s.maximum(ctx, r.size.window)
		if err != nil {
			return err
		}
		millions := float64(s.load.rows-sent) / 1e6
		if n := cpuTime(s.node.cmd.Process.Pid) - node; n > 0 {
			nodeCPU = append(nodeCPU, n.Seconds()/millions)
			clientCPU = append(clientCPU, (cpuTime(os.Getpid())-client).Seconds()/millions)
		}
		r.progress("ingest: plain file")
		plain, err := plainRate(r.dataDir(), 1, int64(rate*rowBytes*r.size.window.Seconds()))
		if err != nil {
			return err
		}
		rates, mbs = append(rates, rate), append(mbs, rate*rowBytes/1e6)
		disk, ratios = append(disk, plain/1e6), append(ratios, rate*rowBytes/plain)
	}
	f.add("rows_per_second", "rows/s", rates...)
	f.add("megabytes_per_second", "MB/s", mbs...)
	f.add("plain_file_megabytes_per_second", "MB/s", disk...)
	f.add("ratio_to_plain_file", "ratio", ratios...)
	f.add("node_cpu_per_million_rows", "s", nodeCPU...)
	f.add("client_cpu_per_million_rows", "s", clientCPU...)

	r.progress("ingest: half load")
	var runs []latencies
	for range r.size.windows {
		l, err := s.acknowledgements(ctx, f.list[0].Value/2, 2*r.size.window)
		if err != nil {
			return err
		}
		runs = append(runs, l)
	}
	f.addLatency("ack_at_half_load", runs...)
	return nil
}

// acknowledgements sends rate rows per second for a time and returns how long after they were due the rows of each tick
// were acknowledged. Rows count as acknowledged in the order in which they were sent.
func (s *session) acknowledgements(ctx context.Context, rate float64, d time.Duration) (latencies, error) {
	const look = 200 * time.Microsecond // how precise the times are
	var mu sync.Mutex
	var open []sending
	stop, watched := make(chan struct{}), make(chan latencies, 1)
	go func() {
		var found latencies
		for last := false; ; {
			st, now := s.producer.Stats(), time.Now()
			mu.Lock()
			for len(open) > 0 && open[0].rows <= st.Appended+st.Duplicates {
				found = append(found, now.Sub(open[0].due))
				open = open[1:]
			}
			mu.Unlock()
			if last {
				watched <- found
				return
			}
			select {
			case <-time.After(look):
			case <-stop:
				last = true
			}
		}
	}()
	p := s.startPace(ctx, rate, func(rows uint64, due time.Time) {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, sending{rows, due})
	})
	err := errors.Join(pause.For(ctx, d), p.stop())
	if err == nil {
		err = s.producer.Flush(ctx)
	}
	close(stop)
	return <-watched, err
}

// sending is what has been sent at a tick.
type sending struct {
	rows uint64 // in all, with these
	due  time.Time
}
