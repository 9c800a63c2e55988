// Package link carries the edges of a run between the nodes that it is spread over.
//
// Each node has one Hub. A run that has shards elsewhere makes its Links from it: they give the senders of the edges that lead to
// other nodes, take what comes by the edges from there to the inboxes of this node, and connect. Two nodes share one ordered
// byte stream per run, which multiplexes all edges between them, both ways, and the credits that return.
//
// # Rules
//
//	L1  An edge between nodes has the credits of any other (X2, X3): a message holds one from Send until the receiver has dealt
//	    with it. So what is queued and on its way is bounded, and the reader of a stream always finds room in the inbox: it
//	    never waits, and a blocked edge does not hold up its siblings, their barriers or anybody's credits.
//	L2  Messages of an edge are numbered from 1. A gap, a repetition, a message without a credit, a credit for nothing or a
//	    checksum that does not match ends the run: no barrier is lost or doubled unseen.
//	L3  A stream belongs to one incarnation. The node with the smaller name dials and says who it is and what it runs; the
//	    other refuses an older incarnation, ends its own older one, and waits for its own start when it is behind. Both must run
//	    the same program over the same edges and owners.
//	L4  A stream that breaks ends the run at both ends, and with it the run on every node: each says so to the others on its way
//	    out. There is no reconnecting within a run: the next incarnation starts from the committed base (T4).
//	L5  Until both have agreed, nothing is lost by a broken connection: the dialer tries again. The acceptor takes a stream for
//	    connected only when the dialer has said so.
//	L6  The memory of a stream is bounded by bytes too. A sender waits while more than 4 MiB are queued for the stream: that
//	    depends on the network and on no receiver (L1), and ends with the sender's context. A receiver holds at most the
//	    edge's credits of messages, which exchange.Split keeps near 1 MiB unless a single row is larger.
//
// A node that sends nothing for Config.Silence is taken for lost; what has nothing to send says so every Config.Ping.
//
// # What it is not
//
// Connections come from elsewhere (Config.Dial, Hub.Handle): who a peer is and whether it may speak is decided there.
package link
