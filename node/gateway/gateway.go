package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Config configures the gateway.
type Config struct {
	// Serve answers gRPC on a listener until it is closed or the server stops: api.Server.Serve. Required.
	Serve func(net.Listener) error
	// Ready says why the node cannot serve, nil when it can. Required. ReadyForReads says why it cannot answer committed reads, which
	// need no other node; default Ready.
	Ready, ReadyForReads func(context.Context) error
	// Metrics is what /metrics shows. Default: nothing.
	Metrics prometheus.Gatherer
	// Logger gets defects. Default: discard.
	Logger *slog.Logger
}

// EnsureDefaults fills in what is zero.
func (c *Config) EnsureDefaults() {
	if c.ReadyForReads == nil {
		c.ReadyForReads = c.Ready
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

const (
	// loopbackBuffer is the in-process connection's. About a batch of rows, so that one call's request does not stop in
	// the middle.
	loopbackBuffer = 1 << 20
	// headerTimeout bounds how long a client may take over its headers, bodyTimeout over its body, writeTimeout over one
	// piece of a streamed answer.
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	readyTimeout  = 2 * time.Second
)

// Gateway is the HTTP side of a node.
type Gateway struct {
	cfg     Config
	conn    *grpc.ClientConn
	lis     *bufconn.Listener
	handler http.Handler
	serving sync.WaitGroup

	ingest  weirv1.IngestServiceClient
	queries weirv1.QueryServiceClient
	watches watchLines
}

// Open connects a gateway to a gRPC server. Close it after the HTTP server that uses its Handler, before the gRPC server.
func Open(cfg Config) (*Gateway, error) {
	cfg.EnsureDefaults()
	g := &Gateway{cfg: cfg, lis: bufconn.Listen(loopbackBuffer)}
	var err error
	if g.conn, err = g.connect(); err != nil {
		return nil, err
	}
	for range watchConns {
		conn, err := g.connect()
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.watches.conns = append(g.watches.conns, conn)
	}
	g.ingest, g.queries = weirv1.NewIngestServiceClient(g.conn), weirv1.NewQueryServiceClient(g.conn)
	if g.handler, err = g.routes(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.serving.Go(func() {
		if err := cfg.Serve(g.lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			cfg.Logger.Error("the gateway's connection ended", "err", err)
		}
	})
	return g, nil
}

// connect makes a connection to the gRPC server in this process; it connects with the first call.
func (g *Gateway) connect() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///in-process",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return g.lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("connect the gateway: %w", err)
	}
	return conn, nil
}

// Server returns an HTTP server around the handler, with the timeouts that a public port needs.
func (g *Gateway) Server() *http.Server { return server(g.handler, g.cfg.Logger) }

func server(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// Close ends the connections to the gRPC server. Serve returns when that server stops; Wait waits for it.
func (g *Gateway) Close() error {
	err := g.conn.Close()
	for _, c := range g.watches.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Wait returns when Serve has returned, that is, after the gRPC server was stopped.
func (g *Gateway) Wait() { g.serving.Wait() }

// routes builds the handler. A route registered later wins over an earlier one, so the hand-written ones come last.
func (g *Gateway) routes() (http.Handler, error) {
	parseStrictly()
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newMarshaler()),
		runtime.WithMiddlewares(bodyAgreesWithPath),
		runtime.WithErrorHandler(g.gatewayError),
		runtime.WithRoutingErrorHandler(g.routingError),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
	)
	ctx := context.Background() // the generated code ignores it: the connection's life is Close's
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		weirv1.RegisterIngestServiceHandler, weirv1.RegisterQueryServiceHandler,
		weirv1.RegisterPipelineServiceHandler, weirv1.RegisterClusterServiceHandler,
	} {
		if err := register(ctx, mux, g.conn); err != nil {
			return nil, fmt.Errorf("register routes: %w", err)
		}
	}
	openAPI, err := describe()
	if err != nil {
		return nil, err
	}
	const table = "/v1/pipelines/{pipeline}/tables/{table}/rows"
	for _, r := range []struct {
		method, path string
		handle       runtime.HandlerFunc
	}{
		{"GET", table + "/{key}", g.getByPath},
		{"GET", table + ":get", g.get},
		{"GET", table, g.scan},
		{"POST", table + ":batchGet", g.batchGet},
		{"GET", "/v1/pipelines/{pipeline}/tables/{table}:watch", g.watch},
		{"POST", "/v1/query", g.query},
		{"POST", "/v1/streams/{stream}:append", g.append},
		{"POST", "/v1/streams/{stream}/rows", g.append},
		{"GET", "/v1/streams/{stream}/rows", g.readStream},
		{"GET", "/healthz", alive},
		{"HEAD", "/healthz", alive},
		{"GET", "/livez", alive},
		{"HEAD", "/livez", alive},
		{"GET", "/readyz", readyz(g.cfg.Ready)},
		{"HEAD", "/readyz", readyz(g.cfg.Ready)},
		{"GET", "/readyz/reads", readyz(g.cfg.ReadyForReads)},
		{"HEAD", "/readyz/reads", readyz(g.cfg.ReadyForReads)},
		{"GET", "/openapi.json", func(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
			w.Header().Set("Content-Type", "application/json")
			send(w, openAPI)
		}},
		{"GET", "/metrics", fromHandler(promhttp.HandlerFor(g.cfg.Metrics, promhttp.HandlerOpts{}))},
	} {
		if err := mux.HandlePath(r.method, r.path, r.handle); err != nil {
			return nil, fmt.Errorf("register %s %s: %w", r.method, r.path, err)
		}
	}
	return g.guard(mux), nil
}

func fromHandler(h http.Handler) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, _ map[string]string) { h.ServeHTTP(w, r) }
}

// alive answers as long as the process does.
func alive(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	send(w, []byte("ok\n"))
}

// readyz answers 200 when ready returns nil; else 503 and why.
func readyz(ready func(context.Context) error) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			notReady(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		send(w, []byte("ready\n"))
	}
}
