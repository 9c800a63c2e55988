package raftlog_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/frame"
	"github.com/weirdb/weir/raftlog/logstore"
)

// waitFailed returns the error that Failed delivers.
func waitFailed(t testing.TB, g *raftlog.Group) error {
	t.Helper()
	select {
	case err := <-g.Failed():
		if err == nil || !errors.Is(g.Err(), err) {
			t.Fatalf("Failed delivered %v, Err is %v", err, g.Err())
		}
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the group has not failed")
		return nil
	}
}

func TestHungWriteMakesTheGroupStepDownAndFail(t *testing.T) {
	disk := newHeldDisk()
	defer disk.let()
	n := mustOpen(t, disk, func(c *raftlog.Config) { c.WriteDeadline = 50 * time.Millisecond })
	disk.hold()
	_, _, err := n.group.Propose(testCtx(t), []byte("x"))
	wantReason(t, err, dataflow.ReasonOutcomeUnknown)
	if err := waitFailed(t, n.group); !errors.Is(err, raftlog.ErrWriteDeadline) {
		t.Errorf("failed with %v", err)
	}
	if _, _, err := n.group.Propose(testCtx(t), []byte("y")); err == nil {
		t.Error("a failed group took a command")
	}
	if err := n.group.Close(); !errors.Is(err, raftlog.ErrWriteDeadline) {
		t.Errorf("Close hides that a write is still under way: %v", err)
	}
	if n.group.IsLeader() {
		t.Error("the group leads on")
	}
	disk.let()
	if err := n.store.Close(); err != nil {
		t.Error(err)
	}
}

func TestFailedWriteIsFinalAndNothingPanics(t *testing.T) {
	// Fail at each of the operations that follow the opening: entries, terms and votes alike.
	boom := errors.New("disk on fire")
	for k := 1; k <= 40; k++ {
		fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
		var failing atomic.Bool
		fs.OnOp(func(op crashfs.Op) error {
			if op.N >= k {
				failing.Store(true)
			}
			if failing.Load() && (op.Name == "write-at" || op.Name == "write" || op.Name == "sync") {
				return boom
			}
			return nil
		})
		n, err := openNode(t, fs, func(c *raftlog.Config) { c.ElectionTimeout = 5 * time.Millisecond })
		if err != nil {
			if !errors.Is(err, boom) {
				t.Fatalf("operation %d: %v", k, err)
			}
			if strings.Contains(err.Error(), "open log shard-0:") {
				wantNamedOnce(t, err)
			}
			continue
		}
		if err := n.group.WaitLeader(testCtx(t)); err == nil {
			for err == nil {
				_, _, err = n.group.Propose(testCtx(t), []byte("x"))
			}
			if r := dataflow.ReasonOf(err); r != dataflow.ReasonOutcomeUnknown && r != dataflow.ReasonNotLeader && r != dataflow.ReasonShuttingDown {
				t.Errorf("operation %d: %v", k, err)
			}
		}
		if err := waitFailed(t, n.group); !errors.Is(err, boom) {
			t.Errorf("operation %d: failed with %v", k, err)
		}
		if err := n.group.Close(); err != nil {
			t.Errorf("operation %d: close: %v", k, err)
		}
		_ = n.store.Close()
	}
}

// rotten is a log that reads entries back wrong.
type rotten struct {
	*logstore.GroupLog
	bad atomic.Bool
}

func (r *rotten) GetLog(index uint64, l *raft.Log) error {
	err := r.GroupLog.GetLog(index, l)
	if err == nil && r.bad.Load() && len(l.Data) > 0 {
		l.Data[len(l.Data)-1] ^= 1
	}
	return err
}

func TestDamagedCommandIsRefusedAtOpen(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := mustOpen(t, fs, nil)
	if _, _, err := n.group.Propose(testCtx(t), []byte("x")); err != nil {
		t.Fatal(err)
	}
	n.close(t)
	_, err := openNode(t, fs, func(c *raftlog.Config) {
		r := &rotten{GroupLog: c.Log.(*logstore.GroupLog)}
		r.bad.Store(true)
		c.Log = r
	})
	wantReason(t, err, dataflow.ReasonCorrupt)
	if !errors.Is(err, frame.ErrCorrupt) {
		t.Error(err)
	}
	wantNamedOnce(t, err)
}

// wantNamedOnce checks that a message names the log, and does so once.
func wantNamedOnce(t *testing.T, err error) {
	t.Helper()
	if n := strings.Count(err.Error(), "log shard-0:"); n != 1 {
		t.Errorf("the log is named %d times: %v", n, err)
	}
}

