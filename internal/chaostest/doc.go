// Package chaostest breaks a group of real servers in many ways at once, and shows that it loses nothing, doubles nothing and
// tells nothing wrong.
//
// Three or five weir processes speak with each other through a proxy of this test (matrix), which cuts, one way or both,
// delays, slows down, swallows and resets what goes between any two of them. Beside that processes are killed, paused,
// stopped and started again, alone and all together; disks fill up, are slow and fail; clocks jump; files are damaged and
// directories emptied while a node is down; nodes are added, removed and drained. What happens is decided by a seed.
// Meanwhile producers and senders write rows that carry their number, readers ask every node in turn, and pipelines come and go.
//
// A seed also decides how the nodes run: every second with small bounds for what happens in the background, every third with
// certificates between the nodes, two of four with disks that this test can make slow and let fail (internal/inject).
//
//	C1  A row that was acknowledged is in the log, once, and in the order of its sender per shard; nothing else is (G5, P8).
//	C2  A committed answer equals a model of the log at the positions of its cut (G1, G3). In particular the balances of all
//	    accounts sum to zero: a transfer changes two, on different shards.
//	C3  A session's committed cuts never go back, whichever node answers (G3), and an answer to an append's token covers it.
//	C4  A cut means the same on every node: equal ids have equal positions and incarnations (G2).
//	C5  An error has a reason that a group may give whose nodes fail; nobody meets INTERNAL or CORRUPT (G8), but from a node
//	    whose files this test has damaged.
//	C6  No server panics or ends by itself, but one whose files were damaged or whose disk is full.
//	C7  Once everything is healed the group takes rows, commits and answers on every node, within a bound.
//	C8  Once everything is healed, and at the end, all nodes hold the same: equal digests of every shard at one cut.
//	C9  A node whose directory was emptied is not let in under its old name.
//	C10 A node of which a sync fails ends, and comes back when its disk is well.
//
// A failing run keeps the data directories, the servers' logs and a history of faults and answers, and prints its seed. A seed
// decides what is done; when processes get to it is up to the machine, so that a seed leads close to a failure and not always
// back to it.
package chaostest
