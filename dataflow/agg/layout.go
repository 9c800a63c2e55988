package agg

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// op is what a Layout does for one aggregate: its function and argument type in one, so that the row loop branches once.
type op uint8

const (
	opRows   op = iota // count(*)
	opCount            // count(x)
	opInt              // sum, avg of BIGINT
	opFloat            // sum, avg of DOUBLE PRECISION
	opDec              // sum, avg of NUMERIC
	opMinInt           // min, max, any of BIGINT, TIMESTAMPTZ; any of BOOLEAN
	opMaxInt
	opAnyInt
	opMinFloat
	opMaxFloat
	opAnyFloat
	opMinText
	opMaxText
	opAnyText
	opMinDec
	opMaxDec
	opAnyDec
	opAnyCell // any of INTERVAL and arrays: batch.AppendCell
	opBool    // bool_and, bool_or
	opBag     // what keeps values in order: bag.go
	opPick    // min_by, max_by over rows that are never taken back: pick.go
	opHLL     // approx_count_distinct: hll.go
	opBits    // bit_and, bit_or over rows that are never taken back; bit_xor: bits.go
	opVarInt  // variances and standard deviations: variance.go
	opVarFloat
	opVarDec
)

// Sizes of the fixed parts.
const (
	rowsSize  = 8
	countSize = 8
	intSize   = 8 + 16
	floatSize = 8 + 8 + 3*8
	decSize   = 8 + 4
	fixSize   = 1 + 8 // state and value of a fixed-width min, max, any
	varSize   = 4     // length of a variable-width min, max, any
	boolSize  = 8 + 8 // values, true ones
	bagSize   = 8 + 4 // entries that count, length
	bitsSize  = 8 + 8

	// partSlack is more than a value takes in a bag beside its text: lengths, a tag, an end, a count.
	partSlack = 32
)

// States of min, max and any.
const (
	stateNone  = 0
	stateNull  = 1
	stateValue = 2
)

type slot struct {
	op  op
	col int // argument column
	off int // of the fixed part
	// length is the offset of the uint32 that gives the length of the tail; 0 = the aggregate has no tail.
	length int
	share  int      // how long the tail may be whatever the others are
	nulls  bool     // rows whose argument is NULL are folded too
	bag    bagShape // of opBag and opPick
	spec   Spec
}

// Layout reads and writes the accumulators of one stage. It is immutable and may be used by many goroutines.
type Layout struct {
	slots  []slot
	fixed  int   // length of rows and all fixed parts
	tails  []int // the slots with a tail, in order
	maxArg int
	// byColumn says that UpdateGroups has a kernel for each aggregate, retracts that these take rows with weights.
	byColumn, retracts bool
}

// NewLayout returns the layout of the given aggregates. A spec that Resolve would not give is a defect of the planner
// and panics.
func NewLayout(specs []Spec) *Layout {
	l := &Layout{slots: make([]slot, len(specs)), fixed: rowsSize}
	for i, s := range specs {
		sl := slot{op: opOf(s), col: s.Arg, off: l.fixed, spec: s}
		switch sl.op {
		case opRows:
		case opCount:
			l.fixed += countSize
		case opInt:
			l.fixed += intSize
		case opFloat:
			l.fixed += floatSize
		case opDec:
			sl.length = l.fixed + 8
			l.fixed += decSize
		case opMinInt, opMaxInt, opAnyInt, opMinFloat, opMaxFloat, opAnyFloat:
			l.fixed += fixSize
			sl.nulls = s.Fn == Any
		case opBool:
			l.fixed += boolSize
		case opBits:
			l.fixed += bitsSize
		case opVarInt:
			l.fixed += varIntSize
		case opVarFloat:
			l.fixed += varFloatSize
		case opVarDec:
			sl.length = l.fixed + 8
			l.fixed += decSize
		case opBag:
			sl.length = l.fixed + 8
			l.fixed += bagSize
			sl.bag = bagOf(s)
			sl.nulls = s.keepsNull()
		case opPick:
			sl.length = l.fixed
			l.fixed += varSize
			sl.bag = bagOf(s)
			sl.nulls = true
		default:
			sl.length = l.fixed
			l.fixed += varSize
			sl.nulls = s.Fn == Any
		}
		if sl.length != 0 {
			l.tails = append(l.tails, i)
		}
		l.slots[i] = sl
	}
	l.divide()
	l.setKernels()
	return l
}

// singleShare is what a tail of one value has where others hold many: a value of a row is seldom longer, and each byte is one
// that they lack.
const singleShare = dataflow.MaxRowBytes / 16

