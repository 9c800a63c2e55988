package shard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/shard"
)

// BenchmarkAppend appends to the disk of the machine's temporary directory, with real syncs where that is a disk. "window"
// batches are under way at once.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 256 << 10} {
		for _, window := range []int{1, 32} {
			b.Run(fmt.Sprintf("bytes=%d/window=%d", size, window), func(b *testing.B) {
				b.Chdir(b.TempDir())
				h := open(b, vfs.Default, func(c *shard.Config) {
					c.SnapshotBytes = 0 // the default
					c.Raft.TrailingBytes = 0
					c.Logger = nil
				})
				rows := []byte(strings.Repeat("x", size))
				ctx := b.Context()
				var pending []*shard.Pending
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					p, err := h.log.Submit(shard.Append{Stream: 1, Rows: rows, Count: 1})
					if err != nil {
						b.Fatal(err)
					}
					if pending = append(pending, p); len(pending) == window {
						if _, err := pending[0].Wait(ctx); err != nil {
							b.Fatal(err)
						}
						pending = pending[1:]
					}
				}
				for _, p := range pending {
					if _, err := p.Wait(ctx); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if _, _, bytes := h.log.Range(1); bytes == 0 {
					b.Fatal("nothing was appended")
				}
			})
		}
	}
}
