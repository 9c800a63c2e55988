package raftlog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is an FSM that remembers every command in order.
type journal struct {
	mu      sync.Mutex
	cmds    []string
	indexes []dataflow.LogIndex
	// onApply, when set, is called in Apply.
	onApply func(cmd []byte)
}

func (j *journal) Apply(index dataflow.LogIndex, cmd []byte) any {
	if j.onApply != nil {
		j.onApply(cmd)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cmds = append(j.cmds, string(cmd))
	j.indexes = append(j.indexes, index)
	return len(j.cmds)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.cmds...)
}

type journalSnapshot struct{ cmds []string }

func (j *journal) Snapshot() (raftlog.Snapshot, error) { return &journalSnapshot{j.all()}, nil }

func (s *journalSnapshot) Persist(w io.Writer) error {
	for _, c := range s.cmds {
		if _, err := w.Write(append(binary.AppendUvarint(nil, uint64(len(c))), c...)); err != nil {
			return err
		}
	}
	return nil
}

func (s *journalSnapshot) Release() {}

func (j *journal) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var cmds []string
	for buf := bytes.NewBuffer(b); buf.Len() > 0; {
		n, err := binary.ReadUvarint(buf)
		if err != nil {
			return fmt.Errorf("bad snapshot: %w", err)
		}
		if int(n) > buf.Len() {
			return errors.New("bad snapshot: a command is cut off")
		}
		cmds = append(cmds, string(buf.Next(int(n))))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cmds = cmds
	return nil
}

// testLogger writes to the test's log.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testCtx ends well before the test binary's own deadline.
func testCtx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// node is a one-member group over a segment store.
type node struct {
	store *logstore.Store
	log   *logstore.GroupLog
	group *raftlog.Group
	fsm   *journal
}

func openNode(t testing.TB, fs vfs.FS, mod func(*raftlog.Config)) (*node, error) {
	t.Helper()
	s, err := logstore.Open(fs, "log", logstore.Options{SegmentBytes: 64 << 10})
	if err != nil {
		return nil, err
	}
	l, err := s.Group("shard-0")
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	n := &node{store: s, log: l, fsm: &journal{}}
	cfg := raftlog.Config{Group: "shard-0", NodeID: "n1", FS: fs, Dir: "raft/shard-0", Log: l, FSM: n.fsm, Logger: testLogger(t)}
	if mod != nil {
		mod(&cfg)
	}
	if n.group, err = raftlog.Open(cfg); err != nil {
		_ = s.Close()
		return nil, err
	}
	return n, nil
}

func mustOpen(t testing.TB, fs vfs.FS, mod func(*raftlog.Config)) *node {
	t.Helper()
	n, err := openNode(t, fs, mod)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.group.WaitLeader(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if err := n.group.Barrier(testCtx(t)); err != nil { // the new leader's own first write is behind us
		t.Fatal(err)
	}
	return n
}

func (n *node) close(t testing.TB) {
	t.Helper()
	if err := n.group.Close(); err != nil {
		t.Error(err)
	}
	if err := n.store.Close(); err != nil {
		t.Error(err)
	}
}

func TestProposedCommandIsAppliedAndAnswered(t *testing.T) {
	n := mustOpen(t, vfs.NewCrashableMem(), nil)
	defer n.close(t)
	for i := 1; i <= 3; i++ {
		idx, v, err := n.group.Propose(testCtx(t), fmt.Appendf(nil, "c%d", i))
		if err != nil || v != i || idx == 0 || n.group.AppliedIndex() != idx {
			t.Fatalf("Propose = %d, %v, %v; applied %d", idx, v, err, n.group.AppliedIndex())
		}
	}
}

// TestGroupOfOneElectsItselfWithinTwoOfItsTimeouts runs in a bubble, whose time passes only while nothing else happens.
func TestGroupOfOneElectsItselfWithinTwoOfItsTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const twice = 100 * time.Millisecond
		start := time.Now()
		n := mustOpen(t, vfs.NewCrashableMem(), nil)
		if d := time.Since(start); d > twice {
			t.Errorf("the election took %v", d)
		}
		n.close(t)
	})
}
