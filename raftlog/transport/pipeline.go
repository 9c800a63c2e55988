package transport

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pipelineDepth is how many requests with entries may be on their way to a member. The follower stores one after the
// other; a few hide the way there and back.
const pipelineDepth = 4

// callPipeline is a raft.AppendPipeline: a connection on which requests do not wait for answers.
type callPipeline struct {
	c        *client
	inflight chan *call // requests whose answers are read in order
	done     chan raft.AppendFuture
	stop     chan struct{}
	once     sync.Once
	ended    chan struct{} // closed when the reader has ended
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Peers) AppendEntriesPipeline(id raft.ServerID, _ raft.ServerAddress) (raft.AppendPipeline, error) {
	c, err := t.dial(string(id)) // a fresh one: the library does not repeat a pipeline's request by itself
	if err != nil {
		return nil, err
	}
	p := &callPipeline{
		c: c, inflight: make(chan *call, pipelineDepth-1), done: make(chan raft.AppendFuture, pipelineDepth),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	t.mu.Lock()
	closed := t.mu.closed
	if !closed {
		t.wg.Go(p.read)
	}
	t.mu.Unlock()
	if closed {
		t.drop(c.Conn)
		return nil, ErrClosed
	}
	return p, nil
}

// AppendEntries implements raft.AppendPipeline. It obeys T3, and blocks while pipelineDepth requests are under way.
func (p *callPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	limit(args)
	f := &call{start: time.Now(), args: args, resp: resp, done: make(chan struct{})}
	if err := p.c.send(args, bulkTimeout); err != nil {
		return nil, fmt.Errorf("log %s: send entries to node %s: %w", p.c.t.group, p.c.target, err)
	}
	select {
	case p.inflight <- f:
		return f, nil
	case <-p.stop:
		return nil, raft.ErrPipelineShutdown
	case <-p.ended:
		return nil, raft.ErrPipelineShutdown
	}
}

// Consumer implements raft.AppendPipeline.
func (p *callPipeline) Consumer() <-chan raft.AppendFuture { return p.done }

// Close implements raft.AppendPipeline.
func (p *callPipeline) Close() error {
	p.once.Do(func() { close(p.stop) })
	p.c.t.drop(p.c.Conn)
	<-p.ended
	return nil
}

// read gives the requests their answers. After the first that fails, the library closes the pipeline.
func (p *callPipeline) read() {
	defer close(p.ended)
	var failed error
	for {
		var f *call
		select {
		case f = <-p.inflight:
		case <-p.stop:
			return
		case <-p.c.t.ctx.Done():
			return
		}
		if failed == nil {
			failed = p.c.receive(f.resp, bulkTimeout)
		}
		if failed == nil {
			p.c.t.progress(raft.ServerID(p.c.target)).appended(f.args, f.resp)
		} else {
			*f.resp = raft.AppendEntriesResponse{} // the library does not ask for the error, and takes this for a refusal
		}
		f.err = failed
		close(f.done)
		select {
		case p.done <- f:
		case <-p.stop:
			return
		case <-p.c.t.ctx.Done():
			return
		}
	}
}

// call is a raft.AppendFuture.
type call struct {
	start time.Time
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	done  chan struct{} // closed when err and resp are set
	err   error
}

var _ raft.AppendFuture = (*call)(nil)

// Error implements raft.Future.
func (f *call) Error() error {
	<-f.done
	return f.err
}

// Start implements raft.AppendFuture.
func (f *call) Start() time.Time { return f.start }

// Request implements raft.AppendFuture.
func (f *call) Request() *raft.AppendEntriesRequest { return f.args }

// Response implements raft.AppendFuture.
func (f *call) Response() *raft.AppendEntriesResponse { return f.resp }
