// Package archtest holds the laws of the house, as tests.
//
// Imports: which room may know which, and where a third-party engine may be imported.
//
//	cmd → node → {statequery, raftlog, sinks, dataflow/*} → dataflow
//
// The four middle folders do not know each other, except that statequery may use the pure part of dataflow. clients
// stand outside: they know the protos and the shared vocabulary. A consumer declares the small interface it needs, and
// node passes the other side in.
//
// Files: packages say what they are, files are short, the pure part has no clock, goroutine or I/O, nothing registers
// itself, and no test sleeps.
//
// Dependencies: each direct one has a row in docs/dependencies.md.
package archtest
