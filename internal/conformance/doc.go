// Package conformance holds SQL programs with the answers that PostgreSQL 15 gave to them, and a test that wants the same
// answers from Weir.
//
// A file of testdata is one program: streams, rows, and SELECTs. Each SELECT runs in two ways, and both must give
// PostgreSQL's rows:
//
//   - as a materialized view that is fed in batches of random size to random shards, with checkpoints, a crash of the
//     dataflow and a crash of the whole node at random places in between; its table is read committed and live, and must
//     come in PostgreSQL's order of the key;
//   - as a query over a table that holds the same rows.
//
// # Blocks
//
//	schema                        CREATE STREAM and CREATE VIEW statements; once, first
//	rows stream=NAME              rows, a JSON object per line
//	rows stream=NAME generate=G n=N seed=S
//	                              rows of a generator (generate.go); the answer is their digest
//	view NAME                     a SELECT that becomes a materialized view; later SELECTs may read it
//	query                         a SELECT that only queries can be, such as one with ORDER BY
//
// In a SELECT, {name} stands for a stream or view. Arguments of view and query:
//
//	only=view                     what a query cannot do yet, such as jsonb_each
//	digest                        the answer is large: number of rows, a hash of all, the first ten
//	fold=(a,b)                    folds a difference of compare.go that is meant to be
//	differs=a                     the answer differs, for a reason of compare.go; the file holds both
//
// # Recording
//
//	go test ./internal/conformance -record
//
// starts a private PostgreSQL 15 on a Unix socket (initdb, postgres and psql in PATH), asks it, and rewrites the files. It
// runs in the C.UTF-8 locale, because Weir compares text by bytes, and in UTC. Without the flag nothing but the files is
// needed.
//
// Random queries are compared, and not recorded, by
//
//	go test ./internal/conformance -run Random -record -random 5000
//
// with -random-file testdata/random.txt some of them become a file, whose answers the first command records.
//
// -seed repeats a run's random choices; a failure prints its seed.
package conformance
