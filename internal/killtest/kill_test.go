package killtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/phase"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

var (
	kills  = flag.Int("kills", 10, "how often the server is killed")
	seed   = flag.Uint64("seed", 0, "of what the test chooses; 0 = a new one")
	memory = flag.String("memory", "0", "the server's --memory: little makes it evict entries of tables and look them up")
	keys   = flag.Uint64("ballast", 0, "keys of a table that is there to fill the memory: the test fails when they fit")
	keep   = flag.Bool("keep", false, "keep the data directory and the history also when nothing is wrong")
)

// longRun is the number of kills from which on a phase that was never hit fails the run. Fewer kills do not last the ten
// seconds after which the first superseded cuts may be merged.
const longRun = 100

func TestMain(m *testing.M) {
	if job := os.Getenv(producerEnv); job != "" {
		if err := runProducer(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestNothingIsLostOrDoubledWhenTheServerIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the phases of a killed process are read on Linux only")
	}
	n := *kills
	if testing.Short() {
		n = min(n, 3)
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("%d kills, seed %d", n, *seed)
	dir, err := os.MkdirTemp("", "weir-kill-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || *keep {
			t.Logf("kept: %s (data/, server.log, history.txt); seed %d", dir, *seed)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r := newRun(t, dir, *seed)
	if err = r.run(n); err != nil {
		r.server.dump()
	}
	r.close()
	t.Log("\n" + r.report())
	if err != nil {
		t.Fatal(err)
	}
	if n >= longRun {
		for _, p := range phase.All() {
			// Handing a cut to the replicas takes microseconds: a few kills of hundreds fall into it, and once none may.
			if r.hits[p] == 0 && p != phase.Publish {
				t.Errorf("no kill fell into the phase %s", p)
			}
		}
	}
}

// run is one run of the test.
type run struct {
	t       *testing.T
	rng     *rand.Rand
	dir     string
	history *history
	server  *server
	client  *weir.Client // of the goroutine that runs the test
	book    *book
	tables  []*table
	audits  map[string]*audit
	sender  *plainSender
	ballast *ballast // nil without one

	producers []*producer
	failed    chan error // capacity 1: the first failure of a child process
	extended  time.Time  // when the logs were last read
	ended     bool       // all that was sent is committed
	stats
}

const shards = 4

func newRun(t *testing.T, dir string, seed uint64) *run {
	r := &run{
		t: t, dir: dir, rng: rand.New(rand.NewPCG(seed, 1)), book: openBook(t), tables: tables(), failed: make(chan error, 1), stats: newStats(),
	}
	var err error
	if r.history, err = openHistory(filepath.Join(dir, "history.txt")); err != nil {
		t.Fatal(err)
	}
	if r.server, err = newServer(buildWeir(t, dir), dir, shards, r.history); err != nil {
		t.Fatal(err)
	}
	r.server.ended = r.fail
	if r.client, err = weir.Open(weir.Config{Addrs: []string{r.server.grpc}, RetryFor: patience}); err != nil {
		t.Fatal(err)
	}
	lines := newStreamLog("lines", shards, newLineLog(r.book, shards))
	orders := newStreamLog("orders", shards, newOrderLog())
	r.audits = map[string]*audit{
		"wordcount": newAudit("wordcount", "lines", lines, shards, r.history, func() model { return newWordFold(r.book) }),
		"orders":    newAudit("orders", "orders", orders, shards, r.history, func() model { return newOrderFold() }),
	}
	book := filepath.Join(dir, "book.txt")
	if err := os.WriteFile(book, []byte(strings.Join(r.book.lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, job := range []producerJob{
		{Stream: "lines", Name: "scribe", RowsPerSecond: 1500, Book: book},
		{Stream: "orders", Name: "north", RowsPerSecond: 800},
		{Stream: "orders", Name: "south", RowsPerSecond: 400},
	} {
		job.Addr = r.server.grpc
		r.producers = append(r.producers, &producer{job: job, history: r.history, ended: r.fail})
	}
	if *keys > 0 {
		if r.ballast, err = openBallast(r.server.grpc, *keys, seed, r.history); err != nil {
			t.Fatal(err)
		}
	}
	r.sender = &plainSender{name: "plain", rng: rand.New(rand.NewPCG(seed, 2)), conn: r.server.conn, tables: r.tables[1:], audit: r.audits["orders"], history: r.history}
	return r
}

// fail takes a failure of a child process.
func (r *run) fail(err error) {
	select {
	case r.failed <- err:
	default: // there is one already
	}
}

func (r *run) close() {
	for _, p := range r.producers {
		if p.cmd != nil {
			_ = p.kill() // it may have ended
		}
	}
	if r.ballast != nil {
		_ = r.ballast.client.Close()
	}
	r.server.close()
	_ = r.client.Close()
	if err := r.history.close(); err != nil {
		r.t.Errorf("history: %v", err)
	}
}

// run deploys, starts everything, kills n times, and compares.
func (r *run) run(n int) error {
	r.began = time.Now()
	defer func() { r.took = time.Since(r.began) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := r.deploy(ctx); err != nil {
		return err
	}
	if r.ballast != nil {
		if err := r.ballast.fill(ctx, r.server.http); err != nil {
			return fmt.Errorf("fill the ballast: %w", err)
		}
	}
	for _, p := range r.producers {
		if err := p.start(); err != nil {
			return err
		}
	}
	g, beside := errgroup.WithContext(ctx)
	for _, rd := range r.readers() {
		g.Go(func() error { defer cancel(); return rd.run(beside) })
	}
	g.Go(func() error { defer cancel(); return r.sender.run(beside) })
	if r.ballast != nil {
		g.Go(func() error { defer cancel(); return r.ballast.run(beside) })
	}
	err := r.killAll(ctx, n)
	if ctx.Err() != nil {
		err = nil // it ended because of what g says
	}
	cancel()
	if gerr := g.Wait(); gerr != nil {
		return gerr
	}
	if err != nil {
		return err
	}
	return r.finish(context.WithoutCancel(ctx))
}

func (r *run) deploy(ctx context.Context) error {
	if err := r.server.start(); err != nil {
		return err
	}
	if err := r.server.ready(ctx); err != nil {
		return err
	}
	programs := []struct{ name, sql string }{{"wordcount", wordcountSQL}, {"orders", ordersSQL}}
	if r.ballast != nil {
		programs = append(programs, struct{ name, sql string }{"ballast", ballastSQL})
	}
	for _, p := range programs {
		if _, err := r.client.Deploy(ctx, weir.Deploy{Pipeline: p.name, SQL: p.sql}); err != nil {
			return fmt.Errorf("deploy %s: %w", p.name, err)
		}
	}
	return nil
}

// readers returns those that read beside: without a session, within one, live, and page by page with pauses.
func (r *run) readers() []*reader {
	slow := newPlainAsker(r.server.conn, weirv1.Read_READ_COMMITTED)
	slow.pause = slowPause
	all := []*reader{
		{name: "committed", ask: newPlainAsker(r.server.conn, weirv1.Read_READ_COMMITTED)},
		{name: "session", ask: &sessionAsker{r.client}},
		{name: "live", ask: newPlainAsker(r.server.conn, weirv1.Read_READ_UNCOMMITTED), live: true},
		{name: "slow", ask: slow, slow: true},
	}
	for i, rd := range all {
		rd.rng, rd.book, rd.tables, rd.audits = rand.New(rand.NewPCG(r.rng.Uint64(), uint64(i))), r.book, r.tables, r.audits
	}
	return all
}

// compareEvery is how many kills lie between two comparisons.
const compareEvery = 8

// killAll kills the server n times, and compares every few kills.
func (r *run) killAll(ctx context.Context, n int) error {
	for i := range n {
		if err := r.killOnce(ctx, i); err != nil {
			return fmt.Errorf("kill %d: %w", i+1, err)
		}
		if r.rng.IntN(6) == 0 {
			if err := r.killProducer(); err != nil {
				return fmt.Errorf("kill %d: %w", i+1, err)
			}
		}
		if (i+1)%compareEvery == 0 {
			if err := r.compare(ctx); err != nil {
				return fmt.Errorf("after %d kills: %w", i+1, err)
			}
		}
		if err := r.keepUp(ctx); err != nil {
			return fmt.Errorf("after %d kills: %w", i+1, err)
		}
	}
	if n < longRun {
		return nil
	}
	return r.killMissed(ctx, n)
}

// missedTries is how many kills more are aimed at a phase that none has fallen into. Some phases are over before the signal
// arrives: of the merges on a quiet machine about one in thirty is hit.
const missedTries = 200

// killMissed aims at the phases that no kill has fallen into.
func (r *run) killMissed(ctx context.Context, n int) error {
	for _, p := range phase.All() {
		for try := 0; r.hits[p] == 0 && p != phase.Publish && try < missedTries; try++ {
			if err := r.serving(ctx); err != nil {
				return err
			}
			if _, err := r.await(ctx, p); err != nil {
				return err
			}
			if err := r.killNow(n, "aimed at "+p.String()+", which was missed"); err != nil {
				return err
			}
			if n++; n%compareEvery == 0 {
				if err := r.compare(ctx); err != nil {
					return fmt.Errorf("after %d kills: %w", n, err)
				}
			}
			if err := r.keepUp(ctx); err != nil {
				return fmt.Errorf("after %d kills: %w", n, err)
			}
		}
	}
	return nil
}

// keepUp reads the logs on when it is time, and reports what a child process has failed of.
func (r *run) keepUp(ctx context.Context) error {
	if time.Since(r.extended) > extendAfter {
		if err := r.serving(ctx); err != nil {
			return err
		}
		if err := r.extend(ctx); err != nil {
			return err
		}
	}
	select {
	case err := <-r.failed:
		return err
	default:
		return nil
	}
}

// extendAfter is how long rows wait to be read back, at most: retention keeps them for several times as long.
const extendAfter = 4 * time.Second

// extend reads the logs on.
func (r *run) extend(ctx context.Context) error {
	r.extended = time.Now()
	for _, a := range r.audits {
		if err := a.log.extend(ctx, r.client); err != nil {
			return err
		}
	}
	return nil
}

// killOnce waits for a moment that is worth it, kills the server, and starts it again.
func (r *run) killOnce(ctx context.Context, i int) error {
	aim, err := r.choose(ctx)
	if err != nil {
		return err
	}
	return r.killNow(i, aim)
}

// killNow kills the server and starts it again.
func (r *run) killNow(i int, aim string) error {
	counts, err := r.server.kill()
	if err != nil {
		return err
	}
	r.count(aim, counts)
	r.history.log("kill %d (%s): under way: %s", i+1, aim, underWay(&counts))
	return r.server.start()
}

// choose returns when the server is to be killed, and how that moment was chosen.
func (r *run) choose(ctx context.Context) (string, error) {
	switch n := r.rng.IntN(20); {
	case n < 3: // at any time after the start
		return "early", r.wait(ctx, time.Duration(r.rng.IntN(400))*time.Millisecond)
	case n < 11:
		target := r.leastHit()
		if target != phase.Restart {
			if err := r.serving(ctx); err != nil {
				return "", err
			}
			if err := r.wait(ctx, time.Duration(r.rng.IntN(300))*time.Millisecond); err != nil {
				return "", err
			}
		}
		aim := "aimed at " + target.String()
		hit, err := r.await(ctx, target)
		if !hit {
			aim += ", in vain"
		} else if target == phase.Restart && err == nil {
			err = r.wait(ctx, time.Duration(r.rng.IntN(200))*time.Millisecond)
		}
		return aim, err
	}
	if err := r.serving(ctx); err != nil {
		return "", err
	}
	return "random", r.wait(ctx, time.Duration(r.rng.ExpFloat64()*float64(400*time.Millisecond)))
}

// leastHit returns the phase to aim at: of those that were hit least, any.
func (r *run) leastHit() phase.Phase {
	var least []phase.Phase
	for _, p := range phase.All() {
		switch {
		case len(least) == 0 || r.aims[p] < r.aims[least[0]]:
			least = []phase.Phase{p}
		case r.aims[p] == r.aims[least[0]]:
			least = append(least, p)
		}
	}
	p := least[r.rng.IntN(len(least))]
	r.aims[p]++
	return p
}

// aimFor bounds the wait for a phase: merges need a cut to become superseded, and come every 50 ms then.
const aimFor = 1500 * time.Millisecond

// await looks until phase p is under way.
func (r *run) await(ctx context.Context, p phase.Phase) (bool, error) {
	tick := time.NewTicker(20 * time.Microsecond)
	defer tick.Stop()
	deadline := time.After(aimFor)
	for {
		c, err := r.server.phases.Read()
		if err != nil {
			return false, err
		}
		if c.In(p) > 0 {
			return true, nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (r *run) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case err := <-r.failed:
		return err
	}
}

// serving waits until the server answers.
func (r *run) serving(ctx context.Context) error {
	began := time.Now()
	if err := r.server.ready(ctx); err != nil {
		select {
		case cause := <-r.failed:
			return cause
		default:
			return err
		}
	}
	r.waits = append(r.waits, time.Since(began))
	return nil
}

// killProducer kills a producer and starts it again: it begins with its first row.
func (r *run) killProducer() error {
	p := r.producers[r.rng.IntN(len(r.producers))]
	if err := p.kill(); err != nil {
		return err
	}
	r.producerKills++
	r.history.log("producer %s killed", p.job.Name)
	return p.start()
}

// compare reads the log and the tables and compares everything that waits for it.
func (r *run) compare(ctx context.Context) error {
	if err := r.serving(ctx); err != nil {
		return err
	}
	began := time.Now()
	defer func() { r.comparing += time.Since(began) }()
	if err := r.readTables(ctx); err != nil {
		return err
	}
	acked := r.acknowledged()
	pending := make(map[string][]answer)
	for name, a := range r.audits {
		pending[name] = a.take()
	}
	if err := r.extend(ctx); err != nil { // after the answers: it reaches as far as any of them
		return err
	}
	for who, rows := range acked {
		if err := r.logOf(who).reader.holds(who, rows); err != nil {
			return violation("K1: %v", err)
		}
	}
	for name, a := range r.audits {
		if err := a.compare(pending[name]); err != nil {
			return err
		}
	}
	if _, err := r.digests(ctx); err != nil {
		return err
	}
	if r.ballast != nil {
		if err := r.ballast.look(ctx, r.client, r.server.http, r.ended); err != nil {
			return err
		}
	}
	r.comparisons++
	r.history.log("compared: %d committed and %d live answers so far", r.answers(false), r.answers(true))
	return nil
}

// acknowledged returns how many rows of each sender have been acknowledged.
func (r *run) acknowledged() map[string]int {
	acked := map[string]int{r.sender.name: int(r.sender.acked.Load())}
	for _, p := range r.producers {
		acked[p.job.Name] = int(p.acked.Load())
	}
	return acked
}

func (r *run) logOf(sender string) *streamLog {
	if sender == "scribe" {
		return r.audits["wordcount"].log
	}
	return r.audits["orders"].log
}

// readTables reads every table whole, as committed answers.
func (r *run) readTables(ctx context.Context) error {
	ask := newPlainAsker(r.server.conn, weirv1.Read_READ_COMMITTED)
	rd := &reader{name: "whole", rng: r.rng, book: r.book, tables: r.tables, audits: r.audits, ask: ask}
	for _, t := range r.tables {
		for deadline := time.Now().Add(patience); ; {
			err := rd.scan(ctx, t, r.audits[t.pipeline], weir.ScanRange{}, "scan", 5000, anyKey)
			if err == nil {
				break
			}
			if !errors.Is(err, errAway) || time.Now().After(deadline) {
				return fmt.Errorf("read %s: %w", t, err)
			}
			if err := r.wait(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish lets the producers end, waits until everything is committed, and compares for the last time: also after a stop
// in order and another start.
func (r *run) finish(ctx context.Context) error {
	if err := r.serving(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	final := map[string]int64{r.sender.name: r.sender.acked.Load()}
	for _, p := range r.producers {
		f, err := p.finish()
		if err != nil {
			return err
		}
		final[p.job.Name] = f.rows
		p.acked.Store(f.rows)
		if f.token != "" {
			if _, err := r.client.WaitCommitted(ctx, f.token); err != nil {
				return fmt.Errorf("wait for the rows of %s to be committed: %w", p.job.Name, err)
			}
		}
	}
	if s := r.sender.token; s != "" {
		if _, err := r.client.WaitCommitted(ctx, s); err != nil {
			return fmt.Errorf("wait for the rows of %s to be committed: %w", r.sender.name, err)
		}
	}
	if r.ballast != nil {
		if err := r.ballast.settle(ctx); err != nil {
			return fmt.Errorf("wait for the ballast to be committed: %w", err)
		}
	}
	r.ended = true
	if err := r.compare(ctx); err != nil {
		return err
	}
	if r.ballast != nil {
		if err := r.ballast.full(); err != nil {
			return err
		}
	}
	for who, rows := range final {
		// The plain sender was cut off: its last append may be there, unanswered.
		if got := r.logOf(who).reader.count(who); int64(got) != rows && who != r.sender.name {
			return violation("K1: %s has sent %d rows, all acknowledged; the log has %d", who, rows, got)
		}
	}
	for _, a := range r.audits {
		if err := a.log.reread(ctx, r.client); err != nil {
			return err
		}
		if err := a.finish(); err != nil {
			return err
		}
	}
	if err := r.holdsTheSame(ctx); err != nil {
		return err
	}
	if err := r.compare(ctx); err != nil {
		return fmt.Errorf("after a stop in order: %w", err)
	}
	bad, err := r.server.complaints()
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		return violation("K7: the server's log has %d complaints, the first: %s", len(bad), bad[0])
	}
	return nil
}
