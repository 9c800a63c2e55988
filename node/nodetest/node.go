package nodetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/worker"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Options say what kind of node to run. The zero value is a node of two shards.
type Options struct {
	// Shards of a new group; default 2: enough for an exchange, few enough to start quickly.
	Shards int
	// FS holds the data; default an empty one.
	FS *vfs.MemFS
	// Dir, if set, holds the data instead, on the operating system's file system. Such a node cannot Crash.
	Dir string
	// DiskUsage is what the disk says of its space; default a disk that does not tell.
	DiskUsage func() (vfs.DiskUsage, error)
	// Clock is the wall clock; default the right one.
	Clock func() time.Time
	// Tuning says how often what happens in the background happens; Restless makes it frequent.
	Tuning node.Tuning
	// MemoryBytes is what the live tables may take; default node.Config's.
	MemoryBytes int64
	// RESP serves Redis clients.
	RESP bool
	// Reflection answers gRPC reflection.
	Reflection bool
	// Peer makes the node one of a group of several; set by OpenGroup.
	Peer *Peer
	// Logger takes the node's messages. Default: the test's log, errors only: a start warns of elections.
	Logger *slog.Logger
}

// Restless makes everything in the background happen all the time: snapshots and truncation of the logs, new segment
// files, and merges of what is no longer retained.
func Restless() node.Tuning {
	return node.Tuning{
		Merge:         worker.MergePolicy{Bytes: 1, Layers: 1, Age: time.Millisecond, Every: 5 * time.Millisecond},
		SnapshotBytes: 4 << 10, TrailingBytes: 1, SegmentBytes: 32 << 10, RetentionEvery: 20 * time.Millisecond,
	}
}

// dataDir is the data directory in the file system.
const dataDir = "/data"

// patience bounds every wait of a verb: far longer than a busy machine needs, shorter than the test's own limit.
const patience = 60 * time.Second

// Node is a running node. Its methods are for one goroutine at a time, but the service clients are for any number.
type Node struct {
	t    testing.TB
	opts Options
	fs   *vfs.MemFS

	conn *grpc.ClientConn
	http *http.Client
	stop context.CancelFunc
	done chan error // what the last Run and Close returned

	mu struct {
		sync.Mutex
		node     *node.Node // nil while it does not run; another one after it has restarted itself
		restarts int
	}
}

// running returns the node; nil when it does not run.
func (n *Node) running() *node.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.node
}

// SelfRestarts returns how often the node has restarted itself since it was opened first.
func (n *Node) SelfRestarts() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.restarts
}

// Open runs a node until the test ends, or Close.
func Open(t testing.TB, opts Options) *Node {
	t.Helper()
	if opts.Shards == 0 {
		opts.Shards = 2
	}
	if opts.FS == nil {
		opts.FS = vfs.NewCrashableMem()
	}
	n := &Node{t: t, opts: opts, fs: opts.FS}
	if n.opts.Logger == nil {
		n.opts.Logger = testLogger(t)
	}
	n.open()
	t.Cleanup(n.Close)
	return n
}

// testLogger writes errors to the test's log.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelError}))
}

// testLog writes messages of the node to the test's log. They come from a node that the test has closed before it ends.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// disk is a file system whose disk tells what a test wants.
type disk struct {
	vfs.FS
	usage func() (vfs.DiskUsage, error)
}

// GetDiskUsage implements vfs.FS.
func (d disk) GetDiskUsage(string) (vfs.DiskUsage, error) { return d.usage() }

func (n *Node) open() {
	n.t.Helper()
	if err := n.start(context.Background()); err != nil {
		n.t.Fatal(err)
	}
}

// start opens the node and runs it. opening ends the opening.
func (n *Node) start(opening context.Context) error {
	cfg := n.config()
	nd, err := node.Open(opening, cfg)
	if err != nil {
		return fmt.Errorf("open the node: %w", err)
	}
	// Should it restart itself, its clients find it where it was.
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.RESPAddr = nd.GRPCAddr(), nd.HTTPAddr(), nd.RESPAddr()
	ctx, cancel := context.WithCancel(context.Background())
	n.stop, n.done = cancel, make(chan error, 1)
	n.mu.Lock()
	n.mu.node = nd
	n.mu.Unlock()
	go func() { n.done <- n.serve(ctx, cfg, nd) }()
	n.conn, err = grpc.NewClient(nd.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return fmt.Errorf("connect to the node: %w", err)
	}
	n.http = &http.Client{Transport: &http.Transport{}}
	return nil
}

// serve runs the node, as often as it restarts itself, and closes it.
func (n *Node) serve(ctx context.Context, cfg node.Config, nd *node.Node) error {
	for {
		err := nd.Run(ctx)
		cerr := nd.Close()
		var again *node.Restart
		if cerr != nil || !errors.As(err, &again) || ctx.Err() != nil {
			if again != nil && ctx.Err() != nil {
				err = nil
			}
			return errors.Join(err, cerr)
		}
		if nd, err = node.Open(ctx, cfg); err != nil {
			if ctx.Err() != nil {
				return nil // it was to stop
			}
			return fmt.Errorf("open the node again: %w", err)
		}
		n.mu.Lock()
		n.mu.node = nd
		n.mu.restarts++
		n.mu.Unlock()
	}
}

