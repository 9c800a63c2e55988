// Package crashfs is a file system for crash tests. It wraps an in-memory one, counts the operations that change what is
// on the disk, and pulls the plug at a chosen one: a clone shows what a machine would find after power loss at that
// moment, and everything that the "process" does afterwards fails.
//
// A test runs its scenario once with Crash{} to learn the number of operations, then once for each of them:
//
//	fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
//	scenario(fs)
//	for k := 1; k <= fs.Ops(); k++ {
//		fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{At: k, UnsyncedPercent: 50, Torn: true, Seed: seed})
//		scenario(fs) // gets ErrCrashed somewhere
//		reopen(fs.AfterCrash())
//	}
//
// When the scenario is concurrent, operations come in another order each time; At is then merely some moment, and the
// number of operations may differ, so that AfterCrash must be prepared to crash at the end.
package crashfs

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"

	"github.com/weirdb/weir/internal/vfs"
)

// ErrCrashed is the error of every operation from the crash on.
var ErrCrashed = errors.New("crashfs: the machine has crashed")

// Crash says when and how the machine crashes. The zero value never does.
type Crash struct {
	// At is the number of the operation, from 1, during which the crash happens.
	At int
	// UnsyncedPercent is the probability with which each unsynced block of 4 KiB and each unsynced name survives.
	// 0: only what was synced.
	UnsyncedPercent int
	// Torn makes an interrupted write leave a prefix of random length, which then survives or not like other unsynced
	// data. Otherwise it leaves all of it.
	Torn bool
	// Seed decides what survives.
	Seed uint64
}

// Op is an operation that changes what is on the disk.
type Op struct {
	N    int    // its number, from 1
	Name string // create, write, sync, rename, …
	Path string
}

func (o Op) String() string { return fmt.Sprintf("%d: %s %s", o.N, o.Name, o.Path) }

// FS is a file system that crashes. Its methods are safe for concurrent use; operations happen one at a time.
type FS struct {
	vfs.FS
	mem   *vfs.MemFS
	crash Crash
	hook  func(Op) error

	mu struct {
		sync.Mutex
		ops   int
		at    Op // the operation that was interrupted
		after *vfs.MemFS
		rng   *rand.Rand
	}
}

// New returns a file system over mem, which must come from vfs.NewCrashableMem.
func New(mem *vfs.MemFS, crash Crash) *FS {
	f := &FS{FS: mem, mem: mem, crash: crash}
	f.mu.rng = rand.New(rand.NewPCG(crash.Seed, uint64(crash.At)))
	return f
}

// OnOp sets a function that is called before each operation, without a lock. It may block, which hangs the disk, or
// return an error, which the operation then returns without effect. Set it before the file system is used.
func (f *FS) OnOp(hook func(Op) error) { f.hook = hook }

// Ops returns how many operations there have been.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.ops
}

// CrashedAt returns the operation that was interrupted; its N is 0 when there was no crash.
func (f *FS) CrashedAt() Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.at
}

// AfterCrash returns what the machine finds after the crash. When there has been none, it crashes now.
func (f *FS) AfterCrash() *vfs.MemFS {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.after == nil {
		f.crashLocked(Op{N: f.mu.ops + 1, Name: "end"})
	}
	return f.mu.after
}

func (f *FS) crashLocked(at Op) {
	f.mu.at = at
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: f.crash.UnsyncedPercent}
	if cfg.UnsyncedDataPercent > 0 {
		cfg.RNG = f.mu.rng
	}
	f.mu.after = f.mem.CrashClone(cfg)
}

// do counts and does one operation. torn, when not nil, does a part of it, which a crash leaves behind.
func (f *FS) do(name, path string, op func() error, torn func(*rand.Rand) error) error {
	f.mu.Lock()
	if f.mu.after != nil {
		f.mu.Unlock()
		return ErrCrashed
	}
	f.mu.ops++
	o := Op{f.mu.ops, name, path}
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		if err := hook(o); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.after != nil {
		return ErrCrashed
	}
	if o.N == f.crash.At {
		if torn != nil {
			if err := torn(f.mu.rng); err != nil {
				return err
			}
		}
		f.crashLocked(o)
		return ErrCrashed
	}
	return op()
}

