package dataflow

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// DeltaRef is the position of a delta among those of one pipeline in one shard: all deltas of the incarnation up to and
// with Seq. Seq 0 names none of them: the state is the incarnation's base (P2). The zero DeltaRef is the empty state.
type DeltaRef struct {
	Incarnation Incarnation
	Seq         DeltaSeq
}

// Compare orders refs by incarnation, then by sequence number: -1, 0 or 1.
func (r DeltaRef) Compare(o DeltaRef) int {
	switch {
	case r.Incarnation < o.Incarnation || (r.Incarnation == o.Incarnation && r.Seq < o.Seq):
		return -1
	case r == o:
		return 0
	default:
		return 1
	}
}

func (r DeltaRef) String() string { return fmt.Sprintf("%d.%d", r.Incarnation, r.Seq) }

// DeltaID names one delta of a shard: what a pipeline's task changed there between two freezes (P2).
type DeltaID struct {
	Pipeline    PipelineUID
	Incarnation Incarnation
	Seq         DeltaSeq
}

// Ref returns the delta's position among those of its pipeline.
func (d DeltaID) Ref() DeltaRef { return DeltaRef{Incarnation: d.Incarnation, Seq: d.Seq} }

func (d DeltaID) String() string {
	return fmt.Sprintf("%d/%d.%d", d.Pipeline, d.Incarnation, d.Seq)
}

// MaxDeltaChunkBytes bounds one chunk of a delta, so that a large delta leaves room between its chunks for record
// batches (P2).
const MaxDeltaChunkBytes = MaxEntryBytes

// MaxDeltaChunkEntry is the largest chunk there is: a single change that is larger than MaxDeltaChunkBytes, the largest
// value with the largest key, and what frames them.
const MaxDeltaChunkEntry = MaxRowBytes + MaxKeyBytes + 1<<10

// DeltaDigest computes the digest of a delta over its chunks, in order: h' = XXH64(h ‖ XXH64(chunk)), both as eight
// little-endian bytes, starting at 0. The writer, the shard's log and the state replica compute the same one, each from
// the chunks it has seen. A chain over hashes needs eight bytes of state, which fit a snapshot, and tells apart the same
// bytes cut in another way. The zero DeltaDigest is that of no chunks.
type DeltaDigest uint64

// Add returns the digest with one more chunk.
func (d DeltaDigest) Add(chunk []byte) DeltaDigest { return d.AddHash(xxhash.Sum64(chunk)) }

// AddHash is Add for a chunk whose XXH64 is known.
func (d DeltaDigest) AddHash(h uint64) DeltaDigest {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(d))
	binary.LittleEndian.PutUint64(b[8:], h)
	return DeltaDigest(xxhash.Sum64(b[:]))
}
