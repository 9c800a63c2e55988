package transport

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// T5. A group whose snapshots are references takes none through Raft: it would lack what they refer to, and Raft's main
// goroutine would wait while it is fetched. It answers a leader's snapshot with an error that says where the own log
// ends. Whoever drives the member then brings it to a later index from outside, by a restart. The leader knows nothing of
// that and goes on sending its snapshot, because it has once begun to. So the leader's side looks at the error: where its
// log still has the member's last entry, and the member's end is not behind the snapshot's, it tells the library
// that the snapshot was taken. The library then asks the member with the entry behind the snapshot, hears where the log
// really ends, and goes on there. What it believes in between does no harm: that the member has what the snapshot contains,
// all of which is committed already.
//
// A member that was brought beyond the leader's newest snapshot, as by a leader before, is asked with entries that its own snapshot
// covers, which the library refuses for good. It takes them for what they are: committed, as those that its log begins behind.
//
// T9. So does a member whose log begins right behind its snapshot, and goes on with entries that the leader does not have: the library looks
// for the snapshot's last entry in the log, in vain, and never lets go of what it should not have. It is not asked to look: what a
// snapshot covers is committed, so the leader has it too, and where entries begin right behind it, nothing is between.

// refusal is how the error of a refused snapshot begins. It comes through the network as text.
const refusal = "transport: a snapshot's files are pulled before it is taken; the log ends at "

// ReceiveConfig says what a member knows that takes requests (T5, T9).
type ReceiveConfig struct {
	// Last returns the current term and the last index of the own log, or of the snapshot that it begins with.
	Last func() (term, index uint64)
	// Needed is called when a leader has sent a snapshot, which is refused: it says who, and up to which index. It must not block.
	// Nil = Raft takes snapshots.
	Needed func(leader raft.ServerID, index uint64)
	// First returns the first index of the own log; 0 when it is empty.
	First func() uint64
	// Begins returns the snapshot that the own log begins with; 0 = none.
	Begins func() (term, index uint64)
}

// receiver stands between the transport and Raft.
type receiver struct {
	cfg   ReceiveConfig
	inner <-chan raft.RPC
	out   chan raft.RPC
	stop  chan struct{}
	once  sync.Once
	loops sync.WaitGroup
}

// Receive puts what a member does with requests (T5, T9) between the transport and Raft. Call it before Raft is made; nothing is
// delivered to Raft before the function that it returns is called, which must happen once.
func (t *Transport) Receive(cfg ReceiveConfig) (start func()) {
	r := &receiver{cfg: cfg, inner: t.Transport.Consumer(), out: make(chan raft.RPC), stop: make(chan struct{})}
	t.receiver = r
	return func() { r.loops.Go(r.forward) }
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC {
	if t.receiver != nil {
		return t.receiver.out
	}
	return t.Transport.Consumer()
}

func (r *receiver) forward() {
	for {
		select {
		case rpc := <-r.inner:
			if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && r.cfg.Needed != nil {
				r.loops.Go(func() { r.refuse(rpc, req) })
				continue
			}
			if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
				rpc.Command = r.skip(req)
			}
			select {
			case r.out <- rpc:
			case <-r.stop:
				rpc.Respond(noAnswer(rpc.Command), raft.ErrRaftShutdown)
				return
			}
		case <-r.stop:
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
func (r *receiver) refuse(rpc raft.RPC, req *raft.InstallSnapshotRequest) {
	if rpc.Reader != nil {
		_, _ = io.Copy(io.Discard, rpc.Reader) // what is wrong with the connection, the sender sees
	}
	term, last := r.cfg.Last()
	if req.Term < term {
		rpc.Respond(&raft.InstallSnapshotResponse{Term: term}, nil)
		return
	}
	r.cfg.Needed(raft.ServerID(req.ID), req.LastLogIndex)
	rpc.Respond(&raft.InstallSnapshotResponse{Term: req.Term}, fmt.Errorf("%s%d", refusal, last))
}

// skip returns a request without what the own snapshot covers, and without asking for it: a copy, where there is any.
func (r *receiver) skip(req *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	first := r.cfg.First()
	if req.PrevLogEntry == 0 || first > 0 && req.PrevLogEntry >= first {
		return req
	}
	term, index := r.cfg.Begins()
	if req.PrevLogEntry > index || req.PrevLogEntry == index && (req.PrevLogTerm != term || first == 0) {
		return req
	}
	rest := *req
	if rest.PrevLogEntry, rest.PrevLogTerm = index, term; first > 0 {
		rest.PrevLogEntry, rest.PrevLogTerm = 0, 0
	}
	last := index
	if n := len(req.Entries); n > 0 {
		last = max(last, req.Entries[n-1].Index)
	}
	for len(rest.Entries) > 0 && rest.Entries[0].Index <= index {
		rest.Entries = rest.Entries[1:]
	}
	// Of what the log has behind these entries, the leader has said nothing.
	rest.LeaderCommitIndex = min(rest.LeaderCommitIndex, last)
	return &rest
}

func (r *receiver) close() { r.once.Do(func() { close(r.stop) }) }

// resumes says whether a refused snapshot need not be taken, because the log goes on where the member's ends, or the member has what
// is in it.
func (r *receiver) resumes(err error, snapshot uint64) bool {
	if r == nil || err == nil {
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
	first := r.cfg.First()
	return last > snapshot || first > 0 && first <= last // it sends what is behind an entry with that entry's term
}
