package weir

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// run is the producer's goroutine: it sends over one connection after the other until ctx ends or an error is final.
func (p *Producer) run(ctx context.Context) {
	var wait pauses
	var failing time.Time // since when nothing has been acknowledged though it should; zero = all is well
	for {
		if !p.awaitWork(ctx) {
			p.fail(errProducerClosed())
			return
		}
		acked, err := p.send(ctx)
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
		if !p.retryable(err) {
			p.fail(p.placed(err))
			return
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		p.setTrouble(err)
		d := wait.after(retryAfter(err))
		if time.Since(failing)+d > p.cfg.RetryFor {
			p.fail(gaveUp(err, time.Since(failing)))
			return
		}
		_ = pause.For(ctx, d) // the loop looks at ctx
	}
}

// placed is what is said of an error that is final.
func (p *Producer) placed(err error) error {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.w.reused(e)
}

func (p *Producer) setTrouble(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.trouble = err
}

// errResend ends a connection whose numbers must be sent again, with what the log knew cut off.
var errResend = errors.New("send again")

// gaveUp keeps the last error's reason, and says for how long it was tried.
func gaveUp(err error, d time.Duration) error {
	var e *dataflow.Error
	if d < time.Second || !errors.As(err, &e) {
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

// send opens one AppendStream call and sends over it until it fails or ctx ends. It returns how many batches were
// acknowledged, and why it ended.
func (p *Producer) send(ctx context.Context) (acked int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, err := p.c.ingest.AppendStream(ctx)
	if err != nil {
		return 0, p.c.errorOf(ctx, err)
	}
	p.mu.Lock()
	p.mu.w.rewind()
	previous := p.mu.token
	p.mu.Unlock()

	ended, count := make(chan error, 1), 0
	go func() { ended <- p.receive(call, &count) }()
	finish := func() (int, error) {
		err := <-ended // also orders the reads of count
		return count, p.c.errorOf(ctx, err)
	}
	for first := true; ; {
		c, linger := p.nextChunk()
		if c == nil {
			select {
			case <-p.wake:
			case <-linger.C:
			case err := <-ended:
				linger.Stop()
				return count, p.c.errorOf(ctx, err)
			}
			linger.Stop()
			continue
		}
		req := &weirv1.AppendRequest{Shards: []*weirv1.ShardRows{c.message(wire.EncodeColumns)}}
		if first {
			req.Stream, req.Producer, req.PreviousToken = p.stream, p.session, previous
			first = false
		}
		if err := call.Send(&weirv1.AppendStreamRequest{Append: req}); err != nil {
			if !errors.Is(err, io.EOF) { // not io.EOF: the client could not send; the receiver does not know
				cancel()
				n, _ := finish()
				return n, p.c.errorOf(ctx, err)
			}
			return finish() // the receiver has the reason
		}
	}
}

// nextChunk returns what to send now; else nil, and a timer for the oldest rows that wait for company. The timer never
// fires when none do.
func (p *Producer) nextChunk() (*chunk, *time.Timer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	oldest, open := p.mu.w.sealOlder(now.Add(-p.cfg.Linger))
	if c := p.mu.w.next(p.cfg.InFlight); c != nil {
		return c, nil
	}
	if !open {
		return nil, time.NewTimer(time.Hour)
	}
	return nil, time.NewTimer(oldest.Add(p.cfg.Linger).Sub(now))
}

// receive takes acknowledgements until the call ends, and returns why it ended.
func (p *Producer) receive(call grpc.BidiStreamingClient[weirv1.AppendStreamRequest, weirv1.AppendStreamResponse], count *int) error {
	for {
		m, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return dataflow.Errorf(dataflow.ReasonUnreachable, "the server ended the call")
		}
		if err != nil {
			return err
		}
		again, err := p.acknowledged(m.GetAppended())
		if err != nil {
			return err
		}
		*count++
		if again {
			return errResend
		}
	}
}

func (p *Producer) acknowledged(a *weirv1.AppendResponse) (again bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if again, err = p.mu.w.acknowledge(a); err != nil || again {
		return again, err
	}
	p.mu.token, p.mu.trouble = a.GetToken(), nil
	p.broadcastLocked()
	p.signal() // there may be room in flight
	return false, nil
}
