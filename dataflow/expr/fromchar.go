package expr

import (
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// This file reads the fields of to_timestamp and to_date of a text in a format, as DCH_from_char of PostgreSQL's formatting.c
// does; fromchardate.go puts them together.

// fromChar reads a text in a format.
type fromChar struct {
	text   string
	rest   string // of text
	format dateFormat
	exact  bool // FX
	// skipped counts blanks that were skipped and that the format does not have.
	skipped int

	convention                          dateConvention
	hour, minute, second, ms, us, ofDay int64
	clock12                             bool
	pm, bc                              int64
	year, yearDigits, century           int64
	month, day, ofYear, weekday         int64
	week, weekOfMonth, julian           int64
	zoneSign, zoneHour, zoneMinute      int64
	precision                           int // digits of the fraction, of FF1 to FF6; 0 = all
}

// checkFromChar refuses patterns that can be written only.
func checkFromChar(format dateFormat) *dataflow.Error {
	for _, p := range format {
		switch p.pattern {
		case "TZ", "OF":
			name := p.pattern
			if p.style == styleLower {
				name = strings.ToLower(name)
			}
			return failf(`formatting field "%s" is only supported in to_char`, name).WithHint("write TZH:TZM for a zone such as +02:00")
		}
	}
	return nil
}

func evalTimeFromChar(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		r := fromChar{text: string(a.text(i)), format: f.dateFormatOf(i)}
		c, zone, err := r.read()
		if err != nil {
			return err
		}
		ts, ok := c.timestamp()
		if ok {
			ts, ok = addTimestamp(ts, -zone)
		}
		if ok && r.precision > 0 {
			ts, ok = roundTime(ts, fractionUnit(r.precision, 6))
		}
		if !ok {
			return errTimeRange
		}
		f.out.Ints[i] = ts
		return nil
	})
}

// roundTime rounds a time to a unit, halves away from 2000-01-01, which PostgreSQL counts from.
func roundTime(ts, unit int64) (int64, bool) {
	const since2000 = 946684800 * microsPerSecond
	half := unit / 2
	if ts < since2000 {
		half = -half
	}
	at := ts - since2000 + half
	return addTimestamp(since2000, at-at%unit)
}

func evalDateFromChar(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		r := fromChar{text: string(a.text(i)), format: f.dateFormatOf(i)}
		c, _, err := r.read()
		if err != nil {
			return err
		}
		day, ok := int64(0), false
		if c.year > -5000 && c.year < 300000 {
			day, ok = dateOf(daysFromCivil(c.year, c.month, c.day))
		}
		if !ok {
			return failf(`date out of range: "%s"`, abridge(r.text))
		}
		f.out.Ints[i] = day
		return nil
	})
}

// read reads the text. zone is what local time is ahead of UTC.
func (r *fromChar) read() (c civil, zone int64, err *dataflow.Error) {
	r.rest = r.text
	for at := 0; at < len(r.format) && r.rest != ""; at++ {
		p := &r.format[at]
		if !r.exact && p.pattern != "FX" && (p.pattern != "" || at == 0) {
			r.skipSpace()
		}
		if p.pattern == "" {
			r.skipText(p)
			continue
		}
		if err := r.agree(p); err != nil {
			return c, 0, err
		}
		if err := r.field(p, at); err != nil {
			return c, 0, err
		}
		if !r.exact {
			r.skipped = 0
			r.skipSpace()
		}
	}
	return r.civil()
}

func (r *fromChar) skipSpace() {
	for r.rest != "" && isDateSpace(r.rest[0]) {
		r.rest = r.rest[1:]
		r.skipped++
	}
}

// skipText skips what stands where the format has a character that is no pattern.
func (r *fromChar) skipText(p *datePart) {
	switch {
	case r.rest == "":
	case r.exact:
		r.rest = r.rest[runeLength(r.rest):]
	case p.class != textPlain:
		r.skipped--
		if isDateSpace(r.rest[0]) || isDateSeparator(r.rest[0]) {
			r.rest = r.rest[1:]
			r.skipped++
		}
	case r.skipped > 0: // a blank was taken for it already
		r.skipped--
	default:
		r.rest = r.rest[runeLength(r.rest):]
	}
}

// agree refuses a format of two calendars.
func (r *fromChar) agree(p *datePart) *dataflow.Error {
	of := patternOf(p.pattern).of
	switch {
	case of == conventionAny:
	case r.convention == conventionAny:
		r.convention = of
	case r.convention != of:
		return failf("invalid combination of date conventions").WithHint("Do not mix Gregorian and ISO week date conventions in a formatting template.")
	}
	return nil
}

// shown is the pattern as an error names it.
func (p *datePart) shown() string {
	switch p.style {
	case styleLower:
		return strings.ToLower(p.pattern)
	case styleTitle:
		return p.pattern[:1] + strings.ToLower(p.pattern[1:])
	}
	return p.pattern
}

