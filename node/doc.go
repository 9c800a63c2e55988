// Package node is the composition root: it opens what a server consists of, passes each part the others it needs, runs
// the loops, and closes everything in a written order. No decision about data is made here.
//
//	storage   the data directory: meta log, shard logs, state replicas
//	worker    tasks, publishing, merging, retention
//	leader    coordinators of checkpoints, while this node leads the meta log
//	service   what the API calls
//	api       gRPC; gateway: HTTP over it
package node
