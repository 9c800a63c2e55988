package raftlog

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/transport"
)

// Need says that a leader's log does not reach back to where this member's ends.
type Need struct {
	Leader string            // its id
	Index  dataflow.LogIndex // of the snapshot that it has sent
}

// Needs delivers that this member has fallen behind the leader's log, as often as the leader finds it; the reader need not
// keep up. Only groups of Config.PullSnapshots hear of it. It is a hint: after the member was brought to a later index, the
// leader asks once more before it sees that.
func (g *Group) Needs() <-chan Need { return g.needs }

// receive puts what the transport does with requests before Raft, and returns what lets them through once Raft is there.
func (g *Group) receive() (deliver func()) {
	cfg := transport.ReceiveConfig{
		Last: func() (term, index uint64) { return g.raft.CurrentTerm(), g.raft.LastIndex() },
		Begins: func() (term, index uint64) {
			snap := snapshotOf(g.raft.Stats())
			return snap.term, snap.index
		},
		First: func() uint64 {
			first, err := g.log.FirstIndex()
			if err != nil {
				return 0 // the library meets the same error, and says so
			}
			return first
		},
	}
	if g.cfg.PullSnapshots {
		cfg.Needed = func(leader raft.ServerID, index uint64) {
			select {
			case g.needs <- Need{Leader: string(leader), Index: dataflow.LogIndex(index)}:
			default:
			}
		}
	}
	return g.trans.Receive(cfg)
}

// hold keeps entries in the log.
type hold struct{ from uint64 }

// Hold keeps the entries from index on in the log, whatever snapshots are taken, until release is called: a member that is
// being brought to that index from outside then gets what comes behind it, for which the leader needs the entry at the
// index too. It helps nobody when this member does not lead.
func (g *Group) Hold(from dataflow.LogIndex) (release func()) {
	h := &hold{uint64(from)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.holds[h] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.mu.holds, h)
	}
}

// heldFrom returns the lowest index that is held, or none.
func (g *Group) heldFrom(none uint64) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	for h := range g.mu.holds {
		none = min(none, h.from)
	}
	return none
}

// FirstIndex returns the first index that the log can still send to a member; 0 when it is empty.
func (g *Group) FirstIndex() (dataflow.LogIndex, error) {
	i, err := g.log.FirstIndex()
	return dataflow.LogIndex(i), err
}

// LastIndex returns the last index of the log, or of the snapshot that it begins with.
func (g *Group) LastIndex() dataflow.LogIndex { return dataflow.LogIndex(g.raft.LastIndex()) }

// SnapshotFile opens the newest undamaged snapshot's file, which another member's Dir/snapshots takes under the same name.
// Later snapshots do not take it from under the reader. The caller closes it. Without a snapshot the file is nil.
func (g *Group) SnapshotFile() (info SnapshotInfo, name string, file vfs.File, err error) {
	metas, err := g.snaps.List()
	if err != nil || len(metas) == 0 {
		return SnapshotInfo{}, "", nil, err
	}
	m, f, err := g.snaps.open(metas[0].ID)
	if err != nil {
		return SnapshotInfo{}, "", nil, err
	}
	return SnapshotInfo{Index: dataflow.LogIndex(m.Index), Term: m.Term, Size: m.Size}, m.ID + snapshotSuffix, f, nil
}

// SnapshotDir is where in a group's Config.Dir its snapshots are.
const SnapshotDir = snapshotDir

// CarryVote takes a member's term and vote into the log that is to take the place of from, when that begins with a snapshot
// of the given term. A member that forgot them could vote twice in one term.
func CarryVote(from, to LogStore, term uint64) error {
	current, err := from.GetUint64([]byte(currentTermKey))
	if err != nil {
		return err
	}
	voted, err := from.GetUint64([]byte(voteTermKey))
	if err != nil {
		return err
	}
	candidate, err := from.Get([]byte(voteCandidateKey))
	if err != nil {
		return err
	}
	err = to.SetUint64([]byte(currentTermKey), max(current, term))
	if err == nil && len(candidate) > 0 {
		err = errors.Join(to.SetUint64([]byte(voteTermKey), voted), to.Set([]byte(voteCandidateKey), candidate))
	}
	if err != nil {
		return fmt.Errorf("carry the vote over: %w", err)
	}
	return nil
}

// The keys under which hashicorp/raft stores a vote.
const (
	voteTermKey      = "LastVoteTerm"
	voteCandidateKey = "LastVoteCand"
)
