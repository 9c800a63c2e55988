package grouptest

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	"github.com/weirdb/weir/node/worker"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

var (
	schedules = flag.Int("schedules", 2, "how many schedules to run")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first schedule")
	atOnce    = flag.Int("at-once", 2, "how many schedules to run at a time")
	logs      = flag.String("logs", "", "directory for all that the nodes of each schedule log; empty = only errors, to the test's log")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bankSQL = `
SET checkpoint.interval = '100 ms';
CREATE STREAM transfers (src BIGINT, dst BIGINT, amount BIGINT);
CREATE MATERIALIZED VIEW balances AS
SELECT account, sum(CASE WHEN account = src THEN -amount ELSE amount END) AS balance, count(*) AS n
FROM transfers, UNNEST(ARRAY[src, dst]) AS t(account)
GROUP BY account;
CREATE MATERIALIZED VIEW pairs AS SELECT src, dst, sum(amount) AS amount, count(*) AS n FROM transfers GROUP BY src, dst;
`

const (
	shards   = 3
	accounts = 40
	faults   = 6
	writers  = 2
	readers  = 2
	patience = 90 * time.Second
)

func TestSchedules(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes")
	}
	eachSchedule(t, *schedules, func(w *world) { w.run() })
}

// eachSchedule runs so many schedules, some at a time.
func eachSchedule(t *testing.T, n int, run func(*world)) {
	slots := make(chan struct{}, *atOnce)
	for i := range n {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			run(newWorld(t, seed))
		})
	}
}

// world is one schedule.
type world struct {
	t    *testing.T
	seed uint64
	rnd  *rand.Rand
	g    *nodetest.Group
	// nodes is 3, or 5: then each shard's log has three voters, which change when a node is silent.
	nodes int

	began time.Time
	mu    struct {
		sync.Mutex
		history []string
		up      []*nodetest.Node // nil while it does not run
		done    bool
		balance [accounts]int64 // of acknowledged transfers
		moves   [accounts]int64
		// pairs are mostly of one transfer, and so in one delta alone: what a copy lacks of a balance, the next delta makes good.
		pairs map[pair]pairSum
	}
	sent, repeats, reads atomic.Int64
	failed               atomic.Bool
}

type pair struct{ src, dst int64 }

type pairSum struct{ amount, n int64 }

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 7)), began: time.Now()}
	w.mu.pairs = make(map[pair]pairSum)
	return w
}

// note adds a line to the history.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.history = append(w.mu.history, fmt.Sprintf("%7.3f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) errorf(format string, args ...any) {
	w.note("WRONG "+format, args...)
	w.failed.Store(true)
	w.t.Errorf(format, args...)
}

func (w *world) run() {
	defer w.tell()
	w.open()
	w.deploy(context.Background())
	var actors []func(context.Context)
	for i := range writers {
		actors = append(actors, func(ctx context.Context) { w.write(ctx, i) })
	}
	for i := range readers {
		actors = append(actors, func(ctx context.Context) { w.read(ctx, i) })
	}
	if !w.live(actors) {
		return
	}
	w.compare()
	w.coldStart()
	w.coldStart()
	w.compare()
	w.note("sent %d, repeated %d, read %d", w.sent.Load(), w.repeats.Load(), w.reads.Load())
	w.t.Logf("seed %d: sent %d, repeated %d, read %d", w.seed, w.sent.Load(), w.repeats.Load(), w.reads.Load())
}

// tell writes the history of a schedule that failed.
func (w *world) tell() {
	if w.failed.Load() || w.t.Failed() {
		w.mu.Lock()
		defer w.mu.Unlock()
		test, _, _ := strings.Cut(w.t.Name(), "/")
		w.t.Logf("go test ./internal/grouptest -run %s -seed %d -schedules 1\n%s", test, w.seed, strings.Join(w.mu.history, "\n"))
	}
}

// hurry is how much faster the nodes' clock runs. A cut is kept for ten seconds after its successor, and stores are folded up to the
// oldest that is kept: a schedule of some seconds would fold nothing. Why not more: a read has a fortieth of these seconds.
const hurry = 40

func (w *world) clock() time.Time { return w.began.Add(hurry * time.Since(w.began)) }

