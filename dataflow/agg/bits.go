package agg

// This file is bit_and, bit_or and bit_xor of BIGINT over rows that are never taken back, and bit_xor over all. The fixed
// part is the number of values, then what they give.

func foldBits(p []byte, fn Fn, v, weight int64) {
	n := getInt(p)
	putInt(p, n+weight)
	switch have := getInt(p[8:]); fn {
	case BitAnd:
		if n == 0 {
			have = -1
		}
		putInt(p[8:], have&v)
	case BitOr:
		putInt(p[8:], have|v)
	default:
		if weight&1 != 0 {
			putInt(p[8:], have^v)
		}
	}
}

func mergeBits(p, q []byte, fn Fn) {
	n, have, part := getInt(q), getInt(p[8:]), getInt(q[8:])
	switch fn {
	case BitAnd:
		switch {
		case n == 0:
			return
		case getInt(p) == 0:
			have = -1
		}
		have &= part
	case BitOr:
		have |= part
	default:
		have ^= part
	}
	addInt(p, n)
	putInt(p[8:], have)
}
