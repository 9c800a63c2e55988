package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// panicError is a handler's panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// interceptors wrap every RPC: they catch panics, give a deadline to calls without one, turn errors into statuses, and
// count and log what came out.
type interceptors struct {
	log      *slog.Logger
	metrics  *metrics
	deadline time.Duration
	longer   time.Duration
}

// waits are the calls whose purpose is to wait; they get the longer deadline.
var waits = [...]string{"/weir.v1.PipelineService/WaitToken", "/weir.v1.PipelineService/TriggerCheckpoint"}

func (i *interceptors) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	i.metrics.inFlight.Inc()
	defer i.metrics.inFlight.Dec()
	if _, ok := ctx.Deadline(); !ok {
		d := i.deadline
		for _, w := range waits {
			if w == info.FullMethod {
				d = i.longer
			}
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	start := time.Now()
	var resp any
	err := guard(func() (err error) {
		resp, err = next(ctx, req)
		return err
	})
	return resp, i.end(ctx, info.FullMethod, start, err)
}

func (i *interceptors) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	i.metrics.inFlight.Inc()
	defer i.metrics.inFlight.Dec()
	start := time.Now()
	err := guard(func() error { return next(srv, ss) })
	return i.end(ss.Context(), info.FullMethod, start, err)
}

// guard turns a panic into an error.
func guard(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return fn()
}

// end turns err into a status, counts it and logs what an operator must know of: defects, not refusals.
func (i *interceptors) end(ctx context.Context, method string, start time.Time, err error) error {
	st := asStatus(err)
	code, took := status.Code(st), time.Since(start)
	i.metrics.done(method, code, took)
	var p *panicError
	switch {
	case errors.As(err, &p):
		i.metrics.panics.Inc()
		i.log.ErrorContext(ctx, "request panicked", "method", method, "panic", p.value, "stack", string(p.stack))
	case code == codes.Internal || code == codes.DataLoss || code == codes.Unknown:
		i.log.ErrorContext(ctx, "request failed", "method", method, "took", took, "err", err)
	case err != nil:
		i.log.DebugContext(ctx, "request refused", "method", method, "took", took, "code", code, "err", err)
	}
	return st
}
