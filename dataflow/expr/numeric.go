package expr

import (
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

// NUMERIC arithmetic by PostgreSQL's rules. A NUMERIC is an apd.Decimal whose exponent is not positive: minus the
// exponent is the number of digits after the point (PostgreSQL's display scale), which arithmetic decides and which the
// text form shows. There is no negative zero.

// Limits of NUMERIC, PostgreSQL's.
const (
	maxNumericDigits = 131072 // before the point
	maxNumericScale  = 16383  // after the point
	maxResultScale   = 1000   // after the point, of results that are rounded (division, logarithms …)
	minSignificant   = 16     // digits that such a result has at least
)

var (
	errNumericOverflow = dataflow.Errorf(dataflow.ReasonExpressionFailed, "value overflows numeric format")
	errDivisionByZero  = dataflow.Errorf(dataflow.ReasonExpressionFailed, "division by zero")
)

// smallPowers holds 10^0 to 10^18, which fit an apd.BigInt without memory of its own.
var smallPowers = sync.OnceValue(func() *[19]apd.BigInt {
	var t [19]apd.BigInt
	p := int64(1)
	for i := range t {
		t[i].SetInt64(p)
		p *= 10 // the last product is not used
	}
	return &t
})

// exp10 returns 10^n for n ≥ 0, not to be modified.
func exp10(n int64) *apd.BigInt {
	if n <= 18 {
		return &smallPowers()[n]
	}
	return new(apd.BigInt).Exp(apd.NewBigInt(10), apd.NewBigInt(n), nil)
}

func isNaN(x *apd.Decimal) bool { return x.Form == apd.NaN || x.Form == apd.NaNSignaling }

func scaleOf(x *apd.Decimal) int64 { return max(0, -int64(x.Exponent)) }

func setNaN(d *apd.Decimal) {
	*d = apd.Decimal{Form: apd.NaN}
}

func setInf(d *apd.Decimal, negative bool) {
	*d = apd.Decimal{Form: apd.Infinite, Negative: negative}
}

// finish makes d what a NUMERIC must be and checks its range.
func finish(d *apd.Decimal) *dataflow.Error {
	if d.Form != apd.Finite {
		return nil
	}
	if d.Coeff.Sign() == 0 {
		d.Negative = false
		d.Exponent = min(d.Exponent, 0)
	}
	if d.Exponent > 0 {
		if d.NumDigits()+int64(d.Exponent) > maxNumericDigits {
			return errNumericOverflow
		}
		d.Coeff.Mul(&d.Coeff, exp10(int64(d.Exponent)))
		d.Exponent = 0
	}
	if -int64(d.Exponent) > maxNumericScale {
		roundTo(d, d, maxNumericScale)
	}
	if d.Coeff.BitLen() > 64 && d.NumDigits()+int64(d.Exponent) > maxNumericDigits {
		return errNumericOverflow
	}
	return nil
}

// roundTo sets d to x rounded to scale digits after the point, half away from zero; a negative scale rounds before the
// point. The result has max(scale, 0) digits after the point. x must be finite.
func roundTo(d, x *apd.Decimal, scale int64) { rescale(d, x, scale, true) }

// truncTo is roundTo that drops digits instead.
func truncTo(d, x *apd.Decimal, scale int64) { rescale(d, x, scale, false) }

func rescale(d, x *apd.Decimal, scale int64, round bool) {
	d.Form, d.Negative = apd.Finite, x.Negative
	drop := -int64(x.Exponent) - scale
	switch {
	case drop <= 0:
		d.Coeff.Mul(&x.Coeff, exp10(-drop))
	case drop > x.NumDigits():
		d.Coeff.SetInt64(0)
	default:
		var rem apd.BigInt
		p := exp10(drop)
		d.Coeff.QuoRem(&x.Coeff, p, &rem)
		if round && rem.Add(&rem, &rem).Cmp(p) >= 0 {
			d.Coeff.Add(&d.Coeff, apd.NewBigInt(1))
		}
	}
	d.Exponent = int32(-scale)
	if scale < 0 {
		d.Coeff.Mul(&d.Coeff, exp10(-scale))
		d.Exponent = 0
	}
	if d.Coeff.Sign() == 0 {
		d.Negative = false
	}
}

// FitNumeric rounds d to the scale of a NUMERIC(precision, scale), and refuses it when it then has too many digits, as
// PostgreSQL does on storing. The error is a *dataflow.Error.
func FitNumeric(mod dataflow.NumericMod, d *apd.Decimal) error {
	if err := fitNumeric(mod, d); err != nil {
		return err
	}
	return nil
}

func fitNumeric(mod dataflow.NumericMod, d *apd.Decimal) *dataflow.Error {
	switch {
	case mod == (dataflow.NumericMod{}) || isNaN(d):
		return nil
	case d.Form != apd.Finite:
		return failf("numeric field overflow").WithHint("a field with precision %d, scale %d cannot hold an infinite value", mod.Precision, mod.Scale)
	}
	roundTo(d, d, int64(mod.Scale))
	if d.Coeff.Sign() != 0 && d.NumDigits()+int64(d.Exponent) > int64(mod.Precision)-int64(mod.Scale) {
		return failf("numeric field overflow").
			WithHint("a field with precision %d, scale %d must round to an absolute value less than 10^%d", mod.Precision, mod.Scale, int(mod.Precision)-int(mod.Scale))
	}
	return nil
}

// compareNumeric orders NUMERICs: -Infinity, the numbers, Infinity, NaN. NaN equals NaN.
func compareNumeric(x, y *apd.Decimal) int {
	if x.Form == apd.Finite && y.Form == apd.Finite {
		if x.Exponent == y.Exponent && x.Negative == y.Negative {
			if x.Negative {
				return y.Coeff.Cmp(&x.Coeff)
			}
			return x.Coeff.Cmp(&y.Coeff)
		}
		return x.Cmp(y)
	}
	return numericRank(x) - numericRank(y)
}

func numericRank(x *apd.Decimal) int {
	switch {
	case isNaN(x):
		return 2
	case x.Form == apd.Infinite && x.Negative:
		return -1
	case x.Form == apd.Infinite:
		return 1
	}
	return 0
}

// signOf returns -1, 0 or 1, also for infinities.
func signOf(x *apd.Decimal) int {
	if x.Form == apd.Infinite {
		return numericRank(x)
	}
	return x.Sign()
}

func numericAdd(d, x, y *apd.Decimal) *dataflow.Error { return addSigned(d, x, y, y.Negative) }

func numericSub(d, x, y *apd.Decimal) *dataflow.Error { return addSigned(d, x, y, !y.Negative) }

// addSigned sets d to x plus y with the sign yNegative.
func addSigned(d, x, y *apd.Decimal, yNegative bool) *dataflow.Error {
	switch {
	case isNaN(x) || isNaN(y):
		setNaN(d)
		return nil
	case x.Form == apd.Infinite && y.Form == apd.Infinite && x.Negative != yNegative:
		setNaN(d)
		return nil
	case x.Form == apd.Infinite:
		setInf(d, x.Negative)
		return nil
	case y.Form == apd.Infinite:
		setInf(d, yNegative)
		return nil
	}
	a, b := &x.Coeff, &y.Coeff
	e := min(x.Exponent, y.Exponent)
	var scaled apd.BigInt
	if x.Exponent > e {
		a = scaled.Mul(a, exp10(int64(x.Exponent)-int64(e)))
	} else if y.Exponent > e {
		b = scaled.Mul(b, exp10(int64(y.Exponent)-int64(e)))
	}
	negative := x.Negative
	switch {
	case x.Negative == yNegative:
		d.Coeff.Add(a, b)
	case a.Cmp(b) >= 0:
		d.Coeff.Sub(a, b)
	default:
		d.Coeff.Sub(b, a)
		negative = yNegative
	}
	d.Form, d.Negative, d.Exponent = apd.Finite, negative, e
	return finish(d)
}

func numericMul(d, x, y *apd.Decimal) *dataflow.Error {
	switch {
	case isNaN(x) || isNaN(y):
		setNaN(d)
		return nil
	case x.Form == apd.Infinite || y.Form == apd.Infinite:
		if signOf(x) == 0 || signOf(y) == 0 {
			setNaN(d)
		} else {
			setInf(d, x.Negative != y.Negative)
		}
		return nil
	}
	if int64(x.Coeff.BitLen())+int64(y.Coeff.BitLen()) > 4*(maxNumericDigits+2*maxNumericScale) {
		return errNumericOverflow
	}
	negative, e := x.Negative != y.Negative, x.Exponent+y.Exponent
	d.Coeff.Mul(&x.Coeff, &y.Coeff)
	d.Form, d.Negative, d.Exponent = apd.Finite, negative, e
	return finish(d)
}

// specialQuo handles the operands of a division that are not both finite, and the divisor zero.
func specialQuo(d, x, y *apd.Decimal) (done bool, err *dataflow.Error) {
	switch {
	case isNaN(x) || isNaN(y) || x.Form == apd.Infinite && y.Form == apd.Infinite:
		setNaN(d)
		return true, nil
	case signOf(y) == 0:
		return true, errDivisionByZero
	case x.Form == apd.Infinite:
		setInf(d, x.Negative != (signOf(y) < 0))
		return true, nil
	case y.Form == apd.Infinite:
		*d = apd.Decimal{}
		return true, nil
	}
	return false, nil
}

// weight10000 returns the position of the leading base-10,000 digit of x and that digit: PostgreSQL's result scales
// are counted in such digits. Zero gives 0 and 0.
func weight10000(x *apd.Decimal) (weight, digit int64) {
	if x.Coeff.Sign() == 0 {
		return 0, 0
	}
	n := x.NumDigits()
	top := n + int64(x.Exponent) - 1 // the leading decimal digit stands at 10^top
	weight = floorDiv(top, 4)
	take := top - 4*weight + 1 // decimal digits in the leading base-10,000 digit
	if take >= n {
		digit = x.Coeff.Int64()
		for ; take > n; take-- {
			digit *= 10
		}
		return weight, digit
	}
	var q apd.BigInt
	q.Quo(&x.Coeff, exp10(n-take))
	return weight, q.Int64()
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// quoScale is PostgreSQL's select_div_scale.
func quoScale(x, y *apd.Decimal) int64 {
	wx, dx := weight10000(x)
	wy, dy := weight10000(y)
	q := wx - wy
	if dx <= dy {
		q--
	}
	return clampScale(max(minSignificant-q*4, scaleOf(x), scaleOf(y)))
}

func clampScale(s int64) int64 { return min(max(s, 0), maxResultScale) }

func numericQuo(d, x, y *apd.Decimal) *dataflow.Error {
	if done, err := specialQuo(d, x, y); done {
		return err
	}
	quoTo(d, x, y, quoScale(x, y), true)
	return finish(d)
}

// quoTo sets d to x/y with scale digits after the point, rounded or truncated. x and y are finite, y is not zero.
func quoTo(d, x, y *apd.Decimal, scale int64, round bool) {
	shift := int64(x.Exponent) - int64(y.Exponent) + scale
	var num, den, rem apd.BigInt
	num.Set(&x.Coeff)
	den.Set(&y.Coeff)
	if shift >= 0 {
		num.Mul(&num, exp10(shift))
	} else {
		den.Mul(&den, exp10(-shift))
	}
	negative := x.Negative != y.Negative
	d.Coeff.QuoRem(&num, &den, &rem)
	if round && rem.Add(&rem, &rem).Cmp(&den) >= 0 {
		d.Coeff.Add(&d.Coeff, apd.NewBigInt(1))
	}
	d.Form, d.Negative, d.Exponent = apd.Finite, negative, int32(-scale)
}

// numericDiv sets d to the integer part of x/y, as the function div does.
func numericDiv(d, x, y *apd.Decimal) *dataflow.Error {
	if done, err := specialQuo(d, x, y); done {
		return err
	}
	quoTo(d, x, y, 0, false)
	return finish(d)
}

func numericRem(d, x, y *apd.Decimal) *dataflow.Error {
	switch {
	case isNaN(x) || isNaN(y):
		setNaN(d)
		return nil
	case signOf(y) == 0:
		return errDivisionByZero
	case x.Form == apd.Infinite:
		setNaN(d)
		return nil
	case y.Form == apd.Infinite:
		d.Set(x)
		return nil
	}
	e := min(x.Exponent, y.Exponent)
	var a, b apd.BigInt
	a.Mul(&x.Coeff, exp10(int64(x.Exponent)-int64(e)))
	b.Mul(&y.Coeff, exp10(int64(y.Exponent)-int64(e)))
	negative := x.Negative
	d.Coeff.Rem(&a, &b)
	d.Form, d.Negative, d.Exponent = apd.Finite, negative, e
	return finish(d)
}

// numericFromFloat converts with the 15 digits that PostgreSQL keeps.
func numericFromFloat(d *apd.Decimal, f float64) *dataflow.Error {
	switch {
	case math.IsNaN(f):
		setNaN(d)
		return nil
	case math.IsInf(f, 0):
		setInf(d, f < 0)
		return nil
	}
	if _, _, err := d.SetString(strconv.FormatFloat(f, 'g', 15, 64)); err != nil {
		return errNumericOverflow
	}
	// %g drops trailing zeros, and so must we: FormatFloat has kept none, but an exponent may leave some.
	return finish(d)
}

// numericToFloat converts to the nearest double.
func numericToFloat(x *apd.Decimal) (float64, *dataflow.Error) {
	switch {
	case isNaN(x):
		return math.NaN(), nil
	case x.Form == apd.Infinite:
		return math.Inf(signOf(x)), nil
	}
	if x.Coeff.IsInt64() && x.Exponent >= -22 && x.Exponent <= 0 {
		// Both are exact in a double below 2^53, so that one division rounds once.
		if c := x.Coeff.Int64(); c < 1<<53 {
			f := float64(c)
			if x.Exponent < 0 {
				f /= pow10[-x.Exponent]
			}
			if x.Negative {
				f = -f
			}
			return f, nil
		}
	}
	text := formatNumeric(nil, x)
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f == 0 && x.Coeff.Sign() != 0 {
		return 0, failf("%q is out of range for type double precision", text)
	}
	return f, nil
}

var pow10 = [23]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// numericToInt rounds to the nearest integer, half away from zero.
func numericToInt(x *apd.Decimal) (int64, *dataflow.Error) {
	switch {
	case isNaN(x):
		return 0, failf("cannot convert NaN to bigint")
	case x.Form == apd.Infinite:
		return 0, failf("cannot convert infinity to bigint")
	}
	if x.NumDigits()+int64(x.Exponent) > 19 {
		return 0, errBigIntRange
	}
	var r apd.Decimal
	roundTo(&r, x, 0)
	if r.Negative {
		r.Coeff.Neg(&r.Coeff)
	}
	if !r.Coeff.IsInt64() {
		return 0, errBigIntRange
	}
	return r.Coeff.Int64(), nil
}

// parseNumeric reads the text form of a NUMERIC.
func parseNumeric(s string) (*apd.Decimal, *dataflow.Error) {
	bad := func() (*apd.Decimal, *dataflow.Error) { return nil, badSyntax("numeric", s) }
	t := strings.Trim(s, pgSpace)
	d := new(apd.Decimal)
	switch strings.ToLower(t) {
	case "nan":
		setNaN(d)
		return d, nil
	case "infinity", "+infinity", "inf", "+inf":
		setInf(d, false)
		return d, nil
	case "-infinity", "-inf":
		setInf(d, true)
		return d, nil
	}
	if t != "" && (t[0] == '+' || t[0] == '-') {
		d.Negative = t[0] == '-'
		t = t[1:]
	}
	digits := make([]byte, 0, len(t))
	scale, point, i := int64(0), false, 0
	for ; i < len(t); i++ {
		switch c := t[i]; {
		case c >= '0' && c <= '9':
			if len(digits) > 0 || c != '0' {
				digits = append(digits, c)
			}
			if point {
				scale++
			}
			continue
		case c == '.' && !point:
			point = true
			continue
		}
		break
	}
	mantissa := t[:i]
	if strings.Trim(mantissa, ".") == "" {
		return bad()
	}
	if i < len(t) {
		if t[i] != 'e' && t[i] != 'E' || len(t)-i > 12 {
			return bad()
		}
		x, err := strconv.ParseInt(t[i+1:], 10, 64)
		if err != nil || t[i+1:] == "" {
			return bad()
		}
		if x > math.MaxInt32/2 || x < -math.MaxInt32/2 {
			return nil, errNumericOverflow
		}
		scale -= x
	}
	if len(digits) == 0 {
		digits = append(digits, '0')
		scale = max(scale, 0)
	}
	if int64(len(digits))-scale > maxNumericDigits {
		return nil, errNumericOverflow
	}
	if over := scale - maxNumericScale; over > 0 {
		// Digits that could not be kept: PostgreSQL rounds them away.
		if over > int64(len(digits)) {
			digits, scale = append(digits[:0], '0'), maxNumericScale
		}
	}
	if _, ok := d.Coeff.SetString(string(digits), 10); !ok {
		return bad()
	}
	d.Exponent = int32(-scale)
	if err := finish(d); err != nil {
		return nil, err
	}
	return d, nil
}

// formatNumeric appends the text form: all digits, never an exponent.
func formatNumeric(dst []byte, x *apd.Decimal) []byte {
	switch {
	case isNaN(x):
		return append(dst, "NaN"...)
	case x.Form == apd.Infinite && x.Negative:
		return append(dst, "-Infinity"...)
	case x.Form == apd.Infinite:
		return append(dst, "Infinity"...)
	}
	if x.Negative && x.Coeff.Sign() != 0 {
		dst = append(dst, '-')
	}
	from := len(dst)
	dst = x.Coeff.Append(dst, 10)
	if x.Exponent > 0 && x.Coeff.Sign() != 0 {
		for i := int32(0); i < x.Exponent; i++ {
			dst = append(dst, '0')
		}
	}
	if x.Exponent >= 0 {
		return dst
	}
	scale := int(-x.Exponent)
	for len(dst)-from <= scale { // at least one digit before the point
		dst = append(dst, '0')
		copy(dst[from+1:], dst[from:])
		dst[from] = '0'
	}
	dst = append(dst, 0)
	point := len(dst) - 1 - scale
	copy(dst[point+1:], dst[point:])
	dst[point] = '.'
	return dst
}
