// Package task runs one incarnation of a pipeline on one node: a source task per stream and shard, a keyed task per
// stage and shard, the exchange between them, and per shard the writer of its deltas. The shards of a run may be spread over
// nodes: each starts the tasks of its own shards, and Links carry the edges between them.
//
// # How rows move
//
// A source task tails the applied log of its shard, runs the stateless chain of every stage that reads the stream, and
// sends the rows by key group to the keyed tasks. A keyed task folds them into its table under the table's lock, one
// batch at a time. If other stages read the table, it emits, per key that the batch changed, the retraction of the old
// visible row and the new one.
//
// # Rules
//
//	T1  One goroutine per task; it owns its position (source) or its table's writes and its aligner (keyed).
//	T2  No lock is held while a task sends, reads a log or waits.
//	T3  A barrier enters a source between two batches and takes the source's position with it. Every barrier that is
//	    injected goes through every edge, also when the coordinator has given the attempt up (P2: its delta counts for
//	    the next).
//	T4  The first failure ends the run: all tasks stop, Failed tells why. What a run did after the last commit is
//	    undone by the next incarnation, which starts from the committed base. A run that is spread over nodes ends on all of
//	    them: a lost peer is a failure like any other.
//	T5  Stop returns when every goroutine of the run has ended. Tables stay readable until they are dropped.
package task
