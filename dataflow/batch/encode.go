package batch

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// The encoding of a batch, which is how rows are stored in shard logs and sent by clients:
//
//	version  uint8 = 1
//	crc      uint32 little-endian: CRC32C of all that follows
//	rows     uvarint
//	columns  uvarint
//	columns times:
//	  type   uint8
//	  nulls  uint8: 0, or 1 and a bitmap of rows bits, bit i of byte i/8 set = row i is NULL
//	  values by type:
//	    BIGINT, TIMESTAMPTZ, DATE  integers (below)
//	    BOOLEAN              a bitmap
//	    DOUBLE PRECISION     8 bytes little-endian each
//	    TEXT, JSONB, BYTEA   the lengths as integers, then the bytes of all rows
//	    INTERVAL             the months, the days and the microseconds, as integers each
//	    NUMERIC              AppendDecimal each
//	    arrays               the numbers of elements as integers, then the elements: uvarint count, nulls, values by
//	                         their type
//
// Integers are a base as a zigzag varint, a width of 0, 1, 2, 4 or 8, and per value its distance from the base (the
// smallest) in width little-endian bytes. Values of NULL rows are zero or empty. Weights, append times and offsets are
// not part of it: the log entry knows them. A reader refuses versions it does not know; the list of types is append-only.
const (
	codecVersion = 1
	codecHeader  = 1 + 4
)

const (
	noNulls  = 0
	hasNulls = 1
)

// The table is read-only and shared by everything that speaks CRC32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode appends b's columns to dst. b has at most MaxBatchRows rows; TEXT and JSONB in it are valid (ValidText), else Decode
// refuses the result.
func Encode(dst []byte, b *Batch) []byte {
	at := len(dst)
	dst = append(dst, codecVersion, 0, 0, 0, 0)
	dst = binary.AppendUvarint(dst, uint64(b.N))
	dst = binary.AppendUvarint(dst, uint64(len(b.Cols)))
	for _, v := range b.Cols {
		dst = append(dst, byte(v.Type))
		dst = appendColumn(dst, v, b.N)
	}
	binary.LittleEndian.PutUint32(dst[at+1:], crc32.Checksum(dst[at+codecHeader:], castagnoli))
	return dst
}

func appendColumn(dst []byte, v *Vector, n int) []byte {
	if v.Nulls.Any() {
		dst = append(dst, hasNulls)
		dst = appendBits(dst, n, v.IsNull)
	} else {
		dst = append(dst, noNulls)
	}
	switch v.Type.Form() {
	case dataflow.FormFloat:
		dst, out := extend(dst, 8*n)
		for i, f := range v.Floats[:n] {
			binary.LittleEndian.PutUint64(out[8*i:], math.Float64bits(f))
		}
		return dst
	case dataflow.FormDecimal:
		for i := range v.Decs[:n] {
			dst = AppendDecimal(dst, &v.Decs[i])
		}
		return dst
	case dataflow.FormBytes:
		dst = appendLengths(dst, v.Offs[:n+1])
		return append(dst, v.Data[v.Offs[0]:v.Offs[n]]...)
	case dataflow.FormList:
		dst = appendLengths(dst, v.Lists[:n+1])
		elems := v.Elems.Slice(int(v.Lists[0]), int(v.Lists[n]))
		dst = binary.AppendUvarint(dst, uint64(elems.Len()))
		return appendColumn(dst, elems, elems.Len())
	case dataflow.FormInterval:
		return appendIntervals(dst, v.Ivls[:n])
	}
	if v.Type == dataflow.TypeBool {
		return appendBits(dst, n, func(i int) bool { return v.Ints[i] != 0 })
	}
	return appendInts(dst, v.Ints[:n])
}

func appendBits(dst []byte, n int, bit func(int) bool) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, (n+7)/8)...)
	for i := range n {
		if bit(i) {
			dst[at+i/8] |= 1 << (i % 8)
		}
	}
	return dst
}

// extend returns dst with n more bytes, and these.
func extend(dst []byte, n int) (all, more []byte) {
	at := len(dst)
	all = slices.Grow(dst, n)[:at+n]
	return all, all[at:]
}

// appendInts appends integers.
func appendInts(dst []byte, vals []int64) []byte {
	if len(vals) == 0 {
		return append(dst, 0, 0)
	}
	dst, lo, width := appendBase(dst, slices.Min(vals), slices.Max(vals))
	return appendDistances(dst, vals, lo, width)
}

// appendLengths appends the distances between neighbours of offs as integers.
func appendLengths(dst []byte, offs []uint32) []byte {
	n := len(offs) - 1
	if n == 0 {
		return append(dst, 0, 0)
	}
	lo, hi := uint32(math.MaxUint32), uint32(0)
	for i := range n {
		l := offs[i+1] - offs[i]
		lo, hi = min(lo, l), max(hi, l)
	}
	dst, base, width := appendBase(dst, int64(lo), int64(hi))
	var part [256]int64 // lengths are computed twice rather than kept
	for from := 0; from < n; {
		k := min(n-from, len(part))
		for i := range k {
			part[i] = int64(offs[from+i+1] - offs[from+i])
		}
		dst, from = appendDistances(dst, part[:k], base, width), from+k
	}
	return dst
}

func appendIntervals(dst []byte, ivls []dataflow.Interval) []byte {
	vals := make([]int64, len(ivls))
	for i := range ivls {
		vals[i] = int64(ivls[i].Months)
	}
	dst = appendInts(dst, vals)
	for i := range ivls {
		vals[i] = int64(ivls[i].Days)
	}
	dst = appendInts(dst, vals)
	for i := range ivls {
		vals[i] = ivls[i].Micros
	}
	return appendInts(dst, vals)
}

// appendBase appends what comes before the distances of integers between lo and hi.
func appendBase(dst []byte, lo, hi int64) (_ []byte, base int64, width int) {
	width = widthOf(uint64(hi) - uint64(lo))
	return append(binary.AppendVarint(dst, lo), byte(width)), lo, width
}

func appendDistances(dst []byte, vals []int64, lo int64, width int) []byte {
	dst, out := extend(dst, width*len(vals))
	switch width {
	case 1:
		for i, v := range vals {
			out[i] = byte(v - lo)
		}
	case 2:
		for i, v := range vals {
			binary.LittleEndian.PutUint16(out[2*i:], uint16(v-lo))
		}
	case 4:
		for i, v := range vals {
			binary.LittleEndian.PutUint32(out[4*i:], uint32(v-lo))
		}
	case 8:
		for i, v := range vals {
			binary.LittleEndian.PutUint64(out[8*i:], uint64(v-lo))
		}
	}
	return dst
}

func widthOf(span uint64) int {
	switch {
	case span == 0:
		return 0
	case span <= math.MaxUint8:
		return 1
	case span <= math.MaxUint16:
		return 2
	case span <= math.MaxUint32:
		return 4
	}
	return 8
}
