package peernet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// Dial connects to a service of a node. It gives up when ctx ends, at the latest after the time for two hellos. A
// *Refusal in the error says that somebody answered and did not want, or was not who was wanted.
func (n *Net) Dial(ctx context.Context, node, service string) (*Conn, error) {
	addr, ok := n.cfg.Resolve(node)
	if !ok {
		return nil, fmt.Errorf("connect to node %s: %w", node, ErrNoAddress)
	}
	c, who, err := n.dial(ctx, addr, node, service)
	if err != nil {
		if r := new(Refusal); n.cfg.Missed != nil && (who.Node != node || errors.As(err, &r) && !r.Theirs) {
			n.cfg.Missed(node, addr)
		}
		return nil, fmt.Errorf("connect to node %s at %s for %s: %w", node, addr, service, err)
	}
	return c, nil
}

// Who asks who is at an address. A *WrongPortError in the error says that it is a port for clients.
func (n *Net) Who(ctx context.Context, addr string) (Identity, error) {
	_, id, err := n.dial(ctx, addr, "", whoService)
	if err != nil {
		if p := n.protocolAt(ctx, addr, err); p != "" {
			err = &WrongPortError{Addr: addr, Protocol: p}
		}
		return Identity{}, fmt.Errorf("ask who is at %s: %w", addr, err)
	}
	return id, nil
}

func (n *Net) dial(ctx context.Context, addr, node, service string) (_ *Conn, _ Identity, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*n.cfg.HelloTimeout)
	defer cancel()
	stop := context.AfterFunc(n.ctx, cancel) // Close ends dials too
	defer stop()
	if n.ctx.Err() != nil {
		return nil, Identity{}, ErrClosed
	}
	raw, err := n.cfg.Network.Dial(ctx, addr)
	if err != nil {
		return nil, Identity{}, err
	}
	// A context that ends interrupts the hello by way of the deadline.
	interrupted := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = raw.SetDeadline(time.Unix(1, 0)) // fails only when it is closed, which does it too
	})
	c, id, err := n.introduce(ctx, raw, node, service)
	if !unwatch() {
		<-interrupted
		if err == nil {
			err = context.Cause(ctx)
		}
	}
	if err == nil && c != nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err == nil && c != nil {
		return c, id, nil
	}
	if ctx.Err() != nil && err != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if c != nil {
		_ = c.Close() // it was not used
	}
	_ = raw.Close() // it was not used
	return nil, id, err
}

// introduce does the hello on a dialled connection. The Conn is nil for whoService.
func (n *Net) introduce(ctx context.Context, raw net.Conn, node, service string) (*Conn, Identity, error) {
	if err := raw.SetDeadline(time.Now().Add(n.cfg.HelloTimeout)); err != nil {
		return nil, Identity{}, err
	}
	conn := raw
	var names []string
	if n.cfg.ClientTLS != nil {
		t := tls.Client(raw, n.clientTLS(node))
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, Identity{}, err
		}
		conn, names = t, dnsNames(t)
	}
	self := n.Self()
	h := hello{version: Version, from: self, target: node, service: service}
	b, err := h.encode()
	if err != nil {
		return nil, Identity{}, err
	}
	if _, err := conn.Write(b); err != nil {
		return nil, Identity{}, err
	}
	a, err := readAnswer(conn)
	if err != nil {
		return nil, Identity{}, err
	}
	peer := Peer{Identity: a.from, Service: service, Dialled: true}
	switch {
	case a.version != Version:
		return nil, a.from, refuse(ReasonVersion, a.from, "it speaks version %d of the protocol between nodes, this node version %d", a.version, Version)
	case a.reason != ReasonAccepted:
		return nil, a.from, &Refusal{Reason: a.reason, Peer: a.from, Message: a.message, Theirs: true}
	case n.cfg.ClientTLS != nil && !slices.Contains(names, a.from.Node):
		return nil, a.from, refuse(ReasonCertificate, a.from, "its certificate is for %q", names)
	case service == whoService:
		return nil, a.from, nil
	case a.from.Node != node:
		return nil, a.from, refuse(ReasonTarget, a.from, "it is not node %s", node)
	case !self.fits(a.from):
		return nil, a.from, refuse(ReasonGroup, a.from, "it belongs to group %s, this node to %s", a.from.group(), self.group())
	}
	if r := n.admit(peer); r != nil {
		return nil, a.from, r
	}
	c, err := n.open(conn, raw, peer)
	return c, a.from, err
}

// clientTLS is the configuration with which to meet a node; "" is whoever is there, whose certificate must be valid for
// the name that it then gives.
func (n *Net) clientTLS(node string) *tls.Config {
	cfg := n.cfg.ClientTLS.Clone()
	cfg.ServerName = node
	if node != "" {
		return cfg
	}
	cfg.InsecureSkipVerify = true // the name alone is left out: below, the chain is verified, and introduce compares the name
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		opts := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(opts)
		return err
	}
	return cfg
}
