package transport

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// T5. A group whose snapshots are references takes none through Raft: it would lack what they refer to, and Raft's main
// goroutine would wait while it is fetched. Pull answers a leader's snapshot with an error that says where the own log
// ends. Whoever drives the member then brings it to a later index from outside, by a restart. The leader knows nothing of
// that and goes on sending its snapshot, because it has once begun to. So the leader's side looks at the error: where its
// log still has the member's last entry, and the member's end is not behind the snapshot's, it tells the library
// that the snapshot was taken. The library then asks the member with the entry behind the snapshot, hears where the log
// really ends, and goes on there. What it believes in between does no harm: that the member has what the snapshot contains,
// all of which is committed already.
//
// A member that was brought beyond the leader's newest snapshot, as by a leader before, is asked with entries that its own snapshot
// covers, which the library refuses for good. It takes them for what they are: committed, as those that its log begins behind.

// refusal is how the error of a refused snapshot begins. It comes through the network as text.
const refusal = "transport: a snapshot's files are pulled before it is taken; the log ends at "

// PullConfig says how a group whose snapshots are references deals with them.
type PullConfig struct {
	// Last returns the current term and the last index of the own log, or of the snapshot that it begins with.
	Last func() (term, index uint64)
	// Needed is called when a leader has sent a snapshot: it says who, and up to which index. It must not block.
	Needed func(leader raft.ServerID, index uint64)
	// First returns the first index of the own log; 0 when it is empty.
	First func() uint64
	// Begins returns the snapshot that the own log begins with; 0 = none.
	Begins func() (term, index uint64)
}

// puller stands between the transport and Raft.
type puller struct {
	cfg   PullConfig
	inner <-chan raft.RPC
	out   chan raft.RPC
	stop  chan struct{}
	once  sync.Once
	loops sync.WaitGroup
}

// Pull makes the transport refuse snapshots (T5). Call it before Raft is made; nothing is delivered to Raft before the
// function that it returns is called, which must happen once.
func (t *Transport) Pull(cfg PullConfig) (start func()) {
	p := &puller{cfg: cfg, inner: t.Transport.Consumer(), out: make(chan raft.RPC), stop: make(chan struct{})}
	t.pull = p
	return func() { p.loops.Go(p.forward) }
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC {
	if t.pull != nil {
		return t.pull.out
	}
	return t.Transport.Consumer()
}

func (p *puller) forward() {
	for {
		select {
		case rpc := <-p.inner:
			if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
				p.loops.Go(func() { p.refuse(rpc, req) })
				continue
			}
			if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
				rpc.Command = p.skip(req)
			}
			select {
			case p.out <- rpc:
			case <-p.stop:
				rpc.Respond(noAnswer(rpc.Command), raft.ErrRaftShutdown)
				return
			}
		case <-p.stop:
			return
		}
	}
}

// noAnswer is what goes with an error: senders of the library's own in-memory transport take an answer of its type for
// granted.
func noAnswer(command any) any {
	switch command.(type) {
	case *raft.AppendEntriesRequest:
		return &raft.AppendEntriesResponse{}
	case *raft.RequestVoteRequest:
		return &raft.RequestVoteResponse{}
	case *raft.RequestPreVoteRequest:
		return &raft.RequestPreVoteResponse{}
	case *raft.TimeoutNowRequest:
		return &raft.TimeoutNowResponse{}
	default:
		return nil
	}
}

// refuse answers a leader's snapshot. The bytes are read to their end, as the library does.
func (p *puller) refuse(rpc raft.RPC, req *raft.InstallSnapshotRequest) {
	if rpc.Reader != nil {
		_, _ = io.Copy(io.Discard, rpc.Reader) // what is wrong with the connection, the sender sees
	}
	term, last := p.cfg.Last()
	if req.Term < term {
		rpc.Respond(&raft.InstallSnapshotResponse{Term: term}, nil)
		return
	}
	p.cfg.Needed(raft.ServerID(req.ID), req.LastLogIndex)
	rpc.Respond(&raft.InstallSnapshotResponse{Term: req.Term}, fmt.Errorf("%s%d", refusal, last))
}

// skip returns a request without what the own snapshot covers: a copy, where there is any.
func (p *puller) skip(req *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	if first := p.cfg.First(); req.PrevLogEntry == 0 || first > 0 && req.PrevLogEntry+1 >= first {
		return req
	}
	term, index := p.cfg.Begins()
	if req.PrevLogEntry >= index {
		return req
	}
	rest := *req
	rest.PrevLogEntry, rest.PrevLogTerm = index, term
	for len(rest.Entries) > 0 && rest.Entries[0].Index <= index {
		rest.Entries = rest.Entries[1:]
	}
	return &rest
}

func (p *puller) close() { p.once.Do(func() { close(p.stop) }) }

// resumes says whether a refused snapshot need not be taken, because the log goes on where the member's ends, or the member has what
// is in it.
func (p *puller) resumes(err error, snapshot uint64) bool {
	if p == nil || err == nil {
		return false
	}
	_, text, ok := strings.Cut(err.Error(), refusal)
	if !ok {
		return false
	}
	var last uint64
	if _, err := fmt.Sscanf(text, "%d", &last); err != nil {
		return false
	}
	first := p.cfg.First()
	return last > snapshot || first > 0 && first <= last // it sends what is behind an entry with that entry's term
}
