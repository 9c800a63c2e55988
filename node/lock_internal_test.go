package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// unlockable is a file system on which no file can be locked.
type unlockable struct {
	vfs.FS
	err error
}

func (u unlockable) Lock(string) (io.Closer, error) { return nil, u.err }

func (u unlockable) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 12345}, nil
}

func TestAStartOnAFullDiskNamesTheDirectoryAndTheBytes(t *testing.T) {
	cfg := Config{DataDir: "/data", GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", FS: unlockable{vfs.NewCrashableMem(), &fs.PathError{Op: "open", Path: "/data/LOCK", Err: syscall.ENOSPC}}}
	_, err := Open(t.Context(), cfg)
	if dataflow.ReasonOf(err) != dataflow.ReasonDiskLow {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"/data", "12345 bytes are free", fmt.Sprint(128 << 20), "nothing that was acknowledged is lost"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

func TestALockThatCannotBeTakenSaysWhy(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: "/data/LOCK", Err: syscall.EROFS}, "read-only"},
		{&fs.PathError{Op: "open", Path: "/data/LOCK", Err: syscall.EACCES}, "may not write"},
		{&fs.PathError{Op: "open", Path: "/data/LOCK", Err: syscall.ENOSPC}, "disk is full"},
		{&fs.PathError{Op: "open", Path: "/data/LOCK", Err: syscall.EISDIR}, "cannot be made"},
		{syscall.EAGAIN, "another node uses it"},
		{errors.New("lock held by current process"), "another node uses it"},
	} {
		_, err := lockDataDir(unlockable{vfs.NewCrashableMem(), c.err}, "/data")
		if err == nil || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/data") {
			t.Errorf("%v: got %v, want %q", c.err, err, c.want)
		}
	}
}
