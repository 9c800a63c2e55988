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
	inflight chan sent // requests whose answers are read in order
	done     chan raft.AppendFuture
	stop     chan struct{}
	once     sync.Once
	ended    chan struct{} // closed when the reader has ended
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Peers) AppendEntriesPipeline(id raft.ServerID, _ raft.ServerAddress) (raft.AppendPipeline, error) {
	c, err := t.dial(t.ctx, string(id)) // a fresh one: the library does not repeat a pipeline's request by itself
	if err != nil {
		return nil, err
	}
	p := &callPipeline{
		c: c, inflight: make(chan sent, pipelineDepth-1), done: make(chan raft.AppendFuture, pipelineDepth),
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
//
// Entries beyond the limit go as more requests, which together have the one answer that the library waits for. Cut off, as
// where requests do not overlap, they would lie until more entries come or the library's timer does, 50 to 100 ms later.
func (p *callPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	f := &call{start: time.Now(), args: args, resp: resp, done: make(chan struct{})}
	p.c.t.progress(raft.ServerID(p.c.target)).sent(args)
	for rest, more := *args, true; more; {
		var part raft.AppendEntriesRequest
		part, rest = cut(rest)
		more = len(rest.Entries) > 0
		if err := p.c.send(&part, bulkTimeout); err != nil {
			return nil, fmt.Errorf("log %s: send entries to node %s: %w", p.c.t.group, p.c.target, err)
		}
		select {
		case p.inflight <- sent{f, &part, !more}:
		case <-p.stop:
			return nil, raft.ErrPipelineShutdown
		case <-p.ended:
			return nil, raft.ErrPipelineShutdown
		}
	}
	return f, nil
}

// cut takes off a request's first entries, as many as one request may carry.
func cut(args raft.AppendEntriesRequest) (part, rest raft.AppendEntriesRequest) {
	part, rest = args, args
	limit(&part)
	n := len(part.Entries)
	if rest.Entries = args.Entries[n:]; n > 0 {
		last := part.Entries[n-1]
		rest.PrevLogEntry, rest.PrevLogTerm = last.Index, last.Term
	}
	return part, rest
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

// sent is a request under way: a call, or a part of one.
type sent struct {
	f    *call
	args *raft.AppendEntriesRequest
	last bool // of the call's parts
}

// read gives the requests their answers. After the first that fails, the library closes the pipeline.
func (p *callPipeline) read() {
	defer close(p.ended)
	var failed error
	refused := false // a part of the call being answered was
	for {
		var s sent
		select {
		case s = <-p.inflight:
		case <-p.stop:
			return
		case <-p.c.t.ctx.Done():
			return
		}
		var resp raft.AppendEntriesResponse
		if failed == nil {
			failed = p.c.receive(&resp, bulkTimeout)
		}
		if failed == nil {
			p.c.t.appended(raft.ServerID(p.c.target), s.args, &resp)
		} else {
			resp = raft.AppendEntriesResponse{} // the library does not ask for the error, and takes this for a refusal
		}
		if !refused { // else what came before says more
			*s.f.resp, refused = resp, !resp.Success
		}
		if !s.last {
			continue
		}
		refused = false
		s.f.err = failed
		close(s.f.done)
		select {
		case p.done <- s.f:
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
