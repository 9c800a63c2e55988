package weir

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
)

// retrySafety says when a call may be made again.
type retrySafety uint8

const (
	// repeatable calls have the same effect made twice, so an unknown outcome is no reason not to try again.
	repeatable retrySafety = iota
	// once calls are made again only when the server has said that nothing happened.
	once
)

// The pauses between tries: short at first, because a restart takes moments; never so long that a server that is back
// goes unnoticed.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// pauses is a capped exponential back-off with jitter: many clients of one server do not come back at once.
type pauses struct{ next time.Duration }

// after returns how long to wait now. asked is what the server said (RetryInfo); it is the least.
func (p *pauses) after(asked time.Duration) time.Duration {
	if p.next == 0 {
		p.next = firstPause
	}
	d := p.next/2 + rand.N(p.next/2)
	p.next = min(2*p.next, maxPause)
	return max(d, asked)
}

// within is after for who gives up when left has passed: the last pause is cut short, so that the last try is at that end and not up to
// maxPause before. false = the time is over, or is before the server wants to be asked.
func (p *pauses) within(asked, left time.Duration) (time.Duration, bool) {
	if left <= 0 || asked > left {
		return 0, false
	}
	return min(p.after(asked), left), true
}

func (p *pauses) reset() { p.next = 0 }

// mayRetry reports whether another try can succeed, and whether the failed one may have taken effect.
func mayRetry(err error) (again, tookEffect bool) {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		return false, false
	}
	switch e.Reason {
	case dataflow.ReasonUnreachable, dataflow.ReasonOutcomeUnknown:
		return true, true
	case dataflow.ReasonOverloaded:
		return true, false
	}
	if lagsBehind(e) {
		return true, false
	}
	return e.Reason.Kind() == dataflow.KindUnavailable, false
}

// retry makes a call until it succeeds, fails for good, ctx ends or Config.RetryFor has passed. The last error is
// returned, with its reason.
func (c *Client) retry(ctx context.Context, safe retrySafety, try func(context.Context) error) error {
	return c.retryFor(ctx, c.cfg.RetryFor, safe, try)
}

func (c *Client) retryFor(ctx context.Context, d time.Duration, safe retrySafety, try func(context.Context) error) error {
	var wait pauses
	deadline := time.Now().Add(d)
	to := connecting(ctx, time.Now(), d)
	for tries := 1; ; tries++ {
		err := c.errorOf(ctx, try(to))
		if err == nil {
			return nil
		}
		again, tookEffect := mayRetry(err)
		if !again || tookEffect && safe == once {
			return err
		}
		pauseFor, more := wait.within(retryAfter(err), time.Until(deadline))
		if !more {
			// However long one node has taken to answer that it cannot, each of the others is tried once.
			if d < 0 || tries >= c.nodes.count() || errors.Is(err, errNoneReached) {
				return err
			}
			if errors.Is(err, errSilent) {
				to = connecting(ctx, time.Now(), d) // finding that out has taken longer than the others could be connected in
			}
			pauseFor = wait.after(retryAfter(err))
		}
		if ended := pause.For(ctx, pauseFor); ended != nil {
			return because(err, ended)
		}
	}
}

// because gives an error of a try the cause that there was no other try.
func because(err, cause error) error {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		return err
	}
	again := *e
	again.Err = cause
	return &again
}

// retryAfter returns how long a server wants to be left alone; 0 when it does not say. A node that starts speaks of itself only: the
// next call goes to another one.
func retryAfter(err error) time.Duration {
	var e *dataflow.Error
	if errors.As(err, &e) && e.Reason != dataflow.ReasonNodeNotReady {
		return e.RetryAfter
	}
	return 0
}
