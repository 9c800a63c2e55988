package expr

import (
	"math"
	"math/big"

	"github.com/cockroachdb/apd/v3"
)

// Logarithms and exponentials to any number of digits, in fixed point: an integer v with p bits stands for v/2^p. The
// functions say how far they may be off; callers ask for more bits than they show.

// bitsFor returns the bits of so many decimal digits, with a margin that covers the errors stated below.
func bitsFor(digits int64) uint { return uint(float64(max(digits, 0))*3.3219281) + 96 }

// atanhInverse returns atanh(1/n), off by less than one part in 2^(p-16).
func atanhInverse(n int64, p uint) *big.Int {
	t := new(big.Int).Lsh(big.NewInt(1), p)
	t.Quo(t, big.NewInt(n))
	sum := new(big.Int).Set(t)
	square := big.NewInt(n * n)
	var part big.Int
	for k := int64(3); t.Sign() != 0; k += 2 {
		t.Quo(t, square)
		sum.Add(sum, part.Quo(t, big.NewInt(k)))
	}
	return sum
}

// fixedLn2 returns the logarithm of 2, off by less than one part in 2^(p-1).
func fixedLn2(p uint) *big.Int {
	const guard = 32
	q := p + guard
	sum := new(big.Int).Mul(atanhInverse(26, q), big.NewInt(18))
	var part big.Int
	sum.Sub(sum, part.Mul(atanhInverse(4801, q), big.NewInt(2)))
	sum.Add(sum, part.Mul(atanhInverse(8749, q), big.NewInt(8)))
	return sum.Rsh(sum, guard)
}

// fixedExp returns e^r for |r| < 1, off by less than 2^-(p-8).
func fixedExp(r *big.Int, p uint) *big.Int {
	// e^r = (e^(r/2^m))^(2^m): fewer terms for some squarings.
	m := uint(math.Sqrt(float64(p)))/2 + 2
	q := p + m + 32
	x := new(big.Int).Lsh(r, 32) // r/2^m with q bits
	one := new(big.Int).Lsh(big.NewInt(1), q)
	sum, term := new(big.Int).Set(one), new(big.Int).Set(one)
	for k := int64(1); ; k++ {
		term.Mul(term, x)
		term.Rsh(term, q)
		term.Quo(term, big.NewInt(k))
		// A negative term is shifted to -1 and then divided to 0, so that this ends.
		if term.Sign() == 0 {
			break
		}
		sum.Add(sum, term)
	}
	for ; m > 0; m-- {
		sum.Mul(sum, sum)
		sum.Rsh(sum, q)
	}
	return sum.Rsh(sum, q-p)
}

// fixedLn returns the logarithm of a v between 1/2 and 2, off by less than 2^-(p-8).
func fixedLn(v *big.Int, p uint) *big.Int {
	// ln v = 2^j ln(v^(1/2^j)), whose series converges fast.
	j := uint(math.Sqrt(float64(p)))/3 + 2
	q := p + j + 32
	x := new(big.Int).Lsh(v, q-p)
	for i := uint(0); i < j; i++ {
		x.Lsh(x, q)
		x.Sqrt(x)
	}
	// ln x = 2 atanh((x-1)/(x+1)).
	one := new(big.Int).Lsh(big.NewInt(1), q)
	z := new(big.Int).Sub(x, one)
	z.Lsh(z, q)
	z.Quo(z, x.Add(x, one))
	square := new(big.Int).Mul(z, z)
	square.Rsh(square, q)
	sum, t := new(big.Int).Set(z), z
	var part big.Int
	for k := int64(3); ; k += 2 {
		t.Mul(t, square)
		t.Quo(t, one)
		if t.Sign() == 0 {
			break
		}
		sum.Add(sum, part.Quo(t, big.NewInt(k)))
	}
	sum.Lsh(sum, j+1)
	return sum.Rsh(sum, q-p)
}

