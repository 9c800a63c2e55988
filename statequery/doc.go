// Package statequery answers reads of tables: point and batch look-ups, scans and pull queries, at both isolations.
//
// # What a request sees
//
// A READ COMMITTED request fixes one cut, the newest that its pipeline has committed or the one it names, and reads every
// key, shard and row of its answer from that cut (G3, P5). A READ UNCOMMITTED request reads the tables of the running
// incarnation: newest values, each key once, no cut (G4); what a recovery may take back is marked speculative. Every
// answer carries the cut that it reflects.
//
// # Rules
//
//	Q1  One request, one cut. The cut's id goes to every shard; a shard that no longer has it ends the request.
//	Q2  Pages of a scan are bound to the cut of the first page by a lease, and to the request by a hash of it.
//	Q3  Nothing is cut off silently: a request that reaches a limit of time, rows or memory fails with SCAN_LIMIT and
//	    says which; a page that ends early has a next page.
//	Q4  The package reads through small interfaces (source.go) and knows neither logs nor the network.
package statequery