// open runs the group.
func (w *world) open() {
	tuning := node.Tuning{ElectionTimeout: 150 * time.Millisecond, RepairAfter: 600 * time.Millisecond}
	switch w.rnd.IntN(3) { // the default folds nothing in a schedule of some seconds
	case 0:
		tuning.Merge = nodetest.Restless().Merge
		tuning.SegmentBytes = 256 << 10
	default: // meanwhile layers are merged in memory
		tuning.Merge = worker.MergePolicy{Age: 800 * time.Millisecond, Every: 10 * time.Millisecond}
	}
	if w.rnd.IntN(2) == 0 { // who was away is rebuilt
		restless := nodetest.Restless()
		tuning.SnapshotBytes, tuning.TrailingBytes = restless.SnapshotBytes, restless.TrailingBytes
	}
	w.nodes = 3
	if w.seed%2 == 0 {
		w.nodes = 5
	}
	w.mu.up = make([]*nodetest.Node, w.nodes)
	w.g = nodetest.OpenGroup(w.t, w.nodes, nodetest.Options{Shards: shards, Tuning: tuning, Clock: w.clock, Logger: w.logger()})
	for i, n := range w.g.Nodes() {
		w.mu.up[i] = n
	}
}

// live lets the actors act while the group is broken, heals it, and waits until they have done what they have under way. It
// reports whether they have.
func (w *world) live(actors []func(context.Context)) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var acting sync.WaitGroup
	for _, act := range actors {
		acting.Go(func() { act(ctx) })
	}
	for range faults {
		w.fault()
	}
	w.heal()
	w.mu.Lock()
	w.mu.done = true
	w.mu.Unlock()
	finished := make(chan struct{})
	go func() {
		acting.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return true
	case <-time.After(patience):
		w.errorf("T5: those who act do not end %s after everything was healed", patience)
		cancel()
		<-finished
		return false
	}
}

// wait is a part of a schedule: the nodes live in real time.
func wait(ctx context.Context, d time.Duration) { _ = pause.For(ctx, d) } // who waits looks at ctx himself

func (w *world) pause(least, most time.Duration) {
	wait(context.Background(), least+time.Duration(w.rnd.Int64N(int64(most-least))))
}

// deploy deploys the program, through any node: on a busy machine leaders change without a fault. Deploying again changes
// nothing.
func (w *world) deploy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		nd, num := w.node(w.rnd)
		_, err := nd.Pipelines().DeployPipeline(ctx, &weirv1.DeployPipelineRequest{Pipeline: "bank", Sql: bankSQL})
		if err == nil {
			return
		}
		w.check(fmt.Sprintf("deploy through n%d", num), err)
		if pause.For(ctx, 20*time.Millisecond) != nil {
			w.t.Fatalf("deploy: %v", err)
		}
	}
}

// running returns the numbers of the nodes that run, and of those that do not.
func (w *world) running() (up, down []int) {
	for i := 1; i <= w.nodes; i++ {
		if w.g.Runs(i) {
			up = append(up, i)
		} else {
			down = append(down, i)
		}
	}
	return up, down
}

// fault does one thing to the group, and lets it go on for a while.
func (w *world) fault() {
	up, down := w.running()
	switch k := w.rnd.IntN(8); {
	case k < 3 && len(up) > 1:
		i := up[w.rnd.IntN(len(up))]
		cfg := nodetest.LoseUnsynced
		if w.rnd.IntN(2) == 0 {
			cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: w.rnd.IntN(101), RNG: rand.New(rand.NewPCG(w.seed, w.rnd.Uint64()))}
		}
		w.kill([]int{i}, cfg)
	case k == 3:
		i := 1 + w.rnd.IntN(w.nodes)
		w.note("cut n%d off", i)
		w.g.Isolate(i)
	case k == 4:
		a, b := w.pair()
		w.note("cut %s → %s", a, b)
		w.g.Net.Cut(a, b)
	case k == 5:
		a, b := w.pair()
		d := time.Duration(1+w.rnd.IntN(60)) * time.Millisecond
		w.note("delay %s → %s by %s", a, b, d)
		w.g.Net.Delay(a, b, d)
	case k == 6:
		a, b := w.pair()
		w.note("reset the connections of %s and %s", a, b)
		w.g.Net.Reset(a, b)
	default:
		w.note("heal the network")
		w.g.Net.Heal()
	}
	w.pause(100*time.Millisecond, 700*time.Millisecond)
	if len(down) > 0 && w.rnd.IntN(2) == 0 {
		back := down[:1]
		if w.nodes > 3 {
			_, back = w.running() // two of a log's three voters may be down: one that comes back alone would wait for them
		}
		w.start(back)
		if w.rnd.IntN(2) == 0 { // what a start notes in a store, the next one believes
			w.kill(back, nodetest.LoseUnsynced)
			w.start(back)
		}
	}
}

// kill pulls the plug of nodes.
func (w *world) kill(numbers []int, cfg vfs.CrashCloneCfg) {
	w.note("kill %v, keeping %d %% of what was not synced", numbers, cfg.UnsyncedDataPercent)
	for _, i := range numbers {
		w.take(i)
	}
	w.g.Kill(cfg, numbers...)
}

