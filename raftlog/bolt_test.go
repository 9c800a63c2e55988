package raftlog_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/frame"
)

// openBoltNode opens a group over bbolt on the operating system's file system.
func openBoltNode(t testing.TB, dir string) (*raftlog.Group, *raftlog.Bolt, *journal) {
	t.Helper()
	b, err := raftlog.OpenBolt(filepath.Join(dir, "meta.db"))
	if err != nil {
		t.Fatal(err)
	}
	fsm := &journal{}
	g, err := raftlog.Open(raftlog.Config{Group: "meta", NodeID: "n1", FS: vfs.Default, Dir: dir, Log: b, FSM: fsm, TrailingBytes: 1, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.WaitLeader(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	return g, b, fsm
}

func TestGroupOverBoltSurvivesRestarts(t *testing.T) {
	dir := t.TempDir()
	want := numbered(1, 100, 100)
	for i := range 4 {
		g, b, fsm := openBoltNode(t, dir)
		if err := g.Barrier(testCtx(t)); err != nil {
			t.Fatal(err)
		}
		if got := fsm.all(); !slices.Equal(got, want[:i*25]) {
			t.Fatalf("opening %d: %d commands", i, len(got))
		}
		for _, c := range want[i*25 : i*25+25] {
			if _, _, err := g.Propose(testCtx(t), []byte(c)); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Snapshot(testCtx(t)); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBoltFileInUseIsRefusedSoon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	b, err := raftlog.OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	start := time.Now()
	if _, err := raftlog.OpenBolt(path); err == nil {
		t.Error("the file was opened twice")
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestDamagedBoltFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	if err := os.WriteFile(path, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := raftlog.OpenBolt(path); err == nil {
		t.Error("zeros were opened")
	}
}

func TestFlippedBitInBoltIsRefusedAtOpen(t *testing.T) {
	dir := t.TempDir()
	g, b, _ := openBoltNode(t, dir)
	idx, _, err := g.Propose(testCtx(t), []byte("a command to be damaged"))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := b.GetLog(uint64(idx), &l); err != nil {
		t.Fatal(err)
	}
	l.Data[len(l.Data)-1] ^= 1 // bbolt itself would hand this out without an error
	if err := b.StoreLog(&l); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, err = raftlog.Open(raftlog.Config{Group: "meta", NodeID: "n1", FS: vfs.Default, Dir: dir, Log: b, FSM: &journal{}})
	wantReason(t, err, dataflow.ReasonCorrupt)
	if _, err := frame.Open(l.Data); err == nil {
		t.Error("the frame is sound")
	}
}

func TestDamageAroundACommandIsRefusedAtOpen(t *testing.T) {
	for name, damage := range map[string]func(b *raftlog.Bolt, l *raft.Log) error{
		"term ahead":  func(b *raftlog.Bolt, l *raft.Log) error { l.Term += 1 << 20; return b.StoreLog(l) },
		"term behind": func(b *raftlog.Bolt, l *raft.Log) error { l.Term = 0; return b.StoreLog(l) },
		"missing":     func(b *raftlog.Bolt, l *raft.Log) error { return b.DeleteRange(l.Index, l.Index) },
		"no configuration": func(b *raftlog.Bolt, l *raft.Log) error {
			l.Type = raft.LogConfiguration
			return b.StoreLog(l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g, b, _ := openBoltNode(t, dir)
			defer b.Close()
			idx, _, err := g.Propose(testCtx(t), []byte("a command"))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := g.Propose(testCtx(t), []byte("another")); err != nil {
				t.Fatal(err)
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			var l raft.Log
			if err := b.GetLog(uint64(idx), &l); err != nil {
				t.Fatal(err)
			}
			if err := damage(b, &l); err != nil {
				t.Fatal(err)
			}
			_, err = raftlog.Open(raftlog.Config{Group: "meta", NodeID: "n1", FS: vfs.Default, Dir: dir, Log: b, FSM: &journal{}})
			wantReason(t, err, dataflow.ReasonCorrupt)
		})
	}
}

func TestAbsentStableValuesAreZero(t *testing.T) {
	b, err := raftlog.OpenBolt(filepath.Join(t.TempDir(), "meta.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if v, err := b.Get([]byte("x")); err != nil || len(v) != 0 {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := b.GetUint64([]byte("x")); err != nil || v != 0 {
		t.Errorf("%d, %v", v, err)
	}
}
