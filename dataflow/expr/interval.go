package expr

import (
	"math"
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// intervalUnit is what one of a unit adds to an interval.
type intervalUnit struct {
	months, days int64
	micros       float64
}

// unitOf returns the unit of a word of an interval's text.
func unitOf(w string) (intervalUnit, bool) {
	switch w {
	case "us", "usec", "usecs", "microsecond", "microseconds", "usecond", "useconds", "microsecon":
		return intervalUnit{micros: 1}, true
	case "ms", "msec", "msecs", "millisecond", "milliseconds", "mseconds", "msecond":
		return intervalUnit{micros: 1e3}, true
	case "s", "sec", "secs", "second", "seconds":
		return intervalUnit{micros: 1e6}, true
	case "m", "min", "mins", "minute", "minutes":
		return intervalUnit{micros: 60e6}, true
	case "h", "hr", "hrs", "hour", "hours":
		return intervalUnit{micros: 3600e6}, true
	case "d", "day", "days":
		return intervalUnit{days: 1}, true
	case "w", "week", "weeks":
		return intervalUnit{days: 7}, true
	case "mon", "mons", "month", "months":
		return intervalUnit{months: 1}, true
	case "qtr", "quarter":
		return intervalUnit{months: 3}, true
	case "y", "yr", "yrs", "year", "years":
		return intervalUnit{months: 12}, true
	case "dec", "decs", "decade", "decades":
		return intervalUnit{months: 120}, true
	case "c", "cent", "century", "centuries":
		return intervalUnit{months: 1200}, true
	case "mil", "mils", "millennia", "millennium":
		return intervalUnit{months: 12000}, true
	}
	return intervalUnit{}, false
}

// intervalSum adds up the parts of an interval.
type intervalSum struct{ months, days, micros float64 }

// add adds n of a unit; a fraction of a month is in days of 30, a fraction of a day in time, as PostgreSQL has it.
func (s *intervalSum) add(n float64, u intervalUnit) {
	switch {
	case u.months > 0:
		m := n * float64(u.months)
		whole := math.Trunc(m)
		if u.months > 1 {
			whole = math.Trunc(n)*float64(u.months) + math.RoundToEven((n-math.Trunc(n))*float64(u.months))
			s.months += whole
			return
		}
		s.months += whole
		s.addDays((n - whole) * 30)
	case u.days > 0:
		s.addDays(n * float64(u.days))
	default:
		s.micros += math.RoundToEven(n * u.micros)
	}
}

func (s *intervalSum) addDays(n float64) {
	whole := math.Trunc(n)
	s.days += whole
	s.micros += math.RoundToEven((n - whole) * float64(microsPerDay))
}

// value returns the interval, negated if ago is set; ok is false if a part is out of range.
func (s *intervalSum) value(ago bool) (dataflow.Interval, bool) {
	if ago {
		s.months, s.days, s.micros = -s.months, -s.days, -s.micros
	}
	const maxMicros = 1 << 63
	if math.Abs(s.months) > math.MaxInt32 || math.Abs(s.days) > math.MaxInt32 || math.Abs(s.micros) >= maxMicros {
		return dataflow.Interval{}, false
	}
	return dataflow.Interval{Months: int32(s.months), Days: int32(s.days), Micros: int64(s.micros)}, true
}

// parseInterval reads an interval in PostgreSQL's spellings: 1 day 02:03:04, 1.5 hours, 3 mons ago, 1-2, P1DT2H.
func parseInterval(s string) (dataflow.Interval, *dataflow.Error) {
	bad := func() (dataflow.Interval, *dataflow.Error) {
		return dataflow.Interval{}, badSyntax("interval", s).WithHint("write numbers and units, such as '1 day 30 minutes': years, months, weeks, days, hours, minutes, seconds")
	}
	t := strings.ToLower(strings.Trim(s, pgSpace))
	if t == "" || len(t) > 256 {
		return bad()
	}
	var sum intervalSum
	ago := false
	ok := false
	if t[0] == 'p' {
		ok = sum.readISO(t[1:])
	} else {
		ago, ok = sum.readWords(t)
	}
	if !ok {
		return bad()
	}
	iv, ok := sum.value(ago)
	if !ok {
		return dataflow.Interval{}, failf(`interval field value out of range: "%s"`, abridge(s))
	}
	return iv, nil
}

// readISO reads what stands behind the P of 1Y2M3DT4H5M6S.
func (s *intervalSum) readISO(t string) bool {
	inTime, any := false, false
	for t != "" {
		if t[0] == 't' {
			inTime, t = true, t[1:]
			continue
		}
		n, rest, ok := leadingNumber(t)
		if !ok || rest == "" {
			return false
		}
		unit := rest[:1]
		switch {
		case inTime && strings.Contains("hms", unit):
		case !inTime && unit == "m":
			unit = "mon"
		case !inTime && strings.Contains("ywd", unit):
		default:
			return false
		}
		u, _ := unitOf(unit)
		s.add(n, u)
		t, any = rest[1:], true
	}
	return any
}

// leadingNumber splits "-1.5day" into -1.5 and "day".
func leadingNumber(t string) (n float64, rest string, ok bool) {
	i := 0
	if i < len(t) && (t[i] == '+' || t[i] == '-') {
		i++
	}
	for i < len(t) && (isDigit(t[i]) || t[i] == '.') {
		i++
	}
	n, err := strconv.ParseFloat(t[:i], 64)
	return n, t[i:], err == nil
}

// readWords reads the verbose form.
func (s *intervalSum) readWords(t string) (ago, ok bool) {
	fields := strings.FieldsFunc(t, func(c rune) bool { return c < 0x80 && strings.IndexByte(pgSpace, byte(c)) >= 0 })
	any := false
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		switch {
		case f == "@" && i == 0:
			continue
		case f == "ago" && i == len(fields)-1 && any:
			return true, true
		case strings.IndexByte(f, ':') > 0:
			if !s.readClock(f) {
				return false, false
			}
			any = true
			continue
		case strings.LastIndexByte(f, '-') > 0 && s.readYearMonth(f):
			any = true
			continue
		}
		n, unit, ok := leadingNumber(f)
		if !ok {
			return false, false
		}
		if more := strings.IndexAny(unit, "0123456789+-."); more > 0 {
			// 1h30m: what follows the unit is a field of its own.
			fields = append(fields[:i], append([]string{f[:len(f)-len(unit)+more], unit[more:]}, fields[i+1:]...)...)
			unit = unit[:more]
		}
		if unit == "" {
			if i+1 < len(fields) && isLetter(fields[i+1][0]) && fields[i+1] != "ago" {
				i++
				unit = fields[i]
			} else if i+1 < len(fields) && strings.IndexByte(fields[i+1], ':') > 0 {
				unit = "day" // 1 02:03:04
			} else {
				unit = "s"
			}
		}
		u, ok := unitOf(unit)
		if !ok {
			return false, false
		}
		s.add(n, u)
		any = true
	}
	return false, any
}

