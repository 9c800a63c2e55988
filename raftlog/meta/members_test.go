package meta_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/meta"
)

// member is one of three members of a meta log in one process.
type member struct {
	trans *raft.InmemTransport
	bolt  *raftlog.Bolt
	fsm   *meta.FSM
	group *raftlog.Group
	log   *meta.Log
}

func (m *member) start(t *testing.T, i int, dir string, others []*member) {
	t.Helper()
	members := []raftlog.Member{{ID: "n0", Addr: "a0"}, {ID: "n1", Addr: "a1"}, {ID: "n2", Addr: "a2"}}
	_, m.trans = raft.NewInmemTransportWithTimeout(raft.ServerAddress(members[i].Addr), 500*time.Millisecond)
	for _, o := range others {
		if o.trans != nil && o != m {
			m.trans.Connect(o.trans.LocalAddr(), o.trans)
			o.trans.Connect(m.trans.LocalAddr(), m.trans)
		}
	}
	var err error
	if m.bolt, err = raftlog.OpenBolt(filepath.Join(dir, "raft.db")); err != nil {
		t.Fatal(err)
	}
	m.fsm = meta.NewFSM()
	m.group, err = raftlog.Open(raftlog.Config{
		Group: "meta", NodeID: members[i].ID, Members: members, Transport: m.trans, FS: vfs.Default, Dir: dir, Log: m.bolt, FSM: m.fsm,
		ElectionTimeout: 200 * time.Millisecond, TrailingBytes: 1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	m.log = meta.New(m.group, m.fsm, func() int64 { return time.Now().UnixMicro() })
}

func (m *member) stop(t *testing.T, others []*member) {
	t.Helper()
	for _, o := range others {
		if o.trans != nil && o != m {
			o.trans.Disconnect(m.trans.LocalAddr())
		}
	}
	if err := m.group.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.bolt.Close(); err != nil {
		t.Fatal(err)
	}
	*m = member{}
}

// TestALaggingOrEmptyMemberGetsTheStateThroughRaft: the meta log is small, so its snapshots are whole and come through
// Raft, to a member that was away, to one that runs and was cut off, and to one that has lost its disk.
func TestALaggingOrEmptyMemberGetsTheStateThroughRaft(t *testing.T) {
	for _, how := range []string{"away", "cut off", "empty"} {
		t.Run(how, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
			all := []*member{{}, {}, {}}
			for i, m := range all {
				m.start(t, i, dirs[i], all)
			}
			lead := leading(t, ctx, all)
			if err := lead.log.Bootstrap(ctx, "c", 2); err != nil {
				t.Fatal(err)
			}
			var lag int
			for i, m := range all {
				if m != lead {
					lag = i
				}
			}
			m := all[lag]
			waitIndex(t, ctx, m, lead)
			switch how {
			case "cut off":
				for _, o := range all {
					if o != m {
						o.trans.Disconnect(m.trans.LocalAddr())
					}
				}
				m.trans.DisconnectAll()
			case "empty":
				m.stop(t, all)
				dirs[lag] = t.TempDir()
			default:
				m.stop(t, all)
			}
			for i := range 150 {
				name := fmt.Sprint("p", i)
				if _, err := leading(t, ctx, all).log.OpenProducer(ctx, name, "instance"); err != nil {
					t.Fatal(err)
				}
			}
			lead = leading(t, ctx, all)
			if err := lead.group.Snapshot(ctx); err != nil {
				t.Fatal(err)
			}
			if first, err := lead.group.FirstIndex(); err != nil || first < 50 {
				t.Fatalf("the log was not cut: it begins at %d, %v", first, err)
			}
			if how == "cut off" {
				for _, o := range all {
					if o != m {
						o.trans.Connect(m.trans.LocalAddr(), m.trans)
						m.trans.Connect(o.trans.LocalAddr(), o.trans)
					}
				}
			} else {
				m.start(t, lag, dirs[lag], all)
			}
			waitIndex(t, ctx, m, lead)
			if a, b := snapshotOf(t, m.fsm), snapshotOf(t, lead.fsm); !bytes.Equal(a, b) {
				t.Error("the states differ")
			}
			for _, o := range all {
				o.stop(t, all)
			}
		})
	}
}

// leading waits until one of the members leads.
func leading(t *testing.T, ctx context.Context, all []*member) *member {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		for _, m := range all {
			if m.group != nil && m.group.IsLeader() && m.log.Barrier(ctx) == nil {
				return m
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("nobody leads")
		}
	}
}

// waitIndex waits until a member's state is that of another one.
func waitIndex(t *testing.T, ctx context.Context, m, of *member) {
	t.Helper()
	for {
		changed := m.fsm.Changed()
		if m.fsm.State().Index >= of.fsm.State().Index {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("it is at index %d, not %d", m.fsm.State().Index, of.fsm.State().Index)
		}
	}
}
