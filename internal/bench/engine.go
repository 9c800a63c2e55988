package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/worker"
)

// engine measures the dataflow: a deployed count per key, with a checkpoint each second.
func (r *runner) engine(ctx context.Context) error {
	var cases []keyKind
	for _, keys := range r.size.engine {
		cases = append(cases, keyKind{keys: keys, text: true}, keyKind{keys: keys, text: true, zipf: true}, keyKind{keys: keys}, keyKind{keys: keys, zipf: true})
		if keys >= largeKeys {
			// Tables that do not hold all of their keys: the others are looked up in the newest cut.
			cases = append(cases, keyKind{keys: keys, text: true, memory: 256 << 20}, keyKind{keys: keys, text: true, zipf: true, memory: 256 << 20})
		}
	}
	for _, k := range cases {
		if !r.wants(k.String()) {
			continue
		}
		f := &figures{bench: "engine", name: k.String()}
		r.progress("engine %s: rows", k)
		sql, check := engineSQL(k)
		c := ringCase{maker: newKeyMaker(k), sql: sql, check: check, memory: k.memory, profile: k.profileName(), window: r.size.window}
		if k.memory == 0 {
			c.partners = &k
		}
		if k.keys >= largeKeys {
			c.window *= largeWindow
		}
		if err := r.ringCase(ctx, c, f); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		if err := r.cfg.Report(f.list); err != nil {
			return err
		}
	}
	return nil
}

// largeWindow is how many times as long a measurement of the large cases takes: their checkpoints take some seconds.
const largeWindow = 4

// checkTimeout bounds the query that checks a result.
const checkTimeout = 5 * time.Minute

func engineSQL(k keyKind) (sql, check string) {
	kind, number := "BIGINT", "k"
	if k.text {
		kind, number = "TEXT", "CAST(substr(k, 2) AS BIGINT)"
	}
	return fmt.Sprintf(`
CREATE STREAM events (k %s NOT NULL);
CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM events GROUP BY k;`, kind),
		fmt.Sprintf(`SELECT sum(n) AS rows, sum(n * %s) AS sum, count(*) AS keys FROM bench.counts`, number)
}

func (k keyKind) profileName() string {
	return fmt.Sprintf("engine-%d-%s-%s", k.keys, k.schema()[0].Type, map[bool]string{true: "zipf", false: "uniform"}[k.zipf])
}

// ringCase is a plan that is measured with rows from memory.
type ringCase struct {
	maker      rowMaker
	sql, check string
	memory     int64 // the node's budget for live tables; 0 = its default
	profile    string
	window     time.Duration // of one measurement
	// partners lets windows alternate with windows without checkpoints, and with bare loops over the same keys; nil = neither.
	partners *keyKind
	// beside runs while the measurement does, if set; its error ends it.
	beside func(ctx context.Context, c *weir.Client) error
}

// ringCase opens a node in this process whose tasks read rings instead of logs.
func (r *runner) ringCase(ctx context.Context, k ringCase, f *figures) (err error) {
	rings, gate := newRings(k.maker, node.DefaultShards)
	distinct := k.maker.distinct()
	runCtx, cancel := context.WithCancel(ctx)
	n, err := node.Open(runCtx, node.Config{
		DataDir: r.dataDir(), GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		Source:      func(s dataflow.ShardID) worker.Source { return rings[s] },
		MemoryBytes: k.memory,
		Tuning:      node.Tuning{QueryTime: checkTimeout}, // the check reads all keys
		Logger:      slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		cancel()
		return err
	}
	var g errgroup.Group
	g.Go(func() error { return n.Run(runCtx) })
	defer func() {
		cancel()
		err = errors.Join(err, g.Wait(), n.Close())
	}()
	c, err := weir.Dial(n.GRPCAddr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.Deploy(ctx, weir.Deploy{Pipeline: "bench", SQL: k.sql, Options: map[string]string{"checkpoint.interval": "1 s"}}); err != nil {
		return err
	}

	var loops *bare
	if k.partners != nil {
		if loops, err = newBare(*k.partners, rings, distinct); err != nil {
			return err
		}
	}
	before := settledMemory()
	r.progress("%s %s: warm up", f.bench, f.name)
	gate.set(gateOpen)
	m := &ringMeasure{c: c, rings: rings, gate: gate, seen: newCuts(c), window: k.window, bare: loops}
	// Tables fill before anything is measured: until the rings have been round once, some keys are new.
	for began := time.Now(); rounds(rings) == 0 || time.Since(began) < r.size.settle; {
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		if time.Since(began) > settleTimeout {
			return fmt.Errorf("%d rows were read in %s", rows(rings), settleTimeout)
		}
	}
	r.progress("%s %s: measure", f.bench, f.name)
	stop, err := profile(r.cfg.Profile, k.profile)
	if err != nil {
		return err
	}
	var beside errgroup.Group
	besideCtx, stopBeside := context.WithCancel(ctx)
	defer stopBeside()
	if k.beside != nil {
		beside.Go(func() error { return k.beside(besideCtx, c) })
	}
	for range r.size.windows {
		if err := m.turn(ctx); err != nil {
			return err
		}
	}
	gate.set(gateShut)
	stopBeside()
	if err := beside.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if err := stop(); err != nil {
		return err
	}

	r.progress("%s %s: check", f.bench, f.name)
	// The barrier is behind everything that was read.
	if _, err := c.TriggerCheckpoint(ctx, "bench", true); err != nil {
		return err
	}
	if err := total(rings, distinct).check(ctx, c, k.check, ""); err != nil {
		return err
	}
	p, err := c.GetPipeline(ctx, "bench")
	if err != nil {
		return err
	}
	if p.GetIncarnation() != 1 {
		return voidf("the pipeline was restarted while it was measured: it is in incarnation %d", p.GetIncarnation())
	}
	m.report(f)
	// Few keys are lost in what a node takes anyway.
	if after := settledMemory(); before > 0 && after > before && distinct >= 100_000 {
		f.add("rss_per_key", "bytes", float64(after-before)/float64(distinct))
	}
	if loops != nil { // not before: it gives memory back that was there before the first row
		return loops.check(distinct)
	}
	return nil
}

// addTimes reports times of which there are few: all of them make the spread.
func (f *figures) addTimes(metric string, times latencies) {
	values := make([]float64, len(times))
	for i, t := range times {
		values[i] = milliseconds(t)
	}
	f.add(metric, "ms", values...)
}

// settledMemory returns the process's memory in RAM after garbage has been given back to the system.
func settledMemory() int64 {
	debug.FreeOSMemory()
	return resident(os.Getpid())
}
