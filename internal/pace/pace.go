// Package pace holds background work that reads and writes much to a rate, so that what users wait for goes before.
package pace

import (
	"context"
	"sync"
	"time"
)

// Limiter lets a number of bytes per second through, for all that share it. A nil Limiter lets everything through. It is safe
// for concurrent use.
type Limiter struct {
	rate int64
	mu   struct {
		sync.Mutex
		free time.Time // when what was let through is paid for
	}
}

// burst is how much time may be used up at once: pauses shorter than a timer's grain would only cost.
const burst = 50 * time.Millisecond

// NewLimiter returns a limiter of so many bytes per second; nil, which is none, when that is not positive.
func NewLimiter(bytesPerSecond int64) *Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &Limiter{rate: bytesPerSecond}
}

// Wait takes note of n bytes that were moved, and returns when their time has passed, less a burst, or ctx has ended.
func (l *Limiter) Wait(ctx context.Context, n int) error {
	if l == nil {
		return ctx.Err()
	}
	l.mu.Lock()
	now := time.Now()
	if l.mu.free.Before(now) {
		l.mu.free = now
	}
	l.mu.free = l.mu.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	ahead := l.mu.free.Sub(now) - burst
	l.mu.Unlock()
	if ahead <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
