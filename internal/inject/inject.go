package inject

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// cell is a number of the page. The test writes all but the last.
type cell int

const (
	clockOffset cell = iota // ns that the clock is ahead; negative = behind
	syncDelay               // ns that a sync takes longer
	failSyncs               // not 0: syncs fail
	failedSyncs             // how many have failed
	cells
)

// pageBytes is the size of the file: the smallest page there is.
const pageBytes = 4096

// ErrSync is the error of a sync that was to fail.
var ErrSync = errors.New("inject: the sync was made to fail")

// Faults are what is wrong now. Their methods may be called concurrently.
type Faults struct{ page []atomic.Int64 }

func (f *Faults) get(c cell) int64 { return f.page[c].Load() }

// Now is the wall clock. It tells no time since another call: a clock that jumps may have jumped between them.
func (f *Faults) Now() time.Time {
	return time.Now().Round(0).Add(time.Duration(f.get(clockOffset)))
}

// Sync does a sync, late, or fails without it.
func (f *Faults) Sync(sync func() error) error {
	if d := time.Duration(f.get(syncDelay)); d > 0 {
		time.Sleep(d)
	}
	if f.get(failSyncs) != 0 {
		f.page[failedSyncs].Add(1)
		return ErrSync
	}
	return sync()
}

// Control is a test's end of the page. Its methods are for one goroutine at a time.
type Control struct{ f *os.File }

// NewControl makes the page at path, on which nothing is wrong.
func NewControl(path string) (*Control, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a page of faults: %w", err)
	}
	if err := f.Truncate(pageBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("make a page of faults: %w", err), f.Close())
	}
	return &Control{f}, nil
}

func (c *Control) set(to cell, v int64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(v))
	_, err := c.f.WriteAt(b[:], 8*int64(to))
	return err
}

// SetClock lets the clock be ahead by d, or behind.
func (c *Control) SetClock(d time.Duration) error { return c.set(clockOffset, int64(d)) }

// SlowSyncs lets each sync take longer by d.
func (c *Control) SlowSyncs(d time.Duration) error { return c.set(syncDelay, int64(d)) }

// FailSyncs says whether syncs fail.
func (c *Control) FailSyncs(fail bool) error {
	if fail {
		return c.set(failSyncs, 1)
	}
	return c.set(failSyncs, 0)
}

// FailedSyncs returns how many syncs have failed so far.
func (c *Control) FailedSyncs() (int64, error) {
	var b [8]byte
	_, err := c.f.ReadAt(b[:], 8*int64(failedSyncs))
	return int64(binary.NativeEndian.Uint64(b[:])), err
}

// Close lets go of the page. What is wrong on it stays so.
func (c *Control) Close() error { return c.f.Close() }
