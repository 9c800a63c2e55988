package transport

import (
	"github.com/hashicorp/raft"
)

// T6. What is committed, followers are told at once. The library tells them with the next entries, or after 50 to 100 ms when
// there are none, and a command that a follower has carried to the leader is answered by the follower's own state machine. So
// when a leader has committed, Committed sends each member that has the entry, and has not been told by the library
// meanwhile, a request of the library's own kind: no entries, and the commit index. Such a request says nothing that a later
// leader could contradict, however late it comes: the entry is committed, and it names the entry's index and term, which the
// member compares as ever. One is under way to a member at a time, and the next one tells it all that came meanwhile.

// Commits is a transport that tells members what is committed (T6).
type Commits interface {
	// Committed is told that this member, which leads in a term, has committed the entry of that term at index, and all before.
	Committed(term, index uint64)
}

var _ Commits = (*Peers)(nil)

// Committed passes on what the leader has committed, where the wrapped transport tells members.
func (t *Transport) Committed(term, index uint64) {
	if c, ok := t.Transport.(Commits); ok && !t.cut.Load() {
		c.Committed(term, index)
	}
}

// commit is the newest entry that this member is known to have committed as a leader.
type commit struct{ term, index uint64 }

// Committed implements Commits.
func (t *Peers) Committed(term, index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed || term < t.mu.commit.term || term == t.mu.commit.term && index <= t.mu.commit.index {
		return
	}
	t.mu.commit = commit{term, index}
	for id, p := range t.mu.peers {
		if p.claim(t.mu.commit) {
			t.wg.Go(func() { t.tell(id, p) })
		}
	}
}

// matched is called when more of a member's log is known to be equal: it may wait to be told what is committed.
func (t *Peers) matched(id string, p *progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.closed && p.claim(t.mu.commit) {
		t.wg.Go(func() { t.tell(id, p) })
	}
}

// tell tells a member what is committed until there is no more to tell. Its caller has claimed that.
func (t *Peers) tell(id string, p *progress) {
	for {
		t.mu.Lock()
		c := t.mu.commit
		t.mu.Unlock()
		if !p.due(c) {
			return
		}
		req := &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.name), Addr: []byte(t.name)},
			Term:      c.term, PrevLogEntry: c.index, PrevLogTerm: c.term, LeaderCommitIndex: c.index,
		}
		resp := new(raft.AppendEntriesResponse)
		if err := t.call(raft.ServerID(id), req, resp, callTimeout); err != nil || !resp.Success {
			p.release() // the library will tell it
			return
		}
		p.learn(c.term, c.index, true)
	}
}

// claim says whether a member is to be told of c by the caller: it has the entry, has not been told, and nobody tells it now.
func (p *progress) claim(c commit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.telling || !p.wants(c) {
		return false
	}
	p.telling = true
	return true
}

// due is claim for the one that tells: false ends that.
func (p *progress) due(c commit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wants(c) {
		p.telling = false
		return false
	}
	p.told = c
	return true
}

// wants says whether a member has an entry and has not been told that it is committed. The caller holds mu.
func (p *progress) wants(c commit) bool {
	return c.index > 0 && p.p.Term == c.term && p.p.Match >= c.index && (p.told.term < c.term || p.told.index < c.index)
}

func (p *progress) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.telling = false
}

// sent notes what a request of the library's, which is on its way to the member, tells it.
func (p *progress) sent(args *raft.AppendEntriesRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if args.Term > p.told.term || args.Term == p.told.term && args.LeaderCommitIndex > p.told.index {
		p.told = commit{args.Term, args.LeaderCommitIndex}
	}
}
