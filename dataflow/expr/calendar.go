package expr

import (
	"math"
	"strconv"

	"github.com/weirdb/weir/dataflow"
)

// The proleptic Gregorian calendar in UTC. Years are astronomical: 0 is 1 BC.

const (
	microsPerSecond = int64(1_000_000)
	microsPerMinute = 60 * microsPerSecond
	microsPerHour   = 60 * microsPerMinute
	microsPerDay    = 24 * microsPerHour

	// minTimestamp is PostgreSQL's least timestamp, 4714-11-24 BC. The greatest is what 64 bits hold, 294247-01-10:
	// PostgreSQL counts from 2000 and so ends 30 years later.
	minTimestamp = -210866803200 * microsPerSecond
)

// civil is a date and a time of day.
type civil struct {
	year         int64
	month, day   int64 // from 1
	hour, minute int64
	micros       int64 // of the minute: seconds and fraction
}

// daysFromCivil returns the days from 1970-01-01 to a date. The day may lie outside the month.
func daysFromCivil(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := floorDiv(year, 400)
	yoe := year - era*400
	doy := (153*(month-3)+2)/5 + day - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

// civilFromDays is the inverse of daysFromCivil.
func civilFromDays(days int64) (year, month, day int64) {
	days += 719468
	era := floorDiv(days, 146097)
	doe := days - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	m := (5*doy + 2) / 153
	day = doy - (153*m+2)/5 + 1
	month = m + 3
	year = yoe + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

// civilOf takes a timestamp apart.
func civilOf(micros int64) civil {
	days := floorDiv(micros, microsPerDay)
	rest := micros - days*microsPerDay
	c := civil{hour: rest / microsPerHour, minute: rest / microsPerMinute % 60, micros: rest % microsPerMinute}
	c.year, c.month, c.day = civilFromDays(days)
	return c
}

// timestamp puts c together; ok is false outside the range of TIMESTAMPTZ.
func (c civil) timestamp() (micros int64, ok bool) {
	if c.year < -4713 || c.year > 294247 {
		return 0, false
	}
	return addMicros(daysFromCivil(c.year, c.month, c.day), c.hour*microsPerHour+c.minute*microsPerMinute+c.micros)
}

// addMicros returns days·24h + micros, within the range of TIMESTAMPTZ.
func addMicros(days, micros int64) (int64, bool) {
	const limit = math.MaxInt64/microsPerDay + 1
	if days > limit || days < -limit {
		return 0, false
	}
	if days == limit {
		days, micros = days-1, micros+microsPerDay
	}
	return addTimestamp(days*microsPerDay, micros)
}

// addTimestamp returns ts + micros, within the range of TIMESTAMPTZ.
func addTimestamp(ts, micros int64) (int64, bool) {
	sum := ts + micros
	if (sum > ts) != (micros > 0) && micros != 0 || sum < minTimestamp {
		return 0, false
	}
	return sum, true
}

func isLeap(year int64) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysInMonth(year, month int64) int64 {
	switch month {
	case 2:
		if isLeap(year) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// isoWeekStart returns the days from 1970 to the Monday on which ISO year `year` begins.
func isoWeekStart(year int64) int64 {
	jan4 := daysFromCivil(year, 1, 4)
	return jan4 - (isoDayOfWeek(jan4) - 1)
}

// isoDayOfWeek returns 1 for Monday to 7 for Sunday.
func isoDayOfWeek(days int64) int64 {
	d := (days + 3) % 7 // 1970-01-01 was a Thursday
	if d < 0 {
		d += 7
	}
	return d + 1
}

// isoWeek returns the ISO year and week of a day.
func isoWeek(days int64) (year, week int64) {
	year, _, _ = civilFromDays(days + 4 - isoDayOfWeek(days)) // the Thursday of the week decides
	return year, (days-isoWeekStart(year))/7 + 1
}

// addMonths adds calendar months to a timestamp; a day that the month does not have becomes its last.
func addMonths(ts int64, months int64) (int64, bool) {
	if months == 0 {
		return ts, true
	}
	c := civilOf(ts)
	m := c.year*12 + c.month - 1 + months
	c.year = floorDiv(m, 12)
	c.month = m - c.year*12 + 1
	c.day = min(c.day, daysInMonth(c.year, c.month))
	return c.timestamp()
}

// addInterval adds the months, then the days, then the time, as PostgreSQL does.
func addInterval(ts int64, iv dataflow.Interval) (int64, bool) {
	ts, ok := addMonths(ts, int64(iv.Months))
	if !ok {
		return 0, false
	}
	if iv.Days != 0 {
		day := floorDiv(ts, microsPerDay)
		if ts, ok = addMicros(day+int64(iv.Days), ts-day*microsPerDay); !ok {
			return 0, false
		}
	}
	return addTimestamp(ts, iv.Micros)
}

// appendTimestamp appends 2026-11-29 10:00:00.5+00, years before Christ with BC behind.
func appendTimestamp(dst []byte, ts int64) []byte {
	c := civilOf(ts)
	year, bc := c.year, c.year <= 0
	if bc {
		year = 1 - year
	}
	dst = appendPadded(dst, year, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, c.month, 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, c.day, 2)
	dst = append(dst, ' ')
	dst = appendClock(dst, c)
	dst = append(dst, "+00"...)
	if bc {
		dst = append(dst, " BC"...)
	}
	return dst
}

// appendClock appends 10:00:00.5.
func appendClock(dst []byte, c civil) []byte {
	dst = appendPadded(dst, c.hour, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, c.minute, 2)
	dst = append(dst, ':')
	return appendSeconds(dst, c.micros)
}

// appendSeconds appends seconds with two digits and the fraction without trailing zeros.
func appendSeconds(dst []byte, micros int64) []byte {
	dst = appendPadded(dst, micros/microsPerSecond, 2)
	frac := micros % microsPerSecond
	if frac == 0 {
		return dst
	}
	dst = append(dst, '.')
	for p := microsPerSecond / 10; frac > 0; p /= 10 {
		dst = append(dst, byte('0'+frac/p))
		frac %= p
	}
	return dst
}

// appendPadded appends v ≥ 0 with at least so many digits.
func appendPadded(dst []byte, v int64, digits int) []byte {
	for p, d := int64(10), 1; d < digits; p, d = p*10, d+1 {
		if v < p {
			for ; d < digits; d++ {
				dst = append(dst, '0')
			}
		}
	}
	return strconv.AppendInt(dst, v, 10)
}
