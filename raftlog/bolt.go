package raftlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// boltLockTimeout is how long OpenBolt waits for another process to let go of the file; bbolt would wait for ever.
const boltLockTimeout = time.Second

// Bolt is a LogStore in one bbolt file, for the meta log. The file only grows: entries must be small and few, which
// commands of the meta log are.
type Bolt struct{ *raftboltdb.BoltStore }

var _ LogStore = (*Bolt)(nil)

// OpenBolt opens or creates the log in the file path. It is the one durable store that does not go through vfs.
func OpenBolt(path string) (b *Bolt, err error) {
	defer func() {
		// bbolt panics on a damaged file instead of returning an error.
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("open %s: damaged: %v", path, p)
		}
	}()
	s, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:        boltLockTimeout,
			NoFreelistSync: true, // otherwise every append rewrites the freelist, which a burst has made large
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &Bolt{s}, nil
}

// IsMonotonic implements raft.MonotonicLogStore: it makes Raft delete the whole log when it installs a snapshot, without
// which a follower with a divergent tail can loop on snapshots (hashicorp/raft#697).
func (b *Bolt) IsMonotonic() bool { return true }

// Get implements raft.StableStore, which wants an empty value for an absent key.
func (b *Bolt) Get(key []byte) ([]byte, error) {
	v, err := b.BoltStore.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return v, err
}

// GetUint64 implements raft.StableStore, which wants 0 for an absent key.
func (b *Bolt) GetUint64(key []byte) (uint64, error) {
	v, err := b.BoltStore.GetUint64(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return 0, nil
	}
	return v, err
}

// StoreLog implements raft.LogStore.
func (b *Bolt) StoreLog(l *raft.Log) error { return b.StoreLogs([]*raft.Log{l}) }
