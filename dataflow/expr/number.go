package expr

import (
	"math"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

func numberFunctions() []function {
	int1, num1, flt1 := []dataflow.Type{tInt}, []dataflow.Type{tNum}, []dataflow.Type{tFlt}
	int2, num2, flt2 := []dataflow.Type{tInt, tInt}, []dataflow.Type{tNum, tNum}, []dataflow.Type{tFlt, tFlt}
	return []function{
		{name: "+", args: int2, result: tInt, eval: evalAddInts,
			doc: "Sum. BIGINT fails with “bigint out of range”, DOUBLE PRECISION with “value out of range: overflow”.", example: "1 + 2.50"},
		{name: "+", args: num2, result: tNum, eval: numeric2(numericAdd)},
		{name: "+", args: flt2, result: tFlt, eval: float2(addDoubles)},
		{name: "+", args: int1, result: tInt, eval: evalSame},
		{name: "+", args: num1, result: tNum, eval: evalSame},
		{name: "+", args: flt1, result: tFlt, eval: evalSame},
		{name: "-", args: int2, result: tInt, eval: evalSubInts,
			doc: "Difference, or the negative.", example: "-(7 - 10)"},
		{name: "-", args: num2, result: tNum, eval: numeric2(numericSub)},
		{name: "-", args: flt2, result: tFlt, eval: float2(subDoubles)},
		{name: "-", args: int1, result: tInt, eval: int1fn(negInt)},
		{name: "-", args: num1, result: tNum, eval: numeric1(numericNeg)},
		{name: "-", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return -x, nil })},
		{name: "*", args: int2, result: tInt, eval: int2fn(mulInt),
			doc: "Product.", example: "1.5 * 1.25"},
		{name: "*", args: num2, result: tNum, eval: numeric2(numericMul)},
		{name: "*", args: flt2, result: tFlt, eval: float2(mulDoubles)},
		{name: "/", args: int2, result: tInt, eval: int2fn(quoInt),
			doc: "Quotient. BIGINT is cut towards zero; NUMERIC has at least 16 significant digits. Fails with “division by zero”.", example: "7 / 2.0"},
		{name: "/", args: num2, result: tNum, eval: numeric2(numericQuo)},
		{name: "/", args: flt2, result: tFlt, eval: float2(quoDoubles)},
		{name: "%", args: int2, result: tInt, eval: int2fn(remInt),
			doc: "Remainder, with the sign of the dividend.", example: "-7 % 3"},
		{name: "%", args: num2, result: tNum, eval: numeric2(numericRem)},
		{name: "^", args: flt2, result: tFlt, eval: float2(powDoubles),
			doc: "Power, as power().", example: "2 ^ 10"},
		{name: "^", args: num2, result: tNum, eval: numeric2(numericPower)},
		{name: "&", args: int2, result: tInt, eval: int2fn(func(a, b int64) (int64, *dataflow.Error) { return a & b, nil }),
			doc: "Bitwise AND.", example: "12 & 10"},
		{name: "|", args: int2, result: tInt, eval: int2fn(func(a, b int64) (int64, *dataflow.Error) { return a | b, nil }),
			doc: "Bitwise OR.", example: "12 | 3"},
		{name: "#", args: int2, result: tInt, eval: int2fn(func(a, b int64) (int64, *dataflow.Error) { return a ^ b, nil }),
			doc: "Bitwise exclusive OR.", example: "12 # 10"},
		{name: "<<", args: int2, result: tInt, eval: int2fn(func(a, b int64) (int64, *dataflow.Error) { return a << (uint64(b) & 63), nil }),
			doc: "Shift left; the distance counts modulo 64.", example: "1 << 4"},
		{name: ">>", args: int2, result: tInt, eval: int2fn(func(a, b int64) (int64, *dataflow.Error) { return a >> (uint64(b) & 63), nil }),
			doc: "Shift right, keeping the sign; the distance counts modulo 64.", example: "-8 >> 1"},
		{name: "abs", args: int1, result: tInt, eval: int1fn(absInt),
			doc: "Absolute value.", example: "abs(-17)"},
		{name: "abs", args: num1, result: tNum, eval: numeric1(func(d, x *apd.Decimal) *dataflow.Error { d.Abs(x); return nil })},
		{name: "abs", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return math.Abs(x), nil })},
		{name: "ceil", args: num1, result: tNum, eval: numeric1(numericCeil),
			doc: "The least integer that is not less.", example: "ceil(-1.5)"},
		{name: "ceil", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return math.Ceil(x), nil })},
		{name: "ceiling", args: num1, result: tNum, eval: numeric1(numericCeil),
			doc: "The same as ceil.", example: "ceiling(1.2)"},
		{name: "ceiling", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return math.Ceil(x), nil })},
		{name: "floor", args: num1, result: tNum, eval: numeric1(numericFloor),
			doc: "The greatest integer that is not greater.", example: "floor(-1.5)"},
		{name: "floor", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return math.Floor(x), nil })},
		{name: "round", args: num1, result: tNum, eval: numeric1(func(d, x *apd.Decimal) *dataflow.Error { return roundDigits(d, x, 0, true) }),
			doc: "The nearest integer, or to so many digits after the point (before it, if negative). NUMERIC rounds halves away from zero, DOUBLE PRECISION to even.", example: "round(2.345, 2)"},
		{name: "round", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return math.RoundToEven(x), nil })},
		{name: "round", args: []dataflow.Type{tNum, tInt}, result: tNum, eval: numericDigits(true)},
		{name: "trunc", args: num1, result: tNum, eval: numeric1(func(d, x *apd.Decimal) *dataflow.Error { return roundDigits(d, x, 0, false) }),
			doc: "Cut towards zero, to an integer or to so many digits after the point.", example: "trunc(2.345, 2)"},
		{name: "trunc", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return math.Trunc(x), nil })},
		{name: "trunc", args: []dataflow.Type{tNum, tInt}, result: tNum, eval: numericDigits(false)},
		{name: "mod", args: int2, result: tInt, eval: int2fn(remInt),
			doc: "Remainder, as %.", example: "mod(7, 3)"},
		{name: "mod", args: num2, result: tNum, eval: numeric2(numericRem)},
		{name: "div", args: num2, result: tNum, eval: numeric2(numericDiv),
			doc: "Quotient, cut towards zero.", example: "div(7, 2)"},
		{name: "gcd", args: int2, result: tInt, eval: int2fn(gcdInt),
			doc: "Greatest common divisor.", example: "gcd(12, 18)"},
		{name: "lcm", args: int2, result: tInt, eval: int2fn(lcmInt),
			doc: "Least common multiple.", example: "lcm(4, 6)"},
		{name: "sign", args: num1, result: tNum, eval: numeric1(numericSign),
			doc: "-1, 0 or 1.", example: "sign(-8.4)"},
		{name: "sign", args: flt1, result: tFlt, eval: float1(signDouble)},
		{name: "sqrt", args: num1, result: tNum, eval: numeric1(numericSqrt),
			doc: "Square root.", example: "sqrt(2.0)"},
		{name: "sqrt", args: flt1, result: tFlt, eval: float1(sqrtDouble)},
		{name: "cbrt", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return math.Cbrt(x), nil }),
			doc: "Cube root.", example: "cbrt(27)"},
		{name: "exp", args: num1, result: tNum, eval: numeric1(numericExp),
			doc: "e to the power of the argument.", example: "exp(1.0)", differs: "for DOUBLE PRECISION the last digit may differ, here and in ln, log and power"},
		{name: "exp", args: flt1, result: tFlt, eval: float1(expDouble)},
		{name: "ln", args: num1, result: tNum, eval: numeric1(numericLn),
			doc: "Natural logarithm.", example: "ln(2.0)"},
		{name: "ln", args: flt1, result: tFlt, eval: float1(logDouble(math.Log))},
		{name: "log", args: num1, result: tNum, eval: numeric1(numericLog10),
			doc: "Logarithm to base 10, or to the base given first.", example: "log(2.0, 64.0)"},
		{name: "log", args: flt1, result: tFlt, eval: float1(logDouble(math.Log10))},
		{name: "log", args: num2, result: tNum, eval: numeric2(numericLog)},
		{name: "log10", args: num1, result: tNum, eval: numeric1(numericLog10),
			doc: "Logarithm to base 10.", example: "log10(1000)"},
		{name: "log10", args: flt1, result: tFlt, eval: float1(logDouble(math.Log10))},
		{name: "power", args: flt2, result: tFlt, eval: float2(powDoubles),
			doc: "The first to the power of the second.", example: "power(9, 3)"},
		{name: "power", args: num2, result: tNum, eval: numeric2(numericPower)},
		{name: "pow", args: flt2, result: tFlt, eval: float2(powDoubles),
			doc: "The same as power.", example: "pow(2.0, 3.0)"},
		{name: "pow", args: num2, result: tNum, eval: numeric2(numericPower)},
		{name: "pi", result: tFlt, eval: func(f *frame) {
			f.each(func(i int) *dataflow.Error { f.out.Floats[i] = math.Pi; return nil })
		}, doc: "π.", example: "pi()"},
		{name: "degrees", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return quoDoubles(x, math.Pi/180) }),
			doc: "Radians in degrees.", example: "degrees(0.5)"},
		{name: "radians", args: flt1, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) { return mulDoubles(x, math.Pi/180) }),
			doc: "Degrees in radians.", example: "radians(45)"},
		{name: "scale", args: num1, result: tInt, eval: evalScale,
			doc: "The number of digits after the point.", example: "scale(8.4100)"},
		{name: "trim_scale", args: num1, result: tNum, eval: numeric1(numericTrimScale),
			doc: "Without trailing zeros after the point.", example: "trim_scale(8.4100)"},
		{name: "width_bucket", args: []dataflow.Type{tFlt, tFlt, tFlt, tInt}, result: tInt, eval: evalWidthBucket,
			doc: "The number of the bucket that a value falls in, of so many equal ones between two bounds; 0 below, one more than there are above.", example: "width_bucket(5.35, 0.024, 10.06, 5)"},
		{name: "random", result: tFlt, volatile: true,
			doc: "Refused: it answers differently each time, so no result could be repeated after a failure. So are gen_random_uuid() and clock_timestamp()."},
		{name: "gen_random_uuid", result: tText, volatile: true},
		{name: "clock_timestamp", result: tTime, volatile: true},
	}
}

