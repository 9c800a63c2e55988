// Package peer is gRPC between the nodes of a group (weir.peer.v1), over the one port of internal/peernet.
//
// Peers has a connection to each node that this one calls, made at the first call and kept; it serves what others call
// here. It carries commands to the nodes that lead their logs: it is the logs' raftlog.Forwarder, and the other end of it.
//
// Who calls is known from the connection's hello, and with TLS from its certificate: Caller. Authority between nodes ends
// there; users are authenticated where they come in.
package peer
