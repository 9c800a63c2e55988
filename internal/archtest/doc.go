// Package archtest holds the import law of the house, as tests: which room may know which.
//
//	cmd → node → {statequery, raftlog, sinks, dataflow/*} → dataflow
//
// The four middle folders do not know each other, except that statequery may use the pure part of dataflow. clients
// stand outside: they know the protos and the shared vocabulary. A consumer declares the small interface it needs, and
// node passes the other side in.
package archtest
