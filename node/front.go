package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/gateway"
)

// front answers clients while the node opens, which may take as long as its group needs to come together: that the process is
// alive, and what it waits for. It uses the node's listeners and leaves them open.
type front struct {
	grpc    *api.Refuser
	http    *http.Server
	servers sync.WaitGroup
	lent    []*lent
}

const (
	// frontTime bounds the end of the front: its calls are answered at once.
	frontTime = time.Second
	// loadingTime bounds the answer to a Redis client.
	loadingTime = 2 * time.Second
)

// serveFront answers on the node's listeners until close.
func (n *Node) serveFront(s *startup) *front {
	f := &front{grpc: api.NewRefuser(s.err), http: gateway.Refuse(s.err, n.cfg.Logger)}
	serve := func(l net.Listener, serve func(net.Listener) error) {
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return // resp-addr is off
		}
		b := &lent{TCPListener: tcp}
		f.lent = append(f.lent, b)
		f.servers.Go(func() {
			if err := serve(b); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
				n.cfg.Logger.Warn("clients are not answered while the node starts", "addr", l.Addr().String(), "error", err)
			}
		})
	}
	serve(n.grpcListener, f.grpc.Serve)
	serve(n.httpListener, f.http.Serve)
	serve(n.respListener, func(l net.Listener) error { return serveLoading(l, s.err) })
	return f
}

// close ends the front and gives the listeners back.
func (f *front) close() {
	ctx, cancel := context.WithTimeout(context.Background(), frontTime)
	defer cancel()
	for _, l := range f.lent {
		_ = l.Close() // cannot fail
	}
	f.grpc.Stop(ctx)
	if err := f.http.Shutdown(ctx); err != nil {
		_ = f.http.Close() // what is left is cut off
	}
	f.servers.Wait()
	for _, l := range f.lent {
		_ = l.TCPListener.SetDeadline(time.Time{}) // fails only when it is closed
	}
}

// serveLoading answers Redis clients as Redis does while it loads its data, until l is closed.
func serveLoading(l net.Listener, why func() error) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		calls.Go(func() {
			defer func() { _ = c.Close() }() // nothing hangs on it
			if c.SetDeadline(time.Now().Add(loadingTime)) != nil {
				return
			}
			// Its first command is read, or the end of the connection could overtake the answer.
			if _, err := c.Read(make([]byte, 4<<10)); err == nil {
				_, _ = c.Write([]byte("-LOADING " + strings.ReplaceAll(why().Error(), "\n", " ") + "\r\n")) // who asked asks again
			}
		})
	}
}

// lent is a listener that a server may close without closing it for those that use it next.
type lent struct {
	*net.TCPListener
	closed atomic.Bool
}

// Accept implements net.Listener.
func (l *lent) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil && l.closed.Load() {
		return nil, net.ErrClosed
	}
	return c, err
}

// Close implements net.Listener: it ends Accept.
func (l *lent) Close() error {
	l.closed.Store(true)
	return l.SetDeadline(time.Unix(1, 0))
}
