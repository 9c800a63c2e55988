package expr

import (
	"math"

	"github.com/weirdb/weir/dataflow"
)

// This file makes a time of the fields that fromChar has read, as do_to_timestamp of PostgreSQL's formatting.c does.

// civil puts the fields together.
func (r *fromChar) civil() (c civil, zone int64, err *dataflow.Error) {
	bad := func() (civil, int64, *dataflow.Error) {
		return civil{}, 0, failf(`date/time field value out of range: "%s"`, abridge(r.text))
	}
	c = civil{month: 1, day: 1}
	second := r.ofDay % 60
	c.hour, c.minute = r.ofDay/3600, r.ofDay/60%60
	if r.second != 0 {
		second = r.second
	}
	if r.minute != 0 {
		c.minute = r.minute
	}
	if r.hour != 0 {
		c.hour = r.hour
	}
	if r.clock12 {
		switch {
		case c.hour < 1 || c.hour > 12:
			return c, 0, failf(`hour "%d" is invalid for the 12-hour clock`, c.hour).WithHint("Use the 24-hour clock, or give an hour between 1 and 12.")
		case r.pm != 0 && c.hour < 12:
			c.hour += 12
		case r.pm == 0 && c.hour == 12:
			c.hour = 0
		}
	}
	if ok, err := r.date(&c); err != nil {
		return c, 0, err
	} else if !ok {
		return bad()
	}
	fraction := r.ms*1000 + r.us
	if c.hour < 0 || c.hour > 23 || c.minute < 0 || c.minute > 59 || second < 0 || second > 59 || fraction < 0 || fraction >= microsPerSecond {
		return bad()
	}
	c.micros = second*microsPerSecond + fraction
	if r.zoneSign != 0 {
		if r.zoneHour < 0 || r.zoneHour > 15 || r.zoneMinute < 0 || r.zoneMinute > 59 {
			return c, 0, failf(`time zone displacement out of range: "%s"`, abridge(r.text))
		}
		zone = r.zoneSign * (r.zoneHour*microsPerHour + r.zoneMinute*microsPerMinute)
	}
	return c, zone, nil
}

// date puts the fields of the date together. It reports false where one is out of range.
func (r *fromChar) date(c *civil) (ok bool, err *dataflow.Error) {
	hasYear, hasMonth, hasDay := r.setYear(c), false, false
	whole := func(day int64) {
		c.year, c.month, c.day = civilFromDays(day)
		hasYear, hasMonth, hasDay = true, true, true
	}
	const farthest = 1 << 31
	if r.julian != 0 {
		whole(r.julian - julian1970)
	}
	if r.week != 0 {
		if r.convention == conventionISO {
			day := isoWeekStart(c.year) + (r.week-1)*7
			switch {
			case r.weekday > 1:
				day += r.weekday - 2
			case r.weekday != 0:
				day += 6
			}
			whole(day)
		} else if r.ofYear = (r.week-1)*7 + 1; r.ofYear > farthest {
			return false, nil
		}
	}
	if r.weekOfMonth != 0 {
		r.day = (r.weekOfMonth-1)*7 + 1
	}
	if r.day != 0 {
		c.day, hasDay = r.day, true
	}
	if r.month != 0 {
		c.month, hasMonth = r.month, true
	}
	if r.ofYear != 0 && (c.month <= 1 || c.day <= 1) {
		if c.year == 0 && r.bc == 0 {
			return false, failf("cannot calculate day of year without year information")
		}
		if r.convention == conventionISO {
			whole(isoWeekStart(c.year) - 1 + r.ofYear)
		} else {
			r.setDayOfYear(c)
			hasMonth, hasDay = true, true
		}
	}
	switch {
	case hasMonth && (c.month < 1 || c.month > 12):
		return false, nil
	case hasDay && (c.day < 1 || c.day > 31):
		return false, nil
	case hasYear && hasMonth && hasDay && c.day > daysInMonth(c.year, c.month):
		return false, nil
	}
	return c.year > math.MinInt32 && c.year < math.MaxInt32, nil
}

// setYear sets the year, which may be given by its century; it reports whether there is one.
func (r *fromChar) setYear(c *civil) bool {
	century := r.century
	if r.bc != 0 {
		century = -century
	}
	switch {
	case r.year != 0 && century != 0 && r.yearDigits <= 2:
		switch y := r.year % 100; {
		case y != 0 && century >= 0:
			c.year = y + (century-1)*100
		case y != 0:
			c.year = (century+1)*100 - y + 1
		case century >= 0:
			c.year = century * 100
		default:
			c.year = century*100 + 1
		}
	case r.year != 0:
		if c.year = r.year; r.bc != 0 {
			c.year = -c.year
		}
		if c.year < 0 {
			c.year++
		}
	case century >= 0 && r.century != 0:
		c.year = (century-1)*100 + 1
	case r.century != 0:
		c.year = century*100 + 1
	default:
		return false
	}
	return true
}

// setDayOfYear sets the month and the day, where they are not given.
func (r *fromChar) setDayOfYear(c *civil) {
	month, before := int64(1), int64(0)
	for month < 13 && r.ofYear > before+daysInMonth(c.year, min(month, 12)) {
		before += daysInMonth(c.year, month)
		month++
		if month == 13 {
			break
		}
	}
	if c.month <= 1 {
		c.month = month
	}
	if c.day <= 1 {
		c.day = r.ofYear - before
	}
}