// config is what the node is opened with.
func (n *Node) config() node.Config {
	cfg := node.Config{
		DataDir: dataDir, FS: n.fs, Shards: n.opts.Shards, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		MemoryBytes: n.opts.MemoryBytes, Tuning: n.opts.Tuning, Reflection: n.opts.Reflection, FaultInjection: true, Logger: n.opts.Logger, Clock: n.opts.Clock,
	}
	// A test ends its nodes all at once: none of them can give its leads away.
	cfg.Tuning.GiveLeads = cmp.Or(cfg.Tuning.GiveLeads, 200*time.Millisecond)
	if p := n.opts.Peer; p != nil {
		cfg.NodeID, cfg.PeerAddr, cfg.PeerNetwork, cfg.Join, cfg.BootstrapExpect = p.ID, p.Addr, p.Network, p.Join, p.Expect
	}
	if n.opts.RESP {
		cfg.RESPAddr = "127.0.0.1:0"
	}
	switch {
	case n.opts.Dir != "":
		cfg.DataDir, cfg.FS = n.opts.Dir, vfs.Default
	case n.opts.DiskUsage != nil:
		cfg.FS = disk{n.fs, n.opts.DiskUsage}
	}
	return cfg
}

// FS returns the file system that holds the data.
func (n *Node) FS() *vfs.MemFS { return n.fs }

// SetFS gives a node that does not run another file system.
func (n *Node) SetFS(fs *vfs.MemFS) { n.fs = fs }

// TryStart is Start until ctx ends.
func (n *Node) TryStart(ctx context.Context) error { return n.start(ctx) }

// Start runs a node that does not run. It may wait for others.
func (n *Node) Start() error {
	ctx, cancel := n.patience()
	defer cancel()
	return n.start(ctx)
}

// Reopen opens a closed node again, and returns the error when it cannot be.
func (n *Node) Reopen() error {
	nd, err := node.Open(context.Background(), n.config())
	if err != nil {
		return err
	}
	if err := nd.Close(); err != nil {
		return err
	}
	n.open()
	return nil
}

// Close stops the node in order. It does nothing when the node is closed.
func (n *Node) Close() {
	n.t.Helper()
	if n.running() == nil {
		return
	}
	if err := n.shut(); err != nil {
		n.t.Errorf("stop the node: %v", err)
	}
}

// Ended waits until the node ends by itself, and returns why. It is closed then.
func (n *Node) Ended() error {
	n.t.Helper()
	select {
	case err := <-n.done:
		n.done <- nil
		if cerr := n.shut(); cerr != nil {
			n.t.Errorf("close the node that has ended: %v", cerr)
		}
		return err
	case <-time.After(patience):
		n.t.Fatalf("the node does not end by itself")
		return nil
	}
}

// shut ends the node and everything around it, and waits for that. A node that does not end is the end of the test: it says what
// the process waits for, goroutines that are alike together.
func (n *Node) shut() error {
	n.http.CloseIdleConnections()
	err := n.conn.Close()
	n.stop()
	select {
	case end := <-n.done:
		err = errors.Join(err, end)
	case <-time.After(2 * patience):
		var all strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // a Builder takes everything
		panic("the node does not end within " + (2 * patience).String() + "\n" + all.String())
	}
	n.mu.Lock()
	n.mu.node = nil
	n.mu.Unlock()
	return err
}

// Restart stops the node in order and runs it again on the same data. Clients that were taken before are of no use
// afterwards.
func (n *Node) Restart() {
	n.t.Helper()
	n.Close()
	n.open()
}

// LoseUnsynced is the crash that loses all that was not synced.
var LoseUnsynced = vfs.CrashCloneCfg{}

// Crash pulls the plug at this moment and runs the node again on what the disk holds, which cfg decides.
func (n *Node) Crash(cfg vfs.CrashCloneCfg) {
	n.t.Helper()
	after := n.fs.CrashClone(cfg)
	// The old node still runs, on a disk that nobody will read again; how it ends does not matter.
	if err := n.shut(); err != nil {
		n.t.Logf("the crashed node ended with: %v", err)
	}
	n.fs = after
	n.open()
}

// Ingest returns a client of the service.
func (n *Node) Ingest() weirv1.IngestServiceClient { return weirv1.NewIngestServiceClient(n.conn) }

// Queries returns a client of the service.
func (n *Node) Queries() weirv1.QueryServiceClient { return weirv1.NewQueryServiceClient(n.conn) }

// Pipelines returns a client of the service.
func (n *Node) Pipelines() weirv1.PipelineServiceClient {
	return weirv1.NewPipelineServiceClient(n.conn)
}

// Cluster returns a client of the service.
func (n *Node) Cluster() weirv1.ClusterServiceClient { return weirv1.NewClusterServiceClient(n.conn) }

// Conn returns the connection that the clients use.
func (n *Node) Conn() *grpc.ClientConn { return n.conn }

// GRPCAddr and HTTPAddr return where the node listens.
func (n *Node) GRPCAddr() string { return n.running().GRPCAddr() }

// HTTPAddr returns where the node listens for HTTP.
func (n *Node) HTTPAddr() string { return n.running().HTTPAddr() }

// RESPAddr returns where the node listens for Redis clients.
func (n *Node) RESPAddr() string { return n.running().RESPAddr() }

// HTTP sends a request and returns the answer's status, headers and body. header may be nil.
func (n *Node) HTTP(method, path, body string, header map[string]string) (int, http.Header, string) {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.HTTPAddr()+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, path, err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := n.http.Do(req)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, path, err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		n.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func (n *Node) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}
