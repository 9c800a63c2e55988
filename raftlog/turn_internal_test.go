package raftlog

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// noFSM applies commands to nothing.
type noFSM struct{}

func (noFSM) Apply(dataflow.LogIndex, []byte) any { return nil }
func (noFSM) Snapshot() (Snapshot, error)         { return nil, io.ErrUnexpectedEOF }
func (noFSM) Restore(io.Reader) error             { return nil }

// A group of several that was closed while a member listened for its leader waited for ever: the library takes a question that
// arrives when it has been told to stop, and answers it never.
func TestAGroupEndsWhileItsTurnsAreWaitedFor(t *testing.T) {
	for range 20 {
		g, err := Open(Config{Group: "g", NodeID: "n1", FS: vfs.NewCrashableMem(), Dir: "g", FSM: noFSM{}, Logger: slog.New(slog.DiscardHandler),
			Log: &countedStore{InmemStore: raft.NewInmemStore()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.WaitLeader(context.Background()); err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for range 8 {
			waiting.Go(func() {
				for g.takeTurn() {
				}
			})
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		waiting.Wait()
	}
}
