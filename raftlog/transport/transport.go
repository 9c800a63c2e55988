// Package transport wraps the Raft transports that Weir uses, and mends what hashicorp/raft v1.8.0 gets wrong with them.
//
// T1. Heartbeats go through Raft's main goroutine. The library offers a fast path that handles them on the transport's
// goroutine, where they change term and state without a lock; replicas can then apply different commands at one index
// (hashicorp/raft#695). Wrap takes the fast path away from every transport, so no transport may be used unwrapped.
//
// T2. A node whose durable writes fail must not speak any more: Cut makes every outgoing call fail, so that no term,
// vote or entry leaves which the node could not keep.
//
// T3. A request carries at most two megabytes of entries, or one larger entry. The library counts entries, and 64 of them
// can be hundreds of megabytes, behind which a heartbeat would wait. Peers makes several requests of one, or cuts it, by
// shortening the request that it was handed; the library goes on behind its last entry.
//
// T4. An entry's bytes are copied once on their way in, from the connection into memory that is used again after the
// entries are stored. So a log store must not keep the slices that StoreLogs is handed; Weir's do not.
//
// Over makes a transport over the network between nodes (internal/peernet): Peers. T5 to T8 are where they are kept: that
// snapshots are pulled, what followers are told of commits, that a member is gone, that one has come back.
//
// The price of T1: a heartbeat waits behind the log write in progress, so heartbeat timeouts of groups with several
// members must exceed the slowest write that is still considered healthy.
package transport

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// ErrCut is what outgoing calls return after Cut.
var ErrCut = errors.New("transport: this node cannot write durably and takes no part any more")

// ErrNoPreVote is returned for a pre-vote over a transport that does not carry them; see PreVote.
var ErrNoPreVote = errors.New("transport: pre-vote is not supported")

// Transport is a raft.Transport that obeys T1 and T2. It is safe for concurrent use.
type Transport struct {
	raft.Transport
	cut      atomic.Bool
	receiver *receiver // nil: requests go to Raft as they come
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// Wrap returns t as Raft must see it. Closing the wrapper closes t.
func Wrap(t raft.Transport) *Transport { return &Transport{Transport: t} }

// NewLocal returns a transport for a group with one member: it has an address and reaches nobody.
func NewLocal(addr string) raft.Transport {
	_, t := raft.NewInmemTransport(raft.ServerAddress(addr))
	return t
}

// Cut makes every later outgoing call fail with ErrCut (T2). It cannot be undone.
func (t *Transport) Cut() { t.cut.Store(true) }

// PreVote says whether the wrapped transport carries pre-votes. Where it does not, they must be switched off in Raft's
// configuration, because Raft sees the methods of the wrapper.
func (t *Transport) PreVote() bool {
	_, ok := t.Transport.(raft.WithPreVote)
	return ok
}

// SetHeartbeatHandler does nothing (T1).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// Close closes the wrapped transport where it can be closed.
func (t *Transport) Close() error {
	if t.receiver != nil {
		t.receiver.close()
		defer t.receiver.loops.Wait() // those that read a snapshot end with the transport
	}
	if c, ok := t.Transport.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}

// PeerProgress returns what the wrapped transport knows of a member, and whether it knows such things.
func (t *Transport) PeerProgress(id string) (PeerProgress, bool) {
	p, ok := t.Transport.(Progress)
	if !ok {
		return PeerProgress{}, false
	}
	return p.PeerProgress(raft.ServerID(id)), true
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if t.cut.Load() {
		return nil, ErrCut
	}
	p, err := t.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return &pipeline{AppendPipeline: p, t: t}, nil
}

// AppendEntries implements raft.Transport.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.cut.Load() {
		return ErrCut
	}
	return t.Transport.AppendEntries(id, target, args, resp)
}

// RequestVote implements raft.Transport.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if t.cut.Load() {
		return ErrCut
	}
	return t.Transport.RequestVote(id, target, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.cut.Load() {
		return ErrCut
	}
	p, ok := t.Transport.(raft.WithPreVote)
	if !ok {
		return ErrNoPreVote
	}
	return p.RequestPreVote(id, target, args, resp)
}

// InstallSnapshot implements raft.Transport.
func (t *Transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if t.cut.Load() {
		return ErrCut
	}
	err := t.Transport.InstallSnapshot(id, target, args, resp, data)
	if t.receiver.resumes(err, args.LastLogIndex) {
		*resp = raft.InstallSnapshotResponse{Term: args.Term, Success: true} // T5
		return nil
	}
	return err
}

// TimeoutNow implements raft.Transport.
func (t *Transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if t.cut.Load() {
		return ErrCut
	}
	return t.Transport.TimeoutNow(id, target, args, resp)
}

// pipeline is an AppendPipeline that obeys T2.
type pipeline struct {
	raft.AppendPipeline
	t *Transport
}

func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.t.cut.Load() {
		return nil, ErrCut
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}
