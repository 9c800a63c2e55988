package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/weirdb/weir/internal/vfs"
)

// lockDataDir takes the lock of the data directory, which one node holds while it runs.
func lockDataDir(on vfs.FS, dir string) (io.Closer, error) {
	lock, err := on.Lock(on.PathJoin(dir, "LOCK"))
	if err == nil {
		return lock, nil
	}
	return nil, fmt.Errorf("lock data directory %s: %s: %w", dir, whyNotLocked(err), err)
}

// whyNotLocked says what an operator has to mend. The lock's file is made before it is locked, so an error about a path
// is not about another node.
func whyNotLocked(err error) string {
	var path *fs.PathError
	switch {
	case !errors.As(err, &path):
		return "another node uses it"
	case errors.Is(err, syscall.EROFS):
		return "its file system is read-only, and a node writes also when it only answers reads"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not write to it"
	case errors.Is(err, syscall.ENOSPC):
		return "its disk is full: free some space, or give the node another disk"
	}
	return "its lock file cannot be made"
}