// divide gives each tail its share of MaxRowBytes. A sketch has what it takes; tails of one value have an equal part each,
// but singleShare where there are bags; bags have the rest, a histogram an eighth of what others have.
func (l *Layout) divide() {
	free, singles, bags := dataflow.MaxRowBytes-l.fixed, 0, 0
	weight := func(s *slot) int {
		if s.bag.buckets {
			return 1
		}
		return 8
	}
	for _, i := range l.tails {
		switch s := &l.slots[i]; s.op {
		case opHLL:
			s.share = hllRegisters
			free -= s.share
		case opBag:
			bags += weight(s)
		default:
			singles++
		}
	}
	single := free / max(1, singles)
	if bags > 0 {
		single = min(singleShare, free/2/max(1, singles))
		free -= single * singles
	}
	l.maxArg = dataflow.MaxRowBytes
	if len(l.tails) == 0 {
		l.maxArg = free
	}
	for _, i := range l.tails {
		s := &l.slots[i]
		switch s.op {
		case opHLL:
			continue
		case opBag:
			s.share = free / bags * weight(s)
		default:
			s.share = single
		}
		values := s.share
		if s.op == opBag || s.op == opPick {
			values = s.share/(1+len(s.spec.Order)) - partSlack
		}
		if s.spec.Bounded() {
			values = s.topArg()
		}
		l.maxArg = min(l.maxArg, values)
	}
}

func opOf(s Spec) op {
	if s.KeepsAll() {
		return opBag
	}
	switch s.Fn {
	case CountStar:
		return opRows
	case Count:
		return opCount
	case Sum, Avg:
		switch s.ArgType {
		case dataflow.TypeBigInt:
			return opInt
		case dataflow.TypeDouble:
			return opFloat
		case dataflow.TypeNumeric:
			return opDec
		}
	case BoolAnd, BoolOr:
		return opBool
	case MinBy, MaxBy:
		return opPick
	case ApproxCount:
		return opHLL
	case BitAnd, BitOr, BitXor:
		return opBits
	case VarPop, VarSamp, StddevPop, StddevSamp:
		return varOf(s.ArgType)
	case Min, Max, Any:
		var base op
		switch s.ArgType {
		case dataflow.TypeBigInt, dataflow.TypeTimestamp, dataflow.TypeDate:
			base = opMinInt
		case dataflow.TypeBool:
			if s.Fn == Any {
				return opAnyInt
			}
		case dataflow.TypeDouble:
			base = opMinFloat
		case dataflow.TypeText, dataflow.TypeJSONB, dataflow.TypeBytea:
			base = opMinText
		case dataflow.TypeNumeric:
			base = opMinDec
		}
		if base == 0 && s.Fn == Any {
			return opAnyCell
		}
		if base != 0 {
			return base + fnOffset(s.Fn)
		}
	}
	panic("agg: no such aggregate: " + s.String())
}

// fnOffset is the place of min, max and any among the three operations of a type.
func fnOffset(f Fn) op {
	switch f {
	case Max:
		return 1
	case Any:
		return 2
	}
	return 0
}

// Fixed returns the length that every accumulator of the layout has, and true, when no aggregate has a variable part.
func (l *Layout) Fixed() (size int, ok bool) { return l.fixed, len(l.tails) == 0 }

// Len returns the number of aggregates.
func (l *Layout) Len() int { return len(l.slots) }

// MaxArgBytes is the longest TEXT argument that keeps every accumulator under MaxRowBytes, whatever the rows. It is
// checked per row, so that whether a row fits does not depend on the rows before it.
func (l *Layout) MaxArgBytes() int { return l.maxArg }

// New appends an empty accumulator to dst.
func (l *Layout) New(dst []byte) []byte {
	n := len(dst)
	if cap(dst)-n >= l.fixed {
		dst = dst[:n+l.fixed]
		clear(dst[n:])
		return dst
	}
	return append(dst, make([]byte, l.fixed)...)
}

// Rows returns the number of rows in the group. 0 means that the group is empty; below 0 only a partial can be.
func (l *Layout) Rows(acc []byte) int64 { return getInt(acc) }

