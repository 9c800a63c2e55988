package weir

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	// learnEvery is how often a client asks where the group's nodes are. They change when people change them.
	learnEvery = 30 * time.Second
	// learnTime bounds asking, and asking a node that others have told of who it is: where it cannot be reached, as behind a
	// proxy, the next one should be tried soon.
	learnTime = 2 * time.Second
	// kickEvery is how often a node that could not be reached is dialled at once instead of when gRPC would, at most.
	kickEvery = 100 * time.Millisecond
)

// nodes are the nodes of the group that a client knows, with a connection to each that it has used. All calls go to one of
// them, the current one; when that fails another takes its place. It is safe for concurrent use.
//
// A node whose address was given is taken for what the caller says it is. One that the group tells of is asked first: the
// address may be reachable from the nodes alone, and from here be nobody's, or another group's.
type nodes struct {
	options []grpc.DialOption
	asks    bool         // where the other nodes are
	due     atomic.Int64 // when to ask again, in ns since 1970

	ctx  context.Context // the client's life
	stop context.CancelFunc
	work sync.WaitGroup // asking in the background

	mu struct {
		sync.Mutex
		all     []*clientNode // those that were given first
		current *clientNode
		group   string // the group's id; "" = not known yet
		asking  bool
		closed  bool
	}
}

// clientNode is one node. Its fields but addr and given are guarded by nodes.mu.
type clientNode struct {
	addr   string
	given  bool
	name   string           // as it has said, or others of it; "" = not known
	known  bool             // it has said that it is of the group
	conn   *grpc.ClientConn // nil = not used yet
	failed time.Time        // when it last failed; zero = never
	kicked time.Time        // when it was last dialled at once
	tried  time.Time        // when reach last began to connect it
}

var _ grpc.ClientConnInterface = (*nodes)(nil)

func newNodes(addrs []string, asks bool, options []grpc.DialOption) *nodes {
	g := &nodes{options: options, asks: asks}
	g.ctx, g.stop = context.WithCancel(context.Background())
	for _, a := range addrs {
		g.mu.all = append(g.mu.all, &clientNode{addr: a, given: true})
	}
	g.mu.current = g.mu.all[0]
	return g
}

// close ends all connections and the calls on them.
func (g *nodes) close() error {
	g.stop()
	g.mu.Lock()
	g.mu.closed = true
	g.mu.Unlock()
	g.work.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, n := range g.mu.all {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

func (n *clientNode) close() error {
	if n.conn == nil {
		return nil
	}
	return n.conn.Close()
}

// count returns how many nodes are known.
func (g *nodes) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mu.all)
}

// connLocked returns the connection to a node, which is made when first needed.
func (g *nodes) connLocked(n *clientNode) (*grpc.ClientConn, error) {
	if g.mu.closed {
		return nil, status.Error(codes.Canceled, "the client is closed")
	}
	if n.conn == nil {
		conn, err := grpc.NewClient("passthrough:///"+n.addr, g.options...)
		if err != nil {
			return nil, err
		}
		n.conn = conn
	}
	return n.conn, nil
}

// reach returns the connection to the node of a name, when one stands and who answers there has said that it is that node of the
// group. Otherwise it returns nil, and has the node asked in the background: not more often than every avoidFor.
func (g *nodes) reach(name string) *grpc.ClientConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.mu.all, func(n *clientNode) bool { return n.name == name })
	if i < 0 || !g.asks || g.mu.closed {
		return nil
	}
	n := g.mu.all[i]
	conn, err := g.connLocked(n)
	if err != nil {
		return nil
	}
	if n.known && conn.GetState() == connectivity.Ready {
		return conn
	}
	if time.Since(n.tried) > avoidFor {
		n.tried = time.Now()
		g.work.Go(func() { // under the lock, so that close waits for it
			ctx, cancel := context.WithTimeout(g.ctx, learnTime)
			defer cancel()
			if g.connect(ctx, n, conn) {
				g.check(ctx, n, conn)
			}
		})
	}
	return nil
}

// check asks a node that others have told of whether it is of the group.
func (g *nodes) check(ctx context.Context, n *clientNode, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	r, err := weirv1.NewClusterServiceClient(conn).ListNodes(ctx, &weirv1.ListNodesRequest{})
	if err != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n.known, n.name = r.GetClusterId() == g.mu.group, r.GetNode()
	return n.known
}

// leave lets another node take the calls that go to n, if they still do: the first that has never failed, or the one that has
// the longest ago.
func (g *nodes) leave(n *clientNode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaveLocked(n)
}

func (g *nodes) leaveLocked(n *clientNode) {
	n.failed = time.Now()
	if g.mu.current != n {
		return
	}
	g.mu.current = slices.MinFunc(g.mu.all, func(a, b *clientNode) int { return a.failed.Compare(b.failed) })
}

// note learns from how a call on a node has ended.
func (g *nodes) note(ctx context.Context, n *clientNode, conn *grpc.ClientConn, err error) {
	if elsewhere, answered := mayBeElsewhere(err); elsewhere {
		if answered && g.asks && g.due.Load() == 0 && ctx.Err() == nil {
			g.learn(ctx, n, conn) // it may know who can
		}
		g.leave(n)
		return
	}
	if !g.asks || time.Now().UnixNano() < g.due.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.asking || g.mu.closed {
		return
	}
	g.mu.asking = true
	g.work.Go(func() { // under the lock, so that close waits for it
		g.learn(g.ctx, n, conn)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.mu.asking = false
	})
}

