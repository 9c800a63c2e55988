package expr

import (
	"math"
	"math/bits"
)

// addInt64 returns a + b and whether it overflows.
func addInt64(a, b int64) (int64, bool) {
	c := a + b
	return c, (a^c)&(b^c) < 0
}

// subInt64 returns a - b and whether it overflows.
func subInt64(a, b int64) (int64, bool) {
	c := a - b
	return c, (a^b)&(a^c) < 0
}

// mulInt64 returns a · b and whether it overflows.
func mulInt64(a, b int64) (int64, bool) {
	c := a * b
	if small := int64(math.MaxInt32); a >= -small && a <= small && b >= -small && b <= small {
		return c, false
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	// Signed high word from the unsigned one.
	h := int64(hi)
	if a < 0 {
		h -= b
	}
	if b < 0 {
		h -= a
	}
	return c, h != int64(lo)>>63
}
