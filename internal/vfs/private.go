package vfs

import (
	"errors"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// privateFS is the operating system's file system with files that only their owner can read, whatever the umask is: they hold
// users' rows. Pebble's own would create them as 0666 less the umask.
type privateFS struct{ FS }

var _ FS = privateFS{}

// filePerm is what a file is made with.
const filePerm = 0o600

// own makes a file that has just been opened for writing its owner's.
func own(name string, f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, filePerm); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Create implements FS.
func (p privateFS) Create(name string, c DiskWriteCategory) (File, error) {
	f, err := p.FS.Create(name, c)
	return own(name, f, err)
}

// OpenReadWrite implements FS. It may create the file.
func (p privateFS) OpenReadWrite(name string, c DiskWriteCategory, opts ...OpenOption) (File, error) {
	f, err := p.FS.OpenReadWrite(name, c, opts...)
	return own(name, f, err)
}

// ReuseForWrite implements FS.
func (p privateFS) ReuseForWrite(oldname, newname string, c DiskWriteCategory) (File, error) {
	f, err := p.FS.ReuseForWrite(oldname, newname, c)
	return own(newname, f, err)
}

// Lock implements FS. It creates the file.
func (p privateFS) Lock(name string) (io.Closer, error) {
	held, err := p.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, filePerm); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// Unwrap implements FS.
func (p privateFS) Unwrap() FS { return p.FS }

// Default is the operating system's file system. What it creates can be read by its owner alone.
var Default FS = privateFS{vfs.Default}
