package weir

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
)

// run is the producer's goroutine: it sends, and again when that has failed, until ctx ends or an error is final.
func (p *Producer) run(ctx context.Context) {
	var wait pauses
	var failing time.Time // since when nothing has been acknowledged though it should; zero = all is well
	for {
		if !p.awaitWork(ctx) {
			p.fail(errProducerClosed())
			return
		}
		began := time.Now()
		acked, node, err := p.send(connecting(ctx, cmp.Or(failing, began), p.cfg.RetryFor))
		if ctx.Err() != nil {
			p.fail(errProducerClosed())
			return
		}
		if acked > 0 {
			wait.reset()
			failing = time.Time{}
		}
		if errors.Is(err, errResend) {
			continue
		}
		if p.idle() {
			continue // The connection has ended while nothing was under way: the next rows make a new one.
		}
		if node != anyNode {
			// The rows need not go there: nothing is final before the way that always is has failed too.
			p.avoid(node, err)
			if dataflow.ReasonOf(err) == dataflow.ReasonOverloaded {
				_ = pause.For(ctx, wait.after(retryAfter(err))) // that way leads to the same node
			}
			continue
		}
		if !p.retryable(node, err) {
			p.fail(p.placed(node, err))
			return
		}
		if failing.IsZero() {
			failing = p.c.awaySince(began, err)
		}
		p.setTrouble(err)
		d, more := wait.within(retryAfter(err), p.cfg.RetryFor-time.Since(failing))
		if !more {
			p.fail(gaveUp(err, time.Since(failing)))
			return
		}
		_ = pause.For(ctx, d) // the loop looks at ctx
	}
}

// placed is what is said of an error that is final.
func (p *Producer) placed(node string, err error) error {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.w.reused(node, e)
}

func (p *Producer) setTrouble(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.trouble = err
}

// errResend ends the calls whose numbers must be sent again, with what the log knew cut off.
var errResend = errors.New("send again")

// gaveUp keeps the last error's reason, and says for how long it was tried.
func gaveUp(err error, d time.Duration) error {
	var e *dataflow.Error
	if d < time.Second || errors.Is(err, errSilent) || !errors.As(err, &e) { // silence says itself for how long
		return err
	}
	again := *e
	again.Message = e.Message + "; tried again for " + d.Round(time.Second).String()
	return &again
}

// awaitWork returns true when there is something to send, and false when ctx has ended.
func (p *Producer) awaitWork(ctx context.Context) bool {
	for p.idle() {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func (p *Producer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.w.empty()
}
