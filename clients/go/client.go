package weir

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/weirdb/weir/internal/codec"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// DefaultAddr is where a server listens unless told otherwise.
const DefaultAddr = "127.0.0.1:7711"

// DefaultRetryFor is how long a Client tries again when Config does not say.
const DefaultRetryFor = 10 * time.Second

// The connection's parameters.
const (
	// Twice what the server allows as the least time between pings: pinging too often ends the connection. A node that has
	// vanished from the network is found out after the sum.
	pingAfter, pingTimeout = 10 * time.Second, 5 * time.Second
	// Answers are pages of at most 10,000 rows, whose size the server bounds.
	maxMessageBytes = 64 << 20
	// A first retry soon, because servers restart in a moment; not more than every two seconds.
	connectBase, connectMax, connectTimeout = 50 * time.Millisecond, 2 * time.Second, 5 * time.Second
)

// Config configures a Client. The zero value of a field means its default.
type Config struct {
	// Addrs are gRPC addresses (host:port) of nodes of one group; one is enough. They are tried in order. Default DefaultAddr.
	Addrs []string
	// NoDiscovery keeps the client to Addrs. Otherwise it asks the group where its other nodes are, and uses these too when one
	// fails: at the addresses that they advertise, and only when who answers there is of the same group.
	NoDiscovery bool
	// RetryFor is how long a call is made again that failed for want of a server: so long servers are looked for, and the last try is
	// made at its end. A call that has reached one may take longer, and that a server has fallen silent, as one that is paused, is known
	// after 15 s. Default DefaultRetryFor; negative means that no call is made twice.
	RetryFor time.Duration
	// DialOptions are added to the connection's own, for example to dial in memory in a test.
	DialOptions []grpc.DialOption
}

// EnsureDefaults fills what is not set.
func (c *Config) EnsureDefaults() {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{DefaultAddr}
	}
	if c.RetryFor == 0 {
		c.RetryFor = DefaultRetryFor
	}
}

// Validate reports what is wrong, each with its field.
func (c *Config) Validate() error {
	var errs []error
	for _, a := range c.Addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			errs = append(errs, invalidAddr(a))
		}
	}
	return errors.Join(errs...)
}

// Client is a connection to a node group. It is safe for concurrent use.
type Client struct {
	cfg   Config
	nodes *nodes

	ingest    weirv1.IngestServiceClient
	query     weirv1.QueryServiceClient
	pipelines weirv1.PipelineServiceClient
	cluster   weirv1.ClusterServiceClient

	sessions sessions
}

// ParseAddrs splits a list of addresses as flags and WEIR_ADDR have it: separated by commas.
func ParseAddrs(list string) []string {
	var out []string
	for a := range strings.SplitSeq(list, ",") {
		if a = strings.TrimSpace(a); a != "" {
			out = append(out, a)
		}
	}
	return out
}

// Dial returns a client of the node group at these addresses. It does not wait for the connection: a server that is not
// there is reported by the first call.
func Dial(addrs ...string) (*Client, error) { return Open(Config{Addrs: addrs}) }

// Open is Dial with a configuration.
func Open(cfg Config) (*Client, error) {
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	pool := new(codec.Pool)
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), // a database is not reached through a proxy of the web
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: connectBase, Multiplier: 1.6, Jitter: 0.2, MaxDelay: connectMax},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(wire.MaxJSONBytes+1<<20),
			grpc.ForceCodecV2(codec.New(pool, false))),
		experimental.WithBufferPool(pool),
		grpc.WithDisableServiceConfig(),
	}
	conn := newNodes(cfg.Addrs, !cfg.NoDiscovery, append(opts, cfg.DialOptions...))
	return &Client{
		cfg: cfg, nodes: conn, ingest: weirv1.NewIngestServiceClient(conn), query: weirv1.NewQueryServiceClient(conn),
		pipelines: weirv1.NewPipelineServiceClient(conn), cluster: weirv1.NewClusterServiceClient(conn),
	}, nil
}

// Addrs returns the addresses that the client was given.
func (c *Client) Addrs() []string { return append([]string(nil), c.cfg.Addrs...) }

// Close ends the connections and every call on them. Producers must be closed before.
func (c *Client) Close() error { return c.nodes.close() }

// call makes one unary call, and again while safe allows it.
func call[Req, Resp any](ctx context.Context, c *Client, safe retrySafety, rpc func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	var resp Resp
	err := c.retry(ctx, safe, func(ctx context.Context) (err error) {
		resp, err = rpc(ctx, req)
		return err
	})
	return resp, err
}