// Create implements vfs.FS.
func (f *FS) Create(name string, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.do("create", name, func() error { file, err = f.FS.Create(name, c); return err }, nil)
	return f.wrap(name, file, err)
}

// OpenReadWrite implements vfs.FS. It may create the file, so it counts.
func (f *FS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (file vfs.File, err error) {
	err = f.do("open", name, func() error { file, err = f.FS.OpenReadWrite(name, c, opts...); return err }, nil)
	return f.wrap(name, file, err)
}

// ReuseForWrite implements vfs.FS.
func (f *FS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.do("reuse", newname, func() error { file, err = f.FS.ReuseForWrite(oldname, newname, c); return err }, nil)
	return f.wrap(newname, file, err)
}

// OpenDir implements vfs.FS. Opening changes nothing; syncing the directory does.
func (f *FS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return f.wrap(name, file, err)
}

// Link implements vfs.FS.
func (f *FS) Link(oldname, newname string) error {
	return f.do("link", newname, func() error { return f.FS.Link(oldname, newname) }, nil)
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	return f.do("remove", name, func() error { return f.FS.Remove(name) }, nil)
}

// RemoveAll implements vfs.FS.
func (f *FS) RemoveAll(name string) error {
	return f.do("remove-all", name, func() error { return f.FS.RemoveAll(name) }, nil)
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldname, newname string) error {
	return f.do("rename", newname, func() error { return f.FS.Rename(oldname, newname) }, nil)
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string, perm vfs.FileMode) error {
	return f.do("mkdir", dir, func() error { return f.FS.MkdirAll(dir, perm) }, nil)
}

// Lock implements vfs.FS. It does not count, but it waits for a crash that is being taken: the in-memory file system's
// Lock takes the same read lock twice, and the clone in between would stop both for ever.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.after != nil {
		return nil, ErrCrashed
	}
	return f.FS.Lock(name)
}

// Unwrap implements vfs.FS.
func (f *FS) Unwrap() vfs.FS { return f.FS }

func (f *FS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &crashFile{File: file, fs: f, name: name}, nil
}

// crashFile counts a file's writes and syncs.
type crashFile struct {
	vfs.File
	fs   *FS
	name string
}

// Write implements io.Writer.
func (c *crashFile) Write(p []byte) (n int, err error) {
	return c.write("write", p, func(p []byte) (int, error) { return c.File.Write(p) })
}

// WriteAt implements io.WriterAt.
func (c *crashFile) WriteAt(p []byte, off int64) (n int, err error) {
	return c.write("write-at", p, func(p []byte) (int, error) { return c.File.WriteAt(p, off) })
}

func (c *crashFile) write(name string, p []byte, write func([]byte) (int, error)) (n int, err error) {
	err = c.fs.do(name, c.name,
		func() error { n, err = write(p); return err },
		func(rng *rand.Rand) error {
			q := p
			if c.fs.crash.Torn {
				q = p[:rng.IntN(len(p)+1)]
			}
			_, err := write(q)
			return err
		})
	return n, err
}

// Sync implements vfs.File.
func (c *crashFile) Sync() error {
	return c.fs.do("sync", c.name, c.File.Sync, nil)
}

// SyncData implements vfs.File.
func (c *crashFile) SyncData() error {
	return c.fs.do("sync", c.name, c.File.SyncData, nil)
}

// SyncTo implements vfs.File.
func (c *crashFile) SyncTo(length int64) (full bool, err error) {
	err = c.fs.do("sync-to", c.name, func() error { full, err = c.File.SyncTo(length); return err }, nil)
	return full, err
}
