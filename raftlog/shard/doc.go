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
// P2 governs deltas (pipelines.go), P7 snapshots and restart (open.go, snapshot.go) and rebuilding (export.go, pull.go,
// install.go), P8 producers (producers.go).
//
// # Rebuilding a replica
//
// A snapshot refers to what is not in it, so none comes through Raft (raftlog.Config.PullSnapshots). A replica that is new,
// lags behind what the leader's log still has (Log.Needs), or was found damaged, is made of another one's while the shard
// serves:
//
//	source: Log.Export ─▶ Lease: Manifest, and Open for what it names; the log is held from the snapshot on
//	destination: Installer.Pull (beside the old replica, which may be in use; resumable)
//	   ─▶ the shard's log and state are closed ─▶ Installer.Swap ─▶ opened again ─▶ Raft goes on behind the snapshot
//	   ─▶ when it has caught up, the lease is released
//
// I1. The snapshot is taken before the state is copied, so the copy holds all that the snapshot's log has settled; what it
// holds beyond, the replica skips when the log comes to it (P7).
//
// I2. While there is a lease, its source lets go of no entry and cuts no log behind the snapshot. Leases are bounded in
// number and time; one that is over is an error at the next Open, and another export begins anew.
//
// I3. Nothing that came is used before all of it is durable and checked: pieces by checksums on their way, the snapshot, the
// tables and the entries by their own, each entry against what the snapshot says of it.
//
// I4. One write of the log store (Adopt) decides. A crash before it leaves the old replica, one after it an install that
// Installer.Recover must end before the shard is opened, which Open makes sure of.
//
// I5. What the old replica has acknowledged is not lost: a snapshot that is older than its log is refused (ErrBehind at the
// source, ErrOvertaken at the swap), and its term and vote go over to the new log.
//
// # Not here
//
// What rows and deltas contain (dataflow), which rows are still needed and which cuts are committed (the meta log and
// its drivers), and how the pieces of an export travel between nodes.
package shard
