package vfs

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MemFS is a file system in memory which can be cloned as it would look after a crash.
//
// It is Pebble's, but for one thing: there, Link, ReuseForWrite and Lock take the lock that CrashClone waits for twice, one
// inside the other, and a CrashClone that comes between stops them all for ever. Here none of them runs beside a CrashClone.
type MemFS struct {
	*vfs.MemFS
	clone sync.RWMutex
}

// NewCrashableMem returns an empty in-memory file system that remembers what has been synced.
func NewCrashableMem() *MemFS { return &MemFS{MemFS: vfs.NewCrashableMem()} }

// CrashClone returns what a machine would find after it lost its power now. It may be called at any time.
func (m *MemFS) CrashClone(cfg CrashCloneCfg) *MemFS {
	m.clone.Lock()
	defer m.clone.Unlock()
	return &MemFS{MemFS: m.MemFS.CrashClone(cfg)}
}

func (m *MemFS) Link(oldname, newname string) error {
	m.clone.RLock()
	defer m.clone.RUnlock()
	return m.MemFS.Link(oldname, newname)
}

func (m *MemFS) ReuseForWrite(oldname, newname string, category DiskWriteCategory) (File, error) {
	m.clone.RLock()
	defer m.clone.RUnlock()
	return m.MemFS.ReuseForWrite(oldname, newname, category)
}

func (m *MemFS) Lock(fullname string) (io.Closer, error) {
	m.clone.RLock()
	defer m.clone.RUnlock()
	return m.MemFS.Lock(fullname)
}
