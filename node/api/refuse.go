package api

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Refuser answers every call with one error, so that a client learns why nothing is served at an address. Health checks say
// that the process is alive and that no service serves.
type Refuser struct {
	grpc *grpc.Server
	once sync.Once
	done chan struct{}
}

// NewRefuser returns a server that answers with what why returns, a *dataflow.Error as every server's. It starts nothing.
func NewRefuser(why func() error) *Refuser {
	r := &Refuser{done: make(chan struct{})}
	r.grpc = grpc.NewServer(grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderBytes), grpc.ConnectionTimeout(handshakeTimeout),
		pings(), grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return asStatus(why()) }))
	healthpb.RegisterHealthServer(r.grpc, &healthService{refuses: true, stopped: r.done})
	return r
}

// Serve answers calls on lis until Stop. It closes lis.
func (r *Refuser) Serve(lis net.Listener) error {
	if err := r.grpc.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Stop sends clients away, who connect again, cuts off at the end of ctx those that stay, and waits for every goroutine of the
// server.
func (r *Refuser) Stop(ctx context.Context) {
	r.once.Do(func() { close(r.done) })
	stopServer(ctx, r.grpc)
}
