// Package pause waits for time to pass, for clients that look again after a while. A server waits for facts instead.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends; then it returns why.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
