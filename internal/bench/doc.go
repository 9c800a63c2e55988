// Package bench measures Weir: it runs the real thing, checks the result by closed form, and reports figures.
//
// # What is measured
//
// Every benchmark deploys SQL through the API of a node with a data directory of its own, fsync on, 8 shards, and talks
// to it by gRPC over loopback, in resp by the Redis protocol. All but engine run the node as a child process of the same program, so that client and
// server do not share a heap; they do share the machine's cores, as every figure does that both take part in.
//
//	engine     rows per second of a deployed plan with its checkpoints; rows come from memory instead of the log
//	ingest     rows per second and time to acknowledgement through the Go client's Producer
//	get        reads by key, one and a hundred at a time, at both isolations, under ingest
//	resp       GETs by the Redis protocol, beside those of a Redis with the same keys if there is one
//	freshness  age of the committed view under ingest
//	live       time from an append's acknowledgement until a live read shows the row
//	recover    time until a node that was killed answers, shows new rows and has caught up
//	group      three nodes of one group, each in a process: replicated ingest, what a node's death costs, reads of followers
//
// # Rules
//
//	B1  Only engine replaces anything, and that is where rows come from (node.Config.Source).
//	B2  A benchmark knows what it sent in closed form: the number of rows, the distinct keys, and the sum of the keys. The
//	    committed table must say the same at the end. If it does not, the figures are void: they are not reported.
//	B3  Latency is measured open loop: requests have scheduled times and are timed from those, so that a stall counts
//	    for every request that it delayed.
//	B4  A ratio's two sides are measured in turns in one run.
//	B5  No figure has a threshold here. Who compares figures compares figures of one machine.
//
// "Half of the maximum" is half of the rate that the same node took and processed just before, with the same plan.
package bench
