package transport

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// PeerProgress is how far another member is, as this one saw it while it led.
type PeerProgress struct {
	// LastContact is when the member answered last; zero when it has not.
	LastContact time.Time
	// Term is of this member's leadership in which the following was learned.
	Term uint64
	// Match is the index up to which the member's log is known to equal this one's; 0 when that is unknown.
	Match uint64
}

// Progress is a transport that knows how far the other members are. The library knows it too, and does not tell.
type Progress interface {
	// PeerProgress returns what is known of a member.
	PeerProgress(id raft.ServerID) PeerProgress
}

// progress is a PeerProgress that grows, and what the member has been told of the commit index (T6).
type progress struct {
	mu      sync.Mutex
	p       PeerProgress
	told    commit
	telling bool // a goroutine tells it more
}

func (t *Peers) progress(id raft.ServerID) *progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.mu.peers[string(id)]
	if p == nil {
		p = &progress{}
		t.mu.peers[string(id)] = p
	}
	return p
}

// PeerProgress implements Progress.
func (t *Peers) PeerProgress(id raft.ServerID) PeerProgress {
	p := t.progress(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p
}

// appended learns from a member's answer to AppendEntries.
func (t *Peers) appended(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	match := args.PrevLogEntry // 0 in a heartbeat
	if n := len(args.Entries); n > 0 {
		match = args.Entries[n-1].Index
	}
	if p := t.progress(id); p.learn(args.Term, match, resp.Success) {
		t.matched(string(id), p)
	}
}

// learn notes a contact in a term of this member's leadership, and that the logs match, if they do. It says whether more of
// them is known to.
func (p *progress) learn(term, match uint64, success bool) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p.LastContact = time.Now()
	if term > p.p.Term {
		p.p.Term, p.p.Match = term, 0
	}
	if !success || term != p.p.Term || match <= p.p.Match {
		return false
	}
	p.p.Match = match
	return true
}
