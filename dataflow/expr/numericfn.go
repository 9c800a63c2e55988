package expr

import (
	"math"
	"math/big"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

// The functions of NUMERIC. Those whose results are rounded first choose, by PostgreSQL's rule, how many digits after
// the point the result has, then compute with enough digits to round correctly.

func numericNeg(d, x *apd.Decimal) *dataflow.Error {
	d.Set(x)
	if !isNaN(x) && (x.Form == apd.Infinite || x.Coeff.Sign() != 0) {
		d.Negative = !x.Negative
	}
	return nil
}

// roundDigits is round(x, n) and trunc(x, n).
func roundDigits(d, x *apd.Decimal, n int64, round bool) *dataflow.Error {
	if x.Form != apd.Finite {
		d.Set(x)
		return nil
	}
	n = min(max(n, -2*maxResultScale), 2*maxResultScale)
	rescale(d, x, n, round)
	return finish(d)
}

func numericFloor(d, x *apd.Decimal) *dataflow.Error { return numericStep(d, x, true) }

func numericCeil(d, x *apd.Decimal) *dataflow.Error { return numericStep(d, x, false) }

// numericStep goes to the next integer downwards or upwards.
func numericStep(d, x *apd.Decimal, down bool) *dataflow.Error {
	if x.Form != apd.Finite {
		d.Set(x)
		return nil
	}
	var t apd.Decimal
	truncTo(&t, x, 0)
	if x.Negative == down && t.Cmp(x) != 0 {
		t.Coeff.Add(&t.Coeff, apd.NewBigInt(1))
		t.Negative = x.Negative
	}
	d.Set(&t)
	return finish(d)
}

func numericSign(d, x *apd.Decimal) *dataflow.Error {
	if isNaN(x) {
		setNaN(d)
		return nil
	}
	d.SetInt64(int64(signOf(x)))
	return nil
}

func numericLog10(d, x *apd.Decimal) *dataflow.Error { return numericLog(d, apd.New(10, 0), x) }

func numericTrimScale(d, x *apd.Decimal) *dataflow.Error {
	if x.Form != apd.Finite {
		d.Set(x)
		return nil
	}
	var t apd.Decimal
	t.Reduce(x)
	d.Set(&t)
	return finish(d)
}

func numericSqrt(d, x *apd.Decimal) *dataflow.Error {
	switch {
	case isNaN(x):
		setNaN(d)
		return nil
	case signOf(x) < 0:
		return failf("cannot take square root of a negative number")
	case x.Form == apd.Infinite:
		setInf(d, false)
		return nil
	}
	w, _ := weight10000(x)
	scale := clampScale(max(minSignificant-(w*2+1), scaleOf(x)))
	// The root of the coefficient at twice the scale and a bit more, floored; half way cannot happen.
	var r apd.Decimal
	shift := 2*(scale+1) + int64(x.Exponent)
	if shift >= 0 {
		r.Coeff.Mul(&x.Coeff, exp10(shift))
	} else {
		r.Coeff.Quo(&x.Coeff, exp10(-shift))
	}
	r.Coeff.Sqrt(&r.Coeff)
	r.Exponent = int32(-(scale + 1))
	roundTo(d, &r, scale)
	return finish(d)
}

func numericExp(d, x *apd.Decimal) *dataflow.Error {
	switch {
	case isNaN(x):
		setNaN(d)
		return nil
	case x.Form == apd.Infinite && x.Negative:
		*d = apd.Decimal{}
		return nil
	case x.Form == apd.Infinite:
		setInf(d, false)
		return nil
	}
	f := approximate(x)
	switch {
	case f >= maxExponent:
		return errNumericOverflow
	case f <= -maxExponent:
		return setScaled(d, 0, maxResultScale)
	}
	log := f * 0.434294481903252
	scale := clampScale(max(minSignificant-int64(log), scaleOf(x)))
	p := bitsFor(scale + int64(max(log, 0)) + 8)
	t := new(big.Int).Lsh(x.Coeff.MathBigInt(), p)
	if x.Exponent < 0 {
		t.Quo(t, exp10(-int64(x.Exponent)).MathBigInt())
	}
	if x.Negative {
		t.Neg(t)
	}
	bigExp(d, t, p, scale)
	return finish(d)
}

// maxExponent is the greatest argument of exp, PostgreSQL's.
const maxExponent = 6000

// approximate returns x as a double, infinite beyond its range.
func approximate(x *apd.Decimal) float64 {
	m, e := toBinary(new(apd.Decimal).Abs(x), 64)
	f, _ := new(big.Float).SetMantExp(new(big.Float).SetInt(m), e).Float64()
	if x.Negative {
		f = -f
	}
	return f
}

// lnWeight is PostgreSQL's estimate_ln_dweight: the decimal weight of ln(x).
func lnWeight(x *apd.Decimal) int64 {
	if signOf(x) <= 0 {
		return 0
	}
	if x.Cmp(apd.New(9, -1)) >= 0 && x.Cmp(apd.New(11, -1)) <= 0 {
		var y apd.Decimal
		if err := numericSub(&y, x, apd.New(1, 0)); err != nil || y.Coeff.Sign() == 0 {
			return 0
		}
		w, digit := weight10000(&y)
		return w*4 + int64(math.Log10(float64(digit)))
	}
	w, digit := weight10000(x)
	digits, dweight := float64(digit), w*4
	if rest := x.NumDigits() + int64(x.Exponent) - 1 - w*4 + 1; x.NumDigits() > rest {
		// There is a second base-10,000 digit (PostgreSQL looks at two).
		var two apd.Decimal
		truncTo(&two, x, -(w*4)+4)
		two.Exponent = 0
		if w*4 > 4 {
			two.Coeff.Quo(&two.Coeff, exp10(w*4-4))
		}
		digits, dweight = float64(two.Coeff.Int64()), dweight-4
	}
	ln := math.Log(digits) + float64(dweight)*2.302585092994046
	return int64(math.Log10(math.Abs(ln)))
}

// logDomain refuses what has no logarithm.
func logDomain(x *apd.Decimal) *dataflow.Error {
	switch s := signOf(x); {
	case isNaN(x):
		return nil
	case s < 0:
		return failf("cannot take logarithm of a negative number")
	case s == 0:
		return failf("cannot take logarithm of zero")
	}
	return nil
}

func numericLn(d, x *apd.Decimal) *dataflow.Error {
	if err := logDomain(x); err != nil {
		return err
	}
	if isNaN(x) || x.Form == apd.Infinite {
		d.Set(x)
		return nil
	}
	scale := clampScale(max(minSignificant-lnWeight(x), scaleOf(x)))
	p := bitsFor(scale + 8)
	setFixed(d, bigLn(x, p), p, scale)
	return finish(d)
}

// setFixed sets d to v/2^p, rounded to scale digits after the point.
func setFixed(d *apd.Decimal, v *big.Int, p uint, scale int64) {
	negative := v.Sign() < 0
	setBinary(d, new(big.Int).Abs(v), -int(p), scale)
	d.Negative = negative && d.Coeff.Sign() != 0
}

// numericLog sets d to the logarithm of x to a base.
func numericLog(d, base, x *apd.Decimal) *dataflow.Error {
	for _, y := range []*apd.Decimal{base, x} {
		if err := logDomain(y); err != nil {
			return err
		}
	}
	switch {
	case isNaN(base) || isNaN(x) || base.Form == apd.Infinite && x.Form == apd.Infinite:
		setNaN(d)
		return nil
	case base.Form == apd.Infinite:
		*d = apd.Decimal{}
		return nil
	case x.Form == apd.Infinite:
		setInf(d, false)
		return nil
	}
	scale := clampScale(max(minSignificant-(lnWeight(x)-lnWeight(base)), scaleOf(base), scaleOf(x)))
	if base.Cmp(apd.New(1, 0)) == 0 {
		return errDivisionByZero
	}
	// The quotient of two logarithms loses the digits that a small divisor and a large dividend have.
	p := bitsFor(scale + 16 + 2*max(0, -lnWeight(base)) + max(0, lnWeight(x)))
	lb, lx := bigLn(base, p), bigLn(x, p)
	q := lx.Lsh(lx, p)
	setFixed(d, q.Quo(q, lb), p, scale)
	return finish(d)
}

func numericPower(d, x, y *apd.Decimal) *dataflow.Error {
	integral := y.Form == apd.Finite && isIntegral(y)
	switch {
	case isNaN(x) || isNaN(y):
		switch {
		case !isNaN(x) && x.Cmp(apd.New(1, 0)) == 0, !isNaN(y) && signOf(y) == 0:
			*d = apd.Decimal{Coeff: *apd.NewBigInt(1)}
		default:
			setNaN(d)
		}
		return nil
	case signOf(x) == 0 && signOf(y) < 0:
		return failf("zero raised to a negative power is undefined")
	case signOf(x) < 0 && x.Form == apd.Finite && y.Form == apd.Finite && !integral:
		return failf("a negative number raised to a non-integer power yields a complex result")
	case x.Form == apd.Infinite || y.Form == apd.Infinite:
		return infinitePower(d, x, y, integral)
	case signOf(y) == 0:
		return setScaled(d, 1, clampScale(max(minSignificant, scaleOf(x), scaleOf(y))))
	case signOf(x) == 0:
		return setScaled(d, 0, clampScale(max(minSignificant, scaleOf(x), scaleOf(y))))
	}
	// The decimal weight of the result, estimated from logarithms.
	abs := new(apd.Decimal).Abs(x)
	const lnBits = 128
	lnX, _ := new(big.Float).SetMantExp(new(big.Float).SetInt(bigLn(abs, lnBits)), -lnBits).Float64()
	exponent := lnX * approximate(y)
	weight := exponent * 0.434294481903252
	scale := powerScale(x, y, integral, weight)
	n, err := y.Int64()
	whole := integral && err == nil && n >= math.MinInt32 && n <= math.MaxInt32
	switch {
	case weight > maxNumericDigits || !whole && exponent >= maxExponent:
		return errNumericOverflow
	case weight < -2*maxResultScale:
		return setScaled(d, 0, scale)
	}
	digits := int64(max(weight, 0)) + 2
	switch {
	case whole && n >= 0 && abs.NumDigits()*n <= maxExactPower:
		var r apd.Decimal
		r.Coeff.Exp(&x.Coeff, apd.NewBigInt(n), nil)
		r.Exponent = int32(int64(x.Exponent) * n)
		roundTo(d, &r, scale)
	case whole && n >= 0:
		bigPower(d, abs, uint64(n), digits, scale)
	case whole:
		bigInverse(d, abs, uint64(-n), digits, scale)
	default:
		p := bitsFor(digits + scale + integerDigits(y) + 8)
		t := bigLn(abs, p)
		t.Mul(t, y.Coeff.MathBigInt())
		if y.Exponent < 0 {
			t.Quo(t, exp10(-int64(y.Exponent)).MathBigInt())
		}
		if y.Negative {
			t.Neg(t)
		}
		bigExp(d, t, p, scale)
	}
	d.Negative = x.Negative && integral && isOdd(y) && d.Coeff.Sign() != 0
	return finish(d)
}

// maxExactPower bounds the digits of a power that is computed in full and rounded then. Longer ones cannot lie halfway
// between two results, so that a few digits more than shown are enough to round them.
const maxExactPower = 4096

// integerDigits returns an upper bound of the digits before the point of x.
func integerDigits(x *apd.Decimal) int64 { return max(0, x.NumDigits()+int64(x.Exponent)) }

// setScaled sets d to the integer v with zeros after the point.
func setScaled(d *apd.Decimal, v, scale int64) *dataflow.Error {
	d.Form, d.Negative = apd.Finite, false
	d.Coeff.Mul(apd.NewBigInt(v), exp10(scale))
	d.Exponent = int32(-scale)
	return nil
}

// powerScale returns the digits after the point of x^y.
func powerScale(x, y *apd.Decimal, integral bool, weight float64) int64 {
	if n, err := y.Int64(); integral && err == nil && n >= math.MinInt32 && n <= math.MaxInt32 {
		return clampScale(max(minSignificant, scaleOf(x)))
	}
	return clampScale(max(minSignificant-int64(weight), scaleOf(x), scaleOf(y)))
}

func isIntegral(x *apd.Decimal) bool {
	var t apd.Decimal
	truncTo(&t, x, 0)
	return t.Cmp(x) == 0
}

func isOdd(x *apd.Decimal) bool {
	var t apd.Decimal
	truncTo(&t, x, 0)
	return t.Coeff.Bit(0) == 1
}

// infinitePower is x^y where one of them is infinite, as POSIX pow has it.
func infinitePower(d, x, y *apd.Decimal, integral bool) *dataflow.Error {
	one := apd.Decimal{Coeff: *apd.NewBigInt(1)}
	switch {
	case x.Form == apd.Finite && x.Cmp(&one) == 0, signOf(y) == 0:
		*d = one
	case y.Form == apd.Infinite:
		var abs apd.Decimal
		abs.Abs(x)
		cmp := 1
		if abs.Form == apd.Finite {
			cmp = abs.Cmp(&one)
		}
		switch {
		case cmp == 0: // x is -1
			*d = one
		case (cmp > 0) == (signOf(y) > 0):
			setInf(d, false)
		default:
			*d = apd.Decimal{}
		}
	case signOf(y) < 0:
		*d = apd.Decimal{}
	default:
		if x.Negative && !integral {
			return failf("a negative number raised to a non-integer power yields a complex result")
		}
		setInf(d, x.Negative && isOdd(y))
	}
	return nil
}
