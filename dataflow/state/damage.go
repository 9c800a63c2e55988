package state

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
)

// damage is what is known of damaged files of a store. They do not stop it: what is read from a damaged block answers
// CORRUPT, and all else is served. Only compactions end for good when one has met damage: Pebble would try it again and
// again. A restart makes another attempt.
type damage struct {
	log     *slog.Logger
	met     func(error) // told of all damage
	stopped atomic.Bool // no compaction begins any more
	mu      struct {
		sync.Mutex
		files map[string]bool // those that were reported
	}
}

func newDamage(log *slog.Logger, met func(error)) *damage {
	d := &damage{log: log, met: met}
	d.mu.files = make(map[string]bool)
	return d
}

// found reports a damaged file, once.
func (d *damage) found(info pebble.DataCorruptionInfo) {
	d.mu.Lock()
	known := d.mu.files[info.Path]
	d.mu.files[info.Path] = true
	d.mu.Unlock()
	d.met(dataflow.Errorf(dataflow.ReasonCorrupt, "the state file %s is damaged: %w", info.Path, info.Details))
	if !known {
		d.log.Error("a file of the state store is damaged: reads that need the damaged part fail", "file", info.Path, "error", info.Details.Error())
	}
}

// stopCompactions ends compactions because of an error in one.
func (d *damage) stopCompactions(err error) {
	d.met(corrupt(err))
	if !d.stopped.Swap(true) {
		d.log.Error("the state store is not compacted any more, since a damaged file is in the way", "error", corrupt(err))
	}
}

// scheduler returns the compaction scheduler of a store. It is Pebble's own, without its goroutine that asks now and then
// whether more compactions may run at once than before: there is only ever one.
func (d *damage) scheduler() pebble.CompactionScheduler {
	return stoppable{pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest(), d}
}

type stoppable struct {
	pebble.CompactionScheduler
	damage *damage
}

// Register implements pebble.CompactionScheduler.
func (s stoppable) Register(goroutines int, db pebble.DBForCompaction) {
	s.CompactionScheduler.Register(goroutines, stoppableDB{db, s.damage})
}

type stoppableDB struct {
	pebble.DBForCompaction
	damage *damage
}

// GetAllowedWithoutPermission implements pebble.DBForCompaction: how many compactions may run.
func (s stoppableDB) GetAllowedWithoutPermission() int {
	if s.damage.stopped.Load() {
		return 0
	}
	return s.DBForCompaction.GetAllowedWithoutPermission()
}

// corrupt gives Pebble's errors about damaged files their reason, and the file's name where Pebble tells it.
func corrupt(err error) error {
	if err == nil || !pebble.IsCorruptionError(err) {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "the state file %s is damaged: %w", info.Path, info.Details)
	}
	return dataflow.Errorf(dataflow.ReasonCorrupt, "the state store is damaged: %w", err)
}

// openError says why the store in dir cannot be opened. A file that is missing there, or not as long as the manifest says,
// is damage too; for the second Pebble has no other sign than the text.
func openError(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, pebble.ErrDBDoesNotExist) || pebble.IsCorruptionError(err) ||
		strings.Contains(err.Error(), "object size mismatch") {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "open the state store %s: a file is damaged or missing: %w", dir, err)
	}
	return fmt.Errorf("open %s: %w", dir, err)
}
