package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/internal/peernet"
)

const (
	// callTimeout bounds a call without entries, and dialling. It is above the election timeouts in use: who does not
	// answer a heartbeat for so long has been given up already. Not much larger: a connection whose other end has gone
	// without a word is found out by it.
	callTimeout = 3 * time.Second
	// bulkTimeout bounds a call with entries, which waits for a durable write, and each chunk of a snapshot.
	bulkTimeout = 10 * time.Second
	// restoreTimeout bounds how long a member that has a snapshot may take to make it durable and restore from it.
	restoreTimeout = 10 * time.Minute
	// workingEvery is how often it says that it is at it.
	workingEvery = time.Second
	// maxIdle connections to a member wait for the next call: one for heartbeats, one for entries, one for votes.
	maxIdle = 3
)

// ErrClosed says that the transport was closed.
var ErrClosed = errors.New("transport: closed")

// Service names the service of a group's log on peernet.
func Service(group string) string { return "raft:" + group }

// Peers is a raft.Transport of one group over the network between nodes. Members' addresses are their ids, which are the
// names of their nodes; where a node is, peernet knows, and asks anew with each connection. It is safe for concurrent use.
//
// Every call under way has a connection of its own, and at most maxIdle per member wait for the next one. A connection for
// all calls would let a heartbeat wait behind megabytes of entries, on the wire and in the other side's buffers, unless
// it came with flow control of its own; one for all groups would couple them with each other. The price is sockets:
// about three per group, member and direction.
type Peers struct {
	net   *peernet.Net
	group string
	name  string
	rpcs  chan raft.RPC
	lis   *peernet.Listener
	bufs  sync.Pool // of *[]byte: requests received (T4)

	watch atomic.Pointer[Watch] // nil: none
	term  atomic.Uint64         // the greatest that this member has replicated in, as a leader

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // of serve, and what serves a connection, reads a pipeline's answers or tells a member of a commit

	mu struct {
		sync.Mutex
		closed bool
		open   map[*peernet.Conn]struct{} // all, on both sides
		idle   map[string][]*client       // by member, the one used last at the end
		peers  map[string]*progress
		commit commit // T6
	}
}

var (
	_ raft.Transport   = (*Peers)(nil)
	_ raft.WithPreVote = (*Peers)(nil)
	_ raft.WithClose   = (*Peers)(nil)
	_ Progress         = (*Peers)(nil)
)

// Over connects a group's member on this node with those on others. Close ends it; the Net stays.
func Over(n *peernet.Net, group string) (*Peers, error) {
	lis, err := n.Listener(Service(group))
	if err != nil {
		return nil, fmt.Errorf("log %s: %w", group, err)
	}
	t := &Peers{net: n, group: group, name: n.Self().Node, rpcs: make(chan raft.RPC), lis: lis}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.mu.open = make(map[*peernet.Conn]struct{})
	t.mu.idle = make(map[string][]*client)
	t.mu.peers = make(map[string]*progress)
	t.wg.Go(t.serve)
	return t, nil
}

// Close implements raft.WithClose. Calls under way fail. It waits for the transport's goroutines.
func (t *Peers) Close() error {
	t.mu.Lock()
	t.mu.closed = true
	open := make([]*peernet.Conn, 0, len(t.mu.open))
	for c := range t.mu.open {
		open = append(open, c)
	}
	clear(t.mu.idle)
	t.mu.Unlock()
	t.cancel()
	_ = t.lis.Close() // cannot fail
	for _, c := range open {
		_ = c.Close() // who uses it finds out
	}
	t.wg.Wait()
	return nil
}

// Consumer implements raft.Transport.
func (t *Peers) Consumer() <-chan raft.RPC { return t.rpcs }

// LocalAddr implements raft.Transport.
func (t *Peers) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.name) }

// EncodePeer implements raft.Transport.
func (t *Peers) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// DecodePeer implements raft.Transport.
func (t *Peers) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler does nothing (T1).
func (t *Peers) SetHeartbeatHandler(func(raft.RPC)) {}

// register remembers an open connection, so that Close ends it.
func (t *Peers) register(c *peernet.Conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return ErrClosed
	}
	t.mu.open[c] = struct{}{}
	return nil
}

func (t *Peers) drop(c *peernet.Conn) {
	t.mu.Lock()
	delete(t.mu.open, c)
	t.mu.Unlock()
	_ = c.Close() // it is of no use any more
}

// client is a connection on which this side asks. One goroutine uses it at a time.
type client struct {
	*peernet.Conn
	t      *Peers
	target string
	r      *bufio.Reader
	buf    []byte // of the frame being written, or of the answer being read
	bufs   net.Buffers
	used   bool // calls went well on it before
}

