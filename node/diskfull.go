package node

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/logstore"
)

// startRoom is what a start writes beside the log store's segment: the meta log, and a log and a manifest per shard. Few
// of these megabytes are needed; with less a node that starts stops again soon.
const startRoom = 64 << 20

// explainFull makes of an error of a full disk one that names the data directory, what is free on its disk, and what a
// start needs. Other errors are returned as they are.
//
// A node does not start read-only instead: to open a log is to write to it, because what a crash left unfinished is ended
// before anything is read.
func explainFull(cfg *Config, err error) error {
	if !isFull(err) {
		return err
	}
	free := "an unknown number of"
	if u, uerr := cfg.FS.GetDiskUsage(cfg.DataDir); uerr == nil {
		free = fmt.Sprint(u.AvailBytes)
	}
	segment := cfg.Tuning.SegmentBytes
	if segment == 0 {
		segment = logstore.DefaultSegmentBytes
	}
	return dataflow.Errorf(dataflow.ReasonDiskLow, "the disk of data directory %s is full: %s bytes are free, and a start needs about %d: %w",
		cfg.DataDir, free, segment+startRoom, err).
		WithHint("free so much on the disk, outside the directory, and start again; nothing that was acknowledged is lost")
}

// isFull reports whether an error says that a disk is full. Pebble makes texts of some errors, so that the cause is to be
// found only there.
func isFull(err error) bool {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || err != nil && strings.Contains(err.Error(), full.Error()) {
			return true
		}
	}
	return false
}
