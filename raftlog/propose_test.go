package raftlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
)

// heldDisk is a file system whose writes to the log can be held up.
type heldDisk struct {
	*crashfs.FS
	held    atomic.Bool
	arrived chan struct{} // receives when somebody is held up
	release chan struct{}
	once    sync.Once
}

func newHeldDisk() *heldDisk {
	d := &heldDisk{FS: crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{}), arrived: make(chan struct{}, 100), release: make(chan struct{})}
	d.OnOp(func(op crashfs.Op) error {
		if d.held.Load() && (op.Name == "write-at" || op.Name == "sync") {
			d.arrived <- struct{}{}
			<-d.release
		}
		return nil
	})
	return d
}

func (d *heldDisk) hold() { d.held.Store(true) }
func (d *heldDisk) let()  { d.once.Do(func() { d.held.Store(false); close(d.release) }) }

func wantReason(t testing.TB, err error, want dataflow.Reason) *dataflow.Error {
	t.Helper()
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	return e
}

func TestSubmittedCommandsEnterTheLogInOrder(t *testing.T) {
	n := mustOpen(t, vfs.NewCrashableMem(), nil)
	defer n.close(t)
	var pending []*raftlog.Pending
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprint("c", i))
		p, err := n.group.Submit([]byte(want[i]))
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, p)
	}
	last := dataflow.LogIndex(0)
	for i, p := range pending {
		idx, v, err := p.Wait(testCtx(t))
		if err != nil || idx <= last || v != i+1 {
			t.Fatalf("command %d: %d, %v, %v", i, idx, v, err)
		}
		last = idx
	}
	if got := n.fsm.all(); !slices.Equal(got, want) {
		t.Errorf("applied %d commands in another order", len(got))
	}
	if st := n.store.Stats(); st.Batches > 100 {
		t.Errorf("500 commands took %d writes", st.Batches)
	}
}

func TestProposalsBeyondTheQueueAreRefusedWithADelay(t *testing.T) {
	disk := newHeldDisk()
	defer disk.let()
	n := mustOpen(t, disk, func(c *raftlog.Config) { c.MaxPending = 2; c.MaxEntryBytes = 100; c.MaxPendingBytes = 150 })
	defer n.close(t)
	disk.hold()
	a, err := n.group.Submit([]byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.group.Submit(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	_, err = n.group.Submit([]byte("c"))
	if e := wantReason(t, err, dataflow.ReasonOverloaded); e.RetryAfter <= 0 {
		t.Error("no delay is given")
	}
	disk.let()
	if _, _, err := a.Wait(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if err := n.group.Barrier(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if got := len(n.fsm.all()); got != 2 {
		t.Errorf("%d commands were applied, want the 2 that were taken", got)
	}
	if st := n.group.Stats(); st.Pending != 0 || st.PendingBytes != 0 || st.State != "Leader" || st.AppliedIndex != n.group.AppliedIndex() {
		t.Errorf("stats are %+v", st)
	}
}

func TestPendingBytesAreBounded(t *testing.T) {
	disk := newHeldDisk()
	defer disk.let()
	n := mustOpen(t, disk, func(c *raftlog.Config) { c.MaxEntryBytes = 100; c.MaxPendingBytes = 150 })
	defer n.close(t)
	disk.hold()
	if _, err := n.group.Submit(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	_, err := n.group.Submit(make([]byte, 100))
	wantReason(t, err, dataflow.ReasonOverloaded)
	disk.let()
}

func TestTooLargeCommandIsRefused(t *testing.T) {
	n := mustOpen(t, vfs.NewCrashableMem(), func(c *raftlog.Config) { c.MaxEntryBytes = 100 })
	defer n.close(t)
	_, _, err := n.group.Propose(testCtx(t), make([]byte, 101))
	wantReason(t, err, dataflow.ReasonTooLarge)
	if _, _, err := n.group.Propose(testCtx(t), make([]byte, 100)); err != nil {
		t.Error(err)
	}
}

func TestOutcomeIsUnknownWhenTheContextEndsWhileTheCommandIsUnderWay(t *testing.T) {
	disk := newHeldDisk()
	defer disk.let()
	n := mustOpen(t, disk, nil)
	defer n.close(t)
	disk.hold()
	ctx, cancel := context.WithCancel(testCtx(t))
	go func() { <-disk.arrived; cancel() }()
	_, _, err := n.group.Propose(ctx, []byte("late"))
	wantReason(t, err, dataflow.ReasonOutcomeUnknown)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v hides its cause", err)
	}
	disk.let()
	if err := n.group.Barrier(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if got := n.fsm.all(); !slices.Equal(got, []string{"late"}) {
		t.Errorf("applied %v: here the command did take effect", got)
	}
}

func TestNothingIsProposedWithAnEndedContext(t *testing.T) {
	n := mustOpen(t, vfs.NewCrashableMem(), nil)
	defer n.close(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := n.group.Propose(ctx, []byte("never"))
	wantReason(t, err, dataflow.ReasonDeadline)
	wantReason(t, n.group.Barrier(ctx), dataflow.ReasonDeadline)
	if err := n.group.Barrier(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if got := n.fsm.all(); len(got) != 0 {
		t.Errorf("applied %v", got)
	}
}

func TestClosedGroupRefusesCommands(t *testing.T) {
	n := mustOpen(t, vfs.NewCrashableMem(), nil)
	n.close(t)
	_, _, err := n.group.Propose(testCtx(t), []byte("x"))
	wantReason(t, err, dataflow.ReasonShuttingDown)
	wantReason(t, n.group.Barrier(testCtx(t)), dataflow.ReasonShuttingDown)
	wantReason(t, n.group.WaitLeader(testCtx(t)), dataflow.ReasonShuttingDown)
	if err := n.group.Snapshot(testCtx(t)); err == nil {
		t.Error("a snapshot was taken")
	}
	if err := n.group.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseAnswersWhatIsPending(t *testing.T) {
	n := mustOpen(t, vfs.NewCrashableMem(), nil)
	var pending []*raftlog.Pending
	for i := range 100 {
		p, err := n.group.Submit(fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, p)
	}
	n.close(t)
	for i, p := range pending {
		select {
		case <-p.Done():
		case <-time.After(10 * time.Second):
			t.Fatalf("command %d has no answer", i)
		}
		if _, _, err := p.Wait(testCtx(t)); err != nil {
			t.Errorf("command %d: %v", i, err)
		}
	}
}
