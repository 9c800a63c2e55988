package key

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// RunRows is how many rows of a stream without PARTITION BY follow each other in one shard before the next shard's turn
// (P8).
const RunRows = 4096

// Placer says in which shard each row of a stream lies (P8). It is part of the protocol: a client that sends its rows
// again must place them as before, and the server refuses rows of a partitioned stream that a client has placed otherwise.
//
// Rows of a stream with PARTITION BY lie in the shard that owns the hash of these columns. Others lie in runs of RunRows:
// the first in the shard that First names, the next in the shard after it. A Placer is for one goroutine.
type Placer struct {
	columns []int
	shards  uint64
	first   uint64 // shard of the first run
	placed  uint64 // rows placed so far
	buf     []byte
}

// NewPlacer returns a placer for rows from the first on. partitionBy are the columns of PARTITION BY, none = runs, of which
// the first lies in shard first mod shards.
func NewPlacer(partitionBy []int, shards int, first uint64) *Placer {
	return &Placer{columns: partitionBy, shards: uint64(shards), first: first % uint64(shards)}
}

// FirstRun returns where the runs of a producer begin, or those of an append with an idempotency key, so that different
// senders begin in different shards and the same one begins in the same shard again.
func FirstRun(name string) uint64 { return dataflow.HashKey([]byte(name)) }

// Place returns the shard of the next row, which is row i of b.
func (p *Placer) Place(b *batch.Batch, i int) dataflow.ShardID {
	if len(p.columns) == 0 {
		run := p.placed / RunRows
		p.placed++
		return dataflow.ShardID((p.first + run) % p.shards)
	}
	p.buf = p.buf[:0]
	for _, c := range p.columns {
		p.buf = AppendVector(p.buf, b.Cols[c], i)
	}
	return dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(p.buf)), int(p.shards))
}
