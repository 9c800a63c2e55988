package raftlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// currentTermKey is the key under which hashicorp/raft stores its term. It panics when that write fails.
const currentTermKey = "CurrentTerm"

// guard stands between hashicorp/raft and a log store. It bounds the time of every durable write, as far as the process
// runs (within), and makes the first failure final (R3).
//
// Two answers of a failed guard are made up, because the library would end the process otherwise: the term is "stored",
// and an unreadable entry is a no-op. Neither can do harm: the transport is cut and the FSM frozen before the answer is
// given, and no vote or entry is stored any more, so nothing is ever granted or acknowledged on the strength of them.
type guard struct {
	LogStore
	deadline time.Duration
	fail     func(error)
	leads    func() bool // whether the member leads, asked by who stores entries; nil: it does not
	recent   recent
	failed   atomic.Bool
	writes   sync.WaitGroup // writes under way, overrun ones included
}

var errGuardFailed = errors.New("raftlog: an earlier durable write failed")

// run does one durable write.
func (g *guard) run(what string, write func() error) error {
	if g.failed.Load() {
		return errGuardFailed
	}
	done := make(chan error, 1)
	g.writes.Go(func() { done <- write() })
	err, ended := within(g.deadline, done, time.After)
	if !ended {
		err = fmt.Errorf("%w: %v", ErrWriteDeadline, g.deadline)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
		g.breakDown(err)
	}
	return err
}

// breakDown makes the guard refuse everything from now on.
func (g *guard) breakDown(err error) {
	if g.failed.CompareAndSwap(false, true) {
		g.fail(err)
	}
}

// wait waits for the writes under way, at most for the given time, and says whether they ended.
func (g *guard) wait(d time.Duration) bool {
	done := make(chan struct{})
	go func() { g.writes.Wait(); close(done) }() // ends with the writes, as their goroutines do
	_, ended := within(d, done, time.After)
	return ended
}

// GetLog implements raft.LogStore.
func (g *guard) GetLog(index uint64, l *raft.Log) error {
	if g.recent.get(index, l) {
		return nil
	}
	err := g.LogStore.GetLog(index, l)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	g.breakDown(fmt.Errorf("read entry %d: %w", index, err))
	*l = raft.Log{Index: index, Type: raft.LogNoop}
	return nil
}

// StoreLog implements raft.LogStore.
func (g *guard) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (g *guard) StoreLogs(logs []*raft.Log) error {
	err := g.run("store entries", func() error { return g.LogStore.StoreLogs(logs) })
	switch {
	case err == nil && len(logs) > 0 && g.leads != nil && g.leads():
		g.recent.add(logs)
	default:
		g.recent.clear()
	}
	return err
}

// DeleteRange implements raft.LogStore.
func (g *guard) DeleteRange(lo, hi uint64) error {
	g.recent.clear()
	return g.run("delete entries", func() error { return g.LogStore.DeleteRange(lo, hi) })
}

// Set implements raft.StableStore.
func (g *guard) Set(key, val []byte) error {
	return g.run("store vote", func() error { return g.LogStore.Set(key, val) })
}

// SetUint64 implements raft.StableStore.
func (g *guard) SetUint64(key []byte, val uint64) error {
	err := g.run("store term", func() error { return g.LogStore.SetUint64(key, val) })
	if err != nil && string(key) == currentTermKey {
		return nil // see the type's comment
	}
	return err
}
