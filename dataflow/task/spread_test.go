package task_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/link"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/task"
)

// spread is a world whose runs are spread over nodes, in one process: shard s is node s's, in turn.
type spread struct {
	*world
	hubs     []*link.Hub
	handlers sync.WaitGroup
	// budget, if set, is how many bytes the next connection carries before it breaks; below 0 = it does not.
	budget func() int64

	runs   []*task.Run
	failed chan struct{} // closed when a run of the incarnation has failed
	mu     struct {
		sync.Mutex
		errs map[int]error // why the run of a node has failed
	}
}

func newSpread(t *testing.T, program string, nodes int) *spread {
	w := &spread{world: newWorldOf(t, program)}
	for n := range nodes {
		w.hubs = append(w.hubs, link.Open(link.Config{Node: name(n), Dial: w.dial}))
	}
	t.Cleanup(func() {
		w.stop()
		for _, h := range w.hubs {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
		w.handlers.Wait()
	})
	return w
}

func name(node int) string { return fmt.Sprintf("n%d", node) }

func (w *spread) dial(_ context.Context, node string) (net.Conn, error) {
	a, b := net.Pipe()
	for n, h := range w.hubs {
		if name(n) == node {
			w.handlers.Go(func() { _ = h.Handle(b) }) // why a peer is refused is told to the dialer
		}
	}
	if w.budget == nil {
		return a, nil
	}
	br := &breaking{Conn: a}
	br.left.Store(w.budget())
	if br.left.Load() < 0 {
		return a, nil
	}
	return br, nil
}

// breaking is a connection that breaks in the middle of something.
type breaking struct {
	net.Conn
	left atomic.Int64
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left.Add(-int64(len(p))) < 0 {
		_, _ = b.Conn.Write(p[:len(p)/2])
		_ = b.Close()
		return 0, io.ErrClosedPipe
	}
	return b.Conn.Write(p)
}

func (b *breaking) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if err == nil && b.left.Add(-int64(n)) < 0 {
		_ = b.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// startAll begins the next incarnation on every node.
func (w *spread) startAll() {
	whole := w.config()
	nodes := len(w.hubs)
	run := link.Run{Pipeline: whole.Pipeline, Incarnation: whole.Incarnation, Program: plan.Fingerprint(whole.Plan)}
	for s := range whole.Shards {
		run.Owners = append(run.Owners, name(s%nodes))
	}
	failed := make(chan struct{})
	var once sync.Once
	w.runs, w.failed = nil, failed
	w.mu.errs = make(map[int]error)
	for n, h := range w.hubs {
		cfg := whole
		cfg.Local = nil
		for s := n; s < whole.Shards; s += nodes {
			cfg.Local = append(cfg.Local, dataflow.ShardID(s))
		}
		cfg.Links = h.Links(run)
		cfg.Failed = func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.mu.errs[n] != nil {
				w.t.Errorf("node %d has failed twice: %v, %v", n, w.mu.errs[n], err)
			}
			w.mu.errs[n] = err
			once.Do(func() { close(failed) })
		}
		r, err := task.Start(cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		w.runs = append(w.runs, r)
	}
}

// link waits until all nodes are linked.
func (w *spread) link() {
	for n, r := range w.runs {
		if err := r.Linked(w.t.Context()); err != nil {
			w.t.Fatalf("node %d: %v", n, err)
		}
	}
}

func (w *spread) stop() {
	for _, r := range w.runs {
		r.Stop()
	}
}

func (w *spread) inject() {
	w.attempt++
	for _, r := range w.runs {
		r.Inject(w.attempt, false)
	}
}

// checkpointAll commits, or returns false because the run has failed.
func (w *spread) checkpointAll() bool {
	w.inject()
	return w.commit(w.failed)
}

// marker waits on all nodes until the tables cover want, and returns the minimum of what they cover.
func (w *spread) marker(id uint64, want dataflow.Positions) (dataflow.Positions, error) {
	var g sync.WaitGroup
	got, errs := make([]dataflow.Positions, len(w.runs)), make([]error, len(w.runs))
	for n, r := range w.runs {
		g.Go(func() { got[n], errs[n] = r.Marker(w.t.Context(), id, want) })
	}
	g.Wait()
	least := got[0].Clone()
	for _, p := range got[1:] {
		for k, v := range p {
			least[k] = min(least[k], v)
		}
	}
	return least, errors.Join(errs...)
}

// TestSpreadCommitsEqualTheFoldOfTheirPrefix does what TestEveryCommitEqualsTheFoldOfItsPrefix does, over two and three nodes.
func TestSpreadCommitsEqualTheFoldOfTheirPrefix(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			w := newSpread(t, program, 2+int(seed%2))
			w.startAll()
			schema := w.plan.Reads[0].Schema
			for range 100 {
				switch rng.IntN(10) {
				case 0:
					if !w.checkpointAll() {
						t.Fatalf("the run failed: %v", w.mu.errs)
					}
					if got, want := w.tables(), w.model(); !maps.Equal(got, want) {
						t.Fatalf("commit %d: got %v\nwant %v", w.attempt, got, want)
					}
				case 1: // an attempt that nobody waits for
					w.inject()
				case 2:
					if rng.IntN(3) == 0 {
						w.stop()
						w.startAll()
					}
				default:
					words := make([]string, 1+rng.IntN(400))
					for i := range words {
						if words[i] = fmt.Sprintf("w%d", int(rng.ExpFloat64()*20)); rng.IntN(20) == 0 {
							words[i] = "skip"
						}
					}
					w.logs[rng.IntN(shards)].append(schema, words...)
				}
			}
			if !w.checkpointAll() {
				t.Fatalf("the run failed: %v", w.mu.errs)
			}
			if got, want := w.tables(), w.model(); !maps.Equal(got, want) {
				t.Fatalf("the last commit: got %v\nwant %v", got, want)
			}
		})
	}
}

