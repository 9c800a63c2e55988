// Package rebuild carries replicas of shards between nodes: it is how a replica that is new, lags behind what the leader's log
// still has, or was found damaged, comes to what the others hold, while the shard serves.
//
// Source answers at the node that leads the shard, with the exports of raftlog/shard. Rebuilder asks there and fills a
// shard.Installer. What to do with what it has brought, and when, is its caller's to decide (package node).
//
// Rules:
//
//	B1  A pull goes on where one was that broke off, also one of an earlier run of the process, as long as its source still
//	    keeps the export. A source that is gone is replaced by whoever leads then; what came from the old one is dropped.
//	B2  The export is held from the pull's begin until the member has caught up (Hold.Release), or for as long as the
//	    source keeps one that nobody touches (Hold.Leave).
//	B3  At most maxPulls pulls of a node are under way; others wait. The source paces the bytes.
//	B4  A stream that brings nothing for idleTime is given up: the node at its other end may be stopped, and nothing else
//	    would tell.
package rebuild