// set sets a field, which a format may set twice only to the same value.
func (p *datePart) set(field *int64, v int64) *dataflow.Error {
	if *field != 0 && *field != v {
		return failf(`conflicting values for "%s" field in formatting string`, p.shown()).WithHint("This value contradicts a previous setting for the same field type.")
	}
	*field = v
	return nil
}

// endless reports whether the digits of part at end where something else begins.
func (r *fromChar) endless(at int) bool {
	p := &r.format[at]
	if p.suffix != "" || !p.fill {
		return true
	}
	if at+1 == len(r.format) {
		return true
	}
	next := &r.format[at+1]
	if next.pattern != "" {
		return !patternOf(next.pattern).digit
	}
	return !isDigit(next.text[0])
}

const blanks = " \t\n\v\f\r"

// number reads a number of so many digits into a field, and returns how many characters that took.
func (r *fromChar) number(field *int64, digits, at int) (int, *dataflow.Error) {
	p := &r.format[at]
	start := r.rest
	s := strings.TrimLeft(start, blanks)
	piece := s[:min(digits, len(s))]
	var v int64
	var used int
	var over bool
	if r.endless(at) {
		if v, used, over = strtol(start); used == 0 {
			return 0, failf(`invalid value "%s" for "%s"`, piece, p.shown()).WithHint("Value must be an integer.")
		}
		r.rest = start[used:]
	} else {
		if len(s) < digits {
			return 0, failf(`source string too short for "%s" formatting field`, p.shown()).WithHint("If your source string is not fixed-width, try using the \"FM\" modifier.")
		}
		if v, used, over = strtol(piece); used < digits && (used > 0 || len(s) == len(start)) {
			return 0, failf(`invalid value "%s" for "%s"`, piece, p.shown()).WithHint("If your source string is not fixed-width, try using the \"FM\" modifier.")
		}
		r.rest = s[used:]
	}
	if over {
		return 0, failf(`value for "%s" in source string is out of range`, p.shown())
	}
	n := len(start) - len(r.rest)
	r.skipSuffix(p)
	return n, p.set(field, v)
}

// skipSuffix skips the two characters of an ordinal's ending. Zones have none.
func (r *fromChar) skipSuffix(p *datePart) {
	if p.suffix != "" && !strings.HasPrefix(p.pattern, "TZ") {
		for range 2 {
			r.rest = r.rest[runeLength(r.rest):]
		}
	}
}

// word reads one of several words, in any case.
func (r *fromChar) word(p *datePart, words []string) (int, *dataflow.Error) {
	for i, w := range words {
		if len(r.rest) >= len(w) && strings.EqualFold(r.rest[:len(w)], w) {
			r.rest = r.rest[len(w):]
			return i, nil
		}
	}
	value := r.rest
	if i := strings.IndexFunc(value, func(c rune) bool { return c < 0x80 && isDateSpace(byte(c)) }); i >= 0 {
		value = value[:i]
	}
	return 0, failf(`invalid value "%s" for "%s"`, abridge(value), p.shown()).WithHint("The given value did not match any of the allowed values for this field.")
}

var (
	halvesOfDay = []string{"am", "pm"}
	eras        = []string{"ad", "bc"}
	monthShorts = shortNames(monthNames[:])
	dayShorts   = shortNames(dayNames[:])
	dotted      = func(list []string) []string {
		return []string{list[0][:1] + "." + list[0][1:] + ".", list[1][:1] + "." + list[1][1:] + "."}
	}
	// romanFrom has longer numerals before their beginnings, from XII down.
	romanFrom = []string{"xii", "xi", "x", "ix", "viii", "vii", "vi", "v", "iv", "iii", "ii", "i"}
)

func shortNames(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n[:3]
	}
	return out
}

// field reads the field of part at.
func (r *fromChar) field(p *datePart, at int) *dataflow.Error {
	switch p.pattern {
	case "FX":
		r.exact = true
		return nil
	case "AM", "PM", "A.M.", "P.M.":
		r.clock12 = true
		return r.half(p, halvesOfDay, &r.pm)
	case "AD", "BC", "A.D.", "B.C.":
		return r.half(p, eras, &r.bc)
	case "MONTH", "MON", "RM":
		return r.monthName(p)
	case "DAY", "DY":
		return r.dayName(p)
	case "Y,YYY":
		return r.groupedYear(p)
	case "TZH":
		return r.zone(at)
	}
	_, err := r.digits(p, at)
	return err
}

func (r *fromChar) half(p *datePart, words []string, field *int64) *dataflow.Error {
	if strings.Contains(p.pattern, ".") {
		words = dotted(words)
	}
	i, err := r.word(p, words)
	if err != nil {
		return err
	}
	return p.set(field, int64(i))
}

