package weir

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// until is the key under which a context holds when connecting must have ended.
type until struct{}

// connecting is ctx, under which connecting ends when no server has been there for d; negative = when the connection's own time is over.
// A call that is under way may take longer: a server that takes its time is not away.
func connecting(ctx context.Context, away time.Time, d time.Duration) context.Context {
	if d < 0 {
		return ctx
	}
	return context.WithValue(ctx, until{}, away.Add(d))
}

// awaySince returns since when no server has been there, after the first call that says so: since that call began, unless it had reached
// one. A node that has fallen silent has been away for as long as finding that out takes; where there are others, these have all the time
// that was asked for.
func (c *Client) awaySince(began time.Time, err error) time.Time {
	switch {
	case errors.Is(err, errNoneReached):
		return began
	case errors.Is(err, errSilent) && c.nodes.count() == 1:
		return time.Now().Add(-pingAfter - pingTimeout)
	}
	return time.Now()
}

// leastPatience is how long a node gets to be connected however little time is left. Why not longer: so much more than was asked for a
// call may take, for each node.
const leastPatience = 50 * time.Millisecond

// patience bounds connecting to one of so many nodes that have not been tried: each gets its share of the time that is left.
func patience(ctx context.Context, nodes int) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Value(until{}).(time.Time)
	if !bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(time.Until(end)/time.Duration(nodes), leastPatience))
}

// take returns the node for the next call: the current one or, when that cannot be reached, the first that can. When none can, the
// error says why of each.
func (g *nodes) take(ctx context.Context) (*clientNode, *grpc.ClientConn, error) {
	failed := make(map[*clientNode]string)
	for left := g.count(); ; left-- {
		g.mu.Lock()
		n := g.mu.current
		conn, err := g.connLocked(n)
		ready := n.given || n.known
		g.mu.Unlock()
		if err != nil {
			return nil, nil, err
		}
		stands := g.connectFor(ctx, n, conn, left)
		if stands && (ready || g.check(ctx, n, conn)) || ctx.Err() != nil {
			return n, conn, nil // a call whose ctx has ended says so itself
		}
		failed[n] = why(ctx, conn, stands)
		g.leave(n)
		if left <= 1 {
			return nil, nil, g.noneReached(failed)
		}
	}
}

// connectFor is connect, within a node's share of the time.
func (g *nodes) connectFor(ctx context.Context, n *clientNode, conn *grpc.ClientConn, left int) bool {
	ctx, cancel := patience(ctx, left)
	defer cancel()
	return g.connect(ctx, n, conn)
}

// connect waits until a connection stands, and reports whether it does. It does not wait for one that has failed: that is dialled
// again in the background.
func (g *nodes) connect(ctx context.Context, n *clientNode, conn *grpc.ClientConn) bool {
	for {
		switch s := conn.GetState(); s {
		case connectivity.Ready:
			return true
		case connectivity.TransientFailure:
			g.mu.Lock()
			kick := time.Since(n.kicked) > kickEvery
			if kick {
				n.kicked = time.Now()
			}
			g.mu.Unlock()
			if kick {
				conn.ResetConnectBackoff()
			}
			return false
		case connectivity.Shutdown:
			return false
		default:
			conn.Connect()
			if !conn.WaitForStateChange(ctx, s) {
				return false
			}
		}
	}
}

// silent says of a node that its port takes connections, and nothing comes.
const silent = "it takes no calls, or too slowly"

// why says why a node could not be reached.
func why(ctx context.Context, conn *grpc.ClientConn, stands bool) string {
	if stands {
		return "another group answers there, or nobody in time"
	}
	if conn.GetState() != connectivity.TransientFailure {
		return silent
	}
	// The connection has failed and keeps the reason for the next call, which is refused at once.
	ctx, cancel := context.WithTimeout(ctx, leastPatience)
	defer cancel()
	_, err := weirv1.NewClusterServiceClient(conn).ListNodes(ctx, &weirv1.ListNodesRequest{})
	if st := status.Convert(err); st.Code() == codes.Unavailable {
		return transportCause(st.Message())
	}
	return silent
}

// errSilent says that a connection has ended because nothing has come on it for pingAfter and pingTimeout.
var errSilent = errors.New("the node has fallen silent")

// errNoneReached says that a call has reached no node.
var errNoneReached = errors.New("no node was reached")

// noneReached names the nodes that were tried, and what has come of it; what is the same for all is said once.
func (g *nodes) noneReached(failed map[*clientNode]string) error {
	var addrs, each []string
	whys := make(map[string]bool)
	g.mu.Lock()
	for _, n := range g.mu.all {
		if why := failed[n]; why != "" {
			addrs, each = append(addrs, n.addr), append(each, n.addr+": "+why)
			whys[why] = true
		}
	}
	g.mu.Unlock()
	said := strings.Join(each, "; at ")
	for why := range whys {
		if len(whys) == 1 {
			said = strings.Join(addrs, ", ") + ": " + why
		}
	}
	return &dataflow.Error{Reason: dataflow.ReasonUnreachable, Message: "no server answers at " + said, Err: errNoneReached}
}

// nodeError is an error of a call, and with which node it was.
type nodeError struct {
	addr string
	err  error
}

func (e *nodeError) Error() string              { return e.err.Error() }
func (e *nodeError) Unwrap() error              { return e.err }
func (e *nodeError) GRPCStatus() *status.Status { return status.Convert(e.err) }

// ofNode adds to an error that the transport has made with which node that was.
func ofNode(n *clientNode, err error) error {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unimplemented:
		return &nodeError{n.addr, err}
	}
	return err
}
