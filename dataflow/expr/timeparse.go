package expr

import (
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/weirdb/weir/dataflow"
)

const timestampName = "timestamp with time zone"

// timeReader reads the text form of a TIMESTAMPTZ.
type timeReader struct {
	text string // as given, for messages
	date bool   // a DATE is read: the time of day and the zone mean nothing

	year, month, day             int64
	haveDate, haveTime, haveZone bool
	bc, signed                   bool  // signed: the year was written with a sign, which says whether it is before Christ
	clock                        int64 // microseconds since midnight
	pm, am                       bool
	zone                         int64 // microseconds east of UTC
}

// parseTimestamp reads a time in PostgreSQL's spellings: ISO 8601 and RFC 3339 (2026-11-29T10:00:00.5Z), 20261129,
// 11/29/2026, Nov 29 2026, 29-Nov-2026; hours, minutes, seconds, AM or PM; the zone as Z, UTC, GMT or an offset (none
// is UTC); BC; epoch. Beyond PostgreSQL's it takes the form that JSON answers have for far years, -000043-03-15T00:00:00Z.
// Named zones and special values are refused.
func parseTimestamp(s string) (int64, *dataflow.Error) {
	r := timeReader{text: s}
	return r.read()
}

// name is the type that is read.
func (r *timeReader) name() string {
	if r.date {
		return "date"
	}
	return timestampName
}

// bad says that the text is no time; if it is an interval, which PostgreSQL would not take either, how to write one.
func (r *timeReader) bad() *dataflow.Error {
	err := badSyntax(r.name(), r.text)
	if _, no := parseInterval(r.text); no == nil && strings.ContainsFunc(r.text, unicode.IsLetter) {
		return err.WithHint("it is a length of time: write INTERVAL %s", quote(abridge(r.text)))
	}
	return err
}

func (r *timeReader) field() *dataflow.Error {
	return failf(`date/time field value out of range: "%s"`, abridge(r.text))
}

func (r *timeReader) read() (int64, *dataflow.Error) {
	t := strings.Trim(r.text, pgSpace)
	if len(t) > 128 {
		return 0, r.bad()
	}
	switch strings.ToLower(t) {
	case "epoch":
		return 0, nil
	case "infinity", "-infinity", "+infinity":
		return 0, failf(`timestamp out of range: "%s"`, r.text).WithHint("Weir has no infinite timestamps; use NULL, or a far date")
	case "now", "today", "tomorrow", "yesterday", "allballs":
		return 0, r.bad().WithHint("write a date and time; now() is the row's append time, or the query's time")
	}
	fields, ok := splitTime(t)
	if !ok || len(fields) == 0 {
		return 0, r.bad()
	}
	i := 0
	if isSignedDate(fields[0]) {
		if err := r.takeSignedDate(fields[0]); err != nil {
			return 0, err
		}
		i = 1
	}
	for ; i < len(fields); i++ {
		n, err := r.take(fields[i:])
		if err != nil {
			return 0, err
		}
		i += n - 1
	}
	return r.assemble()
}

// isSignedDate reports whether f is ISO 8601's date with a sign and six digits for the year: -000043-03-15.
func isSignedDate(f string) bool {
	return len(f) == len("+YYYYYY-MM-DD") && (f[0] == '+' || f[0] == '-') && allDigits(f[1:7]) && f[7] == '-' && allDigits(f[8:10]) && f[10] == '-' && allDigits(f[11:])
}

// takeSignedDate reads such a date. Its years are astronomical: 0 is 1 BC.
func (r *timeReader) takeSignedDate(f string) *dataflow.Error {
	y, _ := strconv.ParseInt(f[:7], 10, 64) // digits, as the caller has seen
	m, _ := strconv.ParseInt(f[8:10], 10, 64)
	d, _ := strconv.ParseInt(f[11:], 10, 64)
	r.signed = true
	if y <= 0 {
		r.bc, y = true, 1-y
	}
	return r.setDate(y, m, d)
}

