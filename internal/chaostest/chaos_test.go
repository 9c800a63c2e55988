package chaostest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/peernet/peernettest"
)

var (
	runs    = flag.Int("runs", 1, "how many groups to break, one after another")
	seconds = flag.Int("seconds", 10, "how long each is broken")
	seed    = flag.Uint64("seed", 0, "of the first run, the next ones follow; 0 = a new one")
	only    = flag.String("faults", "", "names of the faults to choose from, comma-separated; empty = all")
	binary  = flag.String("weir", "", "the weir binary; empty = one that is built from this source")
	// A node that needs what the logs have no more is rebuilt from another.
	snapshots = flag.Bool("snapshots", false, "let logs be cut short, so that members that lag need a snapshot")
	keep      = flag.Bool("keep", false, "keep directories, logs and history also when nothing is wrong")
)

const (
	shards          = 3
	electionTimeout = time.Second
	// patience bounds every wait for a group that was healed (C7). It comes to life within some seconds; a busy machine may
	// need many times that.
	patience = 90 * time.Second
	// producerPatience is for how long a producer bears a group that is broken.
	producerPatience = 5 * time.Minute
	// maxNodes is how many nodes a run can have in all, those that took others' places included.
	maxNodes = 11
	// diskBytes is the size of the disk that can be full, minFreeDisk what a node needs of it to take rows.
	diskBytes   = 256 << 20
	minFreeDisk = 32 << 20
)

func TestAGroupLosesNothingWhateverBreaks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are paused and disks filled on Linux only")
	}
	if testing.Short() {
		t.Skip("real processes, for minutes")
	}
	if *only != "" {
		keepFaults(strings.Split(*only, ","))
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	bin := serverBinary(t)
	sum := newSums()
	for i := range *runs {
		seed := *seed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { chaos(t, bin, seed, sum) })
	}
	t.Log("\n" + sum.report())
}

// serverBinary returns the server to test.
func serverBinary(t *testing.T) string {
	if *binary != "" {
		return *binary
	}
	bin := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/weirdb/weir/cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	return bin
}

// chaos is one run.
func chaos(t *testing.T, bin string, seed uint64, sum *sums) {
	inWorld(t, bin, seed, sum, func(w *world) error {
		if err := w.open(); err != nil {
			return err
		}
		return w.during(func() error { return w.life(time.Duration(*seconds) * time.Second) })
	})
	if t.Failed() {
		t.Logf("make test-chaos RUNS=1 SECONDS=%d SEED=%d", *seconds, seed)
	}
}