// The adapters below make a row function into the code of an entry.

func int1fn(fn func(a int64) (int64, *dataflow.Error)) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.each(func(i int) *dataflow.Error {
			v, err := fn(a.int(i))
			if err == nil {
				f.out.Ints[i] = v
			}
			return err
		})
	}
}

func int2fn(fn func(a, b int64) (int64, *dataflow.Error)) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error {
			v, err := fn(a.int(i), b.int(i))
			if err == nil {
				f.out.Ints[i] = v
			}
			return err
		})
	}
}

func float1(fn func(x float64) (float64, *dataflow.Error)) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.each(func(i int) *dataflow.Error {
			v, err := fn(a.flt(i))
			if err == nil {
				f.out.Floats[i] = v
			}
			return err
		})
	}
}

func float2(fn func(x, y float64) (float64, *dataflow.Error)) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error {
			v, err := fn(a.flt(i), b.flt(i))
			if err == nil {
				f.out.Floats[i] = v
			}
			return err
		})
	}
}

func numeric1(fn func(d, x *apd.Decimal) *dataflow.Error) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.each(func(i int) *dataflow.Error { return f.setNumeric(i, fn(&f.out.Decs[i], a.dec(i))) })
	}
}

func numeric2(fn func(d, x, y *apd.Decimal) *dataflow.Error) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error { return f.setNumeric(i, fn(&f.out.Decs[i], a.dec(i), b.dec(i))) })
	}
}

