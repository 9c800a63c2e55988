package node

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/gateway"
)

// stranger tells a client that has come to the port between nodes which port it wants (peernet.Config.Stranger). It returns when
// the client has gone, or the connection's time is over.
func (p *peers) stranger(c net.Conn, http2 bool) {
	why := func() error {
		self := p.report().Member
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "%s is the port where node %s talks with other nodes (--peer-addr), and not for clients", self.PeerAddr, self.Node).
			WithHint("its clients use gRPC at %s, as --addr does, and HTTP at %s", self.GRPCAddr, self.HTTPAddr)
	}
	l := &oneConn{conn: c, closed: make(chan struct{})}
	if http2 {
		s := api.NewRefuser(why)
		_ = s.Serve(l) // it ends with the connection
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Stop(ctx)
		return
	}
	s := &http.Server{Handler: gateway.RefuseAll(why)}
	s.SetKeepAlivesEnabled(false)
	_ = s.Serve(l) // it ends with the connection
	_ = s.Close()  // the same
}

// oneConn is a listener of one connection, which ends with it.
type oneConn struct {
	conn   net.Conn
	taken  bool
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return &watchedConn{l.conn, l}, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// watchedConn ends its listener when it is closed.
type watchedConn struct {
	net.Conn
	l *oneConn
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	_ = c.l.Close() // cannot fail
	return err
}
