package peernet

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"
)

// whoService answers every node of this protocol with the identity, and ends.
const whoService = "who"

// welcome does an accepted connection's hello and hands the connection to its service.
func (n *Net) welcome(raw net.Conn) {
	c, err := n.greet(raw)
	if err == nil {
		return
	}
	n.mu.Lock()
	if _, ok := n.mu.accepting[raw]; ok { // else its Conn counts it
		delete(n.mu.accepting, raw)
		n.mu.accepted--
	}
	n.mu.Unlock()
	if c != nil {
		_ = c.Close() // it was not used
	}
	_ = raw.Close() // it was not used
	if errors.Is(err, errWho) || n.ctx.Err() != nil {
		return
	}
	level := slog.LevelWarn
	if r := new(Refusal); errors.As(err, &r) && r.Reason.Temporary() {
		level = slog.LevelDebug // it tries again, and who waits for it says so
	}
	n.cfg.Logger.Log(n.ctx, level, "a node was not let in", "addr", raw.RemoteAddr(), "err", err)
}

// errWho ends a connection that only asked.
var errWho = errors.New("who")

func (n *Net) greet(raw net.Conn) (*Conn, error) {
	if err := raw.SetDeadline(time.Now().Add(n.cfg.HelloTimeout)); err != nil {
		return nil, err
	}
	conn := raw
	var names []string
	if n.cfg.ServerTLS != nil {
		ctx, cancel := context.WithTimeout(n.ctx, n.cfg.HelloTimeout)
		defer cancel()
		begins := &recorder{Conn: raw}
		t := tls.Server(begins, n.cfg.ServerTLS)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, n.meet(raw, begins.read, err)
		}
		begins.done = true
		conn, names = t, dnsNames(t)
	}
	h, err := readHello(conn)
	if strange := new(strangeError); errors.As(err, &strange) && conn == raw {
		return nil, n.meet(raw, strange.read, err)
	}
	if err != nil {
		return nil, err
	}
	peer := Peer{Identity: h.from, Service: h.service}
	l, refusal := n.judge(h, peer, names)
	if err := n.reply(conn, refusal); err != nil || refusal != nil {
		if l != nil {
			<-l.places
		}
		return nil, errors.Join(asError(refusal), err)
	}
	if h.service == whoService {
		return nil, errWho
	}
	c, err := n.open(conn, raw, peer)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		<-l.places
		return c, err
	}
	l.conns <- c // never blocks: it holds a place
	select {
	case <-l.done:
		l.discard() // nobody takes it any more
	default:
	}
	return c, nil
}

// asError keeps a nil refusal a nil error.
func asError(r *Refusal) error {
	if r == nil {
		return nil
	}
	return r
}

// judge decides about a hello. When it is accepted, the listener has a place for the connection.
func (n *Net) judge(h *hello, peer Peer, names []string) (*Listener, *Refusal) {
	self := n.Self()
	switch {
	case h.version != Version:
		return nil, refuse(ReasonVersion, peer.Identity, "it speaks version %d of the protocol between nodes, this node version %d", h.version, Version)
	case h.service == whoService:
		return nil, nil
	case !self.fits(h.from):
		return nil, refuse(ReasonGroup, peer.Identity, "it belongs to group %s, this node to %s", h.from.group(), self.group())
	case h.target != self.Node:
		return nil, refuse(ReasonTarget, peer.Identity, "it looks for node %s, and this is node %s", h.target, self.Node)
	case n.cfg.ServerTLS != nil && !slices.Contains(names, h.from.Node):
		return nil, refuse(ReasonCertificate, peer.Identity, "its certificate is for %q", names)
	}
	if r := n.admit(peer); r != nil {
		return nil, r
	}
	if n.cfg.Met != nil && h.from.Addr != "" {
		n.cfg.Met(peer)
	}
	l := n.listener(h.service)
	if l == nil {
		return nil, refuse(ReasonService, peer.Identity, "%q is not served here, or not yet", h.service)
	}
	timeout := time.NewTimer(n.cfg.HelloTimeout / 2)
	defer timeout.Stop()
	select {
	case l.places <- struct{}{}:
		return l, nil
	case <-l.done:
		return nil, refuse(ReasonService, peer.Identity, "%q is not served any more", h.service)
	case <-n.ctx.Done():
		return nil, refuse(ReasonClosing, peer.Identity, "this node stops")
	case <-timeout.C:
		return nil, refuse(ReasonBusy, peer.Identity, "%d connections of %q wait to be accepted", backlog, h.service)
	}
}

// admit asks Config.Admit.
func (n *Net) admit(p Peer) *Refusal {
	if n.cfg.Admit == nil {
		return nil
	}
	err := n.cfg.Admit(p)
	if err == nil {
		return nil
	}
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return refuse(ReasonUnknownNode, p.Identity, "%v", err)
}

// reply answers a hello.
func (n *Net) reply(conn net.Conn, refusal *Refusal) error {
	a := answer{version: Version, from: n.Self()}
	if refusal != nil {
		a.reason, a.message = refusal.Reason, refusal.Message
	}
	b, err := a.encode()
	if err != nil {
		return err
	}
	_, err = conn.Write(b)
	return err
}

// dnsNames returns the names that the other side's certificate is for.
func dnsNames(c *tls.Conn) []string {
	certs := c.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return nil
	}
	return certs[0].DNSNames
}
