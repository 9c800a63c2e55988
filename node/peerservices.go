package node

import (
	"context"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// peerServices are the calls between nodes that are not the logs': a gRPC server, and a connection to each other node.
type peerServices struct {
	peers  *peers
	name   string
	server *grpc.Server
	serve  sync.WaitGroup

	mu struct {
		sync.Mutex
		conns map[string]*grpc.ClientConn
	}
}

// newPeerServices serves what register adds to other nodes, on connections of their own called name. Close ends it.
func newPeerServices(p *peers, name string, register func(grpc.ServiceRegistrar), opts ...grpc.ServerOption) (*peerServices, error) {
	opts = append(opts, grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))
	s := &peerServices{peers: p, name: name, server: grpc.NewServer(opts...)}
	s.mu.conns = make(map[string]*grpc.ClientConn)
	register(s.server)
	l, err := p.net.Listener(name)
	if err != nil {
		return nil, err
	}
	s.serve.Go(func() {
		if err := s.server.Serve(l); err != nil {
			p.logger.Debug("the services for other nodes end", "error", err)
		}
	})
	return s, nil
}

// reconnect is how long a connection that broke waits before it is made again.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
	MinConnectTimeout: 2 * time.Second,
}

// conn returns the connection to another node. It does not wait.
func (s *peerServices) conn(node string) (grpc.ClientConnInterface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.conns[node]; c != nil {
		return c, nil
	}
	c, err := grpc.NewClient("passthrough:///"+node,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the network between nodes has secured it, if that is to be
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return s.peers.net.Dial(ctx, node, s.name)
		}),
		grpc.WithConnectParams(reconnect), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	s.mu.conns[node] = c
	return c, nil
}

// close ends the server and the connections. Calls under way fail.
func (s *peerServices) close() {
	s.server.Stop()
	s.serve.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.mu.conns {
		_ = c.Close() // nothing hangs on it
	}
	clear(s.mu.conns)
}
