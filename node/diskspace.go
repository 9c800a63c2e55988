package node

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// What must stay free on the disk for rows to be taken, when the configuration does not say: a part of the disk between
// two bounds. It is what the node needs to get out of trouble without new rows: checkpoints, snapshots of the logs, the
// folding of layers into the stores and their compaction, and after these retention, which frees space.
const (
	minFreePart = 20        // 1/20 = 5 %
	minFreeLow  = 256 << 20 // a few segment files, and what is written between two looks at a fast disk
	minFreeHigh = 2 << 30   // what is left of a large disk is the user's
)

// diskEvery is how often the disk is looked at, and when a refused append should be tried again.
const diskEvery = time.Second

// diskSpace watches the free space of the data directory's disk. Run looks; the other methods are safe for concurrent
// use and never touch the disk.
type diskSpace struct {
	fs     vfs.FS
	dir    string
	least  int64 // bytes; 0 = by the size of the disk
	every  time.Duration
	logger *slog.Logger

	free atomic.Int64 // bytes at the last look; -1 = not known
	want atomic.Int64 // bytes that must be free
	low  bool         // Run's: what was logged last
	err  string       // Run's: the same
}

// newDiskSpace returns a watcher that has looked once.
func newDiskSpace(cfg *Config) *diskSpace {
	d := &diskSpace{fs: cfg.FS, dir: cfg.DataDir, least: cfg.MinFreeDisk, every: cfg.Tuning.DiskEvery, logger: cfg.Logger}
	if d.every == 0 {
		d.every = diskEvery
	}
	d.look()
	return d
}

// Run looks at the disk until ctx ends.
func (d *diskSpace) Run(ctx context.Context) error {
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			d.look()
		}
	}
}

// Usage returns how many bytes of the disk are free, and how many must be for rows to be taken; 0 = not known.
func (d *diskSpace) Usage() (free, needed uint64) {
	return uint64(max(d.free.Load(), 0)), uint64(d.want.Load())
}

// look takes note of the free space. A disk that does not tell never refuses anything: it may be a file system in memory.
func (d *diskSpace) look() {
	u, err := d.fs.GetDiskUsage(d.dir)
	if err != nil {
		d.free.Store(-1)
		if errors.Is(err, vfs.ErrUnsupported) {
			return
		}
		if d.err != err.Error() {
			d.logger.Warn("the free space of the disk cannot be told; rows are taken all the same", "dir", d.dir, "err", err)
		}
		d.err = err.Error()
		return
	}
	d.err = ""
	d.want.Store(d.needed(int64(u.TotalBytes)))
	d.free.Store(int64(u.AvailBytes))
	if low := d.Room() != nil; low != d.low {
		d.low = low
		if low {
			d.logger.Error("too little disk is left: no rows are taken until there is more", "dir", d.dir, "free", u.AvailBytes, "needed", d.want.Load())
		} else {
			d.logger.Info("there is enough disk again: rows are taken", "dir", d.dir, "free", u.AvailBytes)
		}
	}
}

// needed returns how many bytes of a disk must be free.
func (d *diskSpace) needed(total int64) int64 {
	if d.least > 0 {
		return d.least
	}
	return min(max(total/minFreePart, minFreeLow), minFreeHigh)
}

// Free returns the bytes that are free; false when that is not known.
func (d *diskSpace) Free() (bytes int64, known bool) {
	n := d.free.Load()
	return n, n >= 0
}

// Room refuses with DISK_LOW when too little is free to take rows.
func (d *diskSpace) Room() error {
	free, known := d.Free()
	want := d.want.Load()
	if !known || free >= want {
		return nil
	}
	return dataflow.Errorf(dataflow.ReasonDiskLow, "the data directory's disk has %d MiB left and rows are taken from %d MiB on", free>>20, want>>20).
		WithRetry(diskEvery)
}
