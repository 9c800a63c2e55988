package main

import (
	"context"
	"errors"
	"io"
	"os"
)

// errNobodyReads is the cause of a context that has ended because the other end of stdout is closed.
var errNobodyReads = errors.New("nobody reads the output any more")

// whileRead returns a context that ends when the reader of stdout has gone, as head has in weir watch … | head: a program finds
// that out when it writes, and one that has nothing to print would stay for ever. stop must be called. Where stdout is no pipe,
// or the system cannot tell, the context is ctx.
func whileRead(ctx context.Context, stdout io.Writer) (_ context.Context, stop func()) {
	f, ok := stdout.(*os.File)
	if !ok {
		return ctx, func() {}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if waitReaderGone(ctx, f) {
			cancel(errNobodyReads)
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}
