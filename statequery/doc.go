// Package statequery answers reads of tables: point and batch look-ups, scans and pull queries, at both isolations.
//
// # What a request sees
//
// A READ COMMITTED request fixes one cut, the newest that its pipeline has committed or the one it names, and reads every
// key, shard and row of its answer from that cut (G3, P5). A READ UNCOMMITTED request reads the tables of the running
// incarnation: newest values, each key once, no cut (G4); what a recovery may take back is marked speculative. Every
// answer carries the cut that it reflects; the positions of a live one are a lower bound: the values hold at least the
// effects of the rows below them.
//
// # Rules
//
//	Q1  One request, one cut, of one deployment. The cut's id goes to every shard; a shard that no longer has it ends the
//	    request.
//	Q2  Pages are bound to the cut of the first page by a lease, which all scans of the cut share, and to the request by a
//	    hash of it. Pages of live tables have no cut: each is as new as it can be.
//	Q3  Nothing is cut off silently: a request that reaches a limit of time, rows or memory fails with SCAN_LIMIT and
//	    says which; a page that ends early has a next page.
//	Q4  The package reads through small interfaces (source.go) and knows neither logs nor the network.
//	Q5  What requests hold in memory at once is bounded: each is admitted with what it may take, and others wait in bounded
//	    queues, in order; OVERLOADED answers those for which there is no place in one. Queries and scans, short batches of
//	    look-ups, and long ones have memory and queues of their own, so that what is short never waits for what is long.
//	    Nobody waits for memory while holding some.
package statequery
