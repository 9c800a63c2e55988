package peernet

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// What a node does about those that speak HTTP or gRPC, because somebody has taken one port for another: it tells clients that come
// here (Config.Stranger), and finds out what it has itself come to (WrongPortError).

// strangeError says that the other side does not speak this protocol, and what it has said.
type strangeError struct{ read []byte }

func (e *strangeError) Error() string { return errMalformed.Error() }
func (e *strangeError) Unwrap() error { return errMalformed }

// WrongPortError says that clients are served at an address, not nodes.
type WrongPortError struct {
	Addr     string
	Protocol string // gRPC or HTTP
}

func (e *WrongPortError) Error() string {
	return fmt.Sprintf("%s is a port for clients, of %s, and not one where nodes talk with each other", e.Addr, e.Protocol)
}

// errStranger ends a connection of a client.
var errStranger = errors.New("a client of HTTP or gRPC has taken this port, which is for nodes, for another")

// http2Preface is what a client of HTTP/2, and so of gRPC, says first.
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// peerSettings is what a port between nodes says to a client of HTTP/2 before anything else: settings with one that no standard has,
// which clients ignore. A node that asks what is served there, because its hello has failed for a moment, knows the port by it.
var peerSettings = [...]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0xf7, 0x12, 0, 0, 0, 1}

var httpMethods = [...]string{"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "CONNECT "}

// meet has Config.Stranger answer when what was read of a connection is the beginning of a client's; else it returns err.
func (n *Net) meet(raw net.Conn, read []byte, err error) error {
	begins := func(with string) bool { return strings.HasPrefix(with, string(read[:min(len(read), len(with))])) }
	http2 := len(read) >= 4 && begins(http2Preface)
	http1 := false
	for _, m := range httpMethods {
		http1 = http1 || bytes.HasPrefix(read, []byte(m))
	}
	if !http1 && !http2 {
		return err
	}
	if n.cfg.Stranger != nil {
		if http2 {
			_, _ = raw.Write(peerSettings[:]) // who answers next meets the same error
		}
		n.cfg.Stranger(&replayed{timed: timed{raw}, read: read}, http2)
	}
	return errStranger
}

// timed keeps the deadline that a connection has.
type timed struct{ net.Conn }

// SetDeadline implements net.Conn.
func (timed) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (timed) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (timed) SetWriteDeadline(time.Time) error { return nil }

// replayed is a connection of which something was read before.
type replayed struct {
	timed
	read []byte
}

// Read implements net.Conn.
func (c *replayed) Read(p []byte) (int, error) {
	if len(c.read) > 0 {
		n := copy(p, c.read)
		c.read = c.read[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// recorder keeps what is read of a connection until it is done.
type recorder struct {
	net.Conn
	read []byte
	done bool
}

// Read implements net.Conn.
func (c *recorder) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.done {
		c.read = append(c.read, p[:n]...)
	}
	return n, err
}

// probeTime bounds the question what is served at an address.
const probeTime = time.Second

// protocolAt returns what clients are served with at an address where a hello has failed; "" when it is not known. It may take
// probeTime longer than ctx.
func (n *Net) protocolAt(ctx context.Context, addr string, failed error) string {
	var record tls.RecordHeaderError
	switch {
	case errors.Is(failed, errMalformed), errors.Is(failed, io.EOF), errors.Is(failed, io.ErrUnexpectedEOF), errors.As(failed, &record),
		errors.Is(failed, syscall.ECONNRESET), errors.Is(failed, syscall.EPIPE):
	case errors.Is(failed, os.ErrDeadlineExceeded) && !errors.Is(ctx.Err(), context.Canceled): // HTTP waits for the end of a line
	default:
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	c, err := n.cfg.Network.Dial(ctx, addr)
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }() // nothing is promised
	if err := c.SetDeadline(time.Now().Add(probeTime)); err != nil {
		return ""
	}
	// A server of HTTP/2 answers the preface and empty settings with its own settings, a frame of type 4.
	const head = 9
	if _, err := c.Write(append([]byte(http2Preface), 0, 0, 0, 4, 0, 0, 0, 0, 0)); err != nil {
		return ""
	}
	var b [head]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return ""
	}
	switch {
	case bytes.HasPrefix(b[:], []byte("HTTP/")):
		return "HTTP"
	case b[0] != 0 || b[3] != 4 || [4]byte(b[5:]) != [4]byte{}:
		return ""
	}
	if bytes.HasPrefix(peerSettings[:], b[:]) {
		var first [len(peerSettings) - head]byte
		if _, err := io.ReadFull(c, first[:]); err != nil || bytes.HasSuffix(peerSettings[:], first[:]) {
			return ""
		}
	}
	return "gRPC"
}
