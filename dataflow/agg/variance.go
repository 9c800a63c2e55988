package agg

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// This file is variance and standard deviation. Of BIGINT and NUMERIC they follow from the number of values, their sum and
// the sum of their squares, all exact, and are rounded once, as in PostgreSQL. Of DOUBLE PRECISION they are kept as the sum
// of the differences from the mean, by the formula of Youngs and Cramer that PostgreSQL has: up to rounding.
//
//	BIGINT   n int64, sum int128, sum of squares 192 bits two's complement: 2^63 rows of the largest need 189
//	DOUBLE   n int64 of all values, those that are not finite int64, then over the others n int64, sum and sum of squared
//	         differences from the mean float64
//	NUMERIC  n int64, length uint32; tail: length of the first numsum.go as a varint, it, then that of the squares
const (
	varIntSize   = 8 + 16 + 24
	varFloatSize = 8 + 8 + 8 + 8 + 8
)

func addVarInt(p []byte, v, weight int64) {
	addInt(p, weight)
	addInt128(p[8:], v, weight)
	hi, lo := mulInt(v, v)
	addInt192(p[24:], hi, lo, weight)
}

// addInt192 adds the unsigned 127 bits of hi and lo times weight.
func addInt192(p []byte, hi, lo uint64, weight int64) {
	w := uint64(weight)
	if weight < 0 {
		w = -w
	}
	c0, t0 := bits.Mul64(lo, w)
	c1, t1 := bits.Mul64(hi, w)
	var carry uint64
	t1, carry = bits.Add64(t1, c0, 0)
	t2 := c1 + carry
	if weight < 0 {
		t0, carry = bits.Add64(^t0, 1, 0)
		t1, carry = bits.Add64(^t1, 0, carry)
		t2 = ^t2 + carry
	}
	add192(p, t0, t1, t2)
}

func add192(p []byte, t0, t1, t2 uint64) {
	r0, carry := bits.Add64(binary.LittleEndian.Uint64(p), t0, 0)
	r1, carry := bits.Add64(binary.LittleEndian.Uint64(p[8:]), t1, carry)
	r2, _ := bits.Add64(binary.LittleEndian.Uint64(p[16:]), t2, carry)
	binary.LittleEndian.PutUint64(p, r0)
	binary.LittleEndian.PutUint64(p[8:], r1)
	binary.LittleEndian.PutUint64(p[16:], r2)
}

func mergeVarInt(p, q []byte) {
	addInt(p, getInt(q))
	lo, carry := bits.Add64(binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint64(q[8:]), 0)
	hi, _ := bits.Add64(binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(q[16:]), carry)
	binary.LittleEndian.PutUint64(p[8:], lo)
	binary.LittleEndian.PutUint64(p[16:], hi)
	add192(p[24:], binary.LittleEndian.Uint64(q[24:]), binary.LittleEndian.Uint64(q[32:]), binary.LittleEndian.Uint64(q[40:]))
}

// setInt192 sets x to a little-endian two's complement integer.
func setInt192(x *apd.BigInt, p []byte) {
	var low apd.BigInt
	x.SetInt64(int64(binary.LittleEndian.Uint64(p[16:])))
	for _, at := range []int{8, 0} {
		x.Lsh(x, 64)
		x.Add(x, low.SetUint64(binary.LittleEndian.Uint64(p[at:])))
	}
}

func addVarFloat(p []byte, v float64) {
	addInt(p, 1)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		addInt(p[8:], 1)
		return
	}
	combineVar(p[16:], 1, v, 0)
}

// combineVar adds n finite numbers with the sum sx and the sum of squared differences sxx.
func combineVar(p []byte, n, sx, sxx float64) {
	haveN, haveX, haveXX := float64(getInt(p)), getFloat(p[8:]), getFloat(p[16:])
	if n == 0 {
		return
	}
	if haveN > 0 {
		// The two means apart, as in PostgreSQL's float8_combine.
		tmp := haveX/haveN - sx/n
		sxx += haveXX + haveN*n*tmp*tmp/(haveN+n)
		sx += haveX
	}
	addInt(p, int64(n))
	putFloat(p[8:], sx)
	putFloat(p[16:], sxx)
}

func mergeVarFloat(p, q []byte) {
	addInt(p, getInt(q))
	addInt(p[8:], getInt(q[8:]))
	combineVar(p[16:], float64(getInt(q[16:])), getFloat(q[24:]), getFloat(q[32:]))
}

// varSums are the sums of the values and of their squares of NUMERIC.
type varSums struct{ sum, squares numSum }

func (v *varSums) load(tail []byte) error {
	n, k := binary.Uvarint(tail)
	if len(tail) == 0 {
		n, k = 0, 0
	} else if k <= 0 || n > uint64(len(tail)-k) {
		return errNumSum
	}
	tail = tail[k:]
	if err := v.sum.load(tail[:n]); err != nil {
		return err
	}
	return v.squares.load(tail[n:])
}

func (v *varSums) append(dst []byte) []byte {
	var buf [64]byte
	sum := v.sum.append(buf[:0])
	from := len(dst)
	dst = binary.AppendUvarint(dst, uint64(len(sum)))
	dst = v.squares.append(append(dst, sum...))
	if len(dst) == from+1 { // two sums of no terms
		return dst[:from]
	}
	return dst
}

