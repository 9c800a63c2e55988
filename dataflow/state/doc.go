// Package state keeps the keyed state of pipelines: the live tables that tasks work on, the deltas in which changes
// travel, and the replica of committed state that READ COMMITTED answers come from.
//
// # Words
//
// A key of state is (pipeline uid, stage id, canonical key bytes); its value is the bytes of one accumulator. Both are
// opaque here. A nil value means that the key is absent; an empty value is a value.
//
//   - Table: the live state of one stage on one shard, in memory outside the heap of Go. One task writes it. A table with a
//     Budget may hold a part of its keys; the newest committed cut has the others.
//   - Frozen: what changed in a Table between two freezes, with the values at the freeze.
//   - DeltaWriter: puts what was gathered from the frozen parts of a shard's tables into one delta (P2), unsorted.
//   - Replica: the committed state of one shard, of all pipelines: layers (complete deltas, in memory) over a Pebble
//     store (the base). A View is one committed cut of it.
//
// # How a change travels
//
//	Table.Change ─▶ Table.Freeze ─▶ Table.Gather ─▶ DeltaWriter ─▶ chunks in the shard's log
//	   ─▶ Replica.ApplyChunk … EndDelta (a layer) ─▶ Replica.Publish (a cut) ─▶ Replica.View
//	   ─▶ Replica.Merge (into Pebble, behind the commit path) ─▶ the shard's log forgets the delta (Settle)
//
// # How a replica is made of another one
//
// CopyTo makes a directory with a copy of the store, CheckCopy checks one that came from elsewhere, and OpenReplica opens it
// as any other; the shard's log then feeds what is not settled, as after a restart. Digest compares replicas.
//
// # Rules
//
//   - S1 State at a cut = base + the layers up to the cut's delta, newest wins. A layer holds absolute values and
//     tombstones, so laying layers over a base that already contains some of them changes nothing.
//   - S2 Layers, and everything a View refers to, are immutable. Merging makes new layers.
//   - S3 The base marker is written by the same SST ingest as the data it describes, so the store always knows which
//     deltas it contains (P6), and skips them when the log feeds them again (P7). It never lies inside a merged layer: what the
//     log settles there is settled with all of the layer. A merge whose layers lack a delta up to its marker is refused, CORRUPT.
//   - S4 A cut is served only when all deltas from the base to it are here without a gap and the digest in the commit
//     equals that of its delta (P5). A digest that differs makes the cut, and all cuts above it, CORRUPT.
//   - S5 No mutex is held across I/O. Pebble writes run on a goroutine of the replica, one at a time.
//   - S6 An entry is evicted from a Table only when no uncommitted cut is about it. What a table does not know of a key is
//     looked up in a cut that was readable when the entry was evicted, or a newer one.
//   - S7 A key that a table does not hold may begin as a partial value (Table.BeginAsPartials). It is made whole before the
//     freeze that it is in is gathered: no delta has a part of a value.
//
// # Not here
//
// What keys and values mean (dataflow/key, dataflow/agg), which cuts are kept (raftlog/meta), and when to merge (node).
package state
