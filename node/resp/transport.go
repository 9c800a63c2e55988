package resp

import (
	"net"
	"time"
)

// transport is a connection's way to its client. Read, Write and Close are the connection's own; the rest is for the
// server, at any time.
type transport interface {
	Read(b []byte) (int, error)
	Write(b []byte) (int, error)
	Close() error
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// cut ends what the connection does, at once.
	cut()
	// stopReading lets nothing more come: a wait for the client ends.
	stopReading()
}

// netTransport is a transport whose reads and writes block.
type netTransport struct{ net.Conn }

var _ transport = netTransport{}

func (t netTransport) cut()         { _ = t.Close() } // what is under way sees an error
func (t netTransport) stopReading() { _ = t.SetReadDeadline(time.Unix(1, 0)) }
