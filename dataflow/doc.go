// Package dataflow is the vocabulary that all of Weir shares: types and identifiers, positions and cuts, values, and
// the errors a user can meet. It has no I/O, no clock and no goroutine, and imports nothing of Weir.
//
// # Tour of the system
//
// A client appends rows to a stream. The node validates them, encodes a columnar batch per shard and proposes it to the
// shard's log (package raftlog/shard). When the log has committed the entry, the append is acknowledged.
//
// The pipelines that read the stream tail the applied log: a source task per shard runs the stateless part of the plan
// and sends rows by key group over the exchange to keyed tasks, which fold them into tables (dataflow/task,
// dataflow/operator, dataflow/state).
//
// The coordinator, a pure state machine driven by the leader of the meta log (dataflow/coordinator, node/leader),
// triggers checkpoint n. Barriers travel in the streams; at the barrier a keyed task freezes what has changed since the
// last one and goes on; the frozen part becomes a delta in the shard log. When every shard has acknowledged n, one entry
// in the meta log commits it. From that entry on, n is the READ COMMITTED view of the pipeline's tables.
//
// # Guarantees and protocol rules
//
// Code and tests cite the guarantees as G1 to G9 and the protocol rules as P1 to P10; docs/guarantees.md and
// docs/architecture.md state them.
package dataflow
