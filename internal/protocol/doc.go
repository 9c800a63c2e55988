// Package protocol holds tests that run the pure machines of the checkpoint protocol against each other: the coordinator,
// the meta log's state machine and a model of the shards, with failures, delays, doubled and lost messages and changes of
// the leader. It contains no code of its own.
package protocol
