package agg

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

// This file is approx_count_distinct: HyperLogLog with 4,096 registers, a standard error of 1.6 %. A register holds the
// largest rank of the values whose hash begins with its number; the hash is that of a key (dataflow.HashKey) of the value.
// The registers are a maximum, so they are a function of the set of values (A1), and so are the bytes. That is why it is
// not axiomhq/hyperloglog: there the form of a sketch depends on how it was cut and merged.
//
// Format of the tail: 4,096 bytes, a register each; or, as long as that is shorter, three bytes big-endian for each
// register that is not 0, ascending: its number in 12 bits, then 12 bits with its value.
//
// The estimate is Ertl's improved one, which needs no tables of corrections: O. Ertl, New cardinality estimation
// algorithms for HyperLogLog sketches, arXiv:1702.01284, algorithm 6.
const (
	hllBits      = 12
	hllRegisters = 1 << hllBits
	hllSparse    = 3                     // bytes of a register in the short form
	hllMax       = 64 - hllBits + 1      // largest rank
	hllAlpha     = 0.7213475204444817037 // 1 / (2 ln 2)
)

var errHLL = errors.New("malformed sketch")

// hllRow folds row of col into the sketch of slot i.
func (l *Layout) hllRow(acc []byte, s *slot, i int, col *batch.Vector, row int, weight int64) ([]byte, error) {
	if weight == 0 {
		return acc, nil
	}
	if weight < 0 {
		return acc, errRetract(s)
	}
	var buf [96]byte
	h := mix(dataflow.HashKey(key.AppendVector(buf[:0], col, row)))
	rank := bits.LeadingZeros64(h<<hllBits|1<<(hllBits-1)) + 1
	return l.hllRaise(acc, i, int(h>>(64-hllBits)), byte(rank))
}

// mix spreads the bits of a hash: a group's key may be the value itself, and the groups of a shard share bits of its hash.
// It is the finalizer of MurmurHash3, a bijection.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// hllRaise makes register n at least rank.
func (l *Layout) hllRaise(acc []byte, i, n int, rank byte) ([]byte, error) {
	tail := l.tail(acc, i)
	if len(tail) == hllRegisters {
		tail[n] = max(tail[n], rank)
		return acc, nil
	}
	lo, hi := 0, len(tail)/hllSparse
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch at, have := sparseAt(tail, mid); {
		case at == n:
			if have < rank {
				putSparse(tail[mid*hllSparse:], n, rank)
			}
			return acc, nil
		case at < n:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	if len(tail)+hllSparse >= hllRegisters {
		dense := hllDense(tail)
		dense[n] = rank
		return l.setTail(acc, i, dense)
	}
	var ins [hllSparse]byte
	putSparse(ins[:], n, rank)
	return l.replace(acc, i, lo*hllSparse, lo*hllSparse, ins[:])
}

func sparseAt(tail []byte, i int) (n int, rank byte) {
	p := tail[i*hllSparse:]
	return int(binary.BigEndian.Uint16(p) >> 4), p[2]
}

func putSparse(p []byte, n int, rank byte) {
	binary.BigEndian.PutUint16(p, uint16(n)<<4)
	p[2] = rank
}

// hllDense returns the registers of a sketch in the short form.
func hllDense(tail []byte) []byte {
	dense := make([]byte, hllRegisters)
	for i := range len(tail) / hllSparse {
		n, rank := sparseAt(tail, i)
		dense[n] = rank
	}
	return dense
}

func (l *Layout) mergeHLL(acc []byte, i int, partial []byte) ([]byte, error) {
	part := l.tail(partial, i)
	var err error
	if len(part) < hllRegisters {
		for k := range len(part) / hllSparse {
			n, rank := sparseAt(part, k)
			if acc, err = l.hllRaise(acc, i, n, rank); err != nil {
				return acc, err
			}
		}
		return acc, nil
	}
	have := l.tail(acc, i)
	if len(have) < hllRegisters {
		dense := hllDense(have)
		raise(dense, part)
		return l.setTail(acc, i, dense)
	}
	raise(have, part)
	return acc, nil
}

func raise(dst, src []byte) {
	for n, rank := range src {
		dst[n] = max(dst[n], rank)
	}
}

// checkHLL validates a sketch of bytes that are not trusted.
func checkHLL(tail []byte) error {
	if len(tail) == hllRegisters {
		used := 0
		for _, rank := range tail {
			if rank > hllMax {
				return errHLL
			}
			if rank > 0 {
				used++
			}
		}
		if used*hllSparse < hllRegisters {
			return errHLL
		}
		return nil
	}
	if len(tail)%hllSparse != 0 || len(tail) > hllRegisters {
		return errHLL
	}
	last := -1
	for i := range len(tail) / hllSparse {
		n, rank := sparseAt(tail, i)
		if n <= last || rank == 0 || rank > hllMax || tail[i*hllSparse+1]&0x0F != 0 {
			return errHLL
		}
		last = n
	}
	return nil
}

// hllEstimate returns about how many different values a sketch has seen.
func hllEstimate(tail []byte) int64 {
	const m, q = float64(hllRegisters), 64 - hllBits
	var count [q + 2]int // of registers by rank
	if len(tail) == hllRegisters {
		for _, rank := range tail {
			count[rank]++
		}
	} else {
		for i := range len(tail) / hllSparse {
			_, rank := sparseAt(tail, i)
			count[rank]++
		}
		count[0] = hllRegisters - len(tail)/hllSparse
	}
	z := m * tau(1-float64(count[q+1])/m)
	for k := q; k >= 1; k-- {
		z = (z + float64(count[k])) / 2
	}
	z += m * sigma(float64(count[0])/m)
	return int64(math.Round(hllAlpha * m * m / z))
}

func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for {
		x *= x
		was := z
		z += x * y
		y += y
		if z == was {
			return z
		}
	}
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for {
		x = math.Sqrt(x)
		was := z
		y /= 2
		z -= (1 - x) * (1 - x) * y
		if z == was {
			return z / 3
		}
	}
}
