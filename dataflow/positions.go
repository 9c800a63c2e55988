package dataflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Positions says, for streams and shards, the next offset to read: all rows below it are included. A stream shard that
// is absent stands at 0.
type Positions map[StreamShard]Offset

// Clone returns a copy that shares nothing with p.
func (p Positions) Clone() Positions { return maps.Clone(p) }

// Covers reports whether p includes every row that o includes.
func (p Positions) Covers(o Positions) bool {
	for k, v := range o {
		if p[k] < v {
			return false
		}
	}
	return true
}

// Advance raises p to at least o.
func (p Positions) Advance(o Positions) {
	for k, v := range o {
		if v > p[k] {
			p[k] = v
		}
	}
}

// Sorted returns the keys by stream, then shard.
func (p Positions) Sorted() []StreamShard {
	keys := make([]StreamShard, 0, len(p))
	for k := range p {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b StreamShard) int {
		if a.Stream != b.Stream {
			if a.Stream < b.Stream {
				return -1
			}
			return 1
		}
		return int(a.Shard) - int(b.Shard)
	})
	return keys
}

// String prints the positions in a stable order: 1/0:17 1/1:4.
func (p Positions) String() string {
	var b strings.Builder
	for i, k := range p.Sorted() {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s:%d", k, p[k])
	}
	return b.String()
}
