package transport

import (
	"context"
	"errors"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/internal/peernet"
)

// T7. A member that is gone is noticed before any timeout. The system closes the connections of a process that ends, and refuses
// new ones: who sees the first can ask for the second (Gone). A connection that was merely cut is made again, and proves nothing;
// nor does a host that does not answer. What follows from it is not the transport's business: a Watch learns of it, asks other
// members for their consent and says what this one thinks of theirs, and can make this member stand for election.

// ConsentRequest asks a member whether the sender should stand for election, as a Watcher can make it do. It is a pre-vote, and
// answered like one. But it is told apart from those of Raft itself, whose elections are refused by members whose Raft has not missed
// its leader yet: if these consented before, the candidate's term would be used up in vain.
type ConsentRequest struct{ raft.RequestPreVoteRequest }

// Watcher is a transport that notices when members are gone (T7).
type Watcher interface {
	// Watch sets who learns. It is called once, before Raft is made.
	Watch(Watch)
	// Gone asks whether a member is gone: nothing listens for it any more where it was. The error says that this is not known.
	Gone(ctx context.Context, id raft.ServerID) (bool, error)
	// Ask asks a member for its consent.
	Ask(id raft.ServerID, req *ConsentRequest, resp *raft.RequestPreVoteResponse) error
	// Stand makes this member's Raft stand for election at once, whoever leads. It returns when Raft has been told.
	Stand(ctx context.Context) error
}

// Watch is who learns of what a Watcher notices. Its functions are called from several goroutines, and must not block.
type Watch struct {
	// Ended is told that a connection which a member had made to this one has ended.
	Ended func(raft.ServerID)
	// Judge answers a member that asks for consent; nil leaves it to Raft, as a pre-vote.
	Judge func(*raft.RequestPreVoteRequest) *raft.RequestPreVoteResponse
}

var _ Watcher = (*Peers)(nil)

// Watch implements Watcher.
func (t *Peers) Watch(w Watch) { t.watch.Store(&w) }

// ended passes on that a member's connection has ended.
func (t *Peers) ended(c *peernet.Conn) {
	if w := t.watch.Load(); w != nil && t.ctx.Err() == nil {
		w.Ended(raft.ServerID(c.Peer().Node))
	}
}

// judge returns the answer to a request that is none of Raft's, or what Raft is to be asked.
func (t *Peers) judge(req any) (answer, ask any) {
	r, ok := req.(*ConsentRequest)
	if !ok {
		return nil, req
	}
	if w := t.watch.Load(); w != nil {
		if resp := w.Judge(&r.RequestPreVoteRequest); resp != nil {
			return resp, nil
		}
	}
	return nil, &r.RequestPreVoteRequest
}

// Ask implements Watcher.
func (t *Peers) Ask(id raft.ServerID, req *ConsentRequest, resp *raft.RequestPreVoteResponse) error {
	return t.call(id, req, resp, callTimeout)
}

// Ask is the wrapped Watcher's, and obeys T2.
func (t *Transport) Ask(id raft.ServerID, req *ConsentRequest, resp *raft.RequestPreVoteResponse) error {
	if t.cut.Load() {
		return ErrCut
	}
	return t.Transport.(Watcher).Ask(id, req, resp)
}

// Gone implements Watcher.
func (t *Peers) Gone(ctx context.Context, id raft.ServerID) (bool, error) {
	c, err := t.dial(ctx, string(id))
	var refused *peernet.Refusal
	switch {
	case err == nil:
		t.keep(c)
		return false, nil
	case peernet.IsAbsent(err):
		return true, nil
	case errors.As(err, &refused):
		return false, nil // somebody is there
	}
	return false, err
}

// Stand implements Watcher. Raft believes the message, with which a leader hands its lead over, to come from the leader.
func (t *Peers) Stand(ctx context.Context) error {
	answered := make(chan raft.RPCResponse, 1)
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.name), Addr: []byte(t.name)}}
	for in := t.rpcs; ; {
		select {
		case in <- raft.RPC{Command: req, RespChan: answered}:
			in = nil
		case r := <-answered:
			return r.Error
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.ctx.Done():
			return ErrClosed
		}
	}
}
