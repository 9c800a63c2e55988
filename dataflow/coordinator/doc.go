// Package coordinator decides, for one pipeline, when to checkpoint, what is committed, and when to restart.
//
// Machine is pure: Step takes the time and an event and returns actions; it has no clock, no I/O and no goroutine. The
// leader of the meta log runs one Machine per pipeline and carries out its actions in order (node/leader).
//
// # Contract with the driver
//
//   - The driver steps the machine from one goroutine and carries out actions in the order they come.
//   - Proposals (ReserveAttempts, ProposeCommit, ProposeBegin, MarkRunning, MarkStopped, MarkFailed) are retried by the
//     driver while their outcome is unknown and it still leads; the meta log makes that harmless. When it stops leading
//     it steps Deposed and drops the machine.
//   - Acknowledgements may be late, doubled or of another incarnation; the machine ignores what is not of the attempt
//     under way.
//   - Dirty is a level, not an edge: the driver steps it whenever rows were appended, or tasks changed, behind the last
//     barrier. Saying it too often costs an empty checkpoint, never exactness.
//
// # Rules kept here
//
//   - G6: an attempt that fails or is late changes nothing; what it covered, the next one covers. A task's deltas count
//     for the next attempt (P2).
//   - P3: numbers come from reserved blocks; a new leader passes a barrier, cancels all older attempts and takes a new,
//     fencing block before it injects anything.
//   - P4: a recovery is one ProposeBegin; acknowledgements of older incarnations are ignored from then on.
//   - Idle pipelines make no checkpoints, unless somebody waits for one.
package coordinator
