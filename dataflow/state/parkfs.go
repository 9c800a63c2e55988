package state

import (
	"fmt"
	"strings"

	"github.com/weirdb/weir/internal/vfs"
)

// parkFS is the file system as Pebble gets it. Where Pebble cannot go on without a durable write, it panics: when a
// directory or its log cannot be synced, or a new log cannot be made. It does so with locks held and also on goroutines of
// its own, where nobody could recover. Here such a failure is reported and the goroutine parked, as in Fatalf (see store).
// Failures that Pebble returns are left to it.
type parkFS struct {
	vfs.FS
	fail *failure
}

// park reports err, when there is one, and then does not return.
func (f parkFS) park(what, name string, err error) {
	if err != nil {
		f.fail.park(fmt.Errorf("%s %s: %w", what, name, err))
	}
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// OpenDir implements vfs.FS.
func (f parkFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return parkFile{File: file, fs: f, name: name}, nil
}

// Create implements vfs.FS.
func (f parkFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err == nil && isRoot(f.FS.PathBase(name)) {
		f.syncDirOf(name)
	}
	return f.wrap(name, file, err)
}

// isRoot reports whether a file is one that the others are found from: a manifest, or the marker that names it.
func isRoot(base string) bool {
	return strings.HasPrefix(base, "MANIFEST-") || strings.HasPrefix(base, "marker.")
}

// syncDirOf makes a new name durable. Pebble makes a manifest, then a marker that names it, then removes the old marker,
// and syncs the directory once at the end: it counts on names becoming durable in the order of their making, which file
// systems do and POSIX does not promise.
func (f parkFS) syncDirOf(name string) {
	dir, err := f.FS.OpenDir(f.FS.PathDir(name))
	f.park("open the directory of", name, err)
	f.park("sync the directory of", name, dir.Sync())
	f.park("close the directory of", name, dir.Close())
}

// ReuseForWrite implements vfs.FS.
func (f parkFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, c)
	return f.wrap(newname, file, err)
}

func (f parkFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if !isLog(name) || err == nil && file == nil {
		return file, err
	}
	f.park("make", name, err)
	return parkFile{File: file, fs: f, name: name}, nil
}

// Unwrap implements vfs.FS.
func (f parkFS) Unwrap() vfs.FS { return f.FS }

// parkFile is a directory or a log. None of its methods returns when it fails.
type parkFile struct {
	vfs.File
	fs   parkFS
	name string
}

// Write implements vfs.File.
func (p parkFile) Write(b []byte) (int, error) {
	n, err := p.File.Write(b)
	p.fs.park("write", p.name, err)
	return n, nil
}

// Sync implements vfs.File.
func (p parkFile) Sync() error {
	p.fs.park("sync", p.name, p.File.Sync())
	return nil
}

// SyncData implements vfs.File.
func (p parkFile) SyncData() error {
	p.fs.park("sync", p.name, p.File.SyncData())
	return nil
}

// SyncTo implements vfs.File.
func (p parkFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = p.File.SyncTo(length)
	p.fs.park("sync", p.name, err)
	return fullSync, nil
}

// Close implements vfs.File.
func (p parkFile) Close() error {
	err := p.File.Close()
	if isLog(p.name) {
		p.fs.park("close", p.name, err)
	}
	return err
}