// setNumeric finishes row i: a row that has failed is zero again.
func (f *frame) setNumeric(i int, err *dataflow.Error) *dataflow.Error {
	if err != nil {
		f.out.Decs[i] = apd.Decimal{}
	}
	return err
}

func numericDigits(round bool) func(f *frame) {
	return func(f *frame) {
		a, n := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error {
			return f.setNumeric(i, roundDigits(&f.out.Decs[i], a.dec(i), n.int(i), round))
		})
	}
}

// evalSame is the sign +.
func evalSame(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error { copyRow(f.out, i, a.v, i&a.mask); return nil })
}

// evalAddInts adds whole columns and looks at overflow once; only a batch that has one is done row by row.
func evalAddInts(f *frame) {
	a, b, out := f.args[0], f.args[1], f.out.Ints
	if f.sel == nil {
		if a.constant() {
			a, b = b, a
		}
		var over int64
		switch {
		case a.constant():
			over = -1
		case b.constant():
			k := b.int(0)
			for i, x := range a.v.Ints[:len(out)] {
				s := x + k
				out[i] = s
				over |= (x ^ s) & (k ^ s)
			}
		default:
			ys := b.v.Ints[:len(out)]
			for i, x := range a.v.Ints[:len(out)] {
				s := x + ys[i]
				out[i] = s
				over |= (x ^ s) & (ys[i] ^ s)
			}
		}
		if over >= 0 {
			zeroNulls(out, f.nulls)
			return
		}
		clear(out)
	}
	int2fn(func(a, b int64) (int64, *dataflow.Error) {
		s, over := addInt64(a, b)
		if over {
			return 0, errBigIntRange
		}
		return s, nil
	})(f)
}

