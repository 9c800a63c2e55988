// Package checkpoint holds the parts of a checkpoint that happen on a shard: aligning barriers at a task (Aligner), and
// gathering what the shard's tasks froze into one delta of the shard log, acknowledged once it is durable (Writer).
//
// When to take a checkpoint and when it is committed is decided elsewhere (dataflow/coordinator); here is only what
// happens between the barrier's arrival and the shard's acknowledgement (P2).
package checkpoint
