package expr

import (
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// charPart is one part of a to_char format.
type charPart struct {
	pattern string // as in the list below; "" = literal
	text    string // of a literal
	fill    bool   // with padding: no FM before it
}

// charPatterns are the patterns that to_char knows, longer ones before their beginnings.
var charPatterns = [...]string{
	"HH24", "HH12", "YYYY", "IYYY", "MONTH", "Month", "month", "DAY", "Day", "day", "DDD", "MON", "Mon", "mon",
	"HH", "YY", "MM", "MI", "MS", "DD", "DY", "Dy", "dy", "SS", "US", "AM", "PM", "am", "pm", "ID", "IW", "WW", "TZ", "tz", "OF", "Q", "D",
}

// refusedPatterns are PostgreSQL patterns that would otherwise be taken for text.
var refusedPatterns = [...]string{
	"SSSS", "FF", "YYY", "Y,YYY", "IDDD", "IYY", "IY", "BC", "AD", "B.C.", "A.D.", "A.M.", "P.M.", "TM", "TH", "SP", "CC", "RM", "TZH", "TZM", "Y", "I", "W", "J",
}

// parseToChar cuts a format into its parts.
func parseToChar(format string) ([]charPart, *dataflow.Error) {
	var parts []charPart
	for i := 0; i < len(format); {
		// FM is about the pattern right behind it. Before anything else it means nothing, and is not shown.
		fill := true
		if strings.HasPrefix(format[i:], "FM") || strings.HasPrefix(format[i:], "fm") {
			fill = false
			if i += 2; i == len(format) {
				break
			}
		}
		rest := format[i:]
		if rest[0] == '"' {
			text, n := quotedChars(rest)
			parts = append(parts, charPart{text: text})
			i += n
			continue
		}
		if strings.HasPrefix(rest, `\"`) {
			parts = append(parts, charPart{text: `"`})
			i += 2
			continue
		}
		pattern := ""
		for _, p := range charPatterns {
			if matchPattern(rest, p) && len(p) > len(pattern) {
				pattern = p
			}
		}
		for _, p := range refusedPatterns {
			if len(rest) >= len(p) && strings.EqualFold(rest[:len(p)], p) && len(p) > len(pattern) {
				return nil, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "to_char pattern %q is not supported", rest[:len(p)]).
					WithHint("text stands in double quotes: YYYY-MM-DD\"T\"HH24:MI")
			}
		}
		if pattern == "" {
			parts = append(parts, charPart{text: rest[:1]})
			i++
			continue
		}
		i += len(pattern)
		if len(format)-i >= 2 && strings.EqualFold(format[i:i+2], "TH") {
			return nil, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "to_char suffix %q is not supported", format[i:i+2])
		}
		parts = append(parts, charPart{pattern: pattern, fill: fill})
	}
	return parts, nil
}

// quotedChars returns the text in double quotes that s begins with, and how many bytes it takes there. A backslash makes text
// of the byte behind it. What is not closed goes to the end.
func quotedChars(s string) (text string, n int) {
	var out []byte
	for n = 1; n < len(s); n++ {
		switch {
		case s[n] == '"':
			return string(out), n + 1
		case s[n] == '\\' && n+1 < len(s):
			n++
		}
		out = append(out, s[n])
	}
	return string(out), n
}

// matchPattern reports whether rest begins with p. Names of months and days, AM and PM, and TZ keep their case, the others
// may be written in capitals or in small letters, not mixed.
func matchPattern(rest, p string) bool {
	if len(rest) < len(p) {
		return false
	}
	switch strings.ToUpper(p) {
	case "MONTH", "MON", "DAY", "DY", "AM", "PM", "TZ":
		return rest[:len(p)] == p
	}
	return rest[:len(p)] == p || rest[:len(p)] == strings.ToLower(p)
}

func checkToChar(c *Call) *dataflow.Error {
	k, ok := c.args[1].(*Const)
	if !ok || k.value.Null {
		return nil
	}
	parts, err := parseToChar(k.value.Str)
	if err != nil {
		return err
	}
	c.prep = parts
	return nil
}

func evalToChar(f *frame) {
	a, format := f.args[0], f.args[1]
	constant, ok := f.call.prep.([]charPart)
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		parts := constant
		if !ok {
			var err *dataflow.Error
			if parts, err = parseToChar(string(format.text(i))); err != nil {
				return dst, err
			}
		}
		for _, p := range parts {
			dst = p.append(dst, a.int(i))
		}
		return dst, nil
	})
}

// append writes the part of a time.
func (p charPart) append(dst []byte, ts int64) []byte {
	if p.pattern == "" {
		return append(dst, p.text...)
	}
	c := civilOf(ts)
	day := floorDiv(ts, microsPerDay)
	number := func(v int64, digits int) []byte {
		if !p.fill {
			digits = 1
		}
		if v < 0 {
			return append(dst, strconv.FormatInt(v, 10)...)
		}
		return appendPadded(dst, v, digits)
	}
	name := func(full string, short bool) []byte {
		like := p.pattern
		if short {
			full = full[:3]
		}
		switch {
		case like == strings.ToUpper(like):
			full = strings.ToUpper(full)
		case like != strings.ToLower(like):
			full = strings.ToUpper(full[:1]) + full[1:]
		}
		dst = append(dst, full...)
		for n := len(full); p.fill && !short && n < 9; n++ {
			dst = append(dst, ' ')
		}
		return dst
	}
	year := func(y int64) int64 {
		if y <= 0 {
			return 1 - y // BC, which is not shown
		}
		return y
	}
	switch p.pattern {
	case "YYYY":
		return number(year(c.year), 4)
	case "YY":
		return number(year(c.year)%100, 2)
	case "IYYY":
		y, _ := isoWeek(day)
		return number(year(y), 4)
	case "MM":
		return number(c.month, 2)
	case "DD":
		return number(c.day, 2)
	case "DDD":
		return number(day-daysFromCivil(c.year, 1, 1)+1, 3)
	case "HH24":
		return number(c.hour, 2)
	case "HH12", "HH":
		return number((c.hour+11)%12+1, 2)
	case "MI":
		return number(c.minute, 2)
	case "SS":
		return number(c.micros/microsPerSecond, 2)
	case "MS":
		return number(c.micros%microsPerSecond/1000, 3)
	case "US":
		return number(c.micros%microsPerSecond, 6)
	case "AM", "PM", "am", "pm":
		half := "am"
		if c.hour >= 12 {
			half = "pm"
		}
		if p.pattern == "AM" || p.pattern == "PM" {
			half = strings.ToUpper(half)
		}
		return append(dst, half...)
	case "MONTH", "Month", "month":
		return name(monthNames[c.month-1], false)
	case "MON", "Mon", "mon":
		return name(monthNames[c.month-1], true)
	case "DAY", "Day", "day":
		return name(dayNames[isoDayOfWeek(day)-1], false)
	case "DY", "Dy", "dy":
		return name(dayNames[isoDayOfWeek(day)-1], true)
	case "D":
		return number(isoDayOfWeek(day)%7+1, 1)
	case "ID":
		return number(isoDayOfWeek(day), 1)
	case "IW":
		_, w := isoWeek(day)
		return number(w, 2)
	case "WW":
		return number((day-daysFromCivil(c.year, 1, 1))/7+1, 2)
	case "Q":
		return number((c.month-1)/3+1, 1)
	case "TZ":
		return append(dst, "UTC"...)
	case "tz":
		return append(dst, "utc"...)
	}
	return append(dst, "+00"...) // OF
}