// maxVarExponent is the largest exponent, either way, of a number whose square can be kept.
const maxVarExponent = batch.MaxDecimalExponent / 2

// add adds d weight times. The exponent of d is at most maxVarExponent.
func (v *varSums) add(d *apd.Decimal, weight int64) {
	v.sum.add(d, weight)
	square := apd.Decimal{Form: d.Form, Exponent: 2 * d.Exponent}
	if d.Form == apd.Finite {
		square.Coeff.Mul(&d.Coeff, &d.Coeff)
	}
	v.squares.add(&square, weight)
}

func (l *Layout) varDec(acc []byte, i int, change func(v *varSums) error) ([]byte, error) {
	var v varSums
	if err := v.load(l.tail(acc, i)); err != nil {
		return acc, corrupt(err)
	}
	if err := change(&v); err != nil {
		return acc, corrupt(err)
	}
	var buf [128]byte
	return l.setTail(acc, i, v.append(buf[:0]))
}

func (l *Layout) varDecRow(acc []byte, i int, col *batch.Vector, row int, weight int64) ([]byte, error) {
	if e := col.Decs[row].Exponent; e > maxVarExponent || e < -maxVarExponent {
		return acc, dataflow.Errorf(dataflow.ReasonTooLarge, "a number has more than %d digits; %s takes no more", maxVarExponent, l.slots[i].spec.Name())
	}
	return l.varDec(acc, i, func(v *varSums) error {
		v.add(&col.Decs[row], weight)
		return nil
	})
}

func (l *Layout) mergeVarDec(acc []byte, i int, part []byte) ([]byte, error) {
	if len(part) == 0 {
		return acc, nil
	}
	return l.varDec(acc, i, func(v *varSums) error {
		var o varSums
		if err := o.load(part); err != nil {
			return err
		}
		v.sum.merge(&o.sum)
		v.squares.merge(&o.squares)
		return nil
	})
}

// varResult appends the result of slot s.
func (l *Layout) varResult(s *slot, i int, acc []byte, out *batch.Vector) {
	p := acc[s.off:]
	n := getInt(p)
	if n <= 0 || n == 1 && s.spec.Fn.sample() {
		out.AppendNull()
		return
	}
	switch s.op {
	case opVarFloat:
		f := getFloat(p[32:])
		if s.spec.Fn.sample() {
			f /= float64(n - 1)
		} else {
			f /= float64(n)
		}
		if getInt(p[8:]) > 0 {
			f = math.NaN()
		}
		if s.spec.Fn.root() {
			f = math.Sqrt(f)
		}
		out.AppendFloat(f)
	case opVarInt:
		var sum, squares apd.BigInt
		setInt128(&sum, p[8:])
		setInt192(&squares, p[24:])
		appendVariance(out, s.spec.Fn, n, &sum, &squares, 0)
	default:
		var v varSums
		if v.load(l.tail(acc, i)) != nil {
			out.AppendNull()
			return
		}
		if _, special := v.sum.special(); special {
			out.AppendDec(&apd.Decimal{Form: apd.NaN})
			return
		}
		// Both sums at the scale of the squares, which is twice that of the values.
		scale := max(2*v.sum.scale, v.squares.scale)
		scale += scale % 2
		mulPow10(&v.sum.sum, scale/2-v.sum.scale)
		mulPow10(&v.squares.sum, scale-v.squares.scale)
		appendVariance(out, s.spec.Fn, n, &v.sum.sum, &v.squares.sum, scale)
	}
}

// appendVariance appends the variance or standard deviation of n numbers whose sum is sum / 10^(scale/2) and the sum of
// whose squares is squares / 10^scale.
func appendVariance(out *batch.Vector, fn Fn, n int64, sum, squares *apd.BigInt, scale int32) {
	var num, by, big apd.BigInt
	big.SetInt64(n)
	num.Mul(&big, squares)
	num.Sub(&num, by.Mul(sum, sum))
	var d apd.Decimal
	if num.Sign() <= 0 {
		out.AppendDec(&d)
		return
	}
	by.SetInt64(n)
	if fn.sample() {
		by.SetInt64(n - 1)
	}
	by.Mul(&by, &big)
	divideBig(&d, &num, scale, &by)
	if fn.root() {
		squareRoot(&d)
	}
	out.AppendDec(&d)
}

// squareRoot replaces d ≥ 0 by its root, rounded half up to the scale of d.
func squareRoot(d *apd.Decimal) {
	scale := -d.Exponent
	mulPow10(&d.Coeff, scale+2) // one digit more
	d.Coeff.Sqrt(&d.Coeff)
	var ten, r apd.BigInt
	ten.SetInt64(10)
	d.Coeff.QuoRem(&d.Coeff, &ten, &r)
	if r.Int64() >= 5 {
		d.Coeff.Add(&d.Coeff, new(apd.BigInt).SetInt64(1))
	}
}

// sample reports whether the values are a sample: the divisor is n-1.
func (f Fn) sample() bool { return f == VarSamp || f == StddevSamp }

// root reports whether the result is a standard deviation.
func (f Fn) root() bool { return f == StddevPop || f == StddevSamp }

// varOf returns the operation for arguments of type t.
func varOf(t dataflow.Type) op {
	switch t {
	case dataflow.TypeBigInt:
		return opVarInt
	case dataflow.TypeDouble:
		return opVarFloat
	}
	return opVarDec
}