func TestDamagedCommandIsNeverApplied(t *testing.T) {
	// The entry turns bad between Open, which checks, and the moment when it is applied, which is after the election.
	fs := vfs.NewCrashableMem()
	n := mustOpen(t, fs, nil)
	for _, c := range []string{"a", "b"} {
		if _, _, err := n.group.Propose(testCtx(t), []byte(c)); err != nil {
			t.Fatal(err)
		}
	}
	n.close(t)
	var r *rotten
	n, err := openNode(t, fs, func(c *raftlog.Config) {
		r = &rotten{GroupLog: c.Log.(*logstore.GroupLog)}
		c.Log = r
	})
	if err != nil {
		t.Fatal(err)
	}
	r.bad.Store(true)
	err = waitFailed(t, n.group)
	if !errors.Is(err, frame.ErrCorrupt) {
		t.Errorf("failed with %v", err)
	}
	wantNamedOnce(t, err)
	if got := n.fsm.all(); len(got) != 0 {
		t.Errorf("applied %v", got)
	}
	n.close(t)
}

// unreadable is a log whose entries cannot be read.
type unreadable struct {
	*logstore.GroupLog
	bad atomic.Bool
}

func (u *unreadable) GetLog(index uint64, l *raft.Log) error {
	if u.bad.Load() {
		return errors.New("sector lost")
	}
	return u.GroupLog.GetLog(index, l)
}

func TestUnreadableEntryFailsTheGroupAndNotTheProcess(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := mustOpen(t, fs, nil)
	if _, _, err := n.group.Propose(testCtx(t), []byte("a")); err != nil {
		t.Fatal(err)
	}
	n.close(t)
	var u *unreadable
	n, err := openNode(t, fs, func(c *raftlog.Config) {
		u = &unreadable{GroupLog: c.Log.(*logstore.GroupLog)}
		c.Log = u
	})
	if err != nil {
		t.Fatal(err)
	}
	u.bad.Store(true)
	waitFailed(t, n.group)
	if got := n.fsm.all(); len(got) != 0 {
		t.Errorf("applied %v", got)
	}
	n.close(t)
}

func TestCrashAtAnyOperationKeepsAcknowledgedCommands(t *testing.T) {
	quick := func(c *raftlog.Config) {
		c.ElectionTimeout = 5 * time.Millisecond
		c.WriteDeadline = 5 * time.Second
		c.TrailingBytes = 1
	}
	play := func(fs vfs.FS) (acked []string, under string) {
		n, err := openNode(t, fs, quick)
		if err != nil {
			if !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatal(err)
			}
			return nil, ""
		}
		defer func() {
			_ = n.group.Close()
			_ = n.store.Close()
		}()
		if n.group.WaitLeader(testCtx(t)) != nil {
			return nil, ""
		}
		for i := range 12 {
			cmd := fmt.Sprintf("c%d %02000d", i, i)
			if _, _, err := n.group.Propose(testCtx(t), []byte(cmd)); err != nil {
				return acked, cmd
			}
			acked = append(acked, cmd)
			if i == 4 || i == 8 {
				if n.group.Snapshot(testCtx(t)) != nil {
					return acked, ""
				}
				n.log.Retain(^dataflow.LogIndex(0))
			}
		}
		return acked, ""
	}
	fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
	if acked, _ := play(fs); len(acked) != 12 {
		t.Fatalf("%d commands without a crash", len(acked))
	}
	ops := fs.Ops()
	t.Logf("%d operations", ops)
	step := 1
	if testing.Short() {
		step = 7
	}
	for k := 1; k <= ops; k += step {
		for _, percent := range []int{0, 60} {
			fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{At: k, UnsyncedPercent: percent, Torn: true, Seed: uint64(k)})
			acked, under := play(fs)
			n, err := openNode(t, fs.AfterCrash(), quick)
			if err != nil {
				t.Fatalf("crash at %v, %d %%: reopen: %v", fs.CrashedAt(), percent, err)
			}
			if err := n.group.WaitLeader(testCtx(t)); err != nil {
				t.Fatalf("crash at %v, %d %%: %v", fs.CrashedAt(), percent, err)
			}
			if err := n.group.Barrier(testCtx(t)); err != nil {
				t.Fatalf("crash at %v, %d %%: %v", fs.CrashedAt(), percent, err)
			}
			got := n.fsm.all()
			if !slices.Equal(got, acked) && !slices.Equal(got, append(slices.Clone(acked), under)) {
				t.Fatalf("crash at %v, %d %%: %d commands were acknowledged, %d are there", fs.CrashedAt(), percent, len(acked), len(got))
			}
			n.close(t)
		}
	}
}
