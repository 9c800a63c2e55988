package agg

import (
	"encoding/binary"
	"math"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// AppendResult appends the result of aggregate i over the rows that acc has seen to out, a vector of the spec's Out
// type. acc has passed Check or comes from this layout. When the group has more values than its state can hold, the error
// is TOO_LARGE, and the result NULL.
func (l *Layout) AppendResult(i int, acc []byte, out *batch.Vector) error {
	if s := &l.slots[i]; s.op == opBag {
		return l.bagResult(s, acc, l.tail(acc, i), out)
	}
	l.appendResult(i, acc, out)
	return nil
}

// appendResult is AppendResult of what cannot fail.
func (l *Layout) appendResult(i int, acc []byte, out *batch.Vector) {
	s := &l.slots[i]
	p := acc[s.off:]
	switch s.op {
	case opRows:
		out.AppendInt(getInt(acc))
	case opCount:
		out.AppendInt(getInt(p))
	case opInt:
		n := getInt(p)
		if n == 0 {
			out.AppendNull()
			return
		}
		var sum apd.BigInt
		setInt128(&sum, p[8:])
		appendNumeric(out, s.spec.Fn, &sum, 0, n)
	case opFloat:
		n := getInt(p)
		if n == 0 {
			out.AppendNull()
			return
		}
		f := floatSum(p[8:])
		if s.spec.Fn == Avg {
			f /= float64(n)
		}
		out.AppendFloat(f)
	case opDec:
		n := getInt(p)
		var sum numSum
		if n == 0 || sum.load(l.tail(acc, i)) != nil {
			out.AppendNull()
			return
		}
		if d, ok := sum.special(); ok {
			out.AppendDec(&d)
			return
		}
		appendNumeric(out, s.spec.Fn, &sum.sum, sum.scale, n)
	case opMinInt, opMaxInt, opAnyInt:
		if p[0] != stateValue {
			out.AppendNull()
			return
		}
		out.AppendInt(getInt(p[1:]))
	case opMinFloat, opMaxFloat, opAnyFloat:
		if p[0] != stateValue {
			out.AppendNull()
			return
		}
		out.AppendFloat(getFloat(p[1:]))
	case opBool:
		n, trues := getInt(p), getInt(p[8:])
		switch {
		case n == 0:
			out.AppendNull()
		case s.spec.Fn == BoolAnd:
			out.AppendInt(truth(trues == n))
		default:
			out.AppendInt(truth(trues > 0))
		}
	case opPick:
		l.pickResult(s, l.tail(acc, i), out)
	case opHLL:
		out.AppendInt(hllEstimate(l.tail(acc, i)))
	case opBits:
		if getInt(p) == 0 {
			out.AppendNull()
			return
		}
		out.AppendInt(getInt(p[8:]))
	case opVarInt, opVarFloat, opVarDec:
		l.varResult(s, i, acc, out)
	default:
		if varState(acc, s) != stateValue {
			out.AppendNull()
			return
		}
		tail := l.tail(acc, i)
		switch {
		case s.spec.ArgType.Form() == dataflow.FormBytes:
			out.AppendText(tail)
			return
		case s.op == opAnyCell:
			if _, err := batch.ReadCell(tail, out); err != nil {
				out.AppendNull()
			}
			return
		}
		var d apd.Decimal
		if _, err := batch.ReadDecimal(tail, &d); err != nil {
			out.AppendNull()
			return
		}
		out.AppendDec(&d)
	}
}

func truth(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// appendNumeric appends the sum or the average of n numbers whose sum is sum / 10^scale.
func appendNumeric(out *batch.Vector, fn Fn, sum *apd.BigInt, scale int32, n int64) {
	var d apd.Decimal
	if fn == Avg && n > 0 {
		divide(&d, sum, scale, n)
	} else {
		d.Exponent = -scale
		d.Negative = sum.Sign() < 0
		d.Coeff.Abs(sum)
	}
	out.AppendDec(&d)
}

// setInt128 sets x to a little-endian two's complement integer.
func setInt128(x *apd.BigInt, p []byte) {
	lo, hi := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	if int64(hi) == int64(lo)>>63 {
		x.SetInt64(int64(lo))
		return
	}
	neg := int64(hi) < 0
	if neg {
		lo = -lo
		hi = ^hi
		if lo == 0 {
			hi++
		}
	}
	var low apd.BigInt
	x.Lsh(x.SetUint64(hi), 64)
	x.Add(x, low.SetUint64(lo))
	if neg {
		x.Neg(x)
	}
}

// floatSum returns the sum that the finite sum and the counts of the other terms at p give.
func floatSum(p []byte) float64 {
	nan, pos, neg := getInt(p[8:]) > 0, getInt(p[16:]) > 0, getInt(p[24:]) > 0
	switch {
	case nan || pos && neg:
		return math.NaN()
	case pos:
		return math.Inf(1)
	case neg:
		return math.Inf(-1)
	}
	return getFloat(p)
}
