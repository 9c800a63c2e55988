package peernet

import (
	"net"
	"sync"
)

// Conn is a connection of one service. Both sides know each other.
type Conn struct {
	net.Conn
	n        *Net
	raw      net.Conn // below TLS
	peer     Peer
	accepted bool
	once     sync.Once
	err      error
}

// Peer returns who is at the other end.
func (c *Conn) Peer() Peer { return c.peer }

// RemoteAddr returns an Addr.
func (c *Conn) RemoteAddr() net.Addr {
	return Addr{Node: c.peer.Node, Service: c.peer.Service, At: c.Conn.RemoteAddr().String()}
}

// WriteBuffers writes several slices, in one system call where the connection has one for that. It consumes bufs.
func (c *Conn) WriteBuffers(bufs *net.Buffers) (int64, error) { return bufs.WriteTo(c.Conn) }

// Close implements net.Conn. A second call returns what the first did.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.n.mu.Lock()
		delete(c.n.mu.conns, c)
		if c.accepted {
			c.n.mu.accepted--
		}
		c.n.mu.Unlock()
		c.err = c.raw.Close() // TLS would wait until its goodbye is written; the other side does without
	})
	return c.err
}

// open makes a Conn of a connection whose hello is done. It fails when the Net was closed meanwhile.
func (n *Net) open(secured, raw net.Conn, p Peer) (*Conn, error) {
	c := &Conn{Conn: secured, n: n, raw: raw, peer: p, accepted: !p.Dialled}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return nil, ErrClosed
	}
	delete(n.mu.accepting, raw) // it stays counted
	n.mu.conns[c] = struct{}{}
	return c, nil
}
