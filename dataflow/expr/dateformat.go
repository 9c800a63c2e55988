package expr

import (
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

// This file reads the formats of to_char, to_timestamp and to_date of dates, times and intervals, as PostgreSQL's
// formatting.c does: its answers are defined by nothing else. Names of months and days are English, as in the locale C.

// dateFormat is a format, cut into its parts.
type dateFormat []datePart

// datePart is one part of a format: a pattern, or a character that stands for itself.
type datePart struct {
	pattern string // upper case; "" = text
	style   nameStyle
	fill    bool   // with padding: no FM before it
	suffix  string // "TH" or "th" behind it; "" = none
	text    string // a character, of a part that is no pattern
	class   textClass
}

// nameStyle is how names are written: as the pattern is.
type nameStyle uint8

const (
	styleUpper nameStyle = iota
	styleTitle
	styleLower
)

// textClass says what a character of a format matches where a text is read.
type textClass uint8

const (
	textPlain     textClass = iota // any character
	textSpace                      // a blank or separator, or nothing
	textSeparator                  // the same
)

// dateConvention is the calendar that a pattern counts in. The two do not mix where a text is read.
type dateConvention uint8

const (
	conventionAny dateConvention = iota
	conventionGregorian
	conventionISO
)

// datePattern is a pattern of date formats.
type datePattern struct {
	name  string
	digit bool // it stands for digits
	of    dateConvention
	// mixed: it may also be written in mixed case, and its case is that of the name.
	mixed bool
}

// datePatterns are all patterns, longer ones before their beginnings.
var datePatterns = [...]datePattern{
	{name: "A.D."}, {name: "A.M."}, {name: "B.C."}, {name: "P.M."}, {name: "AD"}, {name: "AM"}, {name: "BC"}, {name: "PM"},
	{name: "CC", digit: true},
	{name: "DAY", mixed: true}, {name: "DDD", digit: true, of: conventionGregorian}, {name: "DD", digit: true, of: conventionGregorian},
	{name: "DY", mixed: true}, {name: "D", digit: true, of: conventionGregorian},
	{name: "FF1", digit: true}, {name: "FF2", digit: true}, {name: "FF3", digit: true}, {name: "FF4", digit: true}, {name: "FF5", digit: true},
	{name: "FF6", digit: true}, {name: "FX"},
	{name: "HH24", digit: true}, {name: "HH12", digit: true}, {name: "HH", digit: true},
	{name: "IDDD", digit: true, of: conventionISO}, {name: "ID", digit: true, of: conventionISO}, {name: "IW", digit: true, of: conventionISO},
	{name: "IYYY", digit: true, of: conventionISO}, {name: "IYY", digit: true, of: conventionISO}, {name: "IY", digit: true, of: conventionISO},
	{name: "I", digit: true, of: conventionISO},
	{name: "J", digit: true},
	{name: "MI", digit: true}, {name: "MM", digit: true, of: conventionGregorian}, {name: "MONTH", of: conventionGregorian, mixed: true},
	{name: "MON", of: conventionGregorian, mixed: true}, {name: "MS", digit: true},
	{name: "OF"}, {name: "Q", digit: true}, {name: "RM", of: conventionGregorian},
	{name: "SSSSS", digit: true}, {name: "SSSS", digit: true}, {name: "SS", digit: true},
	{name: "TZH"}, {name: "TZM", digit: true}, {name: "TZ"}, {name: "US", digit: true},
	{name: "WW", digit: true, of: conventionGregorian}, {name: "W", digit: true, of: conventionGregorian},
	{name: "Y,YYY", digit: true, of: conventionGregorian}, {name: "YYYY", digit: true, of: conventionGregorian},
	{name: "YYY", digit: true, of: conventionGregorian}, {name: "YY", digit: true, of: conventionGregorian}, {name: "Y", digit: true, of: conventionGregorian},
}

// patternOf returns the pattern of that name.
func patternOf(name string) *datePattern {
	for i := range datePatterns {
		if datePatterns[i].name == name {
			return &datePatterns[i]
		}
	}
	return &datePattern{}
}

// matchDate returns the pattern that s begins with, and how it is written.
func matchDate(s string) (*datePattern, nameStyle) {
	for i := range datePatterns {
		p := &datePatterns[i]
		if len(s) < len(p.name) {
			continue
		}
		switch have := s[:len(p.name)]; {
		case have == p.name:
			return p, styleUpper
		case have == strings.ToLower(p.name):
			return p, styleLower
		case p.mixed && have == p.name[:1]+strings.ToLower(p.name[1:]):
			return p, styleTitle
		}
	}
	return nil, 0
}

// parseDateFormat cuts a format into its parts.
func parseDateFormat(format string) dateFormat {
	var parts dateFormat
	for len(format) > 0 {
		fill := true
		if p := prefixOf(format, "FM", "fm", "TM", "tm"); p != "" {
			fill, format = false, format[len(p):]
		}
		if pattern, style := matchDate(format); pattern != nil {
			format = format[len(pattern.name):]
			part := datePart{pattern: pattern.name, style: style, fill: fill}
			switch s := prefixOf(format, "TH", "th", "SP"); s {
			case "TH", "th":
				part.suffix = s
				format = format[2:]
			case "SP": // known, and without effect
				format = format[2:]
			}
			parts = append(parts, part)
			continue
		}
		switch {
		case format == "":
		case format[0] == '"':
			format = format[1:]
			for format != "" && format[0] != '"' {
				if format[0] == '\\' && len(format) > 1 {
					format = format[1:]
				}
				n := runeLength(format)
				parts = append(parts, datePart{text: format[:n]})
				format = format[n:]
			}
			if format != "" {
				format = format[1:]
			}
		default:
			if strings.HasPrefix(format, `\"`) {
				format = format[1:]
			}
			n := runeLength(format)
			part := datePart{text: format[:n]}
			switch c := format[0]; {
			case isDateSeparator(c):
				part.class = textSeparator
			case isDateSpace(c):
				part.class = textSpace
			}
			parts = append(parts, part)
			format = format[n:]
		}
	}
	return parts
}

func prefixOf(s string, prefixes ...string) string {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return p
		}
	}
	return ""
}

func runeLength(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

func isDateSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// isDateSeparator reports whether c is a visible character of ASCII that is no letter and no digit.
func isDateSeparator(c byte) bool {
	return c > ' ' && c < 0x7f && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !isDigit(c)
}

// checkDateFormat prepares a constant format, which is the second argument. check may refuse it.
func checkDateFormat(check func(dateFormat) *dataflow.Error) func(c *Call) *dataflow.Error {
	return func(c *Call) *dataflow.Error {
		k, ok := c.args[1].(*Const)
		if !ok || k.value.Null {
			return nil
		}
		format := parseDateFormat(k.value.Str)
		if check != nil {
			if err := check(format); err != nil {
				return err
			}
		}
		c.prep = format
		return nil
	}
}

// dateFormatOf returns the format of row i.
func (f *frame) dateFormatOf(i int) dateFormat {
	if constant, ok := f.call.prep.(dateFormat); ok {
		return constant
	}
	return parseDateFormat(string(f.args[1].text(i)))
}
