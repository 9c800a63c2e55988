package node

import (
	"errors"
	"fmt"
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
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
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