func (w *world) pair() (a, b string) {
	i := w.rnd.IntN(w.nodes)
	j := (i + 1 + w.rnd.IntN(w.nodes-1)) % w.nodes
	return fmt.Sprintf("n%d", i+1), fmt.Sprintf("n%d", j+1)
}

// take tells the actors that a node goes away, before it does.
func (w *world) take(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.up[i-1] = nil
}

// start runs nodes again. Without a majority that can talk they do not come up, so the network is healed first.
func (w *world) start(numbers []int) {
	w.note("heal the network, and start %v", numbers)
	w.g.Net.Heal()
	w.g.Start(numbers...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range numbers {
		w.mu.up[i-1] = w.g.Node(i)
	}
	w.mu.history = append(w.mu.history, fmt.Sprintf("%7.3f started %v", time.Since(w.began).Seconds(), numbers))
}

func (w *world) heal() {
	w.note("heal")
	w.g.Net.Heal()
	if _, down := w.running(); len(down) > 0 {
		w.start(down)
	}
}

// node returns a node that runs, at random; nil when there is none.
func (w *world) node(rnd *rand.Rand) (*nodetest.Node, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 10 {
		if i := rnd.IntN(w.nodes); w.mu.up[i] != nil {
			return w.mu.up[i], i + 1
		}
	}
	return nil, 0
}

func (w *world) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.done
}

// write sends transfers, each through any node until it is acknowledged.
func (w *world) write(ctx context.Context, id int) {
	rnd := rand.New(rand.NewPCG(w.seed, uint64(100+id)))
	for n := 0; !w.over() && ctx.Err() == nil; n++ {
		type transfer struct{ src, dst, amount int64 }
		var batch []transfer
		var rows []string
		for range 1 + rnd.IntN(5) {
			src := rnd.Int64N(accounts)
			tr := transfer{src, (src + 1 + rnd.Int64N(accounts-1)) % accounts, 1 + rnd.Int64N(100)}
			batch = append(batch, tr)
			rows = append(rows, fmt.Sprintf(`{"src":%d,"dst":%d,"amount":%d}`, tr.src, tr.dst, tr.amount))
		}
		req := &weirv1.AppendRequest{Stream: "transfers", JsonRows: []byte(strings.Join(rows, "\n")), IdempotencyKey: fmt.Sprintf("w%d-%d", id, n)}
		for try := 0; ; try++ {
			if ctx.Err() != nil {
				return
			}
			nd, num := w.node(rnd)
			if nd == nil {
				wait(ctx, 10*time.Millisecond)
				continue
			}
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := nd.Ingest().Append(call, req)
			cancel()
			if err == nil {
				break
			}
			w.repeats.Add(1)
			w.check(fmt.Sprintf("append through n%d", num), err)
			wait(ctx, time.Duration(5+rnd.IntN(20))*time.Millisecond)
		}
		w.sent.Add(int64(len(batch)))
		w.mu.Lock()
		for _, tr := range batch {
			w.mu.balance[tr.src] -= tr.amount
			w.mu.balance[tr.dst] += tr.amount
			w.mu.moves[tr.src]++
			w.mu.moves[tr.dst]++
			sum := w.mu.pairs[pair{tr.src, tr.dst}]
			w.mu.pairs[pair{tr.src, tr.dst}] = pairSum{sum.amount + tr.amount, sum.n + 1}
		}
		w.mu.Unlock()
		wait(ctx, time.Duration(rnd.IntN(10))*time.Millisecond)
	}
}

// check accepts what a group may answer whose nodes fail (T4).
func (w *world) check(what string, err error) {
	switch r := nodetest.Reason(err); r {
	case "": // not Weir's: the connection broke, or the call's time was over
	case dataflow.ReasonNotLeader, dataflow.ReasonOutcomeUnknown, dataflow.ReasonShuttingDown, dataflow.ReasonDeadline, dataflow.ReasonNodeUnreachable,
		dataflow.ReasonUnreachable, dataflow.ReasonNodeNotReady, dataflow.ReasonOverloaded, dataflow.ReasonPipelineRecovering, dataflow.ReasonNoCommittedCheckpoint, dataflow.ReasonTokenNotReached:
	default:
		w.errorf("T4: %s: %s: %v", what, r, err)
	}
}

