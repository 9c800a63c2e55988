package key

import (
	"encoding/binary"

	"github.com/cockroachdb/apd/v3"
)

// Classes of NUMERIC, in order.
const (
	classNegInf   = 0x01
	classNegative = 0x02
	classZero     = 0x03
	classPositive = 0x04
	classPosInf   = 0x05
	classNaN      = 0x06
)

const (
	shortExp = 64 // exponents nearer to 0 than this take one byte
	expBias  = 0x80
	expBelow = 0x00
	expAbove = 0xFF

	// maxExponent bounds the exponents that Decode takes: a short key must not stand for a number of gigabytes.
	maxExponent = 1 << 18
)

func appendDecimal(dst []byte, d *apd.Decimal) []byte {
	switch {
	case d.Form == apd.Infinite && d.Negative:
		return append(dst, classNegInf)
	case d.Form == apd.Infinite:
		return append(dst, classPosInf)
	case d.Form != apd.Finite:
		return append(dst, classNaN)
	case d.Coeff.Sign() == 0:
		return append(dst, classZero)
	}
	var buf [48]byte
	digits := d.Coeff.Append(buf[:0], 10)
	exp := int64(d.Exponent) + int64(len(digits))
	for digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	if d.Negative {
		dst = append(dst, classNegative)
	} else {
		dst = append(dst, classPositive)
	}
	at := len(dst)
	switch {
	case -shortExp < exp && exp < shortExp:
		dst = append(dst, byte(expBias+exp))
	case exp < 0:
		dst = binary.BigEndian.AppendUint32(append(dst, expBelow), uint32(exp)^1<<31)
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, expAbove), uint32(exp)^1<<31)
	}
	for i := 0; i < len(digits); i += 2 {
		pair := (digits[i] - '0') * 10
		if i+1 < len(digits) {
			pair += digits[i+1] - '0'
		}
		dst = append(dst, pair+1)
	}
	dst = append(dst, 0)
	if d.Negative {
		flip(dst[at:])
	}
	return dst
}

func flip(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// decodeDecimal decodes a NUMERIC part after its tag and returns the bytes after it.
func decodeDecimal(b []byte, d *apd.Decimal) (rest []byte, err error) {
	*d = apd.Decimal{}
	if len(b) == 0 {
		return nil, errShort
	}
	class := b[0]
	b = b[1:]
	switch class {
	case classNegInf, classPosInf:
		d.Form, d.Negative = apd.Infinite, class == classNegInf
		return b, nil
	case classNaN:
		d.Form = apd.NaN
		return b, nil
	case classZero:
		return b, nil
	case classNegative, classPositive:
	default:
		return nil, errForm
	}
	d.Negative = class == classNegative
	mask := byte(0)
	if d.Negative {
		mask = 0xFF
	}
	if len(b) == 0 {
		return nil, errShort
	}
	head := b[0] ^ mask
	b = b[1:]
	exp := int64(head) - expBias
	if head == expBelow || head == expAbove {
		if len(b) < 4 {
			return nil, errShort
		}
		u := binary.BigEndian.Uint32(b)
		if d.Negative {
			u = ^u
		}
		exp = int64(int32(u ^ 1<<31))
		b = b[4:]
		if exp < -maxExponent || exp > maxExponent || -shortExp < exp && exp < shortExp || (exp < 0) != (head == expBelow) {
			return nil, errForm
		}
	} else if exp <= -shortExp || exp >= shortExp {
		return nil, errForm
	}
	var buf [48]byte
	digits := buf[:0]
	for {
		if len(b) == 0 {
			return nil, errShort
		}
		c := b[0] ^ mask
		b = b[1:]
		if c == 0 {
			break
		}
		if c > 100 {
			return nil, errForm
		}
		digits = append(digits, '0'+(c-1)/10, '0'+(c-1)%10)
	}
	// Canonical: the first digit is not 0, nor is the last pair.
	n := len(digits)
	if n == 0 || digits[0] == '0' || digits[n-2] == '0' && digits[n-1] == '0' {
		return nil, errForm
	}
	if digits[n-1] == '0' {
		digits = digits[:n-1]
	}
	// Whole numbers have exponent 0: 100 is 100, not 1E+2.
	for int64(len(digits)) < exp {
		digits = append(digits, '0')
	}
	if err := setDigits(&d.Coeff, digits); err != nil {
		return nil, err
	}
	d.Exponent = int32(exp - int64(len(digits)))
	return b, nil
}

// setDigits sets x to a decimal number; the common short ones without parsing a big integer.
func setDigits(x *apd.BigInt, digits []byte) error {
	if len(digits) <= 18 {
		n := int64(0)
		for _, c := range digits {
			n = n*10 + int64(c-'0')
		}
		x.SetInt64(n)
		return nil
	}
	if _, ok := x.SetString(string(digits), 10); !ok {
		return errForm
	}
	return nil
}
