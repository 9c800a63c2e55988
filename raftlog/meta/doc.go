// Package meta is the meta log: the one Raft group whose entries say what streams, pipelines and checkpoints there are.
//
// FSM is the state machine. It is pure: its state depends on its own log alone (P1). Time enters through the entries,
// which carry the proposer's clock; the FSM's time is the largest it has seen. A checkpoint exists from the entry that
// commits it (G2).
//
// State is what the FSM has come to: immutable, replaced as a whole by each entry that changes something. Readers take
// it with one atomic load and may keep it as long as they like.
//
// Log is what the node uses: one method per command, which proposes an entry and returns the typed result, and
// State for reading.
//
// # Rules kept here
//
//   - P2: CommitCheckpoint is taken only from the current incarnation and with a number above the last committed.
//   - P3: attempt numbers come from reserved blocks and never repeat; a new coordinator's block fences older ones.
//   - P4: BeginIncarnation fixes the base, the newest committed cut at the moment the entry is applied.
//   - P6: the cuts that stay readable, and so the floor, are computed with each commit, lease and expiry.
//
// What this package does not do: it starts no tasks, trims no rows and deletes no state. Drivers compare their own state
// with State and act.
package meta