// Update folds row of b into acc with the given weight: 1 inserts, -1 takes back; other weights count as often. acc is
// changed in place when the size allows; the result replaces it. The error is TOO_LARGE when the accumulator would
// outgrow MaxRowBytes, INTERNAL when a min or max is to take a row back, which the planner refuses; acc is then unusable.
func (l *Layout) Update(acc []byte, b *batch.Batch, row int, weight int64) ([]byte, error) {
	addInt(acc, weight)
	for i := range l.slots {
		s := &l.slots[i]
		if s.op == opRows {
			continue
		}
		col := b.Cols[s.col]
		null := col.IsNull(row)
		if null && !s.nulls {
			continue
		}
		p := acc[s.off:]
		switch s.op {
		case opCount:
			addInt(p, weight)
		case opInt:
			addInt(p, weight)
			addInt128(p[8:], col.Ints[row], weight)
		case opFloat:
			addInt(p, weight)
			addFloat(p[8:], col.Floats[row], weight)
		case opMinInt, opMaxInt, opMinFloat, opMaxFloat, opMinText, opMaxText, opMinDec, opMaxDec:
			if weight < 0 {
				return acc, errRetract(s)
			}
			if weight == 0 {
				continue
			}
			var err error
			if acc, err = l.bestRow(acc, s, i, col, row); err != nil {
				return acc, err
			}
		case opDec:
			addInt(p, weight)
			var sum numSum
			if err := sum.load(l.tail(acc, i)); err != nil {
				return acc, corrupt(err)
			}
			sum.add(&col.Decs[row], weight)
			var buf [64]byte
			var err error
			if acc, err = l.setTail(acc, i, sum.append(buf[:0])); err != nil {
				return acc, err
			}
		case opBool:
			addInt(p, weight)
			addInt(p[8:], weight*col.Ints[row])
		case opBag:
			var err error
			if acc, err = l.bagRow(acc, s, i, b, row, weight); err != nil {
				return acc, err
			}
		case opPick:
			var err error
			if acc, err = l.pickRow(acc, s, i, b, row, weight); err != nil {
				return acc, err
			}
		case opHLL:
			var err error
			if acc, err = l.hllRow(acc, s, i, col, row, weight); err != nil {
				return acc, err
			}
		case opBits:
			if weight < 0 && s.spec.Fn != BitXor {
				return acc, errRetract(s)
			}
			if weight != 0 {
				foldBits(p, s.spec.Fn, col.Ints[row], weight)
			}
		case opVarInt:
			addVarInt(p, col.Ints[row], weight)
		case opVarFloat:
			if weight < 0 {
				return acc, errRetract(s)
			}
			for range weight {
				addVarFloat(p, col.Floats[row])
			}
		case opVarDec:
			addInt(p, weight)
			var err error
			if acc, err = l.varDecRow(acc, i, col, row, weight); err != nil {
				return acc, err
			}
		default: // any
			if weight <= 0 {
				continue
			}
			var err error
			if acc, err = l.setRow(acc, s, i, col, row, null); err != nil {
				return acc, err
			}
		}
	}
	return acc, nil
}

func errRetract(s *slot) error {
	return dataflow.Errorf(dataflow.ReasonInternal, "%s cannot take a row back", s.spec.Fn)
}

func getInt(p []byte) int64    { return int64(binary.LittleEndian.Uint64(p)) }
func putInt(p []byte, v int64) { binary.LittleEndian.PutUint64(p, uint64(v)) }
func addInt(p []byte, v int64) { putInt(p, getInt(p)+v) }

// addInt128 adds v*weight. 128 bits cannot overflow: 2^64 rows of the largest BIGINT need 127.
func addInt128(p []byte, v, weight int64) {
	hi, lo := mulInt(v, weight)
	var carry uint64
	lo, carry = bits.Add64(binary.LittleEndian.Uint64(p), lo, 0)
	hi, _ = bits.Add64(binary.LittleEndian.Uint64(p[8:]), hi, carry)
	binary.LittleEndian.PutUint64(p, lo)
	binary.LittleEndian.PutUint64(p[8:], hi)
}

// mulInt returns a*b in two's complement.
func mulInt(a, b int64) (hi, lo uint64) {
	hi, lo = bits.Mul64(uint64(a), uint64(b))
	if a < 0 {
		hi -= uint64(b)
	}
	if b < 0 {
		hi -= uint64(a)
	}
	return hi, lo
}

// addFloat adds v*weight to a sum of finite numbers and counts of the others, so that taking back an Infinity leaves
// what was there before. A sum of finite numbers that is out of range becomes an Infinity, where PostgreSQL fails.
func addFloat(p []byte, v float64, weight int64) {
	switch {
	case math.IsNaN(v):
		addInt(p[8:], weight)
	case math.IsInf(v, 1):
		addInt(p[16:], weight)
	case math.IsInf(v, -1):
		addInt(p[24:], weight)
	default:
		putFloat(p, getFloat(p)+v*float64(weight))
	}
}

func getFloat(p []byte) float64    { return math.Float64frombits(binary.LittleEndian.Uint64(p)) }
func putFloat(p []byte, f float64) { binary.LittleEndian.PutUint64(p, math.Float64bits(f)) }