// evalSubInts does for differences what evalAddInts does for sums.
func evalSubInts(f *frame) {
	a, b, out := f.args[0], f.args[1], f.out.Ints
	if f.sel == nil && !(a.constant() && b.constant()) {
		var over int64
		switch {
		case b.constant():
			k := b.int(0)
			for i, x := range a.v.Ints[:len(out)] {
				s := x - k
				out[i] = s
				over |= (x ^ k) & (x ^ s)
			}
		case a.constant():
			k := a.int(0)
			for i, y := range b.v.Ints[:len(out)] {
				s := k - y
				out[i] = s
				over |= (k ^ y) & (k ^ s)
			}
		default:
			ys := b.v.Ints[:len(out)]
			for i, x := range a.v.Ints[:len(out)] {
				s := x - ys[i]
				out[i] = s
				over |= (x ^ ys[i]) & (x ^ s)
			}
		}
		if over >= 0 {
			zeroNulls(out, f.nulls)
			return
		}
		clear(out)
	}
	int2fn(func(a, b int64) (int64, *dataflow.Error) {
		s, over := subInt64(a, b)
		if over {
			return 0, errBigIntRange
		}
		return s, nil
	})(f)
}

func negInt(a int64) (int64, *dataflow.Error) {
	if a == math.MinInt64 {
		return 0, errBigIntRange
	}
	return -a, nil
}

func absInt(a int64) (int64, *dataflow.Error) {
	if a < 0 {
		return negInt(a)
	}
	return a, nil
}

func mulInt(a, b int64) (int64, *dataflow.Error) {
	p, over := mulInt64(a, b)
	if over {
		return 0, errBigIntRange
	}
	return p, nil
}

func quoInt(a, b int64) (int64, *dataflow.Error) {
	switch {
	case b == 0:
		return 0, errDivisionByZero
	case b == -1:
		return negInt(a)
	}
	return a / b, nil
}

func remInt(a, b int64) (int64, *dataflow.Error) {
	switch b {
	case 0:
		return 0, errDivisionByZero
	case -1:
		return 0, nil
	}
	return a % b, nil
}

// gcdInt works on negative numbers, of which there is one more.
func gcdInt(a, b int64) (int64, *dataflow.Error) {
	a, b = min(a, -a), min(b, -b)
	for b != 0 {
		if b == -1 {
			return 1, nil
		}
		a, b = b, a%b
	}
	return negInt(a)
}

func lcmInt(a, b int64) (int64, *dataflow.Error) {
	if a == 0 || b == 0 {
		return 0, nil
	}
	g, err := gcdInt(a, b)
	if err != nil {
		return 0, err
	}
	p, over := mulInt64(a/g, b)
	if over {
		return 0, errBigIntRange
	}
	return absInt(p)
}

