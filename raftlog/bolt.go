package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/weirdb/weir/dataflow"
	"go.etcd.io/bbolt"
)

// boltLockTimeout is how long OpenBolt waits for another process to let go of the file; bbolt would wait for ever.
const boltLockTimeout = time.Second

// Bolt is a LogStore in one bbolt file, for the meta log. The file only grows: entries must be small and few, which
// commands of the meta log are.
type Bolt struct {
	*raftboltdb.BoltStore
	path string
}

var _ LogStore = (*Bolt)(nil)

// boltLogs is the bucket of the entries, by index.
const boltLogs = "logs"

// OpenBolt opens or creates the log in the file path. It is the one durable store that does not go through vfs. A file
// that bbolt would stumble over is CORRUPT (checkBolt). No other process may have it open for writing.
func OpenBolt(path string) (b *Bolt, err error) {
	defer func() {
		if p := recover(); p != nil { // bbolt panics on what it does not expect; checkBolt should have found it
			b, err = nil, boltDamaged(path, fmt.Errorf("%v", p))
		}
	}()
	if err := checkBolt(path); err != nil {
		var failed *fs.PathError // the disk has, not the file's structure
		if errors.As(err, &failed) {
			return nil, fmt.Errorf("check %s: %w", path, err)
		}
		return nil, boltDamaged(path, err)
	}
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
	return &Bolt{s, path}, nil
}

func boltDamaged(path string, err error) error {
	return dataflow.Errorf(dataflow.ReasonCorrupt, "the file %s is damaged: %w", path, err)
}

// GetLog implements raft.LogStore.
func (b *Bolt) GetLog(index uint64, l *raft.Log) error {
	err := b.BoltStore.GetLog(index, l)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return boltDamaged(b.path, fmt.Errorf("entry %d does not decode: %w", index, err))
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
	v, err := b.Get(key)
	if err != nil || len(v) == 0 {
		return 0, err
	}
	if len(v) != 8 {
		return 0, boltDamaged(b.path, fmt.Errorf("the value %q has %d bytes", key, len(v)))
	}
	return binary.BigEndian.Uint64(v), nil
}

// StoreLog implements raft.LogStore.
func (b *Bolt) StoreLog(l *raft.Log) error { return b.StoreLogs([]*raft.Log{l}) }
