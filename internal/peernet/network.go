package peernet

import (
	"context"
	"net"
	"time"
)

// Network is what a Net runs over, as one node sees it.
type Network interface {
	// Listen takes connections on an address of this node.
	Listen(addr string) (net.Listener, error)
	// Dial connects to an address. It gives up when ctx ends.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// keepAlive finds out within a minute that the other side's machine is gone, where nobody has a deadline of their own.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}

// TCP is the Network of the operating system.
type TCP struct{}

var _ Network = TCP{}

// Listen implements Network.
func (TCP) Listen(addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	return lc.Listen(context.Background(), "tcp", addr)
}

// Dial implements Network.
func (TCP) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive}
	return d.DialContext(ctx, "tcp", addr)
}
