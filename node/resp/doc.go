// Package resp serves tables to Redis clients, for reading: RESP2 and RESP3, a key per row. docs/resp.md is what users
// read.
//
// Whoever serves a connection reads what has come, answers every whole command of it, and writes the answers together. On
// Linux a loop does that for many connections: one read and one write for a batch, and no goroutine to wake. Elsewhere, and
// for listeners that are not TCP's, each connection has a goroutine. The package knows tables through the interfaces of backend.go.
//
// # Rules
//
//	R1  The commands that arrive together, a pipelined batch, read one cut of each pipeline; one command always does. A
//	    batch whose answers are over flushBytes is answered in parts, each from a cut of its own, none older than the one
//	    before.
//	R2  No view is held while a connection waits for its client, to send or to read.
//	R3  What a connection holds is bounded: a command by maxCommand, an answer by maxAnswer, and answers over largeAnswer
//	    are written for a few connections at a time. A client that does not take its answer for stuckTime is cut off.
//	R4  A key is written in one way that reads back as the same key (key.go).
//	R5  NULL is the absence of a field: HGETALL leaves it out, HGET answers nil. A row that is there EXISTS in any case.
//	R6  A loop waits for nothing but its clients. What might wait (a command that is not one of quickCommands, a key whose
//	    cut cannot be read yet, anything that comes out as an error, a client without room for its answer) it leaves undone,
//	    and a goroutine does it in the same request, during which the loop does not know the connection. What a loop does
//	    at once is bounded: quickArgs words a command, flushBytes of answers.
//
// # The library
//
// redcon (v1.6.4) writes answers and takes typed lines apart. Its server is not used: it bounds neither what a client sends
// nor how many there are, does not wait for its goroutines, and copies each command. Neither are its parsers of arrays: they
// panic on lengths that a hostile client may send ("$-2", "$9223372036854775807"). frame.go is bounded and copies nothing.
package resp
