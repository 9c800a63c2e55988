package shard

import (
	"testing"

	"github.com/weirdb/weir/internal/vfs"
)

// A stream that keeps little filled the cache all the same: with a light load that took days, in which the node needed more and more.
func TestRowsThatWereDroppedLeaveTheCache(t *testing.T) {
	t.Parallel()
	l, done := alone(t, vfs.NewCrashableMem(), func(c *Config) { c.CacheBytes = 1 << 20 })
	defer done()
	cached := func() (entries int, bytes int64) {
		l.cache.mu.Lock()
		defer l.cache.mu.Unlock()
		if len(l.cache.mu.rows) != len(l.cache.mu.order) {
			t.Errorf("%d entries, %d in order", len(l.cache.mu.rows), len(l.cache.mu.order))
		}
		return len(l.cache.mu.rows), l.cache.mu.bytes
	}
	appendSome(t, l, 100)
	if n, _ := cached(); n != 100 {
		t.Fatalf("%d entries of 100 are cached", n)
	}
	_, end, _ := l.Range(1)
	if err := l.TrimStream(t.Context(), 1, end-1, TrimAge, 1<<32); err != nil {
		t.Fatal(err)
	}
	if n, _ := cached(); n != 1 {
		t.Errorf("%d entries are cached, all but one were trimmed", n)
	}
	if err := l.DropStream(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if n, b := cached(); n != 0 || b != 0 {
		t.Errorf("%d entries with %d bytes are cached of no stream", n, b)
	}
}
