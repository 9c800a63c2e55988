package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"
)

// The timestamps that can be written as RFC 3339: years 1 to 9999.
var (
	minTimestamp = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	maxTimestamp = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
)

func timestampInRange(micros int64) bool { return micros >= minTimestamp && micros <= maxTimestamp }

func describeTimestampRange(micros int64) string {
	return fmt.Sprintf("timestamp %d µs is outside the years 1 to 9999", micros)
}

// The largest NUMERIC that a row may bring. Why not larger: a short text such as 1e999999999 must not become a gigabyte
// in the first addition. Why not smaller: PostgreSQL's declared precision goes up to 1000 digits.
const (
	maxNumericDigits = 1000
	maxNumericText   = 2100
)

// parseNumeric sets d from decimal text and returns what is wrong with it, or "".
func parseNumeric(d *apd.Decimal, s string) string {
	if len(s) > maxNumericText {
		return fmt.Sprintf("a NUMERIC of %d characters is over the limit of %d digits", len(s), maxNumericDigits)
	}
	switch strings.ToLower(s) {
	case "nan":
		d.Form, d.Exponent, d.Negative = apd.NaN, 0, false
		d.Coeff.SetInt64(0)
		return ""
	}
	if !isDecimal(s) {
		return fmt.Sprintf("%s is not a NUMERIC", quoteShort(s))
	}
	if _, _, err := d.SetString(s); err != nil || d.Form != apd.Finite {
		return fmt.Sprintf("%s is not a NUMERIC", quoteShort(s))
	}
	if n := int64(d.NumDigits()); d.Exponent < -maxNumericDigits || int64(d.Exponent)+n > maxNumericDigits || n > 2*maxNumericDigits {
		return fmt.Sprintf("%s has more than %d digits before or after the point", quoteShort(s), maxNumericDigits)
	}
	if d.Exponent > 0 { // 1e3 is 1000: NUMERIC has no negative scale
		var e apd.BigInt
		e.Exp(apd.NewBigInt(10), apd.NewBigInt(int64(d.Exponent)), nil)
		d.Coeff.Mul(&d.Coeff, &e)
		d.Exponent = 0
	}
	if d.IsZero() {
		d.Negative = false
	}
	return ""
}

// isDecimal reports whether s is [+-]digits[.digits][e[+-]digits] with at least one digit before the exponent.
func isDecimal(s string) bool {
	i, digits := 0, 0
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		digits++
	}
	if i < len(s) && s[i] == '.' {
		for i++; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			digits++
		}
	}
	if digits == 0 {
		return false
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if i == len(s) {
			return false
		}
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		}
	}
	return i == len(s)
}

// quoteShort quotes s for a message, cut to a readable length.
func quoteShort(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(s[:most], ""))
	}
	return fmt.Sprintf("%q", s)
}
