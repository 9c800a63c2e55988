package peernettest

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// segment is what one Write sent.
type segment struct {
	data []byte
	at   time.Time // when it arrives
}

// half is one direction of a connection. Network.mu guards it.
type half struct {
	w        *Network
	from, to string
	segs     []segment
	size     int
	hungUp   bool // the writer has closed
	deaf     bool // the reader has closed
	reset    bool // Network.Reset

	readBy, writeBy time.Time     // deadlines
	signal          chan struct{} // closed and replaced when something above changes
}

func (h *half) wakeLocked() {
	close(h.signal)
	h.signal = make(chan struct{})
}

// conn is one end of a connection.
type conn struct {
	w             *Network
	in, out       *half
	local, remote addr
}

var _ net.Conn = (*conn)(nil)

// wait lets go of the lock until something changes or the time comes, and takes it again.
func (h *half) wait(until time.Time) {
	signal := h.signal
	h.w.mu.Unlock()
	defer h.w.mu.Lock()
	if until.IsZero() {
		<-signal
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-signal:
	case <-t.C:
	}
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	h := c.in
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for {
		until := h.readBy
		switch {
		case h.deaf:
			return 0, net.ErrClosed
		case h.reset:
			return 0, syscall.ECONNRESET
		case passed(h.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case c.w.link(h.from, h.to).cut:
		case len(h.segs) == 0:
			if h.hungUp {
				return 0, io.EOF
			}
		case passed(h.segs[0].at):
			n := copy(p, h.segs[0].data)
			if h.segs[0].data = h.segs[0].data[n:]; len(h.segs[0].data) == 0 {
				h.segs = h.segs[1:]
			}
			h.size -= n
			h.wakeLocked()
			return n, nil
		default:
			if until.IsZero() || h.segs[0].at.Before(until) {
				until = h.segs[0].at
			}
		}
		h.wait(until)
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (n int, err error) {
	h := c.out
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for len(p) > 0 {
		link := c.w.link(h.from, h.to)
		switch {
		case h.hungUp:
			return n, net.ErrClosed
		case h.reset:
			return n, syscall.ECONNRESET
		case h.deaf && !link.cut && !c.w.link(h.to, h.from).cut: // or the news does not get here
			return n, syscall.EPIPE
		case passed(h.writeBy):
			return n, os.ErrDeadlineExceeded
		case h.size < window:
			k := min(len(p), window-h.size)
			s := segment{data: append([]byte(nil), p[:k]...), at: time.Now().Add(link.delay)}
			if last := len(h.segs) - 1; last >= 0 && h.segs[last].at.After(s.at) {
				s.at = h.segs[last].at
			}
			h.segs = append(h.segs, s)
			h.size += k
			n, p = n+k, p[k:]
			h.wakeLocked()
			continue
		}
		h.wait(h.writeBy)
	}
	return n, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.out.hungUp && c.in.deaf {
		return nil
	}
	c.out.hungUp, c.in.deaf = true, true
	c.out.wakeLocked()
	c.in.wakeLocked()
	if c.out.deaf && c.in.hungUp {
		delete(c.w.halves, c.out)
		delete(c.w.halves, c.in)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.in.readBy, c.out.writeBy = t, t
	c.in.wakeLocked()
	c.out.wakeLocked()
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.in.readBy = t
	c.in.wakeLocked()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.out.writeBy = t
	c.out.wakeLocked()
	return nil
}
