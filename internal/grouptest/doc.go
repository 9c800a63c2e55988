// Package grouptest runs a whole group of nodes in one process, breaks it by a schedule that a seed decides, and compares
// what it answers with a model.
//
// The nodes speak over a network in memory whose links can be cut, one way or both, and delayed, and write to file systems in
// memory that lose what was not synced when a node is killed. Meanwhile writers send rows through any node and repeat each
// until it is acknowledged, and readers ask any node. When everything is healed, the group must come to answers that are
// exactly those of the rows that were sent.
//
// The nodes' clock runs faster than the test's, so that cuts are superseded and stores are folded while a schedule lasts, and some
// keys change in one delta alone: of a key that changes all the time, the next delta makes good what a copy has lost.
//
//	T1  Every row that was acknowledged is counted once, whichever nodes it went through (G5), and nothing else is.
//	T2  Money is neither made nor lost: in every committed answer, the balances of all accounts sum to zero. Transfers
//	    change two accounts, on different shards, so this holds only when an answer is one cut over all shards (G3).
//	T3  A session's committed cuts never go back, on whichever node it reads (G3).
//	T4  An error has a reason that a group may give whose nodes fail (G8).
//	T5  After healing the group takes rows, commits and answers within patience.
//	T6  All nodes hold the same: equal digests of every shard at one cut, also after two starts of all of them.
//	T7  Operations on streams and pipelines, and what any node says of these, are linearizable: as if each had happened at one
//	    moment between its call and its answer. One whose outcome is unknown may have happened at any time after its call, or
//	    not; one that was refused as NOT_LEADER, say, has not.
//	T8  No node finds a replica of its own damaged: nobody damages a disk here.
//
// A schedule is named by its seed; a failing one prints it and what was done in it. With -logs DIR all that its nodes log is in
// DIR/seed-N.log. Where time decides, a seed fails now and then only: run it several times at once.
package grouptest
