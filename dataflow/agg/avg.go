package agg

import (
	"github.com/cockroachdb/apd/v3"
)

// PostgreSQL's rule for the scale of a quotient of NUMERIC (select_div_scale): at least 16 significant digits, never
// less than the dividend's scale, never more than 1,000.
const (
	minSignificant = 16
	maxDivScale    = 1000
	digitsPerLimb  = 4 // PostgreSQL counts in base 10,000
)

// divide sets d to sum / 10^scale / n, rounded half away from zero to PostgreSQL's scale. n > 0.
func divide(d *apd.Decimal, sum *apd.BigInt, scale int32, n int64) {
	divideBig(d, sum, scale, new(apd.BigInt).SetInt64(n))
}

// divideBig is divide by a divisor of any size.
func divideBig(d *apd.Decimal, sum *apd.BigInt, scale int32, by *apd.BigInt) {
	var divisor apd.BigInt
	divisor.Set(by)
	w1, f1 := leadingLimb(sum, scale)
	w2, f2 := leadingLimb(&divisor, 0)
	weight := w1 - w2
	if f1 <= f2 {
		weight--
	}
	rscale := min(max(minSignificant-weight*digitsPerLimb, int64(scale), 0), maxDivScale)

	// When the dividend has more than the 1,000 digits after the point that a quotient may have, the divisor is scaled
	// instead.
	var num apd.BigInt
	num.Abs(sum)
	if up := int32(rscale) - scale; up >= 0 {
		mulPow10(&num, up)
	} else {
		mulPow10(&divisor, -up)
	}
	var r apd.BigInt
	num.QuoRem(&num, &divisor, &r)
	if r.Add(&r, &r).Cmp(&divisor) >= 0 {
		num.Add(&num, new(apd.BigInt).SetInt64(1))
	}
	d.Form = apd.Finite
	d.Exponent = -int32(rscale)
	d.Negative = sum.Sign() < 0 && num.Sign() != 0
	d.Coeff.Set(&num)
}

// leadingLimb returns the weight (power of 10,000) and the value of the first non-zero base-10,000 digit of
// |v| / 10^scale; 0, 0 for zero.
func leadingLimb(v *apd.BigInt, scale int32) (weight, first int64) {
	if v.Sign() == 0 {
		return 0, 0
	}
	var abs apd.BigInt
	abs.Abs(v)
	digits := apd.NumDigits(&abs)
	lead := digits - int64(scale) - 1 // power of ten of the first digit
	weight = lead / digitsPerLimb
	if lead%digitsPerLimb < 0 {
		weight--
	}
	// The limb holds the digits with powers 4*weight to lead.
	take := lead - weight*digitsPerLimb + 1
	if digits >= take {
		var p apd.BigInt
		p.SetInt64(1)
		mulPow10(&p, int32(digits-take))
		abs.Quo(&abs, &p)
		return weight, abs.Int64()
	}
	return weight, abs.Int64() * pow10(int32(take-digits))
}
