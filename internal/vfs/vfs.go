// Package vfs is the one door to the disk: every durable byte that Weir writes itself goes through the FS declared
// here, so that a test can lose unsynced data at any operation and reopen what is left.
//
// The interface and its implementations are Pebble's, because Pebble already writes through them: one file system then
// carries the shard logs, the snapshots and the state stores alike. This package exists so that nothing else needs to
// import Pebble to name a file system.
package vfs

import (
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the file system that durable code writes through. See Pebble's documentation for each method's contract.
type FS = vfs.FS

// File is an open file of an FS.
type File = vfs.File

// DiskWriteCategory, OpenOption and FileMode are parameters of an FS's methods, for those that wrap one.
type (
	DiskWriteCategory = vfs.DiskWriteCategory
	OpenOption        = vfs.OpenOption
	FileMode          = os.FileMode
)

// DiskUsage is what FS.GetDiskUsage tells of a disk. A file system without a disk answers ErrUnsupported.
type DiskUsage = vfs.DiskUsage

// ErrUnsupported says that a file system cannot do what was asked.
var ErrUnsupported = vfs.ErrUnsupported

// CrashCloneCfg says how much of the unsynced data survives in a CrashClone.
type CrashCloneCfg = vfs.CrashCloneCfg

// WriteCategoryUnspecified is the category for writes that need no accounting of their own.
const WriteCategoryUnspecified = vfs.WriteCategoryUnspecified
