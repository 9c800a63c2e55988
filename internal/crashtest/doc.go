// Package crashtest crashes a whole node at every durable operation of a scripted life, and checks what a restart finds.
//
// The life contains what a node does to its disk: it makes a data directory, deploys a pipeline, takes appends, commits
// checkpoints, folds layers into the store, takes snapshots of its logs, truncates them, stops and starts again. The file
// system counts operations (internal/testkit/crashfs); at operation k the power goes: unsynced data is lost, wholly or in
// part, and a write may be torn. Then the node is opened on what is left, and must keep its guarantees:
//
//	G1  the committed tables equal the model at the committed positions
//	G2  a checkpoint whose commit was answered is still committed
//	G5  every acknowledged row is there, each once; a retry of everything leaves each row once
//
// The node is concurrent, so operation k is not the same one in two runs: each run crashes at some moment near it, and
// all kinds of operations are hit. The test counts which, and fails when a kind was never hit.
package crashtest
