package peernet

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Defaults of Config.
const (
	// DefaultHelloTimeout bounds TLS handshake, hello and answer. Not smaller: a machine that swaps takes its time. Not
	// larger: who dials holds up something.
	DefaultHelloTimeout = 5 * time.Second
	// DefaultMaxConns bounds the accepted connections: 64 logs, with six connections from each of four other nodes, twice.
	DefaultMaxConns = 3072
	// backlog bounds the connections of a service that are accepted here and that the service has not taken.
	backlog = 32
)

// Peer is the other side of a connection.
type Peer struct {
	Identity
	// Service is what the connection is for.
	Service string
	// Dialled says that this side dialled.
	Dialled bool
}

// Resolver says where nodes are. It is asked at each dial, so that changes count from the next one on.
type Resolver func(node string) (addr string, ok bool)

// Config describes a Net. The zero value of an optional field means its default.
type Config struct {
	// Self is this node. Net.SetGroup fills in the group's id when it is known.
	Self Identity
	// Network carries the bytes; default TCP.
	Network Network
	// Resolve says where nodes are.
	Resolve Resolver
	// Met, if set, is told of a node that has connected to this one and was admitted. Its Addr says where it is.
	Met func(Peer)
	// Missed, if set, is told where a node was dialled in vain: nobody answered there, or somebody that is not wanted. Who is there
	// and refuses, as while it does not serve something yet, is not missed.
	Missed func(node, addr string)
	// Admit decides whether to speak with a node of this group (N2): nil, or a *Refusal with ReasonUnknownNode or
	// ReasonData, made by Deny. It is asked on both sides, for many connections at the same time. Default: everybody.
	Admit func(Peer) error
	// Stranger, if set, answers a client of HTTP or gRPC that has taken this port for another; with http2 it begins as one of
	// gRPC does. It returns when it is done with the connection, which is closed then, after HelloTimeout in any case.
	Stranger func(conn net.Conn, http2 bool)
	// ServerTLS and ClientTLS switch TLS on, both or none. ServerTLS must ask for and verify the client's certificate.
	// Callbacks of tls.Config (GetConfigForClient, GetClientCertificate) reload certificates.
	ServerTLS, ClientTLS *tls.Config
	// HelloTimeout bounds a connection's beginning; default DefaultHelloTimeout.
	HelloTimeout time.Duration
	// MaxConns bounds accepted connections; default DefaultMaxConns.
	MaxConns int
	// Logger gets refusals; default: discarded.
	Logger *slog.Logger
}

// Deny is what Config.Admit returns to refuse a node. how says how to mend it.
func Deny(r Reason, p Peer, format string, args ...any) error {
	return refuse(r, p.Identity, format, args...)
}

func (c *Config) ensureDefaults() {
	if c.Network == nil {
		c.Network = TCP{}
	}
	if c.HelloTimeout == 0 {
		c.HelloTimeout = DefaultHelloTimeout
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("peernet.Config."+format, args...))
		}
	}
	bad(c.Self.Node == "", "Self.Node: is empty")
	bad(c.Self.Data == "", "Self.Data: is empty")
	bad(c.Resolve == nil, "Resolve: is nil")
	bad((c.ServerTLS == nil) != (c.ClientTLS == nil), "ServerTLS, ClientTLS: set both or none")
	bad(c.ServerTLS != nil && c.ServerTLS.GetConfigForClient == nil && c.ServerTLS.ClientAuth != tls.RequireAndVerifyClientCert,
		"ServerTLS: does not verify the client's certificate")
	bad(c.ClientTLS != nil && c.ClientTLS.InsecureSkipVerify, "ClientTLS: does not verify the server's certificate")
	bad(c.HelloTimeout < 0, "HelloTimeout: %v is negative", c.HelloTimeout)
	bad(c.MaxConns < 0, "MaxConns: %d is negative", c.MaxConns)
	return errors.Join(errs...)
}