// readClock reads -1:02:03.5 or 1:02.
func (s *intervalSum) readClock(f string) bool {
	sign := 1.0
	if f[0] == '+' || f[0] == '-' {
		if f[0] == '-' {
			sign = -1
		}
		f = f[1:]
	}
	parts := strings.Split(f, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return false
	}
	units := []float64{3600e6, 60e6, 1e6}
	if len(parts) == 2 && strings.Contains(parts[1], ".") {
		units = units[1:] // minutes and seconds
	}
	var micros float64
	for i, p := range parts {
		n, err := strconv.ParseFloat(p, 64)
		if err != nil || !isDigit(p[0]) || strings.Contains(p, ".") && i != len(parts)-1 || i > 0 && n >= 61 {
			return false
		}
		micros += math.RoundToEven(n * units[i])
	}
	s.micros += sign * micros
	return true
}

// readYearMonth reads 1-2: one year and two months.
func (s *intervalSum) readYearMonth(f string) bool {
	i := strings.LastIndexByte(f, '-')
	y, rest, ok := leadingNumber(f[:i])
	m, err := strconv.Atoi(f[i+1:])
	if !ok || rest != "" || err != nil || m > 11 || y != math.Trunc(y) {
		return false
	}
	months := y*12 + float64(m)
	if f[0] == '-' {
		months = y*12 - float64(m)
	}
	s.months += months
	return true
}

