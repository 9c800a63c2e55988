// Package peernet connects the nodes of a group: one port per node, over which everything between nodes goes.
//
// A node has one Net. It listens on one address and dials others by their names, not by their addresses: a Resolver says
// where a node is now. Every connection is for one service ("raft:meta", "raft:shard-3", "grpc"): the dialler names it
// in its hello, and the acceptor hands the connection to the Listener of that name. So what speaks over a connection
// knows nothing of the others, and needs no multiplexing of its own.
//
//	dialler                                     acceptor
//	(TLS handshake)
//	hello: version, group, node, data, service →
//	                                           ← answer: accepted, or a reason; version, group, node, data
//	bytes of the service                      ↔
//
// Rules:
//
// N1. Nobody speaks to a stranger. Both sides check the other's protocol version, group, name and data before a byte of
// the service passes; a refusal is typed (Reason). A dialler names the node it wants, so an address that now belongs to
// another node is refused and not mistaken.
//
// N2. A node is its data. The hello carries the id of the data directory, and Config.Admit says whether that is the one
// that the group knows under this name: a node that lost its disk has lost its votes too, and must not speak for the
// node that it was.
//
// N3. A group has an id once it is bootstrapped, and a name before. Two sides fit when their ids are equal, or when
// either has none yet and their names are equal.
//
// N4. Everything is bounded: connections, those that wait to be accepted, the bytes and the time of a hello. A
// connection that is not accepted in time is refused with ReasonBusy.
//
// N5. With TLS, a node is who its certificate says: one of its DNS names must be the node's name.
//
// Who asks an address for its identity without knowing who is there.
//
// The bytes below come from a Network: TCP, or peernettest's network in memory, whose links can be cut.
//
// What it is not: it does not reconnect, retry or keep connections alive; that is the services' business. It does not
// authenticate without TLS: there a hello is only as good as the network.
package peernet
