package state

import (
	"encoding/binary"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestAnIndexOfOneShardsKeysIsShortToSearch is about hashes that share the bits that chose the shard: a place chosen by those
// bits would put all keys into an eighth of the index.
func TestAnIndexOfOneShardsKeysIsShortToSearch(t *testing.T) {
	const shards = 8
	var hashes []uint64
	for i := uint64(0); len(hashes) < 20_000; i++ {
		key := binary.BigEndian.AppendUint64(nil, i)
		if dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(key)), shards) == 3 {
			hashes = append(hashes, dataflow.HashKey(key))
		}
	}
	for _, n := range []int{0, 1, 2, 3, 5, 10, 1000, len(hashes)} {
		var l notes
		for i, h := range hashes[:n] {
			l.add(uint32(i), h)
		}
		x := newIndex(&l, func(i, j int) { t.Fatalf("entries %d and %d have one hash", i, j) })
		steps := 0
		for i, h := range hashes[:n] {
			slot := x.first(h)
			for ; x[slot] != uint32(i+1); slot = x.next(slot) {
				if steps++; x[slot] == 0 {
					t.Fatalf("%d keys: key %d is not found", n, i)
				}
			}
		}
		if steps > 2*n {
			t.Errorf("%d keys: a look-up takes %.1f steps too many", n, float64(steps)/float64(n))
		}
		if n > 0 && (len(x)*2 < n*3 || len(x) > n*3+1) {
			t.Errorf("%d keys have an index of %d places", n, len(x))
		}
	}
}