// checkedDouble finishes a double: an infinity that no operand was is an overflow, a zero that should not be one an
// underflow.
func checkedDouble(v float64, infOK, zeroOK bool) (float64, *dataflow.Error) {
	switch {
	case math.IsInf(v, 0) && !infOK:
		return 0, errOverflow
	case v == 0 && !zeroOK:
		return 0, errUnderflow
	}
	return v, nil
}

func isInf(x float64) bool { return math.IsInf(x, 0) }

func addDoubles(x, y float64) (float64, *dataflow.Error) {
	return checkedDouble(x+y, isInf(x) || isInf(y), true)
}

func subDoubles(x, y float64) (float64, *dataflow.Error) {
	return checkedDouble(x-y, isInf(x) || isInf(y), true)
}

func mulDoubles(x, y float64) (float64, *dataflow.Error) {
	return checkedDouble(x*y, isInf(x) || isInf(y), x == 0 || y == 0)
}

func quoDoubles(x, y float64) (float64, *dataflow.Error) {
	if y == 0 && !math.IsNaN(x) {
		return 0, errDivisionByZero
	}
	return checkedDouble(x/y, isInf(x), x == 0 || isInf(y))
}

func powDoubles(x, y float64) (float64, *dataflow.Error) {
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		if x == 1 || y == 0 {
			return 1, nil
		}
		return math.NaN(), nil
	case x == 0 && y < 0:
		return 0, failf("zero raised to a negative power is undefined")
	case x < 0 && !isInf(x) && !isInf(y) && y != math.Floor(y):
		return 0, failf("a negative number raised to a non-integer power yields a complex result")
	}
	special := isInf(x) || isInf(y)
	return checkedDouble(math.Pow(x, y), special, special || x == 0)
}

func expDouble(x float64) (float64, *dataflow.Error) {
	return checkedDouble(math.Exp(x), isInf(x), isInf(x))
}

func sqrtDouble(x float64) (float64, *dataflow.Error) {
	if x < 0 {
		return 0, failf("cannot take square root of a negative number")
	}
	return math.Sqrt(x), nil
}

func logDouble(log func(float64) float64) func(x float64) (float64, *dataflow.Error) {
	return func(x float64) (float64, *dataflow.Error) {
		switch {
		case x == 0:
			return 0, failf("cannot take logarithm of zero")
		case x < 0:
			return 0, failf("cannot take logarithm of a negative number")
		}
		return log(x), nil
	}
}

func signDouble(x float64) (float64, *dataflow.Error) {
	switch {
	case x > 0:
		return 1, nil
	case x < 0:
		return -1, nil
	}
	return 0, nil // also for NaN, as PostgreSQL has it
}

func evalScale(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		if a.dec(i).Form != apd.Finite {
			f.null(i)
			return nil
		}
		f.out.Ints[i] = scaleOf(a.dec(i))
		return nil
	})
}

func evalWidthBucket(f *frame) {
	x, lo, hi, count := f.args[0], f.args[1], f.args[2], f.args[3]
	f.each(func(i int) (err *dataflow.Error) {
		v, err := widthBucket(x.flt(i), lo.flt(i), hi.flt(i), count.int(i))
		if err == nil {
			f.out.Ints[i] = v
		}
		return err
	})
}

func widthBucket(x, lo, hi float64, count int64) (int64, *dataflow.Error) {
	switch {
	case count <= 0:
		return 0, failf("count must be greater than zero")
	case math.IsNaN(x) || math.IsNaN(lo) || math.IsNaN(hi):
		return 0, failf("operand, lower bound, and upper bound cannot be NaN")
	case isInf(lo) || isInf(hi):
		return 0, failf("lower and upper bounds must be finite")
	case lo == hi:
		return 0, failf("lower bound cannot equal upper bound")
	case count == math.MaxInt64:
		return 0, errBigIntRange
	}
	if lo > hi {
		x, lo, hi = -x, -lo, -hi
	}
	switch {
	case x < lo:
		return 0, nil
	case x >= hi:
		return count + 1, nil
	}
	part := (x - lo) / (hi - lo)
	if isInf(hi - lo) {
		part = (x/2 - lo/2) / (hi/2 - lo/2)
	}
	return min(int64(part*float64(count)), count-1) + 1, nil
}
