// Package shard is the log of one shard: it orders the rows of the streams and the state deltas of the pipelines, knows
// which producer sent what, and hands deltas to the shard's state replica in log order.
//
// It has two halves. machine is the shard's FSM: a pure state machine over decoded entries, which depends on its own log
// only (P1): no clock, no I/O, no randomness. Log is the driver: it proposes entries to the shard's Raft group, applies
// committed ones to the machine, reads row bytes back, and takes snapshots.
//
// # What is kept where
//
// An entry's bytes are written once, by the group's log store. The machine keeps references (raft indexes) into it: per
// stream the list of its batches, per pipeline the chunks of the deltas that are not settled yet. References, the
// producers' table and the idempotency keys are the machine's whole state, and are the raft snapshot (P7). The driver
// tells the log store which entries are still referred to, one by one (Entries.Retain); all others may go. So what one
// stream or pipeline keeps for long holds nothing else up.
//
// The references that the store is told come from the older of the two durable snapshots and not from the machine,
// because after a crash the machine is one of these again, and looks for what it refers to.
//
// # Time
//
// The leader writes its clock into an entry, and the machine's log time is the largest it has seen. So append times never
// go back, whatever the clocks do. Everything that expires does so by log time and by an entry that the leader proposes.
//
// # Rules
//
// P2 governs deltas (pipelines.go), P7 snapshots and restart (open.go, snapshot.go), P8 producers (producers.go).
//
// # Not here
//
// What rows and deltas contain (dataflow), which rows are still needed and which cuts are committed (the meta log and
// its drivers), and the transfer of files to a replica that has lagged too far behind: a snapshot of another node is
// taken only when what it refers to is in the local store.
package shard
