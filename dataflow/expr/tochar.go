package expr

import (
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// charTime is a time or an interval, taken apart for to_char.
type charTime struct {
	year, month, day     int64
	hour, minute, second int64
	micros               int64 // of the second
	days                 int64 // since 1970, of a time
	ofYear               int64 // day of the year, from 1; of an interval its days with months of 30
	interval             bool
}

func charTimeOf(ts int64) charTime {
	c := civilOf(ts)
	days := floorDiv(ts, microsPerDay)
	return charTime{year: c.year, month: c.month, day: c.day, hour: c.hour, minute: c.minute, second: c.micros / microsPerSecond, micros: c.micros % microsPerSecond,
		days: days, ofYear: days - daysFromCivil(c.year, 1, 1) + 1}
}

func charTimeOfInterval(iv dataflow.Interval) charTime {
	t := charTime{interval: true, year: int64(iv.Months) / 12, month: int64(iv.Months) % 12, day: int64(iv.Days), micros: iv.Micros}
	t.hour, t.micros = t.micros/microsPerHour, t.micros%microsPerHour
	t.minute, t.micros = t.micros/microsPerMinute, t.micros%microsPerMinute
	t.second, t.micros = t.micros/microsPerSecond, t.micros%microsPerSecond
	t.ofYear = (t.year*12+t.month)*30 + t.day
	return t
}

// checkIntervalFormat refuses what only a time has.
func checkIntervalFormat(format dateFormat) *dataflow.Error {
	for _, p := range format {
		switch p.pattern {
		case "A.D.", "AD", "B.C.", "BC", "MONTH", "MON", "DAY", "DY", "D", "ID", "TZ", "TZH", "TZM", "OF":
			return failf("invalid format specification for an interval value").WithHint("Intervals are not tied to specific calendar dates.")
		case "IYYY", "IYY", "IY", "I", "IDDD", "IW", "J":
			return dataflow.Errorf(dataflow.ReasonSQLUnsupported, "to_char pattern %q of an interval is not supported", p.pattern).
				WithHint("it counts days of a calendar, which an interval has not: use YYYY, MM, DD, DDD, HH24, MI, SS, MS or US")
		}
	}
	return nil
}

func evalToChar(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		t := charTimeOf(a.int(i))
		return t.append(dst, f.dateFormatOf(i)), nil
	})
}

func evalIntervalToChar(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		format := f.dateFormatOf(i)
		if err := checkIntervalFormat(format); err != nil {
			return dst, err
		}
		t := charTimeOfInterval(a.ivl(i))
		return t.append(dst, format), nil
	})
}

func (t *charTime) append(dst []byte, format dateFormat) []byte {
	for i := range format {
		dst = format[i].append(dst, t)
	}
	return dst
}

// append writes the part of a time.
func (p *datePart) append(dst []byte, t *charTime) []byte {
	if p.pattern == "" {
		return append(dst, p.text...)
	}
	if v, digits, ok := p.number(t); ok {
		from := len(dst)
		if !p.fill {
			digits = 0
		}
		if v < 0 && !p.signed() {
			digits-- // which the sign takes
		}
		dst = appendSigned(dst, v, digits)
		if p.suffix != "" {
			dst = append(dst, ordinal(dst[from:], p.suffix)...)
		}
		return dst
	}
	switch p.pattern {
	case "AM", "PM", "A.M.", "P.M.":
		half := "am"
		if t.hour%24 >= 12 {
			half = "pm"
		}
		return append(dst, p.halves(half)...)
	case "AD", "BC", "A.D.", "B.C.":
		era := "ad"
		if t.year <= 0 {
			era = "bc"
		}
		return append(dst, p.halves(era)...)
	case "MONTH":
		return p.name(dst, monthNames[t.month-1], 9)
	case "MON":
		return p.name(dst, monthNames[t.month-1][:3], 0)
	case "DAY":
		return p.name(dst, dayNames[isoDayOfWeek(t.days)-1], 9)
	case "DY":
		return p.name(dst, dayNames[isoDayOfWeek(t.days)-1][:3], 0)
	case "RM":
		return p.roman(dst, t)
	case "Y,YYY":
		y, digits := t.shownYear(), 3
		if y < 0 {
			digits--
		}
		dst = appendSigned(append(appendSigned(dst, y/1000, 0), ','), y%1000, digits)
		if p.suffix != "" {
			dst = append(dst, ordinal(dst, p.suffix)...)
		}
		return dst
	case "TZ":
		if p.style == styleLower {
			return append(dst, "utc"...)
		}
		return append(dst, "UTC"...)
	case "OF":
		if !p.fill {
			return append(dst, "+0"...)
		}
		return append(dst, "+00"...)
	case "TZH":
		return append(dst, "+00"...)
	case "TZM":
		return append(dst, "00"...)
	}
	return dst // FX, and Q of an interval without months
}

// signed reports whether a negative number is as long as others of the pattern besides its sign.
func (p *datePart) signed() bool {
	switch p.pattern {
	case "HH24", "HH12", "HH", "MI", "SS", "MM", "CC", "YYYY", "YYY", "YY", "Y":
		return true
	}
	return false
}

