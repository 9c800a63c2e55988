package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/codec"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Config configures the server.
type Config struct {
	// Group is the node group's id: tokens of another group are refused. Required.
	Group dataflow.GroupID
	// Version is what GetVersion answers.
	Version Version
	// Logger gets defects at error level and refusals at debug level. Default: discard.
	Logger *slog.Logger
	// Metrics registers the server's figures. Default: a registry of its own.
	Metrics prometheus.Registerer
	// Credentials are the transport's; nil is plain text, for loopback.
	Credentials credentials.TransportCredentials
	// Reflection answers grpc.reflection.v1. Off by default: it shows the API to whoever can connect.
	Reflection bool
	// FaultInjection admits FailPipeline. Off by default.
	FaultInjection bool
	// Led reports whether all logs have a leader, so that rows and commands can be taken. Default: they always have.
	Led func() bool
	// Deadline is given to calls that bring none. Default 1 min. LongDeadline is for those that wait. Default 10 min.
	Deadline, LongDeadline time.Duration
}

// EnsureDefaults fills in what is zero.
func (c *Config) EnsureDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Led == nil {
		c.Led = func() bool { return true }
	}
	if c.Deadline == 0 {
		c.Deadline = time.Minute
	}
	if c.LongDeadline == 0 {
		c.LongDeadline = 10 * time.Minute
	}
}

// The transport's limits.
const (
	// MaxMessageBytes is the largest request: the largest append as JSON, and room for its framing.
	MaxMessageBytes = wire.MaxJSONBytes + 1<<20
	// maxStreams bounds the calls of one connection.
	maxStreams = 1000
	// maxHeaderBytes bounds a call's headers; a header of a megabyte ends the call, not the server.
	maxHeaderBytes = 64 << 10
	// handshakeTimeout bounds how long a connection may take to become one.
	handshakeTimeout = 10 * time.Second
	// Clients may ping this often, also without calls. More often ends the connection.
	minPing = 5 * time.Second
	// The server pings idle connections to notice peers that went away without a word.
	pingAfter, pingTimeout = time.Minute, 20 * time.Second
	// Larger than gRPC's 64 KiB: a batch of rows must not wait for a window update in the middle.
	streamWindow, connWindow = 1 << 20, 4 << 20
	// callWorkers, per core, answer calls one after the other, on stacks that have grown once. A call that finds all of
	// them busy gets a goroutine of its own, whose stack grows anew: that was a sixth of a look-up's time.
	callWorkers = 16
)

// Server is the gRPC server with all services. Serve may be called for several listeners.
type Server struct {
	grpc    *grpc.Server
	readers *readers
	// endAppends ends the context under which AppendStream calls take anything.
	endAppends context.CancelFunc
}

// pings lets clients look whether an idle connection still stands.
func pings() grpc.ServerOption {
	return grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true})
}

// New returns a server over b. It starts nothing.
func New(cfg Config, b Backends) (*Server, error) {
	cfg.EnsureDefaults()
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register the api's metrics: %w", err)
	}
	ic := &interceptors{log: cfg.Logger, metrics: m, deadline: cfg.Deadline, longer: cfg.LongDeadline}
	opts := []grpc.ServerOption{
		grpc.UnaryInterceptor(ic.unary), grpc.StreamInterceptor(ic.stream),
		grpc.MaxRecvMsgSize(MaxMessageBytes), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		pings(),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WaitForHandlers(true), grpc.NumStreamWorkers(uint32(callWorkers * runtime.GOMAXPROCS(0))),
	}
	pool := new(codec.Pool)
	opts = append(opts, grpc.ForceServerCodecV2(codec.New(pool, true)), experimental.BufferPool(pool))
	if cfg.Credentials != nil {
		opts = append(opts, grpc.Creds(cfg.Credentials))
	}
	appends, endAppends := context.WithCancel(context.Background())
	s := &Server{grpc: grpc.NewServer(opts...), readers: &readers{}, endAppends: endAppends}
	names := newNamer(b.Streams.StreamName)
	weirv1.RegisterIngestServiceServer(s.grpc, &ingestService{b: b, names: names, group: cfg.Group,
		budget: semaphore.NewWeighted(maxIngestBytes), readers: s.readers, ends: appends, metrics: m})
	weirv1.RegisterQueryServiceServer(s.grpc, &queryService{b: b, names: names, group: cfg.Group, readers: s.readers})
	weirv1.RegisterPipelineServiceServer(s.grpc, &pipelineService{b: b, names: names, group: cfg.Group, faultInjection: cfg.FaultInjection})
	weirv1.RegisterClusterServiceServer(s.grpc, &clusterService{b: b, group: cfg.Group, version: cfg.Version})
	healthpb.RegisterHealthServer(s.grpc, &healthService{ready: b.Cluster.Ready, led: cfg.Led})
	if cfg.Reflection {
		reflection.Register(s.grpc)
	}
	return s, nil
}

// Serve answers calls on lis until Stop. It closes lis.
func (s *Server) Serve(lis net.Listener) error { return s.grpc.Serve(lis) }

// EndAppends ends all AppendStream calls with SHUTTING_DOWN, as soon as each has answered what it has taken, and lets none take
// anything any more. The node calls it before it stops its servers, which wait for the calls under way.
func (s *Server) EndAppends() { s.endAppends() }

// Stop ends AppendStream calls as EndAppends does, takes no more calls, waits for those under way until ctx is done, then ends
// them, and waits for every goroutine of the server.
func (s *Server) Stop(ctx context.Context) {
	s.EndAppends()
	stopServer(ctx, s.grpc)
	s.readers.Wait()
}

// stopServer takes no more calls, waits for those under way until ctx is done, then ends them.
func stopServer(ctx context.Context, s *grpc.Server) {
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		s.Stop() // ends GracefulStop too
		<-graceful
	}
}
