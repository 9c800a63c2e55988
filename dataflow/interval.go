package dataflow

import (
	"math"
	"math/bits"
)

const (
	microsPerDay  = 24 * 3600 * 1_000_000
	daysPerMonth  = 30
	monthInMicros = daysPerMonth * microsPerDay
)

// Span returns the interval's length in microseconds as a signed 128-bit number, a month being 30 days and a day 24
// hours: what PostgreSQL orders intervals by.
func (iv Interval) Span() (hi int64, lo uint64) {
	days := int64(iv.Months)*daysPerMonth + int64(iv.Days)
	h, l := bits.Mul64(uint64(days), microsPerDay)
	if days < 0 {
		h -= microsPerDay // of the two's complement
	}
	l, carry := bits.Add64(l, uint64(iv.Micros), 0)
	h, _ = bits.Add64(h, uint64(iv.Micros>>63), carry)
	return int64(h), l
}

// IntervalOfSpan returns the interval of a length with as many whole months, then days, as it has; all parts have one
// sign. It reports false for a length that no interval has.
func IntervalOfSpan(hi int64, lo uint64) (Interval, bool) {
	negative := hi < 0
	h, l := uint64(hi), lo
	if negative {
		var borrow uint64
		l, borrow = bits.Sub64(0, l, 0)
		h, _ = bits.Sub64(0, h, borrow)
	}
	if h >= monthInMicros {
		return Interval{}, false
	}
	months, rest := bits.Div64(h, l, monthInMicros)
	days, micros := int64(rest/microsPerDay), int64(rest%microsPerDay)
	m := int64(months)
	const most = 1<<31 - 1 // of months and of days; an interval with a part of -1<<31 does not exist
	if months > most {
		// What does not fit in months goes to days, what does not fit there to microseconds.
		mh, ml := bits.Mul64(most, monthInMicros)
		rl, borrow := bits.Sub64(l, ml, 0)
		rh, _ := bits.Sub64(h, mh, borrow)
		m, days = most, most
		if rh < microsPerDay {
			if d, _ := bits.Div64(rh, rl, microsPerDay); d < most {
				days = int64(d)
			}
		}
		dh, dl := bits.Mul64(uint64(days), microsPerDay)
		rl, borrow = bits.Sub64(rl, dl, 0)
		if rh, _ = bits.Sub64(rh, dh, borrow); rh != 0 || rl > 1<<63-1 {
			return Interval{}, false
		}
		micros = int64(rl)
	}
	iv := Interval{Months: int32(m), Days: int32(days), Micros: micros}
	if negative {
		iv = Interval{Months: -iv.Months, Days: -iv.Days, Micros: -iv.Micros}
	}
	return iv, true
}

// Valid reports whether the interval can be a value: no part is the least of its integers, so that every interval has
// a negative.
func (iv Interval) Valid() bool {
	return iv.Months != math.MinInt32 && iv.Days != math.MinInt32 && iv.Micros != math.MinInt64
}