func (r *fromChar) monthName(p *datePart) *dataflow.Error {
	words := map[string][]string{"MONTH": monthNames[:], "MON": monthShorts, "RM": romanFrom}[p.pattern]
	i, err := r.word(p, words)
	if err != nil {
		return err
	}
	if p.pattern == "RM" {
		i = 11 - i
	}
	return p.set(&r.month, int64(i)+1)
}

func (r *fromChar) dayName(p *datePart) *dataflow.Error {
	words := dayNames[:]
	if p.pattern == "DY" {
		words = dayShorts
	}
	i, err := r.word(p, words)
	if err != nil {
		return err
	}
	if err := p.set(&r.weekday, int64(i+1)%7); err != nil {
		return err
	}
	r.weekday++ // Sunday is 1
	return nil
}

// groupedYear reads 2,026.
func (r *fromChar) groupedYear(p *datePart) *dataflow.Error {
	thousands, used, over := strtol(r.rest)
	rest := r.rest[used:]
	if used == 0 || over || !strings.HasPrefix(rest, ",") {
		return failf(`invalid input string for "Y,YYY"`)
	}
	rest = strings.TrimLeft(rest[1:], blanks)
	year, used, over := strtol(rest[:min(3, len(rest))])
	if used == 0 || over {
		return failf(`invalid input string for "Y,YYY"`)
	}
	r.rest, r.yearDigits = rest[used:], 4
	r.skipSuffix(p)
	return p.set(&r.year, thousands*1000+year)
}

func (r *fromChar) zone(at int) *dataflow.Error {
	r.zoneSign = 1
	switch c := (r.rest + "\x00")[0]; {
	case c == '+' || c == '-' || c == ' ':
		if c == '-' {
			r.zoneSign = -1
		}
		r.rest = r.rest[1:]
	case r.skipped > 0 && r.text[len(r.text)-len(r.rest)-1] == '-': // it was taken for a separator
		r.zoneSign = -1
	}
	_, err := r.number(&r.zoneHour, 2, at)
	return err
}

// digits reads a field of digits, and returns how many characters that took.
func (r *fromChar) digits(p *datePart, at int) (n int, err *dataflow.Error) {
	simple := func(field *int64, digits int) (int, *dataflow.Error) { return r.number(field, digits, at) }
	switch p.pattern {
	case "HH", "HH12":
		r.clock12 = true
		return simple(&r.hour, 2)
	case "HH24":
		return simple(&r.hour, 2)
	case "MI":
		return simple(&r.minute, 2)
	case "SS":
		return simple(&r.second, 2)
	case "MS":
		if n, err = simple(&r.ms, 3); err == nil {
			r.ms *= fractionUnit(n, 3)
		}
		return n, err
	case "US", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6":
		digits := 6
		if p.pattern != "US" {
			digits = int(p.pattern[2] - '0')
			r.precision = digits
		}
		if n, err = simple(&r.us, digits); err == nil {
			r.us *= fractionUnit(n, 6)
		}
		return n, err
	case "SSSS", "SSSSS":
		return simple(&r.ofDay, len(p.pattern))
	case "TZM":
		if r.zoneSign == 0 {
			r.zoneSign = 1
		}
		return simple(&r.zoneMinute, 2)
	case "MM":
		return simple(&r.month, 2)
	case "DDD", "IDDD":
		return simple(&r.ofYear, 3)
	case "DD":
		return simple(&r.day, 2)
	case "D":
		return simple(&r.weekday, 1)
	case "ID":
		if n, err = simple(&r.weekday, 1); err == nil {
			if r.weekday++; r.weekday > 7 {
				r.weekday = 1
			}
		}
		return n, err
	case "WW", "IW":
		return simple(&r.week, 2)
	case "W":
		return simple(&r.weekOfMonth, 1)
	case "Q": // read, and without effect: a quarter does not say which day
		var quarter int64
		return simple(&quarter, 1)
	case "CC":
		return simple(&r.century, 2)
	case "J":
		return simple(&r.julian, 1)
	}
	r.yearDigits = int64(len(strings.TrimPrefix(p.pattern, "I")))
	if p.pattern[0] == 'I' {
		r.yearDigits = int64(len(p.pattern))
	}
	if n, err = simple(&r.year, len(p.pattern)); err == nil && r.yearDigits < 4 && n < 4 {
		r.year = nearYear(r.year)
	}
	return n, err
}

// fractionUnit is what a fraction of n digits is multiplied by to have so many: 25 is 250 thousandths.
func fractionUnit(n, digits int) int64 {
	unit := int64(1)
	for ; n < digits; n++ {
		unit *= 10
	}
	return unit
}

// nearYear completes a year of less than four digits to the one nearest to 2020.
func nearYear(y int64) int64 {
	switch {
	case y < 0:
		return y
	case y < 70:
		return y + 2000
	case y < 100:
		return y + 1900
	case y < 520:
		return y + 2000
	case y < 1000:
		return y + 1000
	}
	return y
}
