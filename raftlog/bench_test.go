package raftlog_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
)

// sinkhole is an FSM that forgets everything.
type sinkhole struct{}

func (sinkhole) Apply(dataflow.LogIndex, []byte) any { return nil }
func (sinkhole) Snapshot() (raftlog.Snapshot, error) { return sinkhole{}, nil }
func (sinkhole) Restore(io.Reader) error             { return nil }
func (sinkhole) Persist(io.Writer) error             { return nil }
func (sinkhole) Release()                            {}

// BenchmarkPropose measures groups of one member that share a store on the operating system's disk. Syncs per command
// show what group commit gains.
func BenchmarkPropose(b *testing.B) {
	for _, groups := range []int{1, 8} {
		for _, callers := range []int{1, 16} {
			for _, size := range []int{1 << 10, 64 << 10} {
				b.Run(fmt.Sprintf("groups=%d/callers=%d/bytes=%d", groups, callers, size), func(b *testing.B) {
					benchmarkPropose(b, groups, callers, size)
				})
			}
		}
	}
}

func benchmarkPropose(b *testing.B, groups, callers, size int) {
	dir := b.TempDir()
	store, err := logstore.Open(vfs.Default, filepath.Join(dir, "log"), logstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var gs []*raftlog.Group
	for i := range groups {
		name := fmt.Sprint("shard-", i)
		log, err := store.Group(name)
		if err != nil {
			b.Fatal(err)
		}
		log.Retain(^dataflow.LogIndex(0))
		g, err := raftlog.Open(raftlog.Config{Group: name, NodeID: "n1", FS: vfs.Default, Dir: filepath.Join(dir, name), Log: log, FSM: sinkhole{}})
		if err != nil {
			b.Fatal(err)
		}
		if err := g.WaitLeader(context.Background()); err != nil {
			b.Fatal(err)
		}
		gs = append(gs, g)
	}
	cmd := make([]byte, size)
	before := store.Stats()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for _, g := range gs {
		for range callers {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if _, _, err := g.Propose(context.Background(), cmd); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	b.StopTimer()
	after := store.Stats()
	b.ReportMetric(float64(after.Batches-before.Batches)/float64(b.N), "syncs/op")
	for _, g := range gs {
		if err := g.Close(); err != nil {
			b.Error(err)
		}
	}
	if err := store.Close(); err != nil {
		b.Error(err)
	}
}
