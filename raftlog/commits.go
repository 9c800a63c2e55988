package raftlog

import "github.com/hashicorp/raft"

// tellCommitted has the other members told at once what is committed (transport, T6). It is called by the FSM's goroutine when
// an entry of a term was applied.
//
// The order of what it reads is what makes it true. A member's state says that it leads only while its term is the one that it
// leads in, and its term is no less than that of an entry which it has applied. So if it leads, and its term then is the
// entry's, it led in that term when it was asked, and the commit index that it had before is that of an entry of the same term,
// in a log to which it only adds.
func (g *Group) tellCommitted(term uint64) {
	r := g.alive.Load()
	if r == nil {
		return
	}
	index := r.CommitIndex()
	if index <= g.told || r.State() != raft.Leader || r.CurrentTerm() != term {
		return
	}
	g.told = index
	g.trans.Committed(term, index)
}