// inWorld lets a group live in a directory of its own, which is kept when something is wrong.
func inWorld(t *testing.T, bin string, seed uint64, sum *sums, live func(*world) error) {
	dir, err := os.MkdirTemp("", "weir-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), dir: dir, bin: bin, sum: sum, stopped: make(map[string]bool), liveMost: make(map[string]int64)}
	w.check = w.whole
	defer func() {
		w.close(t.Failed())
		if t.Failed() || *keep {
			t.Logf("kept: %s (a directory and a log per node, history.txt); seed %d", dir, seed)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}()
	if err := live(w); err != nil {
		if w.history != nil {
			w.history.log("WRONG %v", err)
		}
		t.Error(err)
	}
	sum.add(w)
	t.Logf("%d nodes, %s: %d faults, %d rows acknowledged, %d committed answers compared, whole again in at most %s",
		w.size, w.took.Round(time.Second/10), w.faults, w.acked, w.compared, w.longest.Round(time.Millisecond))
}

// world is one run.
type world struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand // of the goroutine that breaks things
	dir     string
	bin     string
	history *history
	size    int // nodes at the beginning
	all     []*node
	net     *matrix
	client  *weir.Client
	audits  map[string]*audit
	sum     *sums
	// calm keeps away what would end a process by itself: there is no disk that can be full.
	calm bool
	// brokenDisks says that disks can be slow and fail; then the nodes keep the metadata in another store than else.
	brokenDisks bool
	authority   *peernettest.Authority      // of the nodes' certificates; nil = they have none
	settings    []string                    // of every node, as environment; nil = those that a seed decides
	check       func(context.Context) error // what makes a healed group whole
	ctx         context.Context             // of what goes on beside
	stop        context.CancelFunc
	beside      sync.WaitGroup
	failed      chan error  // capacity 1: the first failure of what goes on beside
	done        atomic.Bool // actors end

	mu struct {
		sync.Mutex
		present []*node         // that actors ask
		harmed  map[string]bool // nodes whose files were damaged
	}
	senders   []*sender
	probe     *sender // of the goroutine that breaks things
	producers []*producer
	liveMost  map[string]int64 // by word, the most that a live answer has said
	liveReads int
	reads     atomic.Int64

	// The rest belongs to the goroutine that breaks things.
	later    []undo
	drained  []*node
	stopped  map[string]bool
	job      *job
	disk     *node // on a disk that can be full; nil = none
	mount    string
	faults   int
	acked    int64
	compared int
	longest  time.Duration
	took     time.Duration
}

// open makes the nodes' places and the network between them.
func (w *world) open() error {
	var err error
	if w.history, err = openHistory(filepath.Join(w.dir, "history.txt")); err != nil {
		return err
	}
	w.failed = make(chan error, 1)
	w.mu.harmed = make(map[string]bool)
	w.ctx, w.stop = context.WithCancel(context.Background())
	if w.size == 0 {
		w.size = 3
		if w.rng.IntN(4) == 0 {
			w.size = 5
		}
	}
	ports, err := freePorts(3*maxNodes, 20000+w.rng.IntN(9000))
	if err != nil {
		return err
	}
	root := filepath.Join(w.dir, "nodes")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	disk := w.rng.IntN(2 * w.size)
	if w.calm {
		disk = -1
	} else {
		w.brokenDisks = w.seed/2%2 == 1
		if w.seed%3 == 0 {
			w.authority = peernettest.NewAuthority(w.t)
		}
	}
	addrs := make(map[string]string)
	for i := range maxNodes {
		name := fmt.Sprintf("n%d", i+1)
		dir := filepath.Join(root, name)
		if i == disk {
			dir = filepath.Join(w.mountDisk(), name)
		}
		n, err := openNode(name, dir, ports[3*i:3*i+3], w.history)
		if err != nil {
			return err
		}
		n.died = func(n *node, err error) { w.fail(violation("C6: %v", err)) }
		if i == disk && w.mount != "" {
			w.disk = n
		}
		w.all = append(w.all, n)
		addrs[name] = n.peer
	}
	if w.net, err = newMatrix(addrs); err != nil {
		return err
	}
	var founders, clients []string
	for i, n := range w.all {
		clients = append(clients, n.grpc)
		if i < w.size {
			n.state = member
			founders = append(founders, n.peer)
		}
	}
	for _, n := range w.all[:w.size] {
		w.arm(n, strings.Join(founders, ","), w.size)
	}
	w.makePresent()
	if w.client, err = weir.Open(weir.Config{Addrs: clients, RetryFor: 3 * time.Second}); err != nil {
		return err
	}
	w.audits = make(map[string]*audit)
	for _, p := range pipelines {
		w.audits[p.name] = newAudit(p, shards)
	}
	open := func(name string) *sender {
		return &sender{w: w, name: name, rng: dice("sender "+name, int64(w.seed))}
	}
	w.senders, w.probe = []*sender{open("north"), open("south")}, open("probe")
	for _, name := range []string{"scribe", "clerk"} {
		w.producers = append(w.producers, &producer{w: w, name: name, rng: dice("producer "+name, int64(w.seed))})
	}
	return nil
}

// mountDisk returns a directory on a disk of its own, which can be full. It needs root; without it the disk is never full.
func (w *world) mountDisk() string {
	dir := filepath.Join(w.dir, "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return w.dir
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err == nil {
		w.mount = dir
	}
	return dir
}

// arm decides what a node is started with.
func (w *world) arm(n *node, join string, expect int) {
	var instead []string
	for addr, to := range w.net.instead(n.name) {
		instead = append(instead, addr+"="+to)
	}
	n.args = []string{
		"server", "--node-id", n.name, "--data-dir", n.dir, "--http-addr", n.http, "--grpc-addr", n.grpc, "--peer-addr", n.peer, "--join", join,
		"--bootstrap-expect", fmt.Sprint(expect), "--min-free-disk", fmt.Sprint(minFreeDisk), "--peer-map", strings.Join(instead, ","),
	}
	if expect > 0 {
		n.args = append(n.args, "--shards", fmt.Sprint(shards))
	}
	n.args = append(n.args, "--allow-fault-injection", "--fault-file", n.faultFile())
	if w.brokenDisks {
		n.args = append(n.args, "--fault-disk")
	}
	if w.authority != nil {
		dir := n.dir + ".tls"
		if err := os.Mkdir(dir, 0o700); err != nil {
			w.t.Fatal(err)
		}
		cert, key, ca := w.authority.Write(w.t, dir, n.name, int64(2+slices.Index(w.all, n)))
		n.args = append(n.args, "--peer-cert", cert, "--peer-key", key, "--peer-ca", ca)
	}
	if n.env = w.settings; n.env != nil {
		return
	}
	n.args = append(n.args, "--election-timeout", electionTimeout.String())
	n.env = []string{"WEIR_SERVER_SEGMENT_BYTES=1048576"}
	if w.seed%2 == 0 {
		// Small bounds, so that what is rare falls between two faults.
		n.env = append(n.env, "WEIR_SERVER_MERGE_LAYERS=1", "WEIR_SERVER_MERGE_EVERY=50ms", "WEIR_SERVER_RETENTION_EVERY=150ms")
		if *snapshots {
			n.env = append(n.env, "WEIR_SERVER_SNAPSHOT_BYTES=131072", "WEIR_SERVER_TRAILING_BYTES=16384")
		}
	}
}

// makePresent tells the actors which nodes there are.
func (w *world) makePresent() {
	present := w.nodes(func(n *node) bool { return n.state == member })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.present = present
}

// fail takes a failure of what goes on beside, and ends the run.
func (w *world) fail(err error) {
	select {
	case w.failed <- err:
		w.history.log("WRONG %v", err)
		w.stop()
	default: // there is one already
	}
}

// beginning runs an actor beside.
func (w *world) begin(f func(context.Context) error) {
	w.beside.Go(func() {
		if err := f(w.ctx); err != nil && w.ctx.Err() == nil {
			w.fail(err)
		}
	})
}

// during runs what the goroutine does that breaks things, and returns the first failure, its own or of what goes on beside.
func (w *world) during(f func() error) error {
	began := time.Now()
	defer func() { w.took = time.Since(began) }()
	err := f()
	if err != nil {
		w.stop()
	}
	w.beside.Wait()
	select {
	case cause := <-w.failed:
		return cause
	default:
		return err
	}
}

// life founds the group, breaks it and heals it again and again, and compares.
func (w *world) life(d time.Duration) error {
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
	for _, p := range pipelines[:2] {
		if _, err := w.client.Deploy(ctx, weir.Deploy{Pipeline: p.name, SQL: p.sql}); err != nil {
			return fmt.Errorf("deploy %s: %w", p.name, err)
		}
	}
	for _, n := range w.all {
		w.beside.Go(func() { n.watch(ctx) })
	}
	for _, s := range w.senders {
		w.begin(s.run)
	}
	for _, p := range w.producers {
		w.begin(p.run)
	}
	for i := range 3 {
		w.begin((&reader{w: w, name: fmt.Sprintf("reader %d", i+1), rng: dice("reader", int64(w.seed)+int64(i)), session: i > 0}).run)
	}
	w.begin(w.live)
	for ends := time.Now().Add(d); time.Now().Before(ends); {
		for range 3 + w.rng.IntN(5) {
			if err := w.fault(ctx); err != nil {
				return err
			}
		}
		if err := w.heal(ctx); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// ready waits until a node answers.
func (w *world) ready(ctx context.Context, n *node) error {
	for ends := time.Now().Add(patience); ; {
		if n.serves(ctx) {
			return nil
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		if n.damaged != "" && !n.runs() {
			return nil // heal sees to it
		}
		if time.Now().After(ends) {
			return violation("C7: %s does not answer %s after it was started", n.name, patience)
		}
	}
}

// keepFaults leaves only the faults of these names.
func keepFaults(names []string) {
	var kept []fault
	for _, f := range faults {
		for _, n := range names {
			if f.name == strings.TrimSpace(n) {
				kept = append(kept, f)
			}
		}
	}
	faults = kept
}

// close ends everything. Of a run that failed, processes leave the stacks of their goroutines in their logs.
func (w *world) close(failed bool) {
	if w.stop != nil {
		w.stop()
	}
	w.beside.Wait()
	for _, n := range w.all {
		if failed {
			n.dump()
		}
		n.close()
	}
	if w.net != nil {
		w.net.close()
	}
	if w.client != nil {
		_ = w.client.Close()
	}
	if w.mount != "" {
		if failed || *keep { // what is on the disk goes with it
			_ = os.CopyFS(filepath.Join(w.dir, "disk-copy"), os.DirFS(w.mount))
		}
		if err := syscall.Unmount(w.mount, syscall.MNT_DETACH); err != nil {
			w.t.Errorf("unmount %s: %v", w.mount, err)
		}
	}
	if w.history != nil {
		if err := w.history.close(); err != nil {
			w.t.Errorf("history: %v", errors.Join(err))
		}
	}
}
