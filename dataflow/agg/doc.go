// Package agg folds rows into accumulators: the encoded bytes that are the state of a keyed stage. It is pure.
//
// A Layout is made once per stage from its aggregate specs. An accumulator is one byte string per key; it is what the
// live table holds, what a delta carries and what Pebble stores, so committed and live reads decode alike. Results are
// PostgreSQL's, types and display scale included.
//
// # Format
//
// All integers are little-endian.
//
//	rows    int64             sum of the weights of the group's rows; 0 = the group is empty
//	fixed   per aggregate     see below
//	tail    per aggregate     the variable parts, in order of the aggregates, without gaps
//
//	count(*)                                 nothing: it is rows
//	count                                    n int64: non-NULL arguments
//	sum, avg of BIGINT                       n int64, sum int128
//	sum, avg of DOUBLE PRECISION             n int64, sum of the finite float64, count of NaN, +Inf, -Inf int64
//	sum, avg of NUMERIC                      n int64, length uint32; tail: see numsum.go
//	min, max, any of a fixed-width type      state uint8 (0 none, 1 NULL, 2 value), 8 bytes
//	min, max, any of TEXT and NUMERIC        uint32 (0 none, 1 NULL, else length + 2); tail: the value
//	bool_and, bool_or                        n int64, true ones int64
//	min_by, max_by                           uint32 (0 none, else length + 2); tail: see pick.go
//	what keeps all values                    entries int64, length uint32; tail: see bag.go
//	approx_percentile                        the same; see bucket.go
//	approx_count_distinct                    uint32 (0 none, else length + 2); tail: see hll.go
//	bit_and, bit_or, bit_xor                 n int64, what they give int64
//	variances and standard deviations        see variance.go
//
// All values are kept by the aggregates with DISTINCT, by string_agg, array_agg, percentile_cont, percentile_disc and mode, and
// over a table by min, max, min_by, max_by, bit_and and bit_or.
//
// The layout follows from the plan. It carries no version of its own: its containers (the delta and the base marker) do,
// and a pipeline's program never changes under its state.
//
// # Rules
//
//	A1  An accumulator is a function of the multiset of (row, weight) it has seen, whatever the order and however it was
//	    cut into partials that were merged (P10). The exceptions: DOUBLE sums and variances round as they go, and any keeps the value
//	    of the last insert, which is the row for a stream of changes by key.
//	A2  A partial may have rows 0 or below 0 and still matter: retract 3, insert 5 is rows 0 and sum +2.
//	A3  A DOUBLE sum or average out of range is an Infinity, where PostgreSQL fails: which row to blame would depend on
//	    the order of the rows.
//	A4  A group whose values outgrow their share of MaxRowBytes has no result (TOO_LARGE). Over rows that are only inserted
//	    that follows from the values alone; over a table it also depends on how many there were at any one moment.
//	A5  Update works in place when the size allows; the slice it returns replaces the one passed in.
package agg
