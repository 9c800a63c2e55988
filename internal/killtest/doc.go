// Package killtest kills a real server, again and again, and shows that nothing it has acknowledged is lost or doubled.
//
// The test builds the weir binary, runs it as a child process with small checkpoint intervals, merge bounds and log
// snapshots, deploys two programs (testdata), and lets named producers in processes of their own send rows that depend on
// nothing but their number. Then it kills the server with SIGKILL, at random moments and aimed at phases of work
// (internal/phase), the restart itself included, and now and then a producer, which starts again with its first row.
//
// Beside that readers ask for committed and live rows without pause. What they get is kept with its cut, and every few
// kills compared: the acknowledged log is read back and folded by a model of the two programs, written in Go and
// independent of Weir's plans, up to each answer's positions.
//
// With -ballast the tables do not fit: a third program counts so many keys more, of which committed answers must have all, and
// the run fails when the server has not evicted any.
//
//	K1  A row that was acknowledged is in the log, once, in the order of its sender per shard (G5, P8).
//	K2  What was in the log stays, at its place.
//	K3  A committed answer equals the model at the positions of its cut (G1, G3), also one of several pages.
//	K4  Committed cuts never go back: neither within a session, nor from one call to a later one, nor over a restart (G3).
//	K5  A cut means the same whenever it is seen: equal ids have equal positions and incarnations (G2).
//	K6  A live answer says that it is speculative and of which incarnation, incarnations never go back, and it holds at
//	    least what the cut holds that it names and at most what is in the log (G4).
//	K7  Errors have reasons that a server may give that is being killed; nobody meets INTERNAL or CORRUPT (G8).
//	K8  A read with the token of an append answers from a cut that covers it.
//	K9  All of the state can be read at each comparison, and is the same, by digests of all rows, after two more kills and a stop.
//
// A kill counts for every phase that was under way when the process died. A long run that never hits one of the phases
// fails. The seed is printed; on a failure the data directory, the server's log and a history as text are kept.
package killtest