// toBinary returns m of p bits and e such that m·2^e is x, off by less than one part in 2^(p-2). x is positive.
func toBinary(x *apd.Decimal, p uint) (m *big.Int, e int) {
	m = new(big.Int).Set(x.Coeff.MathBigInt())
	if x.Exponent >= 0 {
		m.Mul(m, exp10(int64(x.Exponent)).MathBigInt())
	} else {
		den := exp10(-int64(x.Exponent)).MathBigInt()
		if shift := int(p) + 2 + den.BitLen() - m.BitLen(); shift > 0 {
			m.Lsh(m, uint(shift))
			e = -shift
		}
		m.Quo(m, den)
	}
	return m, e + resize(m, p)
}

// resize shifts m to p bits and returns the exponent that makes up for it.
func resize(m *big.Int, p uint) int {
	d := m.BitLen() - int(p)
	if d >= 0 {
		m.Rsh(m, uint(d))
	} else {
		m.Lsh(m, uint(-d))
	}
	return d
}

// bigLn returns the logarithm of a positive x with p bits, off by less than 2^-(p-32).
func bigLn(x *apd.Decimal, p uint) *big.Int {
	m, e := toBinary(x, p) // m/2^p is in [1/2, 1)
	k := int64(e) + int64(p)
	if m.Bit(int(p)-2) == 0 {
		// Below 3/4: twice that is nearer to 1, and k is 0 for all x near 1, so that nothing cancels.
		m.Lsh(m, 1)
		k--
	}
	sum := fixedLn(m, p)
	return sum.Add(sum, new(big.Int).Mul(fixedLn2(p), big.NewInt(k)))
}

// bigExp sets d to e^(t/2^p), rounded to scale digits after the point.
func bigExp(d *apd.Decimal, t *big.Int, p uint, scale int64) {
	ln2 := fixedLn2(p)
	k, r := new(big.Int).QuoRem(t, ln2, new(big.Int))
	setBinary(d, fixedExp(r, p), int(k.Int64())-int(p), scale)
}

// setBinary sets d to m·2^e, rounded to scale digits after the point.
func setBinary(d *apd.Decimal, m *big.Int, e int, scale int64) {
	n := new(big.Int).Mul(m, exp10(scale).MathBigInt())
	if e >= 0 {
		n.Lsh(n, uint(e))
	} else {
		half := new(big.Int).Lsh(big.NewInt(1), uint(-e-1))
		n.Add(n, half)
		n.Rsh(n, uint(-e))
	}
	d.Form, d.Negative, d.Exponent = apd.Finite, false, int32(-scale)
	d.Coeff.SetMathBigInt(n)
}

// bigPower sets d to x^n for positive x and n, rounded to scale digits after the point; the result is known to have no
// more than so many digits before it. It computes with as many bits as are shown, not with all that the power has.
func bigPower(d, x *apd.Decimal, n uint64, digits, scale int64) {
	p := bitsFor(digits+scale) + 64 // 64: an error in x is raised to the n-th power too
	m, e := power(x, n, p)
	setBinary(d, m, e, scale)
}

// power returns x^n as m·2^e.
func power(x *apd.Decimal, n uint64, p uint) (m *big.Int, e int) {
	base, be := toBinary(x, p)
	m, e = big.NewInt(1), 0
	for {
		if n&1 != 0 {
			m.Mul(m, base)
			e += be
			e += resize(m, p)
		}
		if n >>= 1; n == 0 {
			return m, e
		}
		base.Mul(base, base)
		be *= 2
		be += resize(base, p)
	}
}

// bigInverse sets d to 1/x^n likewise, where x^-n has no more than so many digits before the point.
func bigInverse(d, x *apd.Decimal, n uint64, digits, scale int64) {
	p := bitsFor(digits+scale) + 64
	m, e := power(x, n, p)
	one := new(big.Int).Lsh(big.NewInt(1), 2*p)
	setBinary(d, one.Quo(one, m), -e-2*int(p), scale)
}
