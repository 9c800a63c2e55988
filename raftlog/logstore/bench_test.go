package logstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/logstore"
)

// BenchmarkCommit stores 64 KiB at a time on the disk of the temporary directory, in segments so small that every 64th
// commit or so begins a new one: the 99th percentile and rotation-ms, the median of those commits, are what that costs.
func BenchmarkCommit(b *testing.B) {
	s, err := logstore.Open(vfs.Default, b.TempDir(), logstore.Options{SegmentBytes: 4 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, s)
	g := group(b, s, "a")
	took := make([]time.Duration, 0, b.N)
	var rotations []time.Duration
	segments := s.Stats().Segments
	for i := uint64(1); b.Loop(); i++ {
		start := time.Now()
		store(b, g, i, i, 64<<10)
		d := time.Since(start)
		took = append(took, d)
		if n := s.Stats().Segments; n > segments {
			segments = n
			rotations = append(rotations, d)
		}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(ms(took[len(took)-1]), "max-ms")
	if n := len(rotations); n > 0 {
		slices.Sort(rotations)
		b.ReportMetric(ms(rotations[n/2]), "rotation-ms")
	}
}
