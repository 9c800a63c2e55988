package node

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// fakeDisk answers what it is told.
type fakeDisk struct {
	vfs.FS
	usage vfs.DiskUsage
	err   error
}

func (f *fakeDisk) GetDiskUsage(string) (vfs.DiskUsage, error) { return f.usage, f.err }

func TestHowMuchOfADiskMustBeFree(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct{ total, least, want int64 }{
		{total: 1 << 10 * mib, want: 256 * mib},
		{total: 10 << 10 * mib, want: 512 * mib},
		{total: 1000 << 10 * mib, want: 2 << 10 * mib},
		{total: 1000 << 10 * mib, least: 7, want: 7},
	} {
		fs := &fakeDisk{usage: vfs.DiskUsage{TotalBytes: uint64(tc.total), AvailBytes: uint64(tc.want)}}
		d := newDiskSpace(&Config{FS: fs, MinFreeDisk: tc.least, Logger: slog.New(slog.DiscardHandler)})
		if err := d.Room(); err != nil {
			t.Errorf("%+v: just enough: %v", tc, err)
		}
		fs.usage.AvailBytes--
		d.look()
		var e *dataflow.Error
		if err := d.Room(); !errors.As(err, &e) || e.Reason != dataflow.ReasonDiskLow || e.RetryAfter == 0 {
			t.Errorf("%+v: a byte too few: %v", tc, err)
		}
		fs.usage.AvailBytes++
		d.look()
		if err := d.Room(); err != nil {
			t.Errorf("%+v: enough again: %v", tc, err)
		}
	}
}

func TestADiskThatDoesNotTellTakesRows(t *testing.T) {
	var log strings.Builder
	fs := &fakeDisk{err: vfs.ErrUnsupported}
	d := newDiskSpace(&Config{FS: fs, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if _, known := d.Free(); known || d.Room() != nil || log.Len() > 0 {
		t.Errorf("a disk without figures: known %v, %v, log %q", known, d.Room(), &log)
	}
	fs.err = errors.New("stale handle")
	d.look()
	d.look()
	if err := d.Room(); err != nil || strings.Count(log.String(), "stale handle") != 1 {
		t.Errorf("a disk that fails to tell: %v, log %q", err, &log)
	}
}

func TestAFullDiskIsExplainedWhateverSaysSo(t *testing.T) {
	cfg := &Config{DataDir: "/data", FS: &fakeDisk{usage: vfs.DiskUsage{AvailBytes: 17}}}
	for _, err := range []error{
		&fs.PathError{Op: "write", Path: "/data/log/1.seg", Err: syscall.ENOSPC},
		fmt.Errorf("open the state of shard 3: %w", syscall.EDQUOT),
		errors.New("open the state of shard 3: MANIFEST flush failed: write /data/shards/0003/state/db/MANIFEST-000007: no space left on device"),
	} {
		var e *dataflow.Error
		if got := explainFull(cfg, err); !errors.As(got, &e) || e.Reason != dataflow.ReasonDiskLow || !strings.Contains(e.Message, "/data is full: 17 bytes") || e.Hint == "" {
			t.Errorf("%v: %v", err, got)
		}
	}
	other := errors.New("permission denied")
	if got := explainFull(cfg, other); got.Error() != other.Error() || explainFull(cfg, nil) != nil {
		t.Errorf("another error became %v", got)
	}
}
