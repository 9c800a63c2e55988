package api

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	// maxPending is how many appends of one call may be under way. Enough to cover a round trip and a disk write with
	// small batches; the rest waits in the connection, where flow control stops the sender.
	maxPending = 64
	// maxCallBytes bounds the rows of one call in flight, so that one sender cannot use up maxIngestBytes.
	maxCallBytes = 32 << 20
	// ingestRetryAfter is when a refused sender should come again: about the time a few entries take to reach disk.
	ingestRetryAfter = 50 * time.Millisecond
)

// readers waits for the goroutines that receive on AppendStream calls, or send on Watch calls. A blocked Recv or Send ends
// only after the handler has returned, so the handler cannot wait for it; Server.Stop does.
type readers struct{ sync.WaitGroup }

func errAppendsEnd() error {
	return dataflow.Errorf(dataflow.ReasonShuttingDown, "the node is stopping; what it has not answered is to be sent again")
}

// inFlight is one append whose answer is awaited, or the error that ends the call.
type inFlight struct {
	stream   *Stream
	pending  Pending
	previous dataflow.Positions // of the request's previous_token
	size     int64              // held in the budgets
	err      error
}

// appendCall is one AppendStream call. A reader goroutine begins appends in the order in which they come in; the handler
// answers them in the same order. The queue between them bounds what is in flight.
type appendCall struct {
	*ingestService
	call  weirv1.IngestService_AppendStreamServer
	own   *semaphore.Weighted // of maxCallBytes
	queue chan inFlight
	// taking is full while the reader begins an append, and for good once nothing more is to begin: who has filled it after the
	// node began to stop finds in the queue all that was taken.
	taking chan struct{}
}

// AppendStream implements weirv1.IngestServiceServer.
func (s *ingestService) AppendStream(call weirv1.IngestService_AppendStreamServer) error {
	ctx, cancel := context.WithCancel(call.Context())
	c := &appendCall{ingestService: s, call: call, own: semaphore.NewWeighted(maxCallBytes), queue: make(chan inFlight, maxPending),
		taking: make(chan struct{}, 1)}
	answered := make(chan struct{})
	s.readers.Go(func() {
		c.receive(ctx)
		close(c.queue)
		<-answered
		for f := range c.queue {
			c.release(f.size)
		}
	})
	defer close(answered)
	defer cancel()
	return c.answer(ctx)
}

// receive begins what comes in until the sender is done, something fails or ctx ends. The last element of the queue is
// the failure, if there is one.
func (c *appendCall) receive(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			c.put(ctx, inFlight{err: &panicError{value: p, stack: debug.Stack()}})
		}
	}()
	var last *weirv1.AppendRequest
	for {
		m, err := c.call.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.put(ctx, inFlight{err: err})
			return
		}
		r := m.GetAppend()
		if r == nil {
			c.put(ctx, inFlight{err: invalid("append", "is missing")})
			return
		}
		inherit(r, last)
		last = &weirv1.AppendRequest{Stream: r.Stream, Producer: r.Producer}
		if !c.take(ctx, r) {
			return
		}
	}
}

// take begins an append and queues it, unless the node stops. It returns whether the next may follow.
func (c *appendCall) take(ctx context.Context, r *weirv1.AppendRequest) bool {
	select {
	case c.taking <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-c.taking }()
	if c.ends.Err() != nil {
		c.put(ctx, inFlight{err: errAppendsEnd()})
		return false
	}
	f := c.begin(ctx, r)
	return c.put(ctx, f) && f.err == nil
}

// put queues f, or gives up what it holds when ctx ends first.
func (c *appendCall) put(ctx context.Context, f inFlight) bool {
	select {
	case c.queue <- f:
		return true
	case <-ctx.Done():
		c.release(f.size)
		return false
	}
}

func (c *appendCall) release(size int64) {
	if size > 0 {
		c.budget.Release(size)
		c.own.Release(size)
	}
}

// inherit fills in what the sender may leave out after the first request of a call.
func inherit(r, last *weirv1.AppendRequest) {
	if last == nil {
		return
	}
	if r.Stream == "" {
		r.Stream = last.Stream
	}
	if r.Producer == nil && len(r.Shards) > 0 && last.Producer != nil {
		r.Producer = proto.CloneOf(last.Producer)
	}
}

// begin waits for room in both budgets, checks the request and hands it to the node.
func (c *appendCall) begin(ctx context.Context, r *weirv1.AppendRequest) inFlight {
	size := min(appendBytes(r), maxCallBytes)
	if err := c.own.Acquire(ctx, size); err != nil {
		return inFlight{err: err}
	}
	if err := c.budget.Acquire(ctx, size); err != nil {
		c.own.Release(size)
		return inFlight{err: err}
	}
	f := inFlight{size: size}
	if f.previous, f.err = c.previous(r); f.err != nil {
		return f
	}
	if f.stream, f.err = c.stream(ctx, r.GetStream()); f.err != nil {
		return f
	}
	a, err := decodeAppend(ctx, f.stream, r)
	if err != nil {
		f.err = err
		return f
	}
	f.pending, f.err = c.b.Ingest.Begin(ctx, a)
	return f
}

// answer answers the appends in order, until the sender is done, something fails, or the node stops and has answered all that it
// has taken.
func (c *appendCall) answer(ctx context.Context) error {
	covered := make(dataflow.Positions)
	ends := c.ends.Done()
	var taking chan struct{} // nil until the node stops
	for {
		select {
		case f, more := <-c.queue:
			if !more {
				return ctx.Err()
			}
			if err := c.answerOne(ctx, f, covered); err != nil {
				return err
			}
		case <-ends:
			ends, taking = nil, c.taking
		case taking <- struct{}{}: // nothing more is taken
			return c.answerRest(ctx, covered)
		}
	}
}

// answerRest answers what is queued, to which nothing is added any more, and ends the call.
func (c *appendCall) answerRest(ctx context.Context, covered dataflow.Positions) error {
	for {
		select {
		case f, more := <-c.queue:
			if !more {
				return ctx.Err()
			}
			if err := c.answerOne(ctx, f, covered); err != nil {
				return err
			}
		default:
			return errAppendsEnd()
		}
	}
}

// answerOne waits for an append and acknowledges it with a token that covers all before it.
func (c *appendCall) answerOne(ctx context.Context, f inFlight, covered dataflow.Positions) error {
	if f.err != nil {
		c.release(f.size)
		return f.err
	}
	shards, err := f.pending.Wait(ctx)
	c.release(f.size)
	if err != nil {
		return err
	}
	covered.Advance(f.previous)
	m := &weirv1.AppendStreamResponse{Appended: c.appended(f.stream, shards, covered), Leaders: leaders(shards)}
	return c.call.Send(m)
}

// leaders says which other nodes lead the shards' logs; nothing when none does.
func leaders(shards []ShardAppended) []string {
	if !slices.ContainsFunc(shards, func(a ShardAppended) bool { return a.Leader != "" }) {
		return nil
	}
	out := make([]string, len(shards))
	for i, a := range shards {
		out[i] = a.Leader
	}
	return out
}