// dial makes a connection. It gives up when ctx ends, after callTimeout at the latest, or the transport is closed.
func (t *Peers) dial(ctx context.Context, target string) (*client, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	c, err := t.net.Dial(ctx, target, Service(t.group))
	if err != nil {
		return nil, &dialError{err}
	}
	if err := t.register(c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &client{Conn: c, t: t, target: target, r: bufio.NewReaderSize(c, 4<<10)}, nil
}

// dialError says that a member was not reached, so that nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// take returns a connection that waits, or nil.
func (t *Peers) take(target string) *client {
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := t.mu.idle[target]
	if len(idle) == 0 {
		return nil
	}
	c := idle[len(idle)-1]
	t.mu.idle[target] = idle[:len(idle)-1]
	return c
}

// keep lets a connection wait for the next call.
func (t *Peers) keep(c *client) {
	c.used = true
	t.mu.Lock()
	keep := !t.mu.closed && len(t.mu.idle[c.target]) < maxIdle
	if keep {
		t.mu.idle[c.target] = append(t.mu.idle[c.target], c)
	}
	t.mu.Unlock()
	if !keep {
		t.drop(c.Conn)
	}
}

// send writes a request within a time.
func (c *client) send(req any, timeout time.Duration) error {
	b, large, err := appendRequest(append(c.buf[:0], 0, 0, 0, 0), req)
	if err != nil {
		return err
	}
	c.buf = b
	if c.bufs, err = gather(c.bufs[:0], b, large); err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	bufs := c.bufs // WriteBuffers consumes it
	_, err = c.WriteBuffers(&bufs)
	clear(c.bufs) // keeps no entry
	return err
}

// receive reads an answer. The time counts between the parts of a long one.
func (c *client) receive(resp any, timeout time.Duration) error {
	most := time.Now().Add(restoreTimeout)
	for {
		by := time.Now().Add(timeout)
		if by.After(most) {
			by = most
		}
		if err := c.SetReadDeadline(by); err != nil {
			return err
		}
		n, k, err := readHead(c.r)
		if err != nil {
			return err
		}
		if n > 64<<10 {
			return fmt.Errorf("%w: an answer of %d bytes", errFrame, n)
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(c.r, body); err != nil {
			return err
		}
		if k == kindWorking {
			continue
		}
		return decodeAnswer(k, body, resp)
	}
}

// call asks a member. Raft's requests can be repeated, so when a connection that has waited turns out to be dead, as after
// a restart of the member, another one is tried at once: a vote should not be lost for that.
func (t *Peers) call(target raft.ServerID, req, resp any, timeout time.Duration) error {
	for c := t.take(string(target)); ; c = nil {
		if c == nil {
			var err error
			if c, err = t.dial(t.ctx, string(target)); err != nil {
				return err
			}
		}
		err := c.send(req, timeout)
		if err == nil {
			err = c.receive(resp, timeout)
		}
		var remote remoteError
		if err == nil || errors.As(err, &remote) {
			t.keep(c)
			return err
		}
		t.drop(c.Conn)
		var slow net.Error
		if !c.used || t.ctx.Err() != nil || errors.As(err, &slow) && slow.Timeout() {
			return fmt.Errorf("log %s: call node %s: %w", t.group, target, err)
		}
	}
}

// AppendEntries implements raft.Transport. It obeys T3 and T8.
func (t *Peers) AppendEntries(id raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	n := len(args.Entries)
	limit(args)
	clear(args.Entries[len(args.Entries):n]) // a member that is not there must not keep them in memory
	timeout := callTimeout
	if len(args.Entries) > 0 {
		timeout = bulkTimeout
	}
	t.progress(id).sent(args)
	err := t.call(id, args, resp, timeout)
	if err != nil && !isHeartbeat(args) {
		err = t.retry(args.Term, err, func() error { return t.call(id, args, resp, timeout) })
	}
	if err != nil {
		return err
	}
	t.appended(id, args, resp)
	return nil
}

// RequestVote implements raft.Transport.
func (t *Peers) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.call(id, args, resp, callTimeout)
}

// RequestPreVote implements raft.WithPreVote.
func (t *Peers) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return t.call(id, args, resp, callTimeout)
}

// TimeoutNow implements raft.Transport.
func (t *Peers) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.call(id, args, resp, callTimeout)
}

// limit cuts a request to maxRequestBytes of entries, but one at least (T3). The library looks at the entries after the
// call, and goes on behind the last one.
func limit(args *raft.AppendEntriesRequest) {
	n := 0
	for i, e := range args.Entries {
		if n += len(e.Data) + len(e.Extensions); i > 0 && n > maxRequestBytes {
			args.Entries = args.Entries[:i]
			return
		}
	}
}
