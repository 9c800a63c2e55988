package raftlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/phase"
)

// onApply counts applied bytes and asks for a snapshot when there are enough (R5).
func (g *Group) onApply(l *raft.Log) {
	g.tellCommitted(l.Term)
	bytes := len(l.Data)
	avg := g.avgEntry.Load()
	g.avgEntry.Store(avg + (int64(bytes)-avg)/16)
	if n := g.sinceSnap.Add(int64(bytes)); g.cfg.SnapshotBytes > 0 && n >= g.cfg.SnapshotBytes {
		select {
		case g.snapshots <- struct{}{}:
		default: // one is due already
		}
	}
}

// runSnapshots takes the snapshots that onApply asks for.
func (g *Group) runSnapshots() {
	for {
		select {
		case <-g.done:
			return
		case <-g.snapshots:
		}
		if g.sinceSnap.Load() < g.cfg.SnapshotBytes {
			continue // somebody else took one
		}
		if err := g.Snapshot(context.Background()); err != nil && !g.isClosed() {
			g.cfg.Logger.Warn("snapshot not taken; tried again later", "log", g.cfg.Group, "err", err)
		}
	}
}

// Snapshot persists the FSM's state now and cuts the log behind it. It returns when that is durable. A snapshot that is
// under way is waited for, at most until ctx ends; the snapshot itself is not given up then.
func (g *Group) Snapshot(ctx context.Context) error {
	select {
	case g.snapMu <- struct{}{}:
	case <-ctx.Done():
		return dataflow.Errorf(dataflow.ReasonDeadline, "log %s: a snapshot is under way: %w", g.cfg.Group, context.Cause(ctx))
	}
	defer func() { <-g.snapMu }()
	g.cfg.Phases.Enter(phase.Snapshot)
	defer g.cfg.Phases.Leave(phase.Snapshot)
	g.sinceSnap.Store(0)
	rc := g.raft.ReloadableConfig()
	var err error
	if rc.TrailingLogs, err = g.trailingEntries(); err != nil {
		return fmt.Errorf("log %s: %w", g.cfg.Group, err)
	}
	if err := g.raft.ReloadConfig(rc); err != nil {
		return fmt.Errorf("log %s: %w", g.cfg.Group, err)
	}
	if err := g.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("snapshot of log %s: %w", g.cfg.Group, err)
	}
	return nil
}

// SnapshotIndex returns the index up to which the newest snapshot goes; 0 without one.
func (g *Group) SnapshotIndex() (dataflow.LogIndex, error) {
	metas, err := g.snaps.List()
	if err != nil || len(metas) == 0 {
		return 0, err
	}
	return dataflow.LogIndex(metas[0].Index), nil
}

// trailingEntries returns how many entries the next snapshot leaves in the log, which is what the library counts:
// TrailingBytes of them, or all that are held. In a group of one nobody lags, so those behind the snapshot before are enough: what happens
// rarely in a group would otherwise stay for ever.
func (g *Group) trailingEntries() (uint64, error) {
	most := int64(maxTrailingEntries)
	if g.cfg.alone() {
		most = maxTrailingAlone
	}
	n := uint64(min(max(g.cfg.TrailingBytes/max(g.avgEntry.Load(), 1), 1), most))
	last := g.raft.LastIndex()
	held := last + 1 - min(last+1, g.heldFrom(last+1))
	if !g.cfg.alone() {
		return max(n, held), nil
	}
	metas, err := g.snaps.List()
	if err != nil || len(metas) == 0 {
		return max(n, held), err
	}
	return max(held, min(n, max(1, last-min(last, metas[0].Index)))), nil
}
