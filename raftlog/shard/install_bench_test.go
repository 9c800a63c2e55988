package shard

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
)

// BenchmarkInstall rebuilds a replica with a million keys of state in its store and 64 MiB of rows, from one directory to
// another on the same disk: everything but the network.
func BenchmarkInstall(b *testing.B) {
	ctx := context.Background()
	dir := b.TempDir()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	store, err := logstore.Open(vfs.Default, dir+"/src/log", logstore.Options{})
	must(err)
	defer store.Close()
	g, err := store.Group(trioGroup)
	must(err)
	r, err := state.OpenReplica(state.Config{Dir: dir + "/src/0003/state", Shard: trioShard, Logger: discard()})
	must(err)
	defer r.Close()
	l, err := Open(Config{Shard: trioShard, Store: g, Replica: r, SnapshotBytes: -1, Raft: raftlog.Config{NodeID: "n1", FS: vfs.Default, Dir: dir + "/src/0003"}})
	must(err)
	defer l.Close()
	must(l.WaitLeader(ctx))
	must(l.BeginIncarnation(ctx, 1, 1, dataflow.DeltaRef{}))
	w := state.NewDeltaWriter()
	for i := range 1_000_000 {
		w.Add(0, fmt.Appendf(nil, "key-%012d", i*7919%1_000_003), fmt.Appendf(nil, "%080d", i*i))
	}
	id := dataflow.DeltaID{Pipeline: 1, Incarnation: 1, Seq: 1}
	n, digest, err := w.Finish(func(i int, data []byte) error { return l.AppendDelta(ctx, id, i, data) })
	must(err)
	_, err = l.EndDelta(ctx, id, n, uint64(digest))
	must(err)
	must(r.Publish(&dataflow.CheckpointCommit{Pipeline: 1, Timeline: 1, Incarnation: 1, ID: 1, MetaIndex: 1,
		Shards: []dataflow.ShardCommit{{Shard: trioShard, Seq: 1, Digest: uint64(digest)}}}))
	upTo, err := r.Merge(ctx, 1, 1)
	must(err)
	must(l.Settle(ctx, 1, upTo))
	rows := bytes.Repeat([]byte("0123456789abcdef"), dataflow.MaxEntryBytes/16)
	for range 256 {
		_, err := l.Append(ctx, Append{Stream: 1, Rows: rows, Count: 1000})
		must(err)
	}
	var total int64
	var exported, pulled, swapped time.Duration
	runs := 0
	for b.Loop() {
		to := fmt.Sprintf("%s/dst%d", dir, runs)
		runs++
		dst, err := logstore.Open(vfs.Default, to+"/log", logstore.Options{})
		must(err)
		begun := time.Now()
		x, err := l.Export(ctx, ExportOptions{Rebuild: true})
		must(err)
		exported += time.Since(begun)
		m := x.Manifest()
		in, err := NewInstaller(InstallConfig{Shard: trioShard, FS: vfs.Default, Dir: to + "/0003", Logs: dst, Group: trioGroup, CheckState: checkState(vfs.Default)})
		must(err)
		begun = time.Now()
		must(in.Pull(ctx, m, from(x)))
		pulled += time.Since(begun)
		begun = time.Now()
		must(in.Swap())
		swapped += time.Since(begun)
		x.Release()
		must(dst.Close())
		total = m.Total()
	}
	b.SetBytes(total)
	b.ReportMetric(float64(exported.Milliseconds())/float64(runs), "export-ms")
	b.ReportMetric(float64(pulled.Milliseconds())/float64(runs), "pull-ms")
	b.ReportMetric(float64(swapped.Milliseconds())/float64(runs), "swap-ms")
	b.ReportMetric(float64(total)/1e6, "MB")
}
