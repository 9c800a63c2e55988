package raftlog

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/frame"
)

// checkLog refuses a log that Raft could not replay, which it would do by panicking or, worse, silently: damaged
// entries, a gap between the newest snapshot and the log, a log that ends before the snapshot, an on-disk FSM that lacks
// what the log no longer has.
func (g *Group) checkLog() error {
	metas, err := g.snaps.List()
	if err != nil {
		return err
	}
	var snap, term uint64 // of the entry before the one to check
	if len(metas) > 0 {
		snap, term = metas[0].Index, metas[0].Term
		if err := g.checkTail(metas[0]); err != nil {
			return err
		}
	}
	if f, ok := g.cfg.FSM.(OnDiskFSM); ok && g.cfg.OnDisk {
		have := uint64(f.AppliedIndex())
		if have < snap {
			return fmt.Errorf("the state is at index %d, before the newest snapshot's %d", have, snap)
		}
		g.fsm.applied.Store(have)
	} else {
		g.fsm.applied.Store(snap)
	}
	first, err := g.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.log.LastIndex()
	if err != nil {
		return err
	}
	if last > snap && first > snap+1 {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "entries %d to %d are missing between the newest sound snapshot and the log",
			snap+1, first-1)
	}
	current, err := g.log.GetUint64([]byte(currentTermKey))
	if err != nil {
		return err
	}
	var l raft.Log
	for i := snap + 1; i <= last; i++ {
		err := g.log.LogStore.GetLog(i, &l)
		switch {
		case errors.Is(err, raft.ErrLogNotFound):
			return dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d of %d is missing", i, last)
		case err != nil:
			return fmt.Errorf("read entry %d: %w", i, err)
		}
		err = checkEntry(&l, i)
		if err == nil && (l.Term < term || l.Term > current) {
			err = fmt.Errorf("its term %d is not between %d and %d", l.Term, term, current)
		}
		if err != nil {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d is damaged: %w", i, err)
		}
		term = l.Term
	}
	return nil
}

// checkEntry checks what Raft, and then the FSM, take for granted of the entry at index.
func checkEntry(l *raft.Log, index uint64) (err error) {
	if l.Index != index {
		return fmt.Errorf("it says it is entry %d", l.Index)
	}
	switch l.Type {
	case raft.LogCommand:
		_, err = frame.Open(l.Data)
	case raft.LogConfiguration:
		defer func() {
			if p := recover(); p != nil { // that is how the library says it
				err = fmt.Errorf("it is no configuration: %v", p)
			}
		}()
		raft.DecodeConfiguration(l.Data)
	}
	return err
}

// checkTail refuses a log whose end is older than the newest snapshot: it was lost, or comes from elsewhere. Raft would go
// on behind the snapshot, and give indexes again that were given before.
func (g *Group) checkTail(newest *raft.SnapshotMeta) error {
	term, err := g.log.GetUint64([]byte(currentTermKey))
	if err != nil {
		return err
	}
	if term < newest.Term {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "its end is lost: it is in term %d, and there is a snapshot of term %d", term, newest.Term)
	}
	last, err := g.log.LastIndex()
	if err != nil {
		return err
	}
	// Who gets another member's snapshot has none of its entries. Who is alone took it of its own entries, and keeps the
	// last one at least.
	if g.cfg.alone() && last < newest.Index {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "its end is lost: it ends at entry %d, and there is a snapshot of entry %d", last, newest.Index)
	}
	return nil
}