// number returns what a pattern of digits shows, and how many digits it has at least.
func (p *datePart) number(t *charTime) (v int64, digits int, ok bool) {
	switch p.pattern {
	case "HH24":
		return t.hour, 2, true
	case "HH12", "HH":
		if h := t.hour % 12; h != 0 {
			return h, 2, true
		}
		return 12, 2, true
	case "MI":
		return t.minute, 2, true
	case "SS":
		return t.second, 2, true
	case "SSSS", "SSSSS":
		return t.hour*3600 + t.minute*60 + t.second, 1, true
	case "MS", "FF3":
		return t.micros / 1000, 3, true
	case "US", "FF6":
		return t.micros, 6, true
	case "FF1", "FF2", "FF4", "FF5":
		n := int(p.pattern[2] - '0')
		v := t.micros
		for range 6 - n {
			v /= 10
		}
		return v, n, true
	case "MM":
		return t.month, 2, true
	case "DD":
		return t.day, 2, true
	case "DDD":
		return t.ofYear, 3, true
	case "WW":
		return (t.ofYear-1)/7 + 1, 2, true
	case "W":
		return (t.day-1)/7 + 1, 1, true
	case "Q":
		return (t.month-1)/3 + 1, 1, t.month != 0
	case "D":
		return isoDayOfWeek(t.days)%7 + 1, 1, true
	case "ID":
		return isoDayOfWeek(t.days), 1, true
	case "IW":
		_, w := isoWeek(t.days)
		return w, 2, true
	case "IDDD":
		y, _ := isoWeek(t.days)
		return t.days - isoWeekStart(y) + 1, 3, true
	case "J":
		return t.days + julian1970, 1, true
	case "CC":
		return t.century(), 2, true
	}
	return p.yearNumber(t)
}

// yearNumber is number for the patterns of years.
func (p *datePart) yearNumber(t *charTime) (v int64, digits int, ok bool) {
	y := t.shownYear()
	pattern := p.pattern
	if pattern[0] == 'I' {
		iso, _ := isoWeek(t.days)
		y = shownYear(iso)
		pattern = "Y" + pattern[1:]
	}
	switch pattern {
	case "YYYY":
		return y, 4, true
	case "YYY":
		return y % 1000, 3, true
	case "YY":
		return y % 100, 2, true
	case "Y":
		return y % 10, 1, true
	}
	return 0, 0, false
}

// julian1970 is the Julian day of 1970-01-01.
const julian1970 = 2440588

// shownYear counts the years before Christ from 1, without their sign.
func shownYear(y int64) int64 {
	if y <= 0 {
		return 1 - y
	}
	return y
}

func (t *charTime) shownYear() int64 {
	if t.interval {
		return t.year
	}
	return shownYear(t.year)
}

func (t *charTime) century() int64 {
	switch {
	case t.interval:
		return t.year / 100
	case t.year > 0:
		return (t.year-1)/100 + 1
	}
	return t.year/100 - 1
}

// halves writes am, pm, ad and bc as the pattern is written: in its case, with points if it has them.
func (p *datePart) halves(s string) string {
	if strings.Contains(p.pattern, ".") {
		s = s[:1] + "." + s[1:] + "."
	}
	if p.style == styleUpper {
		return strings.ToUpper(s)
	}
	return s
}

// name writes a name, given in lower case, in the case of the pattern.
func (p *datePart) name(dst []byte, name string, width int) []byte {
	switch p.style {
	case styleUpper:
		name = strings.ToUpper(name)
	case styleTitle:
		name = strings.ToUpper(name[:1]) + name[1:]
	}
	dst = append(dst, name...)
	for n := len(name); p.fill && n < width; n++ {
		dst = append(dst, ' ')
	}
	return dst
}

var romanMonths = [...]string{"i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii"}

// roman writes the month in Roman numerals. An interval of whole years has the month XII, or I if it is negative.
func (p *datePart) roman(dst []byte, t *charTime) []byte {
	m := t.month - 1
	switch {
	case t.month == 0 && t.year == 0:
		return dst
	case t.month == 0 && t.year >= 0:
		m = 11
	case t.month == 0:
		m = 0
	case t.month < 0:
		m = 12 + t.month
	}
	return p.name(dst, romanMonths[m], 4)
}

// appendSigned appends v with at least so many digits behind its sign.
func appendSigned(dst []byte, v int64, digits int) []byte {
	if v < 0 {
		dst, v = append(dst, '-'), -v
	}
	return appendPadded(dst, v, max(digits, 1))
}

// ordinal returns the ending of a number: st, nd, rd or th, in the case of like.
func ordinal(number []byte, like string) string {
	end := "th"
	if n := len(number); n < 2 || number[n-2] != '1' {
		switch number[n-1] {
		case '1':
			end = "st"
		case '2':
			end = "nd"
		case '3':
			end = "rd"
		}
	}
	if like == "TH" {
		return strings.ToUpper(end)
	}
	return end
}

// strtol reads a number as C does: blanks, a sign, digits. used is 0 where there is no digit; over says that it does not fit.
func strtol(s string) (v int64, used int, over bool) {
	i := 0
	for i < len(s) && isDateSpace(s[i]) {
		i++
	}
	from := i
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	first := i
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	if i == first {
		return 0, 0, false
	}
	v, err := strconv.ParseInt(s[from:i], 10, 32)
	return v, i, err != nil
}