const wide = `CREATE STREAM words (word TEXT);
CREATE MATERIALIZED VIEW lengths AS SELECT length(word) AS len, count(*) AS n, min(word) AS lo, max(word) AS hi,
	sum(length(word)::numeric / 3) AS third, avg(length(word)::double precision) AS mean, bool_or(word < 'w5') AS small,
	array_agg(word ORDER BY word) AS words, count(NULL) AS none, max(_offset) AS last
	FROM words GROUP BY length(word);
CREATE MATERIALIZED VIEW letters AS SELECT l, count(*) AS n FROM words, UNNEST(regexp_split_to_array(word, '')) AS t(l) GROUP BY l;
CREATE MATERIALIZED VIEW sums AS SELECT n % 3 AS k, sum(third) AS s, string_agg(hi, ',' ORDER BY hi) AS his, max(len) AS len FROM lengths GROUP BY n % 3;
CREATE MATERIALIZED VIEW most AS SELECT len, hi, n FROM lengths WHERE n > 2;
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(len) AS len FROM most;`

// TestSpreadTablesEqualThoseOfOneNode compares all columns of many kinds, through views over views.
func TestSpreadTablesEqualThoseOfOneNode(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	one, many := newWorldOf(t, wide), newSpread(t, wide, 3)
	one.start()
	defer one.run.Stop()
	many.startAll()
	schema := one.plan.Reads[0].Schema
	for round := range 12 {
		for range 5 {
			words := make([]string, 1+rng.IntN(300))
			for i := range words {
				words[i] = "w" + strings.Repeat("é", rng.IntN(12)) + fmt.Sprint(rng.IntN(40))
			}
			s := rng.IntN(shards)
			one.logs[s].append(schema, words...)
			many.logs[s].append(schema, words...)
		}
		want := dataflow.Positions{}
		for s, l := range one.logs {
			want[dataflow.StreamShard{Stream: 1, Shard: dataflow.ShardID(s)}] = l.mu.end
		}
		if _, err := one.run.Processed(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if p, err := many.marker(uint64(round+1), want); err != nil || !p.Covers(want) {
			t.Fatalf("round %d: the marker came to %s, %v, want %s", round, p, err, want)
		}
		one.checkpoint()
		if !many.checkpointAll() {
			t.Fatalf("round %d: the run failed: %v", round, many.mu.errs)
		}
		if got, want := many.rows(), one.rows(); !slices.Equal(got, want) {
			t.Fatalf("round %d: spread: %s\none node: %s", round, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if len(one.rows()) < 40 {
		t.Errorf("the tables have %d rows: too few to compare", len(one.rows()))
	}
}

// TestARunWithABrokenLinkEndsEverywhere breaks connections at random points. Every node's run fails then, and the next
// incarnation is exact.
func TestARunWithABrokenLinkEndsEverywhere(t *testing.T) {
	broken := 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 9))
		w := newSpread(t, program, 3)
		rounds := 0
		w.budget = func() int64 { // called by several at a time: no rng
			return int64(1<<(6+(seed*7+uint64(len(w.runs)))%12)) + int64(seed)
		}
		w.startAll()
		schema := w.plan.Reads[0].Schema
		for rounds < 25 {
			rounds++
			for range 3 {
				words := make([]string, 1+rng.IntN(300))
				for i := range words {
					words[i] = fmt.Sprintf("w%d", rng.IntN(60))
				}
				w.logs[rng.IntN(shards)].append(schema, words...)
			}
			if w.checkpointAll() {
				continue
			}
			alone := make([]bool, len(w.runs))
			for n, r := range w.runs { // without being stopped
				alone[n] = ended(t, r)
			}
			w.mu.Lock()
			for n := range w.runs {
				if alone[n] {
					continue
				}
				var lost *link.LostError
				if err := w.mu.errs[n]; !errors.As(err, &lost) || dataflow.ReasonOf(err) != dataflow.ReasonPipelineRecovering {
					t.Errorf("seed %d: node %d ended with %v", seed, n, err)
				}
			}
			w.mu.Unlock()
			broken++
			w.budget = nil
			w.startAll()
		}
		if got, want := w.tables(), w.model(); !maps.Equal(got, want) {
			t.Fatalf("seed %d: got %v\nwant %v", seed, got, want)
		}
		w.stop()
	}
	if broken < 10 {
		t.Errorf("only %d runs have been broken", broken)
	}
}

// ended waits for the end of a run. One that was never linked, because the others ended before, is not told; who started it
// stops it, as a coordinator would, and alone is true.
func ended(t *testing.T, r *task.Run) (alone bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Linked(ctx); errors.Is(err, context.DeadlineExceeded) {
		r.Stop()
		return true
	}
	<-r.Done()
	return false
}

func TestAFailureOfOneNodeIsToldToAll(t *testing.T) {
	w := newSpread(t, program, 3)
	var bad atomic.Bool
	w.change = func(c *task.Config) {
		rows := c.Rows
		c.Rows = func(s dataflow.ShardID) task.RowLog {
			return readLog{rows(s), func() {
				if s == 1 && bad.Load() {
					panic("boom")
				}
			}}
		}
	}
	w.startAll()
	w.link()
	bad.Store(true)
	w.logs[1].append(w.plan.Reads[0].Schema, "a")
	for _, r := range w.runs { // without being stopped
		<-r.Done()
	}
	var p *task.PanicError
	if !errors.As(w.mu.errs[1], &p) {
		t.Errorf("node 1 ended with %v", w.mu.errs[1])
	}
	for _, n := range []int{0, 2} {
		// Node 1 says why, or the other one says that it has lost node 1.
		var lost *link.LostError
		if err := w.mu.errs[n]; !errors.As(err, &lost) || !lost.Ended || lost.Stopped || !strings.Contains(err.Error(), "panicked: boom") {
			t.Errorf("node %d ended with %v", n, err)
		}
		if err := w.runs[n].Linked(t.Context()); err != nil && !errors.As(err, &lost) {
			t.Errorf("Linked says %v", err)
		}
	}
}

// A run that is told to stop ends on the other nodes too, and says that nothing is wrong.
func TestAStopOfOneNodeIsToldToAll(t *testing.T) {
	w := newSpread(t, program, 3)
	w.startAll()
	w.link()
	w.runs[2].Stop()
	for _, r := range w.runs {
		<-r.Done()
	}
	for _, n := range []int{0, 1} {
		var lost *link.LostError
		if err := w.mu.errs[n]; !errors.As(err, &lost) || !lost.Ended {
			t.Errorf("node %d ended with %v", n, err)
		}
	}
	if w.mu.errs[2] != nil {
		t.Errorf("the node that was told to stop failed: %v", w.mu.errs[2])
	}
}

// TestMarkersOfManyCallersCross has every node ask at the same time.
func TestMarkersOfManyCallersCross(t *testing.T) {
	w := newSpread(t, program, 3)
	w.startAll()
	w.link()
	schema := w.plan.Reads[0].Schema
	var g sync.WaitGroup
	for caller := range uint64(3) {
		g.Go(func() {
			for i := range uint64(20) {
				l := w.logs[caller]
				l.append(schema, "a", fmt.Sprintf("b%d", i))
				want := dataflow.Positions{{Stream: 1, Shard: l.shard}: dataflow.Offset(2 * (i + 1))}
				if got, err := w.marker(caller<<32|(i+1), want); err != nil || !got.Covers(want) {
					t.Errorf("caller %d: %s, %v", caller, got, err)
				}
			}
		})
	}
	g.Wait()
	sum := 0
	for s := range shards {
		sum += w.runs[s].Table(0, dataflow.ShardID(s)).Len()
	}
	if sum != 21 {
		t.Errorf("%d words are counted, want 21", sum)
	}
	if _, err := w.runs[0].Processed(t.Context(), nil); err == nil {
		t.Error("Processed speaks for tables that it does not have")
	}
	if _, err := w.runs[0].Marker(t.Context(), 0, nil); err == nil {
		t.Error("a marker without a number was put in")
	}
}

// TestAnAbandonedMarkerHoldsUpNothing asks one node alone, again and again: the others never hear of these markers.
func TestAnAbandonedMarkerHoldsUpNothing(t *testing.T) {
	w := newSpread(t, program, 3)
	w.startAll()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for round := range uint64(10) { // more than a task remembers
		for i := range uint64(1000) {
			if _, err := w.runs[0].Marker(ctx, round<<32|(i+1), nil); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if _, err := w.marker(1<<40+round, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	if _, err := w.runs[0].Marker(t.Context(), 1<<41, nil); !errors.Is(err, task.ErrStopped) {
		t.Errorf("a run that has ended: %v", err)
	}
}
