package shard

import "errors"

// What a refused delta command means to the driver that proposed it. All of them say that the proposer is not, or no
// longer, the pipeline's current run, or has a defect; a retry does not help.
var (
	// ErrStaleIncarnation: the incarnation is over, a newer one has begun (P2).
	ErrStaleIncarnation = errors.New("shard: the incarnation is over")
	// ErrNotBegun: no BeginIncarnation of this incarnation has been applied in this shard.
	ErrNotBegun = errors.New("shard: the incarnation has not begun")
	// ErrDeltaOrder: the delta or chunk is not the next one, or the end entry does not fit the chunks before it.
	ErrDeltaOrder = errors.New("shard: delta out of order")
	// ErrDropped: the pipeline or stream has been dropped from this shard; its id is never reused.
	ErrDropped = errors.New("shard: dropped")
)

// ErrTrimLate: a pipeline has begun in the shard that was not known when it was decided which rows nobody needs.
var ErrTrimLate = errors.New("shard: the trim comes too late")

// errBadEntry marks an entry or snapshot that does not decode.
var errBadEntry = errors.New("shard: malformed entry")
