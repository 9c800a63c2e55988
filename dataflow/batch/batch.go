// Package batch holds rows in columns: the form in which they travel from the log through a pipeline.
//
// A Batch is filled by one goroutine, then handed on; the receiver owns it. Vectors may share memory with the batch
// they were projected from, so a batch that has been handed on is never modified. Kernels work on the raw slices.
//
// Why not Apache Arrow's record batches: Weir needs NUMERIC of any precision, a weight per row and vectors that a kernel
// fills in place; see docs/adr.
package batch

import (
	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

// TargetRows is how many rows a batch aims to have. Enough to make per-batch costs vanish, few enough for the columns
// that an expression touches to stay in the L2 cache.
const TargetRows = 4096

// Batch is a set of rows in columns.
type Batch struct {
	Schema dataflow.Schema
	Cols   []*Vector // one per column of Schema, each of length N
	N      int

	// Weights holds +1 (insert) or -1 (retract) per row; nil means that every row is an insert.
	Weights []int8

	// AppendTime is each row's append time in microseconds: what now() means in a view (P10), and the order of
	// first/last. Nil in batches that do not come from a stream.
	AppendTime []int64

	// Shard and FirstOffset locate the rows of a batch read from a stream: row i of a source batch has offset
	// Origin[i] if Origin is set, else FirstOffset+i. They name the row in an error message (on_error).
	Stream      dataflow.StreamID
	Shard       dataflow.ShardID
	FirstOffset dataflow.Offset
	Origin      []dataflow.Offset
}

// OffsetOf returns the stream offset of row i.
func (b *Batch) OffsetOf(i int) dataflow.Offset {
	if b.Origin != nil {
		return b.Origin[i]
	}
	return b.FirstOffset + dataflow.Offset(i)
}

// Vector is one column of a batch. The slice that Type names has one element per row; a NULL row's element is zero.
type Vector struct {
	Type dataflow.Type
	// Nulls has a set bit for each NULL row; nil means that no row is NULL.
	Nulls Bitmap

	Ints   []int64             // BIGINT, TIMESTAMPTZ (microseconds), DATE (days), BOOLEAN (0 or 1)
	Floats []float64           // DOUBLE PRECISION
	Decs   []apd.Decimal       // NUMERIC
	Ivls   []dataflow.Interval // INTERVAL
	// TEXT, JSONB, BYTEA: row i is Data[Offs[i]:Offs[i+1]]. Arrays: row i holds the elements Lists[i] to Lists[i+1] of Elems.
	Offs  []uint32 // len N+1
	Data  []byte
	Lists []uint32 // len N+1
	Elems *Vector  // of the elements' type
}

// Bitmap is a set of row numbers.
type Bitmap []uint64

// NewBitmap returns an empty bitmap for n rows.
func NewBitmap(n int) Bitmap { return make(Bitmap, (n+63)/64) }

// Get reports whether bit i is set. A nil bitmap has no bit set.
func (m Bitmap) Get(i int) bool { return m != nil && m[i>>6]&(1<<(uint(i)&63)) != 0 }

// Set sets bit i.
func (m Bitmap) Set(i int) { m[i>>6] |= 1 << (uint(i) & 63) }

// Clear clears bit i.
func (m Bitmap) Clear(i int) { m[i>>6] &^= 1 << (uint(i) & 63) }

// Text returns the bytes of row i of a TEXT, JSONB or BYTEA vector. They are shared with the vector: copy them to keep them.
func (v *Vector) Text(i int) []byte { return v.Data[v.Offs[i]:v.Offs[i+1]] }

// IsNull reports whether row i is NULL.
func (v *Vector) IsNull(i int) bool { return v.Nulls.Get(i) }