// splitTime cuts the text at blanks, commas, and a T between a date and a time; and before a zone that follows a time.
func splitTime(t string) ([]string, bool) {
	var fields []string
	for _, w := range strings.FieldsFunc(t, func(c rune) bool { return c < 0x80 && strings.IndexByte(pgSpace+",", byte(c)) >= 0 }) {
		if i := strings.IndexAny(w, "Tt"); i > 0 && isDigit(w[i-1]) && i+1 < len(w) && isDigit(w[i+1]) {
			fields = append(fields, w[:i])
			w = w[i+1:]
		}
		if n := len(w) - 1; n > 0 && w[n]|0x20 == 'z' && isDigit(w[n-1]) && strings.Count(w, "-") == 2 {
			fields = append(fields, w[:n]) // 2026-11-29Z
			w = w[n:]
		}
		if i := strings.IndexByte(w, ':'); i >= 0 {
			// A time; what is not part of it is a zone or AM/PM.
			end := len(w)
			for j := 0; j < len(w); j++ {
				if !isDigit(w[j]) && w[j] != ':' && w[j] != '.' {
					end = j
					break
				}
			}
			if end > 0 && strings.IndexByte(w[:end], ':') >= 0 {
				fields = append(fields, w[:end])
				w = w[end:]
			}
		}
		if w != "" {
			fields = append(fields, w)
		}
	}
	return fields, true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// take reads the first fields and returns how many it used.
func (r *timeReader) take(fields []string) (int, *dataflow.Error) {
	f := fields[0]
	switch {
	case strings.IndexByte(f, ':') >= 0 && isDigit(f[0]):
		return 1, r.takeClock(f)
	case f[0] == '+' || f[0] == '-':
		return 1, r.takeZone(f)
	case isLetter(f[0]):
		return r.takeWord(fields)
	case allDigits(f) && !r.haveDate && (len(f) == 8 || len(f) == 6):
		// 20261129, 261129
		cut := len(f) - 4
		y, _ := strconv.ParseInt(f[:cut], 10, 64)
		m, _ := strconv.ParseInt(f[cut:cut+2], 10, 64)
		d, _ := strconv.ParseInt(f[cut+2:], 10, 64)
		if cut == 2 {
			y = century(y)
		}
		return 1, r.setDate(y, m, d)
	case r.haveDate && !r.haveTime && isDigit(f[0]) && !strings.Contains(f, "/"):
		return 1, r.takeCompactClock(f)
	case strings.IndexAny(f, "-/.") > 0:
		return 1, r.takeDate(f)
	case allDigits(f) && !r.haveDate && len(f) <= 2 && len(fields) >= 3:
		// 29 Nov 2026
		if m := monthNumber(fields[1]); m > 0 && allDigits(fields[2]) {
			d, _ := strconv.ParseInt(f, 10, 64)
			y, err := strconv.ParseInt(fields[2], 10, 64)
			if err != nil {
				return 0, r.bad()
			}
			if len(fields[2]) <= 2 {
				y = century(y)
			}
			return 3, r.setDate(y, m, d)
		}
	}
	return 0, r.bad()
}

// century expands a year of two digits.
func century(y int64) int64 {
	if y < 70 {
		return 2000 + y
	}
	return 1900 + y
}

var monthNames = [...]string{"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"}

var dayNames = [...]string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// monthNumber returns 1 to 12, or 0 if s names no month.
func monthNumber(s string) int64 {
	s = strings.ToLower(s)
	for i, m := range monthNames {
		if s == m || s == m[:3] || s == "sept" && i == 8 {
			return int64(i + 1)
		}
	}
	return 0
}

func (r *timeReader) takeWord(fields []string) (int, *dataflow.Error) {
	w := strings.ToLower(fields[0])
	switch w {
	case "z", "utc", "gmt", "zulu", "ut":
		if r.haveZone {
			return 0, r.bad()
		}
		r.haveZone = true
		return 1, nil
	case "bc", "ad":
		if r.signed {
			return 0, r.bad() // the sign says it
		}
		r.bc = w == "bc"
		return 1, nil
	case "am", "pm":
		r.am, r.pm = w == "am", w == "pm"
		return 1, nil
	}
	for _, d := range dayNames {
		if w == d || w == d[:3] {
			return 1, nil
		}
	}
	if m := monthNumber(w); m > 0 && !r.haveDate && len(fields) >= 3 && allDigits(fields[1]) && allDigits(fields[2]) {
		// Nov 29 2026
		d, err1 := strconv.ParseInt(fields[1], 10, 64)
		y, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err1 != nil || err2 != nil {
			return 0, r.bad()
		}
		if len(fields[2]) <= 2 {
			y = century(y)
		}
		return 3, r.setDate(y, m, d)
	}
	if (r.haveDate || r.haveTime) && !strings.ContainsAny(w, "0123456789") && monthNumber(w) == 0 {
		return 0, failf(`time zone "%s" not recognized`, fields[0]).WithHint("use UTC or an offset such as +01:00")
	}
	return 0, r.bad()
}

// takeDate reads 2026-11-29, 2026/11/29, 11/29/2026, 29-Nov-2026, 2026-Nov-29.
func (r *timeReader) takeDate(f string) *dataflow.Error {
	sep := f[strings.IndexAny(f, "-/.")]
	parts := strings.Split(f, string(sep))
	if len(parts) != 3 {
		// A date may have its zone right behind: 2026-11-29+01 is not one of the spellings taken.
		return r.bad()
	}
	num := func(s string) (int64, bool) {
		if !allDigits(s) || len(s) > 7 {
			return 0, false
		}
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	}
	year := func(s string) (int64, bool) {
		y, ok := num(s)
		if ok && len(s) <= 2 {
			y = century(y)
		}
		return y, ok
	}
	a, aok := num(parts[0])
	b, bok := num(parts[1])
	c, cok := num(parts[2])
	switch {
	case aok && bok && cok && len(parts[0]) >= 3:
		return r.setDate(a, b, c)
	case aok && bok && cok:
		y, _ := year(parts[2])
		return r.setDate(y, a, b)
	case aok && cok && monthNumber(parts[1]) > 0 && len(parts[0]) >= 3:
		return r.setDate(a, monthNumber(parts[1]), c)
	case aok && cok && monthNumber(parts[1]) > 0:
		y, _ := year(parts[2])
		return r.setDate(y, monthNumber(parts[1]), a)
	case bok && cok && monthNumber(parts[0]) > 0:
		y, _ := year(parts[2])
		return r.setDate(y, monthNumber(parts[0]), b)
	}
	return r.bad()
}

func (r *timeReader) setDate(y, m, d int64) *dataflow.Error {
	if r.haveDate {
		return r.bad()
	}
	r.year, r.month, r.day, r.haveDate = y, m, d, true
	return nil
}

// takeClock reads 10:00, 10:00:00, 10:00:00.123456.
func (r *timeReader) takeClock(f string) *dataflow.Error {
	parts := strings.Split(f, ":")
	if r.haveTime || len(parts) > 3 {
		return r.bad()
	}
	h, err1 := strconv.ParseInt(parts[0], 10, 32)
	m, err2 := strconv.ParseInt(parts[1], 10, 32)
	if err1 != nil || err2 != nil {
		return r.bad()
	}
	var s int64
	if len(parts) == 3 {
		var ok bool
		if s, ok = parseSeconds(parts[2]); !ok {
			return r.bad()
		}
	}
	return r.setClock(h, m, s)
}

// takeCompactClock reads 100000 or 1000.
func (r *timeReader) takeCompactClock(f string) *dataflow.Error {
	whole, frac, hasFrac := strings.Cut(f, ".")
	if !allDigits(whole) || len(whole) != 6 && (len(whole) != 4 || hasFrac) {
		return r.bad()
	}
	h, _ := strconv.ParseInt(whole[:2], 10, 64)
	m, _ := strconv.ParseInt(whole[2:4], 10, 64)
	var s int64
	if len(whole) == 6 {
		var ok bool
		text := whole[4:]
		if hasFrac {
			text += "." + frac
		}
		if s, ok = parseSeconds(text); !ok {
			return r.bad()
		}
	}
	return r.setClock(h, m, s)
}

func (r *timeReader) setClock(h, m, s int64) *dataflow.Error {
	if m > 59 || s > 60*microsPerSecond || h > 24 || h == 24 && (m > 0 || s > 0) {
		return r.field()
	}
	r.clock, r.haveTime = h*microsPerHour+m*microsPerMinute+s, true
	return nil
}

// parseSeconds reads seconds with a fraction as microseconds, rounded.
func parseSeconds(s string) (int64, bool) {
	whole, frac, _ := strings.Cut(s, ".")
	if !allDigits(whole) || len(whole) > 2 || frac != "" && !allDigits(frac) {
		return 0, false
	}
	n, _ := strconv.ParseInt(whole, 10, 64)
	return n*microsPerSecond + fraction(frac), true
}

// fraction returns the digits after a point in microseconds, rounded half to even.
func fraction(digits string) int64 {
	if digits == "" {
		return 0
	}
	f, err := strconv.ParseFloat("0."+digits, 64)
	if err != nil {
		return 0
	}
	return int64(math.RoundToEven(f * 1e6))
}

// takeZone reads +01, +0100, +01:00, +01:00:30.
func (r *timeReader) takeZone(f string) *dataflow.Error {
	if !r.haveDate || r.haveZone && r.zone != 0 {
		return r.bad()
	}
	digits := f[1:]
	parts := strings.Split(digits, ":")
	if len(parts) == 1 && allDigits(digits) && len(digits) > 2 {
		switch len(digits) {
		case 3:
			parts = []string{digits[:1], digits[1:]}
		case 4:
			parts = []string{digits[:2], digits[2:]}
		case 6:
			parts = []string{digits[:2], digits[2:4], digits[4:]}
		default:
			return r.bad()
		}
	}
	if len(parts) > 3 {
		return r.bad()
	}
	unit := microsPerHour
	for i, p := range parts {
		if !allDigits(p) || len(p) > 2 {
			return r.bad()
		}
		n, _ := strconv.ParseInt(p, 10, 64)
		if i == 0 && n > 15 || i > 0 && n > 59 {
			return failf(`time zone displacement out of range: "%s"`, abridge(r.text))
		}
		r.zone += n * unit
		unit /= 60
	}
	if f[0] == '-' {
		r.zone = -r.zone
	}
	r.haveZone = true
	return nil
}

func (r *timeReader) assemble() (int64, *dataflow.Error) {
	if !r.haveDate {
		return 0, r.bad()
	}
	if r.am || r.pm {
		hour := r.clock / microsPerHour
		switch {
		case !r.haveTime || hour > 12:
			return 0, r.field()
		case r.pm && hour < 12:
			r.clock += 12 * microsPerHour
		case r.am && hour == 12:
			r.clock -= 12 * microsPerHour
		}
	}
	year := r.year
	if r.bc {
		if year <= 0 {
			return 0, r.field()
		}
		year = 1 - year
	} else if year == 0 {
		return 0, r.field()
	}
	if r.month < 1 || r.month > 12 || r.day < 1 || r.day > daysInMonth(year, r.month) {
		return 0, r.field()
	}
	c := civil{year: year, month: r.month, day: r.day, micros: r.clock - r.zone}
	if r.date {
		c.micros = 0
	}
	if ts, ok := c.timestamp(); ok {
		return ts, nil
	}
	if r.date {
		return 0, failf(`date out of range: "%s"`, abridge(r.text))
	}
	return 0, failf(`timestamp out of range: "%s"`, abridge(r.text))
}
