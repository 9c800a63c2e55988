package agg

import (
	"encoding/binary"
	"math"

	"github.com/weirdb/weir/dataflow/batch"
)

// This file is approx_percentile: a histogram whose buckets are 64 equal parts of each power of two, as in HdrHistogram and
// in the linearly interpolated form of DDSketch (C. Masson et al., VLDB 2019). The bucket of a number is the first 18 bits
// of its order-preserving form, so no logarithm is rounded and the counts are a function of the multiset of values (A1);
// they merge and retract exactly. Half a bucket is at most 1/128 of the number: that is the error bound, 0.8 %.
//
// The buckets are a bag; its keys are three bytes big-endian.
const (
	bucketBits = 1 + 11 + 6 // sign, exponent, parts of a power of two
	bucketSize = 3
)

// appendBucket appends the bucket of row of v, a DOUBLE.
func appendBucket(dst []byte, v *batch.Vector, row int) []byte {
	f := v.Floats[row]
	u := math.Float64bits(f)
	switch {
	case f != f:
		u = math.Float64bits(math.NaN())
	case f == 0:
		u = 0
	}
	if u>>63 != 0 {
		u = ^u
	} else {
		u |= 1 << 63
	}
	u >>= 64 - bucketBits
	return append(dst, byte(u>>16), byte(u>>8), byte(u))
}

// bucketValue returns the middle of a bucket; 0, the infinities and NaN are themselves.
func bucketValue(key []byte) float64 {
	var four [4]byte
	copy(four[1:], key)
	u := uint64(binary.BigEndian.Uint32(four[:])) << (64 - bucketBits)
	const half = 1 << (64 - bucketBits - 1)
	if u>>63 == 0 {
		// The bits of a negative number were flipped, those below the bucket's too.
		f := math.Float64frombits(^(u | (half - 1)))
		if u = ^(u | (2*half - 1)); u == 1<<63 {
			return 0
		}
		if lo := math.Float64frombits(u); math.IsInf(lo, 0) {
			return lo
		}
		return f
	}
	u &^= 1 << 63
	lo := math.Float64frombits(u)
	switch {
	case u == 0 || math.IsInf(lo, 0):
		return lo
	case lo != lo:
		return math.NaN()
	}
	return math.Float64frombits(u | half)
}

// checkBucket validates the key of a bucket.
func checkBucket(key []byte) error {
	if len(key) != bucketSize || key[0]>>(bucketBits-16) != 0 {
		return errElem
	}
	return nil
}
