package batch

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/apd/v3"
)

// MaxDecimalExponent bounds the exponent of a stored NUMERIC, both ways: a few bytes must not stand for gigabytes of
// digits. PostgreSQL's limits, 131,072 digits before and 16,383 after the point, are within it.
const MaxDecimalExponent = 1 << 18

// Head byte of an encoded NUMERIC: the form in the low bits, the sign in bit 2.
const (
	decFinite   = 0
	decInfinite = 1
	decNaN      = 2
	decNegative = 4
)

var errDecimal = errors.New("malformed NUMERIC")

// AppendDecimal appends d exactly, its scale included: a head byte, and for finite numbers the exponent as a zigzag
// varint, the length of the coefficient as a varint, and the coefficient's big-endian bytes without leading zeros.
func AppendDecimal(dst []byte, d *apd.Decimal) []byte {
	var sign byte
	if d.Negative {
		sign = decNegative
	}
	switch d.Form {
	case apd.Finite:
	case apd.Infinite:
		return append(dst, decInfinite|sign)
	default:
		return append(dst, decNaN)
	}
	dst = append(dst, decFinite|sign)
	dst = binary.AppendVarint(dst, int64(d.Exponent))
	n := (d.Coeff.BitLen() + 7) / 8
	dst = binary.AppendUvarint(dst, uint64(n))
	at := len(dst)
	dst = append(dst, make([]byte, n)...)
	d.Coeff.FillBytes(dst[at:])
	return dst
}

// ReadDecimal decodes what AppendDecimal appended, from untrusted bytes, into d and returns the bytes after it.
func ReadDecimal(b []byte, d *apd.Decimal) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, errDecimal
	}
	*d = apd.Decimal{Negative: b[0]&decNegative != 0}
	switch b[0] {
	case decInfinite, decInfinite | decNegative:
		d.Form = apd.Infinite
		return b[1:], nil
	case decNaN:
		d.Form = apd.NaN
		return b[1:], nil
	case decFinite, decFinite | decNegative:
	default:
		return nil, errDecimal
	}
	b = b[1:]
	exp, k := binary.Varint(b)
	if k <= 0 || exp < -MaxDecimalExponent || exp > MaxDecimalExponent {
		return nil, errDecimal
	}
	b = b[k:]
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return nil, errDecimal
	}
	b = b[k:]
	if n > 0 && b[0] == 0 {
		return nil, errDecimal
	}
	d.Exponent = int32(exp)
	d.Coeff.SetBytes(b[:n])
	return b[n:], nil
}
