//go:build !linux

package resp

import "net"

// loops are only where there is epoll.
type loops struct{}

func openLoops(net.Listener) (*loops, error) { return nil, nil }

func (*loops) adopt(*Server, net.Conn) (*conn, bool) { return nil, false }

func (*loops) start(*conn) {}

func (*loops) close() {}

// socket is a connection of a loop.
type socket struct{ netTransport }

func (*socket) writeNow([]byte) (int, error) { return 0, net.ErrClosed }
