package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/codec"
	"github.com/weirdb/weir/internal/peernet"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog"
)

// Service is the default name of gRPC's connections on peernet.
const Service = "grpc"

// The transport's limits.
const (
	// maxMessageBytes is the largest message unless it is said otherwise: the largest entry of a log, and its framing.
	maxMessageBytes = dataflow.MaxBatchBytes + dataflow.MaxEntryBytes + 1<<20
	// maxStreams bounds the calls of one node: a stream per log, and what waits for something.
	maxStreams = 4096
	// Nodes that went without a word are noticed within pingAfter and pingTimeout; calls to them fail then. gRPC pings no
	// more often than every 10 s.
	pingAfter, pingTimeout, minPing = 10 * time.Second, 3 * time.Second, 5 * time.Second
	// A node that is not there is tried again after these times.
	firstRetry, lastRetry = 50 * time.Millisecond, time.Second
	// connectTimeout bounds one attempt.
	connectTimeout = 3 * time.Second
	// Larger than gRPC's 64 KiB: a command must not wait for a window update in the middle.
	streamWindow, connWindow = 1 << 20, 8 << 20
)

// Log is what a log takes from other nodes. *raftlog.Group is one.
type Log interface {
	CheckForwards(term uint64) error
	ServeForwards(ctx context.Context, term uint64, s raftlog.Forwards) error
}

var _ Log = (*raftlog.Group)(nil)

// Config says what Peers works with.
type Config struct {
	// Net is the network between nodes. It stays the caller's.
	Net *peernet.Net
	// Service names connections of their own, for calls that must not wait behind others, or that are served later; default
	// Service.
	Service string
	// MaxMessageBytes bounds a message; default what an entry of a log takes.
	MaxMessageBytes int
	// Register adds more services to the server; optional.
	Register func(grpc.ServiceRegistrar)
}

// Peers is this node's gRPC with the others. Its methods are safe for concurrent use.
type Peers struct {
	cfg    Config
	server *grpc.Server
	bufs   *codec.Pool // of the calls of both directions
	serve  sync.WaitGroup

	mu struct {
		sync.Mutex
		closed bool
		conns  map[string]*grpc.ClientConn
		logs   map[string]Log
	}
}

var _ raftlog.Forwarder = (*Peers)(nil)

// Open serves other nodes' calls, and makes calls to them.
func Open(cfg Config) (*Peers, error) {
	cfg.Service = cmp.Or(cfg.Service, Service)
	cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, maxMessageBytes)
	lis, err := cfg.Net.Listener(cfg.Service)
	if err != nil {
		return nil, err
	}
	p := &Peers{cfg: cfg, bufs: new(codec.Pool)}
	p.mu.conns = make(map[string]*grpc.ClientConn)
	p.mu.logs = make(map[string]Log)
	p.server = grpc.NewServer(
		grpc.MaxRecvMsgSize(cfg.MaxMessageBytes), grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow), grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(codec.New(p.bufs, true)), experimental.BufferPool(p.bufs),
	)
	peerv1.RegisterPeerServiceServer(p.server, &service{p: p})
	if cfg.Register != nil {
		cfg.Register(p.server)
	}
	p.serve.Go(func() { _ = p.server.Serve(lis) }) // ends with Close
	return p, nil
}

// Serve lets a log take other nodes' commands until the function that it returns is called.
func (p *Peers) Serve(name string, l Log) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.logs[name] = l
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.logs[name] == l {
			delete(p.mu.logs, name)
		}
	}
}

func (p *Peers) log(name string) Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.logs[name]
}

// Conn returns the connection to a node, which is made when it is needed, and again where the node then is.
func (p *Peers) Conn(node string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil, dataflow.Errorf(dataflow.ReasonShuttingDown, "this node stops")
	}
	if c := p.mu.conns[node]; c != nil {
		return c, nil
	}
	retry := backoff.Config{BaseDelay: firstRetry, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastRetry}
	c, err := grpc.NewClient("passthrough:///"+node,
		grpc.WithContextDialer(func(ctx context.Context, node string) (net.Conn, error) {
			return p.cfg.Net.Dial(ctx, node, p.cfg.Service)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // peernet does TLS
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(p.cfg.MaxMessageBytes), grpc.MaxCallSendMsgSize(p.cfg.MaxMessageBytes),
			grpc.ForceCodecV2(codec.New(p.bufs, true))),
		experimental.WithBufferPool(p.bufs),
		grpc.WithIdleTimeout(0), // a node that is called once is called again
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to node %s: %w", node, err)
	}
	p.mu.conns[node] = c
	return c, nil
}

// Close ends calls in both directions and waits for their handlers. The logs should be closed before: what they carry is
// unknown afterwards.
func (p *Peers) Close() error {
	p.mu.Lock()
	p.mu.closed = true
	conns := p.mu.conns
	p.mu.conns = nil
	p.mu.Unlock()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	p.server.Stop() // not gracefully: streams of commands do not end by themselves
	p.serve.Wait()
	return errors.Join(errs...)
}

// Caller returns the name of the node that makes a call to this one.
func Caller(ctx context.Context) (string, bool) {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(peernet.Addr); ok {
			return a.Node, true
		}
	}
	return "", false
}
