package dataflow

import "time"

// HoldTime is how long sources that are held read nothing, unless their run ends, which it does within a fraction of it when the lead
// of a shard moves, or they are let go. Why not longer: if the lead does not move, rows wait for nothing. Why not shorter: a busy node
// takes its time.
const HoldTime = 5 * time.Second

// Limits that requests are checked against at the edge. Why not larger: one request must not hold a shard's log or a
// task for long. Why not smaller: they are what users of comparable systems are used to.
const (
	MaxKeyBytes     = 4 << 10   // an encoded key
	MaxRowBytes     = 1 << 20   // one row of a stream, or one row of state
	MaxBatchBytes   = 8 << 20   // the rows of one append request
	MaxBatchRows    = 1 << 17   // the rows of one append request
	MaxSQLBytes     = 1 << 20   // a SQL text
	MaxSQLDepth     = 200       // nesting of expressions
	MaxBatchGetKeys = 10_000    // keys of one batchGet
	MaxPageRows     = 10_000    // rows of one page of a scan
	MaxProducerName = 128       // bytes of a producer's name, which every shard keeps
	MaxEntryBytes   = 256 << 10 // target size of one shard log entry; a single larger row makes a larger entry
)