// mayBeElsewhere reports whether another node may do what this one has failed to do, and whether this one has answered at all.
func mayBeElsewhere(err error) (elsewhere, answered bool) {
	if err == nil || errors.Is(err, io.EOF) {
		return false, true
	}
	st, ok := status.FromError(err)
	if !ok {
		return false, false
	}
	if e, _, ours := wire.ErrorOf(st.Proto()); ours {
		switch e.Reason.Kind() {
		case dataflow.KindUnavailable, dataflow.KindUnknown:
			return true, true
		}
		return lagsBehind(e), true
	}
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true, false
	}
	return false, true
}

// lagsBehind reports whether an error says that the node which answers lacks what others have.
func lagsBehind(e *dataflow.Error) bool {
	return e.Reason == dataflow.ReasonTokenNotReached && e.Metadata["behind"] != ""
}

// learn asks a node where the others are.
func (g *nodes) learn(ctx context.Context, n *clientNode, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	r, err := weirv1.NewClusterServiceClient(conn).ListNodes(ctx, &weirv1.ListNodesRequest{})
	// Also after a failure: an older server does not know the call, and one that is away is not asked with every call.
	g.due.Store(time.Now().Add(learnEvery).UnixNano())
	if err == nil {
		g.told(n, r)
	}
}

// list asks where the nodes are for a caller who wants to know.
func (g *nodes) list(ctx context.Context) ([]*weirv1.NodeAddress, error) {
	n, conn, err := g.take(ctx)
	if err != nil {
		return nil, err
	}
	r, err := weirv1.NewClusterServiceClient(conn).ListNodes(ctx, &weirv1.ListNodesRequest{})
	if err != nil {
		g.note(ctx, n, conn, err)
		return nil, ofNode(n, err)
	}
	if g.asks {
		g.told(n, r)
	}
	return r.GetNodes(), nil
}

// told takes over what a node has said.
func (g *nodes) told(n *clientNode, r *weirv1.ListNodesResponse) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		return
	}
	if g.mu.group != r.GetClusterId() && (g.mu.group == "" || n.given) { // at a given address the caller has put another group
		g.mu.group = r.GetClusterId()
		for _, o := range g.mu.all {
			o.known, o.name = false, ""
		}
	}
	if g.mu.group != r.GetClusterId() {
		return
	}
	n.known, n.name = true, r.GetNode()
	g.takeOverLocked(r.GetNodes())
}

// takeOverLocked replaces the nodes that the group has told of before by those that it tells of now.
func (g *nodes) takeOverLocked(told []*weirv1.NodeAddress) {
	keep := g.mu.all[:0:0]
	for _, n := range g.mu.all {
		there := slices.ContainsFunc(told, func(m *weirv1.NodeAddress) bool { return m.GetGrpcAddr() == n.addr })
		if n.given || there || n == g.mu.current {
			keep = append(keep, n)
			continue
		}
		_ = n.close() // it was told to leave; its calls are made again elsewhere
	}
	g.mu.all = keep
	for _, m := range told {
		for _, n := range keep {
			if n.name == "" && n.addr == m.GetGrpcAddr() {
				n.name = m.GetNode()
			}
		}
	}
	for _, m := range told {
		if !serves(m) || slices.ContainsFunc(keep, func(n *clientNode) bool { return n.addr == m.GetGrpcAddr() || n.name == m.GetNode() }) {
			continue
		}
		g.mu.all = append(g.mu.all, &clientNode{addr: m.GetGrpcAddr(), name: m.GetNode()})
	}
}

// serves reports whether a node takes calls at the address that it tells.
func serves(m *weirv1.NodeAddress) bool {
	if m.GetState() != "active" && m.GetState() != "drained" {
		return false
	}
	host, port, err := net.SplitHostPort(m.GetGrpcAddr())
	ip := net.ParseIP(host)
	return err == nil && port != "" && port != "0" && cmp.Or(host, "0.0.0.0") != "0.0.0.0" && (ip == nil || !ip.IsUnspecified())
}

// Invoke implements grpc.ClientConnInterface.
func (g *nodes) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	n, conn, err := g.take(ctx)
	if err != nil {
		return err
	}
	err = conn.Invoke(ctx, method, args, reply, opts...)
	g.note(ctx, n, conn, err)
	return ofNode(n, err)
}

// NewStream implements grpc.ClientConnInterface.
func (g *nodes) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	n, conn, err := g.take(ctx)
	if err != nil {
		return nil, err
	}
	s, err := conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		g.note(ctx, n, conn, err)
		return nil, ofNode(n, err)
	}
	return &nodeStream{ClientStream: s, g: g, n: n, conn: conn}, nil
}

// nodeStream is a stream from one node, from whose end the client learns.
type nodeStream struct {
	grpc.ClientStream
	g    *nodes
	n    *clientNode
	conn *grpc.ClientConn
}

// RecvMsg implements grpc.ClientStream.
func (s *nodeStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.g.note(s.Context(), s.n, s.conn, err)
	return ofNode(s.n, err)
}
