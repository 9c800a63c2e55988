package shard

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/logstore"
)

// Replica is what a shard needs of the replica of its keyed state.
//
// Only the log's apply goroutine calls it, in log order, with indexes that never go back; while a log is being opened,
// the opening goroutine calls it instead. No method may block on I/O for long: nothing else of the shard is applied
// meanwhile.
//
// After a restart the log starts again from a snapshot, so a replica sees again what it has seen before the restart, and
// must skip what its own store holds already (P7). It sees no more of what the snapshot's state says nothing of: deltas
// that had been settled or dropped by then, and an incarnation's beginning when a newer one had begun.
//
// An error means that the replica is damaged or its disk has failed. The log then calls it no more and reports the error
// through Failed: the node must stop, or rebuild the shard.
type Replica interface {
	// ApplyChunk adds a chunk of a delta. Chunks of a delta come as 0, 1, 2, …, without a gap, and those of one pipeline
	// and incarnation delta by delta. data belongs to the log and never changes; the replica may keep it, at the price of
	// the memory of the whole entry.
	ApplyChunk(idx dataflow.LogIndex, d dataflow.DeltaID, chunk int, data []byte) error
	// EndDelta says that the delta is complete. The log has checked chunks and digest (dataflow.DeltaDigest) against what
	// it passed on.
	EndDelta(idx dataflow.LogIndex, d dataflow.DeltaID, chunks int, digest uint64) error
	// BeginIncarnation drops the pipeline's deltas of incarnations below min that no commit named: those after base, and
	// any that is not complete (P2).
	BeginIncarnation(idx dataflow.LogIndex, pipeline dataflow.PipelineUID, min dataflow.Incarnation, base dataflow.DeltaRef) error
	// Settle says that the log forgets the pipeline's deltas up to upTo. A replica that does not hold them durably yet
	// must see to it before it returns.
	Settle(idx dataflow.LogIndex, pipeline dataflow.PipelineUID, upTo dataflow.DeltaRef) error
	// DropPipeline forgets all of the pipeline's deltas and state, for good. It is repeated at each start.
	DropPipeline(idx dataflow.LogIndex, pipeline dataflow.PipelineUID) error
}

// Entries gives back the commands of committed entries. *logstore.GroupLog implements it.
type Entries interface {
	// Entry returns the command of a committed entry that is retained, checked against its CRC. The result is the
	// caller's and is not changed afterwards.
	Entry(index dataflow.LogIndex) ([]byte, error)
	// Retain allows the store to drop the entries below floor that are in none of the islands, once Raft needs them no
	// more. Islands ascend and do not overlap. The floor never goes down, and below it, nothing is wanted again that was
	// not wanted once.
	Retain(floor dataflow.LogIndex, islands ...dataflow.LogRange)
	// Behind returns about how many bytes the store has taken, for all shards, since the first entry that is kept because
	// no snapshot lets it go: a shard in which little happens keeps the others' files with it.
	Behind() int64
	// Needless returns about how many bytes of files hold entries of this shard of which none is wanted: none at or above
	// floor or in the islands. Retain with the same arguments would free what no other shard wants.
	Needless(floor dataflow.LogIndex, islands ...dataflow.LogRange) int64
	// Stored returns an entry that is retained as another node's store takes it.
	Stored(index dataflow.LogIndex) (logstore.Stored, error)
	// Size returns about how many bytes the retained entries in the ranges, which ascend, take.
	Size(ranges ...dataflow.LogRange) int64
}