// appendInterval appends PostgreSQL's form: 1 year 2 mons -3 days +04:05:06.5.
func appendInterval(dst []byte, iv dataflow.Interval) []byte {
	empty, negative := true, false
	part := func(n int64, unit string) {
		if n == 0 {
			return
		}
		if !empty {
			dst = append(dst, ' ')
		}
		if negative && n > 0 {
			dst = append(dst, '+')
		}
		dst = strconv.AppendInt(dst, n, 10)
		dst = append(dst, ' ')
		dst = append(dst, unit...)
		if n != 1 {
			dst = append(dst, 's')
		}
		empty, negative = false, n < 0
	}
	part(int64(iv.Months)/12, "year")
	part(int64(iv.Months)%12, "mon")
	part(int64(iv.Days), "day")
	if iv.Micros == 0 && !empty {
		return dst
	}
	if !empty {
		dst = append(dst, ' ')
	}
	u := uint64(iv.Micros)
	switch {
	case iv.Micros < 0:
		dst = append(dst, '-')
		u = -u
	case negative:
		dst = append(dst, '+')
	}
	hours := u / uint64(microsPerHour)
	rest := int64(u % uint64(microsPerHour))
	dst = appendPadded(dst, int64(hours), 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, rest/microsPerMinute, 2)
	dst = append(dst, ':')
	return appendSeconds(dst, rest%microsPerMinute)
}

// compareIntervals orders by length, a month being 30 days and a day 24 hours.
func compareIntervals(a, b dataflow.Interval) int {
	ad, am := intervalSpan(a)
	bd, bm := intervalSpan(b)
	switch {
	case ad < bd || ad == bd && am < bm:
		return -1
	case ad == bd && am == bm:
		return 0
	}
	return 1
}

// intervalSpan returns the length in days and microseconds of a day.
func intervalSpan(iv dataflow.Interval) (days, micros int64) {
	carry := floorDiv(iv.Micros, microsPerDay)
	return int64(iv.Months)*30 + int64(iv.Days) + carry, iv.Micros - carry*microsPerDay
}

// intervalAdd adds part by part; ok is false on overflow.
func intervalAdd(a, b dataflow.Interval) (dataflow.Interval, bool) {
	months, days := int64(a.Months)+int64(b.Months), int64(a.Days)+int64(b.Days)
	micros, over := addInt64(a.Micros, b.Micros)
	if over || months != int64(int32(months)) || days != int64(int32(days)) {
		return dataflow.Interval{}, false
	}
	iv := dataflow.Interval{Months: int32(months), Days: int32(days), Micros: micros}
	return iv, iv.Valid()
}

func intervalNeg(a dataflow.Interval) (dataflow.Interval, bool) {
	if a.Months == math.MinInt32 || a.Days == math.MinInt32 || a.Micros == math.MinInt64 {
		return dataflow.Interval{}, false
	}
	return dataflow.Interval{Months: -a.Months, Days: -a.Days, Micros: -a.Micros}, true
}

// intervalMul multiplies by a factor: fractions of months go to days, fractions of days to time.
func intervalMul(a dataflow.Interval, factor float64) (dataflow.Interval, bool) {
	return intervalScale(a, func(x float64) float64 { return x * factor })
}

// intervalDiv divides likewise.
func intervalDiv(a dataflow.Interval, divisor float64) (dataflow.Interval, bool) {
	return intervalScale(a, func(x float64) float64 { return x / divisor })
}

func intervalScale(a dataflow.Interval, scale func(float64) float64) (dataflow.Interval, bool) {
	round := func(x float64) float64 { return math.RoundToEven(x*1e6) / 1e6 }
	months := scale(float64(a.Months))
	days := scale(float64(a.Days))
	if !(math.Abs(months) <= math.MaxInt32) || !(math.Abs(days) <= math.MaxInt32) {
		return dataflow.Interval{}, false
	}
	m, d := math.Trunc(months), math.Trunc(days)
	restDays := round((months - m) * 30)
	restSecs := round((days - d + restDays - math.Trunc(restDays)) * 86400)
	if math.Abs(restSecs) >= 86400 {
		d += math.Trunc(restSecs / 86400)
		restSecs -= math.Trunc(restSecs/86400) * 86400
	}
	d += math.Trunc(restDays)
	micros := math.RoundToEven(scale(float64(a.Micros)) + restSecs*1e6)
	if math.Abs(d) > math.MaxInt32 || !(math.Abs(micros) < 1<<63) {
		return dataflow.Interval{}, false
	}
	return dataflow.Interval{Months: int32(m), Days: int32(d), Micros: int64(micros)}, true
}

// timestampDiff returns a - b in days and time.
func timestampDiff(a, b int64) (dataflow.Interval, bool) {
	diff := a - b
	if (a < b) != (diff < 0) {
		return dataflow.Interval{}, false
	}
	return dataflow.Interval{Days: int32(diff / microsPerDay), Micros: diff % microsPerDay}, true
}