// read asks any node for the sum of all balances, as one session.
func (w *world) read(ctx context.Context, id int) {
	rnd := rand.New(rand.NewPCG(w.seed, uint64(200+id)))
	session := ""
	last := uint64(0)
	for !w.over() && ctx.Err() == nil {
		nd, num := w.node(rnd)
		if nd == nil {
			wait(ctx, 10*time.Millisecond)
			continue
		}
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		r, err := nd.Queries().Query(call, &weirv1.QueryRequest{Sql: "SELECT sum(balance) AS total, count(*) AS accounts FROM bank.balances", SessionToken: session})
		cancel()
		if err != nil {
			w.check(fmt.Sprintf("query n%d", num), err)
			wait(ctx, 20*time.Millisecond)
			continue
		}
		w.reads.Add(1)
		row := string(r.GetRows()[0])
		if !strings.HasPrefix(row, `{"total":0,`) && row != `{"total":null,"accounts":0}` {
			w.errorf("T2: at cut %d, n%d: %s", r.GetCut().GetCheckpointId(), num, row)
		}
		if cut := r.GetCut().GetCheckpointId(); cut < last {
			w.errorf("T3: session %d saw cut %d, then %d on n%d", id, last, cut, num)
		} else {
			last = cut
		}
		session = r.GetCut().GetToken()
		wait(ctx, time.Duration(rnd.IntN(30))*time.Millisecond)
	}
}

// compare waits until every node has everything, and compares it with the model.
func (w *world) compare() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var total int64
	for _, n := range w.mu.moves {
		total += n
	}
	for i := 1; i <= w.nodes; i++ {
		var last error // that says more than that the time is over
		for {
			err := w.equal(ctx, i, total)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				w.errorf("T1, T5: n%d: %v", i, cmp.Or(last, err))
				return
			}
			last = err
			wait(ctx, 50*time.Millisecond)
		}
	}
	for {
		err := w.verify(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			w.errorf("T5: compare the copies: %v", err)
			return
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// coldStart pulls the plug of all nodes and starts them again.
func (w *world) coldStart() {
	up, _ := w.running()
	w.kill(up, nodetest.LoseUnsynced)
	w.start(up)
}

// verify compares the digests of all nodes' copies (T6). The error says that they could not be compared.
func (w *world) verify(ctx context.Context) error {
	nd, num := w.node(w.rnd)
	r, err := nd.Cluster().VerifyCluster(ctx, &weirv1.VerifyClusterRequest{})
	if err != nil {
		return err
	}
	if n := len(r.GetVerified()); n != shards {
		return fmt.Errorf("n%d compared %d shards of %d", num, n, shards)
	}
	for _, v := range r.GetVerified() {
		var digests []uint64
		for _, c := range v.GetReplicas() {
			if c.GetProblem() != "" {
				return fmt.Errorf("shard %d, cut %d: %s: %s", v.GetShard(), v.GetCheckpoint(), c.GetNode(), c.GetProblem())
			}
			digests = append(digests, c.GetDigest())
		}
		if len(digests) != w.nodes {
			return fmt.Errorf("shard %d: %d copies of %d", v.GetShard(), len(digests), w.nodes)
		}
		if slices.Min(digests) != slices.Max(digests) || !v.GetEqual() {
			w.errorf("T6: shard %d at cut %d: digests %x, said to be equal: %v", v.GetShard(), v.GetCheckpoint(), digests, v.GetEqual())
		}
	}
	return nil
}

// equal compares a node's committed tables with the model.
func (w *world) equal(ctx context.Context, i int, total int64) error {
	var balances, pairs []string
	for a := range int64(accounts) {
		if w.mu.moves[a] > 0 {
			balances = append(balances, fmt.Sprintf(`{"account":%d,"balance":%d,"n":%d}`, a, w.mu.balance[a], w.mu.moves[a]))
		}
		for b := range int64(accounts) {
			if p := w.mu.pairs[pair{a, b}]; p.n > 0 {
				pairs = append(pairs, fmt.Sprintf(`{"src":%d,"dst":%d,"amount":%d,"n":%d}`, a, b, p.amount, p.n))
			}
		}
	}
	if err := w.answers(ctx, i, "SELECT account, balance, n FROM bank.balances ORDER BY account", balances); err != nil {
		return fmt.Errorf("balances: %w; %d moves were acknowledged", err, total)
	}
	if err := w.answers(ctx, i, "SELECT src, dst, amount, n FROM bank.pairs ORDER BY src, dst", pairs); err != nil {
		return fmt.Errorf("pairs: %w", err)
	}
	return nil
}

// answers compares what a node answers with what it should.
func (w *world) answers(ctx context.Context, i int, sql string, want []string) error {
	r, err := w.g.Node(i).Queries().Query(ctx, &weirv1.QueryRequest{Sql: sql, Limit: accounts * accounts})
	if err != nil {
		return err
	}
	for k, row := range r.GetRows() {
		if k >= len(want) || string(row) != want[k] {
			return fmt.Errorf("cut %d: %s, want %s", r.GetCut().GetCheckpointId(), row, append(want, "no more")[min(k, len(want))])
		}
	}
	if len(r.GetRows()) != len(want) {
		return fmt.Errorf("cut %d: %d rows of %d", r.GetCut().GetCheckpointId(), len(r.GetRows()), len(want))
	}
	return nil
}
