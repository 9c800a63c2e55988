// Package sim holds the first layer of the simulation: the pure machines of a whole group, run against each other in one
// goroutine, in an order that follows from a seed. It contains no code of its own.
//
// What is real: the coordinator (dataflow/coordinator), the state machines of the meta log (raftlog/meta) and of the shards
// (raftlog/shard), the barrier aligner (dataflow/checkpoint), the entries' bytes, snapshots and their restoration. What is
// modelled: the replicated logs, which follow the Raft paper, the network, the clocks, the drivers between the machines
// (node/leader, node/fleet, node/worker, the delta writer, the replica of the committed state), and clients.
//
// An oracle is told of every entry when the first member applies it, and of every answer. It names what is broken by the
// number of the invariant (docs/reliability.md).
//
//	make sim SEEDS=20000                                     # many seeds
//	go test ./internal/sim -run TestSim -seed 123 -v         # one, with its history as text
//	go test ./internal/sim -run TestMutants                  # that seeded defects are found
package sim
