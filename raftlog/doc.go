// Package raftlog is Weir's replicated log: it runs one Raft group over hashicorp/raft and hides that library's types and
// traps from everything above it.
//
// A Group takes commands (Propose) and hands every committed one, in log order, to its FSM on all members. The meta log
// (raftlog/meta) and the shard logs (raftlog/shard) are such groups. Packages below: frame checksums commands,
// logstore keeps the entries of all shard groups of a node in shared segment files, transport wraps the network.
//
// What holds for every group:
//
// R1. A command reaches Apply with exactly the bytes that were proposed, or not at all: each is framed with a CRC32C, and
// an FSM that is handed a damaged frame is frozen and the group fails.
//
// R2. Propose says what is known. NOT_LEADER, OVERLOADED, TOO_LARGE, DEADLINE and SHUTTING_DOWN mean that nothing was
// written; OUTCOME_UNKNOWN means that the command may or may not be applied, now or later. There is no third kind.
//
// R3. A durable write that fails or overruns Config.WriteDeadline is final. The group sends nothing any more, steps
// down, closes Failed, and the node must stop: what such a write left on the disk is unknown until the files are read
// again. (hashicorp/raft by itself lets a leader with a hung disk keep its lease, and a node that cannot write win
// elections.)
//
// R4. FSMs are applied by one goroutine and see neither clock nor context (P1).
//
// R5. Snapshots are taken by the bytes applied since the last one, never by the clock; the log is cut behind them, and
// at least two snapshots are kept, so that a damaged newest one can be survived where the log still reaches back.
//
// R6. A command is proposed on any member: one that does not lead carries it to the leader (Config.Forward), in one
// ordered stream that a leader of another term refuses. The command's frame says who proposed it, so the proposer has
// its own FSM's answer, from its own Apply. It is refused while nothing was sent, and OUTCOME_UNKNOWN when it was lost on the
// way, or came to this member inside a snapshot; it is never sent twice. What only the leader may propose is proposed by
// SubmitHere, ProposeHere and BarrierHere.
//
// R7. Leadership is handed over by Transfer, never by the library's own transfer (a failed one wedges hashicorp/raft v1.8.0
// for good, #696). Members change one at a time.
//
// R8. A group's members are given to each of them alike, or Join: a log that joins is never bootstrapped.
//
// R9. A group with Config.PullSnapshots takes no snapshot of a leader's through Raft: its member is brought forward from
// outside while it is closed (transport, T5), and the leader holds its log for it (Hold).
//
// R10. A leader that is gone, or silent for an election timeout, is replaced before Raft's own timers: the members that have lost
// it agree on who stands (succession). What is committed the others learn at once, and a member that comes back gets its
// entries at once (transport, T6 and T8).
//
// Non-goals: reads on followers without a Barrier, which are the business of who owns the FSM.
package raftlog
